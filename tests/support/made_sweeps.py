"""Sweeps as their page shows them, made of a seeded function instead of training."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpq.domain.constraint import Constraint
from hpq.domain.status import DurationStats, SweepStatus
from hpq.domain.sweep import Counts, Goal, Launch, Metric, SweepView
from hpq.domain.trial import (
    Failure,
    FailureKind,
    Json,
    Params,
    Point,
    Pruning,
    TrialId,
    TrialState,
    TrialView,
)
from hpq_views.analysis.winner_evidence import judge
from hpq_views.page.curves import Curve
from hpq_views.page.sweep_data import SweepData

BEGIN_MS = 1_790_000_000_000
SETS_OF_ARTICLE: list[Params] = [
    {"max_learning_rate": a, "data_aug_cutout_size": b, "batch_size": c, "momentum": d}
    for a, b, c, d in itertools.product([0.4, 0.6], [5, 12], [128, 512], [0.9, 0.99])
]


def made(
    sets: Sequence[Params],
    *,
    sid: str = "cifar10-16-3f2a1",
    metric: str = "test/acc",
    points: int = 24,
    workers: int = 2,
    spec: Mapping[str, Json] | None = None,
    failing: float = 0.0,
    pruned: float = 0.0,
    states: Sequence[TrialState] = (),
    text: str = "",
) -> SweepData:
    """Return a sweep with these parameters, whose metric prefers some of them."""
    rng, free = random.Random(1), [0] * workers
    trials, curves = [], dict[int, Curve]()
    for n, params in enumerate(sets, 1):
        state = states[n - 1] if states else _state(rng, failing, pruned)
        shown = (
            points if state is TrialState.FINISHED else max(1, int(points * rng.uniform(0.1, 0.6)))
        )
        top = _quality(params, rng)
        rise = [1 - 0.6 * math.exp(-5 * (k + 1) / points) for k in range(shown)]
        curve = [(k + 1.0, top * rise[k] + rng.gauss(0, 0.004))
                 for k in range(shown)]  # fmt: skip
        if state in (TrialState.QUEUED,):
            curve = []
        who = min(range(workers), key=lambda w: free[w])
        took = int(rng.uniform(40_000, 55_000) * shown / points)
        begun = BEGIN_MS + 2_000 + free[who]
        if state is not TrialState.QUEUED:
            free[who] += took + 500
        ranked = state in (TrialState.FINISHED, TrialState.PRUNED)
        trials.append(TrialView(
            id=TrialId(sweep=sid, number=n), state=state, params=params,
            attempt=0 if state is TrialState.QUEUED else 1,
            worker="" if state is TrialState.QUEUED else f"gpu{who // 2}-{who % 2}",
            host=f"gpu{who // 2}",
            claimed_ms=0 if state is TrialState.QUEUED else begun,
            beat_ms=begun + took, ended_ms=begun + took if state.is_terminal else 0,
            ran_ms=took if state.is_terminal else 0,
            step=len(curve), objective=curve[-1][1] if ranked and curve else None,
            metrics={metric: curve[-1][1]} if curve else {},
            failure=Failure(kind=FailureKind.OUT_OF_MEMORY, message="CUDA out of memory: 2.3 GiB")
            if state is TrialState.FAILED else None,
            pruning=Pruning(rule="hyperband", band=9, rank=8, n=12, threshold=0.5, value=0.4)
            if state is TrialState.PRUNED else None,
        ))  # fmt: skip
        if curve:
            curves[n] = curve
    return of_trials(trials, curves, sid=sid, metric=metric, spec=spec, text=text)


def made_front(
    count: int,
    *,
    metrics: Mapping[str, Goal] = {"val_acc": Goal.MAXIMIZE, "latency_ms": Goal.MINIMIZE},
    constraints: Sequence[str] = (),
    is_all_front: bool = False,
) -> SweepData:
    """Return a sweep whose metrics oppose each other; `peak_gb` grows with the layers."""
    rng, data = random.Random(3), made(drawn_sets(count), metric=next(iter(metrics)), spec=RANGES)
    trials = []
    for trial in data.trials:
        layers, dropout = (float(str(trial.params[name])) for name in ("layers", "dropout"))
        at, noise = layers / 8 - rng.uniform(0, 0.12), 0.0 if is_all_front else 0.4 * dropout**2
        others = (10 ** (1 + at ** (k + 2) + noise) for k in range(len(metrics) - 1))
        values = dict(zip(metrics, (at - noise, *others), strict=True))
        named = values | {"peak_gb": 4.0 * layers}
        trials.append(replace(trial, objective=at - noise, metrics=named))
    found = of_trials(trials, data.curves, sid="nas-5c1d2", metric=next(iter(metrics)), spec=RANGES)
    sweep = replace(
        found.sweep,
        objectives=tuple(Metric(name=name, goal=goal) for name, goal in metrics.items()),
        constraints=tuple(map(Constraint.parse, constraints)),
    )
    return replace(found, status=replace(found.status, sweep=sweep), winner=None)


def of_trials(
    trials: Sequence[TrialView],
    curves: Mapping[int, Curve],
    *,
    sid: str,
    metric: str | None,
    spec: Mapping[str, Json] | None = None,
    text: str = "",
) -> SweepData:
    """Return the page's data of these trials."""
    count = {s.value: sum(t.state is s for t in trials) for s in TrialState}
    names = list(dict.fromkeys(name for t in trials for name in t.params))
    sweep = SweepView(
        id=sid, name=sid.rpartition("-")[0], digest="d", owner="ada",
        launch=Launch(trainer="cifar10", code="hpq 0.9"),
        metric=Metric(name=metric, goal=Goal.MAXIMIZE) if metric else None,
        varying=tuple(n for n in names if len({str(t.params.get(n)) for t in trials}) > 1),
        spec=spec or {"parameters": {n: {"values": _listed(n, trials)} for n in names}},
        provenance={"file": "cifar10-16.yaml", "text": text or "name: cifar10-16\n", "host": "desk",
                    "argv": ["enqueue", "cifar10-16.yaml"], "python": "3.12.4", "hpq": "0.9"},
        created_ms=BEGIN_MS, counts=Counts(**count), method="grid",
    )  # fmt: skip
    best = sorted((t for t in trials if t.objective is not None), key=lambda t: -(t.objective or 0))
    took = [t.ran_ms for t in trials if t.ran_ms]
    shot = SweepStatus(
        sweep=sweep, at_ms=max([t.beat_ms for t in trials] or [BEGIN_MS]), best=tuple(best[:2]),
        running=tuple(t for t in trials if t.state is TrialState.RUNNING)[:64],
        recent=tuple(t for t in trials if t.state.is_terminal)[-3:], workers=(), last_event="5-0",
        durations=DurationStats.of_sums(len(took), sum(took), sum(t * t for t in took)),
    )  # fmt: skip
    points = [] if not best else curves.get(best[0].id.number, ())
    return SweepData(
        status=shot, trials=trials, curves=curves,
        winner=judge(sweep, best[:2], _points(points, metric or "")) if best and metric else None,
    )  # fmt: skip


