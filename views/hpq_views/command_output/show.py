"""Render a sweep or a trial in full for `hpq show`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from hpq.domain.attempt import REASON_WORDS, curve_points
from hpq.domain.durations import clock
from hpq.domain.metric_spelling import metric_warning
from hpq.domain.sweep import AppendedFile, Metric, SweepView
from hpq.domain.trial import FailureKind, Params, Point, TrialView, flatten
from hpq.notice import Notice, plural
from hpq.reporting import MAX_NAMES
from hpq_views.analysis.early_termination import describe_idle, describe_rule, describe_target
from hpq_views.analysis.history import TERMINAL, Attempt
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.text.charts import buckets, curve, curve_scale
from hpq_views.text.style import Line, Span, Style
from hpq_views.text.text import (
    WHY_THINNED,
    clean,
    clean_block,
    duration,
    failure_words,
    pad,
    planned,
    progress,
    size,
    value,
    width,
)
from hpq_views.why.verdict import explain_files, state_counts, state_span

_CURVE, _LEAST_CURVE = 60, 8  # columns
_MOST_INFO = 30  # lines of what a script has set; --json has all
_INDENT = "  "


def sweep_lines(
    sweep: SweepView,
    signed: str,
    *,
    why: Notice | None = None,
    unmet: str = "",
    repeated_by: Sequence[SweepView] = (),
    is_whole: bool = True,
) -> Iterator[Line]:
    """Yield all facts of a sweep except its trials; unless `is_whole`, without state and counts.

    `signed` describes its signature; `why` is why no worker claims its trials. `repeated_by` are
    the sweeps of `hpq best --confirm`.
    """
    launch = sweep.launch
    metric = sweep.metric
    counts = sweep.counts
    yield from _pairs(
        {
            "sweep": sweep.id,
            "name": sweep.name,
            "state": is_whole * _state_words(sweep, why),
            "trials": is_whole * f"{progress(counts)}: {', '.join(state_counts(sweep))}",
            "waits": why.text if why else "",
            "!": clean(unmet),
            "confirmed by": ", ".join(f"{one.id} ({progress(one.counts)})" for one in repeated_by),
            "metric": "; ".join(map(_metric_words, sweep.objectives or filter(None, [metric])))
            or "none",
            "constraints": ", ".join(map(str, sweep.constraints)),
            "trainer": launch.trainer,
            "program": launch.program,
            "command": " ".join(launch.command),
            "code": launch.code,
            "code directory": launch.code_dir
            or ("a copy of the enqueued code" if launch.bundled else ""),
            "environment": " ".join(launch.pass_env),
            "preload": " ".join(launch.preload),
            "wandb": launch.wandb.value if launch.wandb else "",
            "code signed": signed,
            "queue": sweep.queue,
            "owner": sweep.owner,
            "replicates": str(sweep.replicates) if sweep.replicates > 1 else "",
            "project": sweep.project,
            "tags": " ".join(sweep.tags),
            "tags of runs": " ".join(sweep.run_tags),
            "note": sweep.note,
            "description": str(sweep.spec.get("description", "")),
            "priority": str(sweep.priority or ""),
            "max parallel": str(sweep.max_parallel or ""),
            "retries": str(sweep.retries or ""),
            "timeout": duration(sweep.timeout_s * 1000) if sweep.timeout_s else "",
            "stall": describe_idle(sweep.idle_below, sweep.idle_s) if sweep.idle_s else "",
            "budget": str(sweep.budget or ""),
            "early terminate": describe_rule(sweep.early) if sweep.early else "",
            "target": describe_target(sweep)
            or (f"{metric.target:g}" if metric and metric.target is not None else ""),
            "files": "; ".join(one.text for one in explain_files(sweep)),
            "keep": f"best {sweep.keep.best}, last {sweep.keep.last}" if sweep.keep else "",
            "history": sweep.history,
            "method": f"{sweep.method}, seed {sweep.seed}" + _sampling(sweep),
            "varied": " ".join(sweep.varying),
            "created": clock(sweep.created_ms),
            "file digest": sweep.digest,
        }
    )
    origin = dict(sweep.provenance)
    text = origin.pop("text", None)  # the original file, with comments
    if isinstance(text, str):
        yield from _section("file", ([Span(line)] for line in clean_block(text).splitlines()))
    else:
        yield from _facts("file", sweep.spec)
    for file in sweep.files:
        yield from _section(f"file of {clock(file.at_ms)}: {file.added} added", _file(file))
    yield from _facts("provenance", origin)


def _state_words(sweep: SweepView, why: Notice | None) -> str:
    return state_span(sweep, why).text + (f": {sweep.why_held}" if sweep.hold else "")


def _metric_words(metric: Metric) -> str:
    return f"{metric.name}, {metric.goal}, {metric.take} value"


def _file(file: AppendedFile) -> Iterator[Line]:
    shown = clean_block(file.text) if file.text else json.dumps(dict(file.spec), indent=2)
    return ([Span(line)] for line in shown.splitlines())


def _sampling(sweep: SweepView) -> str:
    if not sweep.sampler:
        return ""
    is_open = sweep.counts.is_open_ended
    most = f"{planned(sweep.counts)} {plural(sweep.counts.progress[1], 'trial')}"
    end = f"until hpq stop {sweep.id}" if is_open else f"up to {most}"
    by_most = sorted(sweep.made.items(), key=lambda made: (-made[1], made[0]))
    by = ", ".join(f"{count:,} by {name}" for name, count in by_most)
    source = f" ({by})" if by else ""
    return f"; parameters from {sweep.sampler}{source}, {sweep.no_more or end}"


def trial_lines(
    row: TrialRow,
    curves: Mapping[str, Sequence[Point]],
    provenance: Params,
    log: str,
    *,
    attempts: Sequence[Attempt] = (),
    place: str = "",
    holder: TrialView | None = None,
    columns: int = 80,
) -> Iterator[Line]:
    """Yield all facts of a trial; `curves` by metric, `log` is its last lines.

    `holder` is the trial that has its files (None: itself). `place` says if it is on the front of
    several metrics.
    """
    trial = row.trial
    yield from _pairs({**_trial_head(row, place), **trial_facts(row)})
    yield from _section("attempts", attempt_lines(attempts))
    yield from _facts("parameters", trial.params)
    yield from _section("metrics", _metrics(row, curves, columns))
    shown = {*row.run, "alerts"}
    info = {name: value(v) for name, v in flatten(trial.run_info).items() if name not in shown}
    yield from _section("set by the script", islice(_pairs(info), _MOST_INFO))
    yield from _section("artifacts", artifact_lines(holder or trial))
    # Package versions are in --json only: they would push the log off the screen.
    names = (name for name in flatten(provenance).items() if "packages" not in name[0].split("."))
    yield from _facts("provenance", dict(names))
    lines = clean_block(log).splitlines()
    yield from _section(f"last log lines (all: hpq logs {trial.id})", ([Span(x)] for x in lines))


def _trial_head(row: TrialRow, place: str) -> dict[str, str | Span]:
    trial = row.trial
    unmet = "" if row.failure else metric_warning(row.sweep, [trial])
    return {
        "trial": Span(str(trial.id), Style.BOLD),
        **row.run,
        "state": row.state,
        "failed": Span(row.failed, Style.RED),
        "error": row.error,
        "!": Span(unmet, Style.YELLOW),
        "alerts": Span(row.alerts, Style.YELLOW),
        "why": row.early_end,
        "rank": str(trial.standing or "").removeprefix("rank "),
        "front": place,
        "infeasible": Span(row.unmet, Style.YELLOW),
        "attempt": str(trial.attempt),
        "worker": row.worker,
        "started": clock(trial.claimed_ms),
        "ended": clock(trial.ended_ms),
        "time": row.total_time,
        "step": row.step,
    }


def trial_facts(row: TrialRow) -> dict[str, str]:
    """Return what is known of a trial beside its state, times, parameters and metrics, or ""."""
    trial = row.trial
    return {
        **row.usage,
        "phase": row.phase,
        "replicate": row.replicate,
        "begins at": row.start,
        "added": row.outside and f"{row.outside} of the sweep",
        "started again": trial.restarted,
        "result of": row.source and f"{row.source}; not run in this sweep",
        "checkpoint": row.checkpoint,
        "files": row.files,
        "log and curves": WHY_THINNED if trial.thinned else "",
    }


def shown_metrics(trial: TrialView, sweep: SweepView) -> list[str]:
    """Return a trial's metrics as they were first reported, as many as it may report."""
    objective = sweep.metric.name if sweep.metric else ""
    others = [name for name in trial.metrics if name != objective][MAX_NAMES - 1 :]
    return [name for name in trial.metrics if name not in others]


