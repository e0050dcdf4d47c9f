"""Render the pages: one file for `hpq report`, the same page and lists for `hpq dashboard`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from hpq.domain.status import SweepStatus
from hpq.domain.trial import flatten
from hpq_producer.analysis.pruning import describe_target
from hpq_producer.analysis.records import iso
from hpq_producer.analysis.trial_row import TrialRow
from hpq_producer.diagnosis.pods import explain_waiting
from hpq_producer.diagnosis.verdict import (
    needed_actions,
    state_counts,
    state_span,
    time_left,
)
from hpq_producer.page.sweep_data import SweepData, encode_sweep
from hpq_producer.reports.show import sweep_lines
from hpq_producer.reports.summary_page import comparison_cells, saved_lines
from hpq_producer.terminal.style import plain
from hpq_producer.terminal.text import clean, duration, value

_MOST_BARS, _MOST_PARAMS = 7, 12  # on the first screen
_SCRIPTS = ("core", "canvas", "charts", "table")
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)


def sweep_page(sweeps: Sequence[SweepData], *, is_live: bool = False) -> str:
    """Return the page of sweeps: one file that needs no network, or the dashboard's of one."""
    script = page_script(is_live=is_live)
    own = f"'{_sha256(plotly())}' '{_sha256(script.encode())}'"
    data = json.dumps([encode_sweep(one) for one in sweeps], allow_nan=False).encode()
    return template("sweep.html").render(
        policy="" if is_live else _POLICY.format(scripts=own),
        title=", ".join(one.sweep.id for one in sweeps),
        is_live=is_live,
        style=Markup(asset("page.css")),
        script=Markup(script),
        data=_base64(gzip.compress(data, 6, mtime=0)),
        plotly="" if is_live else _base64(plotly_gzip()),
        sweeps=sweeps,
        rows=[
            {
                "sweep": one.sweep.id,
                **comparison_cells(one.summary, one.status.best, _state_of(one.status)),
            }
            for one in sweeps
        ],
    )


def sweep_head(data: SweepData) -> str:
    """Return the first screen of a sweep as HTML."""
    return part("head", data)


def part(name: str, *values: object) -> str:
    """Return one part of a page as HTML: a macro of parts.html."""
    return str(getattr(template("parts.html").module, name)(*values))


def template(name: str) -> Template:
    """Return a template; it escapes every value."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("hpq_producer.page", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"clean": clean, "duration": duration, "value": value}
    found.filters |= {"iso": iso, "flatten": flatten, "plain": plain}
    found.globals |= {
        "lead_of": lead_of,
        "counts_of": state_counts,
        "left_of": time_left,
        "target_of": describe_target,
        "saved_of": saved_lines,
        "facts_of": lambda sweep: "\n".join(map(plain, sweep_lines(sweep, ""))),
        "state_of": _state_of,
        "row_of": lambda trial, sweep: TrialRow(trial=trial, sweep=sweep),
        "notices_of": lambda status: needed_actions(status, explain_waiting(status)),
        "MOST_BARS": _MOST_BARS,
        "MOST_PARAMS": _MOST_PARAMS,
    }
    return found


def _state_of(status: SweepStatus) -> str:
    return state_span(status.sweep, explain_waiting(status)).text


def asset(name: str) -> str:
    """Return a file of the page."""
    return (resources.files("hpq_producer.page") / "assets" / name).read_text("utf-8")


def page_script(*, is_live: bool = False, is_list: bool = False) -> str:
    """Return the page's scripts as one, in a scope of its own."""
    live = ("live",) if is_live else ()
    names = ("core", *live, *(() if is_list else _SCRIPTS[1:]))
    return "'use strict';{" + "".join(asset(f"{name}.js") for name in names) + "}"


def live_policy() -> str:
    """Return the policy of the dashboard's pages: scripts and answers from itself only."""
    scripts = [page_script(is_live=True), page_script(is_live=True, is_list=True)]
    own = " ".join(f"'{_sha256(script.encode())}'" for script in scripts)
    policy = _POLICY.format(scripts=f"'self' {own}")
    return f"{policy}; connect-src 'self'; frame-ancestors 'none'"


@cache
def plotly() -> bytes:
    """Return plotly.js, as the plotly package ships it."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()


@cache
def plotly_gzip() -> bytes:
    """Return plotly.js compressed."""
    return gzip.compress(plotly(), 9, mtime=0)


def _sha256(script: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()


def _base64(data: bytes) -> Markup:
    return Markup(base64.b64encode(data).decode())


def lead_of(data: SweepData) -> list[tuple[str, bool]]:
    """Return the sentence that answers both questions, in parts; True: the part is stressed."""
    sweep, found = data.sweep, data.importance
    counts, ranked = sweep.counts, len(data.summary.objectives)
    parts: list[tuple[str, bool]] = []
    best = data.status.best[0] if data.status.best else None
    if best is not None and best.objective is not None and sweep.metric:
        rest = f" is the best of {ranked:,} results" if ranked > 1 else " is the only result"
        result = TrialRow(trial=best, sweep=sweep).objective
        parts += [(f"{clean(sweep.metric.name)} {result}", True), (rest, False)]
    elif counts.failed and counts.failed == counts.ended and sweep.state.is_over:
        parts.append((f"All {counts.failed:,} trials failed", True))
    elif sweep.metric is None:
        parts.append(("The sweep names no metric, so its trials have no ranking", False))
    else:
        yet = "" if sweep.state.is_over else " yet"
        parts.append(
            (f"No trial has finished with a value of {clean(sweep.metric.name)}{yet}", False)
        )
    if found.shares:
        parts += [("; ", False), (found.answer, True)]
    elif ranked and len(sweep.varying) > 1:
        parts.append(("; the trials do not tell which parameter matters", False))
    if counts.failed and best is not None:
        parts.append((f"; {counts.failed:,} of {counts.total:,} trials failed", False))
    if data.of_all and len(data.trials) < counts.done + counts.running:
        parts.append((f"; the page shows the best {len(data.trials):,} trials", False))
    return [*parts, (".", False)]
