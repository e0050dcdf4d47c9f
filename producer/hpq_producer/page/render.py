"""Render the page of sweeps as HTML: its texts, its policy, its scripts."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from statistics import median
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hpq.domain.sweep import Goal
from hpq_producer.analysis.pruning import describe_target, saved_lines
from hpq_producer.analysis.records import iso
from hpq_producer.analysis.scores import flatten, spread
from hpq_producer.diagnosis.verdict import needed_actions, state_counts, time_left
from hpq_producer.diagnosis.waiting import explain_waiting
from hpq_producer.page.sweep_data import SweepData, encode_sweep
from hpq_producer.terminal.style import plain
from hpq_producer.terminal.text import clean, clean_block, duration, measure, trials_of, value

_MOST_BARS, _MOST_PARAMS = 7, 12  # on the first screen
_SCRIPTS = ("core", "canvas", "charts", "table")
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)


def report_page(sweeps: Sequence[SweepData]) -> str:
    """Return the page of one or more sweeps as one file that needs no network."""
    script = script_of(*_SCRIPTS)
    return (
        environment()
        .get_template("sweep.html")
        .render(
            policy=_POLICY.format(scripts=f"'{_sha256(plotly())}' '{_sha256(script.encode())}'"),
            script=Markup(script),
            plotly=Markup(base64.b64encode(plotly_gzip()).decode()),
            live="",
            rows=[comparison_of(one) for one in sweeps] if len(sweeps) > 1 else [],
            **_shown(sweeps),
        )
    )


def live_page(data: SweepData) -> str:
    """Return the page of a sweep that follows it; the policy is a header."""
    return environment().get_template("sweep.html").render(
        policy="", script=Markup(live_script()), plotly="", live=data.sweep.id, rows=[],
        **_shown([data]),
    )  # fmt: skip


def _shown(sweeps: Sequence[SweepData]) -> dict[str, Any]:
    return {
        "title": ", ".join(one.sweep.id for one in sweeps),
        "style": Markup(asset("page.css")),
        "data": Markup(_packed(json.dumps([encode_sweep(one) for one in sweeps], allow_nan=False))),
        "sweeps": [head_of(one) for one in sweeps],
    }


@cache
def live_script(*, is_list: bool = False) -> str:
    """Return the script of the dashboard's pages."""
    return script_of("core", "live", *(() if is_list else _SCRIPTS[1:]))


def live_policy() -> str:
    """Return the policy of the dashboard's pages: scripts and streams from itself only."""
    scripts = [live_script(), live_script(is_list=True)]
    own = " ".join(f"'{_sha256(script.encode())}'" for script in scripts)
    policy = _POLICY.format(scripts=f"'self' {own}")
    return f"{policy}; connect-src 'self'; frame-ancestors 'none'"


def render_head(data: SweepData) -> str:
    """Return the first screen of a sweep as HTML."""
    found = environment().get_template("head.html").module
    return str(found.head(head_of(data)))  # type: ignore[attr-defined]


@cache
def environment() -> Environment:
    """Return the templates; they escape every value."""
    loader = PackageLoader("hpq_producer.page", "assets")
    found = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["ago"] = duration
    return found


def script_of(*names: str) -> str:
    """Return the scripts as one, in a scope of its own."""
    return "'use strict';{" + "".join(asset(f"{name}.js") for name in names) + "}"


@cache
def plotly() -> bytes:
    """Return plotly.js, as the plotly package ships it."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()


@cache
def plotly_gzip() -> bytes:
    """Return plotly.js compressed."""
    return gzip.compress(plotly(), 9, mtime=0)


def asset(name: str) -> str:
    """Return a file of the page."""
    folder: Traversable = resources.files("hpq_producer.page") / "assets"
    return (folder / name).read_text("utf-8")


def _sha256(script: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def head_of(data: SweepData) -> dict[str, Any]:
    """Return the texts of a sweep's first screen."""
    sweep, shot, summary = data.sweep, data.status, data.summary
    left, winner = time_left(shot), data.winner
    best = shot.best[0] if shot.best and winner else None
    params = flatten(best.params) if best else {}
    saved = " ".join(plain(line) for line in saved_lines(summary)).strip()
    return {
        "id": sweep.id,
        "state": sweep.state.value,
        "over": sweep.state.is_over,
        "created": iso(sweep.created_ms),
        "at": iso(shot.at_ms),
        "metric": clean(sweep.metric.name) if sweep.metric else "",
        "goal": sweep.metric.goal.value if sweep.metric else "",
        "counts": state_counts(sweep),
        "total": sweep.counts.total,
        "trained": duration(summary.total_ms) if summary.total_ms else "",
        "left": f"{left} left" if left else "",
        "target": describe_target(sweep),
        "notices": [str(n.text) for n in needed_actions(shot, explain_waiting(shot))],
        "lead": lead_of(data),
        "winner": winner,
        "best": measure(best.objective) if best and best.objective is not None else "",
        "spread": spread(best.group).strip() if best else "",
        "varying": [(clean(k), value(params[k])) for k in data.names if k in params][:_MOST_PARAMS],
        "params": [(clean(k), value(v)) for k, v in params.items()],
        "evidence": list(winner.lines(sweep.id)) if winner and winner.of > 1 else [],
        "command": data.command,
        "importance": data.importance,
        "bars": [
            {"name": clean(s.param), "share": s.share, "low": s.low, "high": s.high}
            for s in (data.importance.shares[:_MOST_BARS] if data.importance else ())
        ],
        "more": max(0, len(data.importance.shares) - _MOST_BARS) if data.importance else 0,
        "saved": saved,
        "facts": _facts(data),
        "file": clean_block(
            str(sweep.provenance.get("text") or json.dumps(dict(sweep.spec), indent=2))
        ),
    }


