"""Encode and decode a Search: the space and the sampler of a suggested sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.domain.trial import Json
from hpq.errors import DecodeError
from hpq.search.conditions import Condition, Partial, Test
from hpq.search.continuous import Beta, LogUniform, Normal, Uniform
from hpq.search.discrete import Categorical, Distribution, IntUniform, Weighted
from hpq.search.search_spec import Sampler, Search
from hpq.search.space import Space
from hpq.store.wire.fields import dumps_in_order

_KINDS: Mapping[str, Callable[..., Distribution]] = {
    "categorical": lambda values, **rest: Categorical(tuple(values), **rest),
    "weighted": lambda values, probabilities: Weighted(tuple(values), tuple(probabilities)),
    "int_uniform": IntUniform,
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "normal": Normal,
    "beta": Beta,
}
_NAMES: Mapping[type[Distribution], str] = {
    Categorical: "categorical",
    Weighted: "weighted",
    IntUniform: "int_uniform",
    Uniform: "uniform",
    LogUniform: "log_uniform",
    Normal: "normal",
    Beta: "beta",
}


def encode_search(search: Search) -> str:
    """Encode a search as JSON; 10 and 10.0 stay different, as ends of a range are."""
    leaves: list[dict[str, Any]] = [
        {"at": list(path), "kind": _NAMES[type(leaf)], **asdict(leaf)}  # type: ignore[call-overload]
        for path, leaf in search.space.leaves
    ]
    data: dict[str, Any] = {
        "sampler": search.sampler,
        "seed": search.seed,
        "maximize": search.maximize,
        "metric": search.metric,
        "take": search.take,
        "impute": search.impute,
        "impute_while_running": search.impute_while_running,
        "varying": list(search.space.varying),
        "leaves": leaves,
        "when": [{"at": list(c.path), "tests": _tests(c.wanted)} for c in search.space.when],
        "exclude": [_tests(partial) for partial in search.space.exclude],
        "replicates": search.replicates,
    }
    return dumps_in_order(data)


def decode_search(key: str, text: str) -> Search:
    """Decode a search.

    Raises:
        DecodeError: the text is invalid (names the key).
    """
    try:
        data: dict[str, Any] = json.loads(text)
        running = data["impute_while_running"]
        space = Space(
            tuple(_leaf(leaf) for leaf in data["leaves"]),
            tuple(str(name) for name in data["varying"]),
            tuple(Condition(tuple(c["at"]), _partial(c["tests"])) for c in data.get("when", [])),
            tuple(_partial(tests) for tests in data.get("exclude", [])),
        )
        return Search(
            space=space,
            sampler=Sampler(data["sampler"]),
            replicates=int(data.get("replicates", 1)),
            seed=int(data["seed"]),
            maximize=bool(data["maximize"]),
            metric=str(data["metric"]),
            take=ObjectiveValue(data["take"]),
            impute=Impute(data["impute"]),
            impute_while_running=None if running is None else Impute(running),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(f"{key}: field search: {text[:60]!r}: {error!r}") from None


def _tests(partial: Partial) -> list[dict[str, Any]]:
    return [asdict(test) for test in partial.tests]


def _partial(tests: list[dict[str, Any]]) -> Partial:
    return Partial(
        tuple(
            Test(
                path=tuple(test["path"]),
                values=tuple(test["values"]),
                low=test["low"],
                high=test["high"],
            )
            for test in tests
        )
    )


def _leaf(data: dict[str, Json]) -> tuple[tuple[str, ...], Distribution]:
    rest: dict[str, Any] = {k: v for k, v in data.items() if k not in ("at", "kind")}
    path: Any = data["at"]
    return tuple(path), _KINDS[str(data["kind"])](**rest)