def _metrics(row: TrialRow, curves: Mapping[str, Sequence[Point]], columns: int) -> Iterator[Line]:
    trial, sweep = row.trial, row.sweep
    objective = sweep.metric.name if sweep.metric else ""
    names = shown_metrics(trial, sweep)
    wide = max((width(clean(name)) for name in names), default=0)
    for name in names:
        room = max(_LEAST_CURVE, min(_CURVE, columns - wide - 2 - 9 - 2 - len(_INDENT)))
        points = [(p.step, p.value) for p in curves.get(name, ())]
        means = (
            buckets(points, min(room, len(points)), points[0][0], points[-1][0]) if points else []
        )
        scale = curve_scale(means)
        drawn = curve(means, scale) if scale else ""
        style = Style.BOLD if name == objective else Style.PLAIN
        shown = clean(name)
        blanks = " " * (wide - width(shown))
        last = f"{row.metric(name):>9}"
        yield [Span(f"{shown}{blanks}  "), Span(last, style), Span(f"  {drawn}")]
    if rest := len(trial.metrics) - len(names):
        yield [Span(f"not shown: {rest:,} more {plural(rest, 'metric')}", Style.DIM)]
    if len(trial.metrics) >= MAX_NAMES:
        yield [Span(f"only {MAX_NAMES} metrics are kept; the log names the next", Style.DIM)]
    longest, most = max(map(len, curves.values()), default=0), curve_points(len(trial.metrics))
    if longest >= most / 2:  # it may have been thinned
        more = "" if sweep.history else "; `history: all` in the sweep file keeps every one"
        yield [Span(f"curves keep at most {most:,} points, here {longest:,}{more}", Style.DIM)]