def lead_of(data: SweepData) -> list[tuple[str, bool]]:
    """Return the sentence that answers both questions, in parts; True: the part is stressed."""
    sweep, shot, found = data.sweep, data.status, data.importance
    counts, ranked = sweep.counts, len(data.summary.objectives)
    parts: list[tuple[str, bool]] = []
    best = shot.best[0] if shot.best else None
    if best is not None and best.objective is not None and sweep.metric:
        parts += [
            (f"{clean(sweep.metric.name)} {measure(best.objective)}", True),
            (
                f"{spread(best.group)} is the best of {ranked:,} results"
                if ranked > 1
                else " is the only result",
                False,
            ),
        ]
    elif counts.failed and counts.failed == counts.ended and sweep.state.is_over:
        parts.append((f"All {trials_of(counts.failed)} failed", True))
    elif sweep.metric is None:
        parts.append(("The sweep names no metric, so its trials have no ranking", False))
    else:
        parts.append((f"No trial has reported {clean(sweep.metric.name)} yet", False))
    if found and found.shares:
        it = found.shares[0]
        parts += [
            ("; ", False),
            (clean(it.param), True),
            (f" explains {it.share:.0%} ({100 * it.low:.0f}–{it.high:.0%})", False),
        ]
    elif found and ranked:
        parts.append(("; the trials cannot tell which parameter matters", False))
    if counts.failed and best is not None:
        parts.append((f"; {counts.failed:,} of {counts.total:,} trials failed", False))
    return [*parts, (".", False)]


def comparison_of(data: SweepData) -> dict[str, str]:
    """Return the row of a sweep in the table of several."""
    sweep, best, found = data.sweep, data.status.best, data.importance
    is_high = sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE
    top = best[0].objective if best else None
    middle = median(data.summary.objectives) if data.summary.objectives else None
    return {
        "id": sweep.id,
        "state": sweep.state.value,
        "trials": ", ".join(state_counts(sweep)),
        "metric": f"{clean(sweep.metric.name)} {'↑' if is_high else '↓'}" if sweep.metric else "",
        "best": "" if top is None else measure(top),
        "median": "" if middle is None else measure(middle),
        "matters": found.verdict if found and found.shares else "cannot tell",
    }


def _facts(data: SweepData) -> list[tuple[str, str]]:
    """Return where the sweep came from, as labels and texts."""
    sweep, origin = data.sweep, data.sweep.provenance
    git = origin.get("git")
    git = git if isinstance(git, Mapping) else {}
    commit = f"{git.get('commit') or ''}" + (
        ", with uncommitted changes" if git.get("dirty") else ""
    )
    facts = {
        "sweep": sweep.id,
        "name": sweep.name,
        "created": iso(sweep.created_ms) or "",
        "owner": sweep.owner,
        "file": origin.get("file"),
        "command": "hpq " + " ".join(map(str, argv))
        if isinstance(argv := origin.get("argv"), list)
        else "",
        "started on": origin.get("host"),
        "hpq": origin.get("hpq"),
        "python": origin.get("python"),
        "commit": commit,
        "code": sweep.launch.code,
        "runs": sweep.launch.what,
        "method": f"{sweep.method}, seed {sweep.seed}",
        "replicates": sweep.replicates if sweep.replicates > 1 else "",
        "tags": " ".join(sweep.tags),
    }
    return [(label, clean(str(text))) for label, text in facts.items() if text]
