"""A set is inside a space if the space can produce it."""

from __future__ import annotations

from typing import Any

import pytest

from hpq.search.space import Space
from hpq.yamlfile.problems import Problems, SourceMap
from hpq_producer.sweepfile import parameters


def space_of(entry: Any) -> Space:
    out = Problems(SourceMap(file="s.yaml"))
    space = Space.of(parameters.read_leaves({"x": entry}, (), out))
    assert not out.errors
    return space


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ({"values": [1, 2.0]}, [1, 1.0, 2], [3, "1", None, True]),
        ({"value": "a"}, ["a"], ["b"]),
        ({"min": 1, "max": 3}, [1, 3, 2.0], [0, 4, 1.5, "1", True]),
        ({"min": 1.0, "max": 3.0}, [1, 2.5], [0.9, 3.1]),
        ({"distribution": "log_uniform", "min": 0, "max": 1}, [1.0, 2.7], [0.9, 2.8]),
        ({"distribution": "inv_log_uniform", "min": 0, "max": 1}, [1.0, 0.4], [0.3, 1.1]),
        (
            {"distribution": "inv_log_uniform_values", "min": 0.1, "max": 0.3},
            [0.1, 0.3, 0.30000000000000004],
            [0.301],
        ),
        ({"distribution": "q_uniform", "min": 1, "max": 9, "q": 4}, [0, 4, 8], [-4, 12, 11, 1, 5]),
        ({"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.1}, [0.3, 3 * 0.1], [0.25]),
        ({"distribution": "q_normal", "q": 2}, [-4, 0, 1e6], [1, 0.5, "x"]),
        ({"distribution": "q_beta", "a": 2, "b": 2, "q": 0.25}, [0, 0.75, 1], [0.3, 1.25]),
        ({"distribution": "beta", "a": 2, "b": 2}, [0.3], [-0.1, 1.1]),
        ({"distribution": "normal"}, [-1e9, 1e9], ["x", True]),
        ({"parameters": {"y": {"values": [1]}}}, [{"y": 1}], [{"y": 2}, {}, {"y": 1, "z": 1}]),
    ],
)
def test_a_set_is_inside_a_space_that_might_have_given_it(
    entry: Any, inside: list[Any], outside: list[Any]
) -> None:
    space = space_of(entry)
    assert [v for v in inside if not space.contains({"x": v})] == []
    assert [v for v in outside if space.contains({"x": v})] == []
    assert not any(space.contains(params) for params in ({}, {"x": inside[0], "y": 1}))