def artifact_lines(trial: TrialView) -> Iterator[Line]:
    """Yield the artifacts of a trial with their sizes."""
    files = trial.artifacts.files if trial.artifacts else {}
    yield from _pairs({name: size(files[name]) for name in sorted(files)})


def _pairs(rows: Mapping[str, str | Span]) -> Iterator[Line]:
    spans = {clean(k): v if isinstance(v, Span) else Span(v) for k, v in rows.items()}
    shown = {k: Span(clean(v.text), v.style) for k, v in spans.items() if v.text}
    wide = max((width(k) for k in shown), default=0)
    for k, span in shown.items():
        yield [Span(pad(k, wide) + "  ", Style.DIM), span]


def _facts(title: str, data: Mapping[str, Any]) -> Iterator[Line]:
    yield from _section(title, _pairs({k: value(v) for k, v in flatten(data).items()}))


def _section(title: str, lines: Iterator[Line]) -> Iterator[Line]:
    for i, line in enumerate(lines):
        if i == 0:
            yield []
            yield [Span(title, Style.DIM)]
        yield [Span(_INDENT), *line]


MOST_ATTEMPTS = 20  # lines
_END_WORDS: Mapping[str, str] = {
    FailureKind.LOST.value: "lost its worker",
    **{reason.value: f"requeued: {words}" for reason, words in REASON_WORDS.items()},
}


def attempt_lines(attempts: Sequence[Attempt]) -> Iterator[Line]:
    """Yield one line for each of the newest attempts; none for a single attempt."""
    if not attempts or attempts[-1].number < 2:
        return
    shown = attempts[-MOST_ATTEMPTS:]
    wide = len(str(shown[-1].number))
    if before := shown[0].number - 1:
        yield [Span(f"{before} earlier", Style.DIM)]
    for it in shown:
        where = clean(f"{it.worker} on {it.host}") if it.worker else "an unknown worker"
        words = f"{attempt_end(it)} after {duration(it.ran_ms)}, {attempt_start(it)}, {where}"
        yield [Span(f"{it.number:>{wide}}  ", Style.BOLD), Span(words)]


def attempt_end(it: Attempt) -> str:
    """Return how an attempt ended, in words."""
    if not it.end:
        return "running"
    if it.end in TERMINAL:
        return failure_words(clean(it.kind)) if it.kind else it.end
    return _END_WORDS.get(it.end) or f"{failure_words(clean(it.end))}, retried"


def attempt_start(it: Attempt) -> str:
    """Return from where an attempt started, in words."""
    if it.from_step is not None:
        return f"from step {it.from_step}" if it.from_step else "from a checkpoint"
    if it.restarted:
        return f"from the start ({clean(it.restarted)})"
    return "from the start"