def _listed(name: str, trials: Sequence[TrialView]) -> list[Json]:
    found = [t.params.get(name) for t in trials]
    return [v for i, v in enumerate(found) if v not in found[:i]][:9]


def _points(curve: Curve, metric: str) -> list[Point]:
    return [Point(step=int(x), name=metric, value=y) for x, y in curve]


def _state(rng: random.Random, failing: float, pruned: float) -> TrialState:
    drawn = rng.random()
    if drawn < failing:
        return TrialState.FAILED
    return TrialState.PRUNED if drawn < failing + pruned else TrialState.FINISHED


def _quality(params: Params, rng: random.Random) -> float:
    """Prefer a learning rate near 0.3, the higher momentum a little less, small batches."""
    rate = next(
        (
            float(v)
            for n, v in params.items()
            if n in ("lr", "max_learning_rate") and isinstance(v, int | float)
        ),
        0.3,
    )
    loss = 0.035 * abs(math.log10(max(1e-9, rate) / 0.35)) ** 1.3
    loss += 0.012 * (params.get("momentum") == 0.99) + 0.006 * (params.get("batch_size") == 512)
    loss += 0.05 * (params.get("optimizer") == "sgd") - 0.002 * (
        params.get("data_aug_cutout_size") == 12
    )
    return 0.945 - loss + rng.gauss(0, 0.002)


RANGES: Params = {
    "parameters": {
        "lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 1},
        "weight_decay": {"distribution": "log_uniform_values", "min": 1e-6, "max": 0.1},
        "batch_size": {"values": [32, 64, 128, 256, 512]},
        "optimizer": {"values": ["adam", "adamw", "sgd"]},
        "dropout": {"min": 0.0, "max": 0.6},
        "layers": {"min": 1, "max": 8},
        "momentum": {"values": [0.0, 0.9, 0.99], "when": "optimizer == sgd"},
    }
}


def drawn_sets(count: int) -> list[Params]:
    """Return sets of a random search: two logarithmic, one conditional, one of words."""
    rng, found = random.Random(2), list[Params]()
    for _ in range(count):
        optimizer = rng.choice(["adam", "adamw", "sgd"])
        params: dict[str, Json] = {
            "lr": 10 ** rng.uniform(-5, 0), "weight_decay": 10 ** rng.uniform(-6, -1),
            "batch_size": rng.choice([32, 64, 128, 256, 512]), "optimizer": optimizer,
            "dropout": rng.uniform(0, 0.6), "layers": rng.randint(1, 8),
        }  # fmt: skip
        if optimizer == "sgd":
            params["momentum"] = rng.choice([0.0, 0.9, 0.99])
        found.append(params)
    return found
