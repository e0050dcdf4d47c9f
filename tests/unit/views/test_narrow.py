"""The narrowed search space: where the best settings lie, and never beyond what makes sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq_producer.sweepfile.load import load
from hpq_views.analysis.importance import Importance, Share
from hpq_views.analysis.narrow import Settings, narrow, settings_of, why_not
from hpq_views.command_output.narrowed import block
from tests.support.views import sweep_view

LOG = "log_uniform_values"
CLEAR = Share(param="p", share=0.8, low=0.6, high=0.9)


def sweep(entry: dict[str, Any], more: dict[str, Any] | None = None, **spec: Any) -> SweepView:
    return sweep_view(
        launch=Launch(trainer="function"),
        metric=Metric(name="acc", goal=Goal.MAXIMIZE),
        varying=("p", *(more or ())),
        spec={"parameters": {"p": entry, **(more or {})}, **spec},
    )


def settings(best: list[Any], others: list[Any]) -> Settings:
    return Settings(every=[{"p": v} for v in [*best, *others]], leaders=len(best))


def ends(low: float, high: float, count: int = 12) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]


@pytest.mark.parametrize(
    ("entry", "best", "others", "new"),
    [
        pytest.param(
            {"distribution": LOG, "min": 1e-4, "max": 1.0}, [0.01, 0.02, 0.03], ends(1e-4, 1),
            {"distribution": LOG, "min": 0.0039, "max": 0.076}, id="the logarithmic scale stays",
        ),
        pytest.param(
            {"min": 1, "max": 64}, [4, 5, 9], [*range(1, 64, 5)], {"min": 1, "max": 16},
            id="integers stay integers, and a count begins at 1",
        ),
        pytest.param(
            {"min": 0.0, "max": 0.5}, [0.0, 0.02, 0.05], ends(0, 0.5), {"min": 0.0, "max": 0.1},
            id="a share has no value below 0",
        ),
        pytest.param(
            {"distribution": LOG, "min": 1e-4, "max": 0.1}, [0.095, 0.05, 0.09], ends(1e-4, 0.1),
            {"distribution": LOG, "min": 0.025, "max": 0.19}, id="beyond an end that leads",
        ),
        pytest.param(
            {"distribution": LOG, "min": 1e-4, "max": 0.1}, [0.05, 0.095, 0.09], ends(1e-4, 0.1),
            {"distribution": LOG, "min": 0.025, "max": 0.1}, id="not beyond an end that follows",
        ),
        pytest.param(
            {"min": 0.0, "max": 0.99}, [0.985, 0.98, 0.9], ends(0, 0.99), {"min": 0.8, "max": 1.0},
            id="a share has no value above 1",
        ),
        pytest.param(
            {"min": -1.0, "max": 0.0}, [-0.01, -0.02, -0.1], ends(-1, 0), {"min": -0.2, "max": 0.0},
            id="no sign changes",
        ),
        pytest.param(
            {"values": ["adam", "sgd", "rare"]}, ["adam"] * 4, ["sgd"] * 10 + ["rare"] * 2,
            {"values": ["adam", "rare"]}, id="a value that was hardly tried stays",
        ),
        pytest.param(
            {"values": [8, 16, 32, 64]}, [8, 32] * 3, [16] * 10 + [64] * 10,
            {"values": [8, 16, 32]}, id="a number between two that stay, stays",
        ),
        pytest.param(
            {"values": [True, False]}, [True] * 4, [False] * 10, {"values": [True]}, id="booleans",
        ),
        pytest.param(
            {"values": ["a", "b", "c"], "probabilities": [0.5, 0.25, 0.25]}, ["a", "b", "a", "b"],
            ["c"] * 10, {"values": ["a", "b"], "probabilities": [0.5 / 0.75, 0.25 / 0.75]},
            id="probabilities add up to 1",
        ),
        pytest.param(
            {"distribution": "q_uniform", "min": 0.5, "max": 10.5, "q": 1}, [2.5, 3.5, 4.5],
            ends(0.5, 9.5, 10), {"distribution": "q_uniform", "min": 1.5, "max": 6.5, "q": 1},
            id="steps stay where they were",
        ),
        pytest.param(
            {"distribution": "log_uniform", "min": -9, "max": 0}, [0.01, 0.02, 0.03], ends(1e-4, 1),
            {"distribution": LOG, "min": 0.004, "max": 0.074}, id="exponents become values",
        ),
        pytest.param(
            {"distribution": "normal", "mu": 0, "sigma": 1}, [0.1, 0.2, 0.3], ends(-2, 2), None,
            id="no ends",
        ),
        pytest.param(
            {"min": 0.0, "max": 1.0}, [0.05, 0.5, 0.95], ends(0, 1), None, id="all over the range",
        ),
        pytest.param(
            {"values": ["a", "b"]}, ["a", "b", "a"], ["b"] * 9, None, id="no value loses",
        ),
        pytest.param(
            {"min": 0.0, "max": 1.0}, ["?", "?", 0.5], ends(0, 1), None, id="too few have it",
        ),
    ],
)  # fmt: skip
def test_what_matters_is_narrowed_and_the_file_stays_valid(
    entry: dict[str, Any], best: list[Any], others: list[Any], new: dict[str, Any] | None
) -> None:
    here = sweep(entry)
    (found,) = narrow(here, settings(best, others), Importance(sets=99, r2=0.9, shares=(CLEAR,)))
    assert (dict(found.entry), found.is_narrower) == (new or entry, new is not None)
    assert found.reason.startswith("kept: ") == (new is None)
    text = "trainer: function\nmethod: random\nrun_cap: 3\n" + "\n".join(block([found]))
    again = load(Path("s.yaml"), text=text)
    assert {type(v) for v in found.entry.values()} <= {str, int, float, list}
    if isinstance(entry.get("min"), int) and "distribution" not in entry:
        assert isinstance(found.entry["min"], int) and isinstance(found.entry["max"], int)
    assert [*again.space.parameters] == [("p",)]


@pytest.mark.parametrize(
    ("share", "spec", "is_narrower"),
    [
        (CLEAR, {}, True),
        (Share(param="p", share=0.0, low=0.0, high=0.01), {}, False),
        (Share(param="p", share=0.3, low=0.0, high=0.9), {}, False),
        (None, {}, False),
        (CLEAR, {"when": {"other": {"p": "sgd"}}}, False),
        (CLEAR, {"when": {"p": {"other": 1}}}, True),
        (CLEAR, {"exclude": [{"p": ["sgd"], "other": 1}]}, False),
        (CLEAR, {"zip": [["p", "other"]]}, False),
    ],
)
def test_what_does_not_matter_or_is_named_elsewhere_stays(
    share: Share | None, spec: dict[str, Any], is_narrower: bool
) -> None:
    other = Share(param="other", share=0.2, low=0.1, high=0.3)
    more = {"other": {"values": [1, 2]}, "fixed": {"value": 3}}
    here = sweep({"values": ["adam", "sgd"]}, more, **spec)
    shares = (*([share] if share else []), other)
    found = narrow(
        here, settings(["adam"] * 5, ["sgd"] * 15), Importance(sets=9, r2=0.9, shares=shares)
    )
    by_name = {one.param: one for one in found}
    assert by_name["p"].is_narrower == is_narrower
    assert by_name["fixed"].entry == {"value": 3} and not by_name["fixed"].reason


@pytest.mark.parametrize("values", [["adam", "sgd", "lion"], [1, 2, 3]])
@pytest.mark.parametrize("shares", [{}, {"probabilities": [0.5, 0.25, 0.25]}])
def test_a_list_that_no_best_setting_has_stays(
    values: list[Any], shares: dict[str, list[float]]
) -> None:
    entry = {"values": values, **shares}
    others = [{"p": v} for v in values * 20]
    every = [{"other": 1}] * 10 + others  # p depends on another parameter
    here = sweep(entry)
    found = narrow(
        here,
        Settings(every=every, leaders=10),
        Importance(sets=len(every), r2=0.9, shares=(CLEAR,)),
    )
    assert [(dict(one.entry), one.is_narrower) for one in found] == [(entry, False)]
    assert found[0].reason.startswith("kept: ")


def test_nested_names_come_once_though_constants_come_last() -> None:
    nested = {
        "parameters": {"name": {"value": "sgd"}, "lr": {"values": [1, 2]}, "a-b": {"value": 1}}
    }
    here = sweep({"values": [3, 4]}, {"opt": nested})
    here = sweep_view(launch=here.launch, spec=here.spec, varying=("opt.lr", "p"))
    found = narrow(here, settings([3] * 3, [4] * 6), Importance(sets=9, r2=0.9, shares=(CLEAR,)))
    text = "\n".join(block(found))
    assert text.count("opt:") == 1
    head = "trainer: function\nmethod: random\nrun_cap: 3\n"
    assert len(load(Path("s.yaml"), text=head + text).space.parameters) == 4


def test_the_best_quarter_has_all_that_tie_with_its_last() -> None:
    ranked = [({"p": i}, value) for i, value in enumerate((9, 8, 7, 7, 7, 6, 5, 4))]
    found = settings_of(ranked, [{"p": 8}, {"p": 9}])
    assert (found.leaders, len(found.every)) == (5, 10)
    clear = Importance(sets=10, r2=0.9, shares=(CLEAR,))
    assert not why_not(sweep({"min": 0, "max": 9}), found, clear)
    few = settings_of(ranked[:4], [])
    assert "has 4 settings" in why_not(sweep({"min": 0, "max": 9}), few, clear)
    infeasible = settings_of(ranked[:2], [{"p": i} for i in range(9)])
    assert why_not(sweep({"min": 0, "max": 9}), infeasible, clear)
    unknown = Importance(sets=10, why_none="unknown: too much noise")
    assert "too much noise" in why_not(sweep({}, {"q": {}}), found, unknown)


def test_a_share_is_of_the_explained_variance_whose_part_is_named() -> None:
    here = sweep({"min": 0.0, "max": 1.0}, {"q": {"values": [1, 2]}})
    lead = [{"p": v, "q": 1} for v in (0.4, 0.5, 0.6)]
    rest = [{"p": v, "q": 1} for v in ends(0, 1)]
    found = narrow(
        here, Settings(every=[*lead, *rest], leaders=3),
        Importance(sets=15, of=15, r2=0.37, shares=(CLEAR,)),
    )  # fmt: skip
    reason = {one.param: one.reason for one in found}["p"]
    assert "of the explained variance" in reason and "R² 0.37" in reason
