"""Render the pages: one file for `hpq report`, the same page and lists for `hpq dashboard`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined, Template
from jinja2.bccache import Bucket
from markupsafe import Markup

from hpq import __version__
from hpq.domain.durations import clock, iso
from hpq.domain.status import SweepStatus
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import flatten
from hpq.notice import plural
from hpq.store.wire.fields import MOST_TEXT
from hpq_views.analysis.early_termination import describe_target
from hpq_views.analysis.importance import UNCLEAR
from hpq_views.analysis.summary import SweepSummary
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.comparison import comparison_cells
from hpq_views.command_output.show import MOST_ATTEMPTS, attempt_end, attempt_start, sweep_lines
from hpq_views.command_output.summary_page import saved_lines
from hpq_views.page.sweep_data import SweepData, encode_sweep
from hpq_views.stored_files import has_file
from hpq_views.text.style import plain
from hpq_views.text.text import clean, duration, failure_words, measure, size, value
from hpq_views.why.verdict import (
    needed_actions,
    state_counts,
    state_span,
    time_left,
)
from hpq_views.why.waiting import explain_waiting

_MOST_BARS, _MOST_PARAMS = 7, 12  # on the first screen
_MOST_FILES = 500  # rows; `hpq get` lists all
_CHARTS = ("lines", "parallel", "curves", "charts", "progress", "overlay", "table")
_SCRIPTS = {  # of each page; those of the dashboard load uPlot beside them
    "report": ("uplot.min", "core", "address", *_CHARTS, "trial", "pages"),
    "sweep": ("core", "address", "live", "act", *_CHARTS),
    "listing": ("core", "address", "live"),
    "trial": ("core", "address", "live", "act", "lines", "trial"),
}
SHARED = ("plotly.js", "uplot.js", "page.css", "sweep.js", "listing.js", "trial.js")
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src {images};"
    " base-uri 'none'; form-action 'none'"
)
_IMAGES = "data: blob:"


def sweep_page(sweeps: Sequence[SweepData], *, access: str = "", acts: bool = False) -> str:
    """Return the page of sweeps: one file that needs no network, or the dashboard's of one.

    `access` is what the dashboard's page says of its rights; `acts`: it has buttons.
    """
    is_live = bool(access)
    script = "" if is_live else page_script("report")
    own = f"'{_sha256(plotly())}' '{_sha256(script.encode())}'"
    data = json.dumps([encode_sweep(one) for one in sweeps], allow_nan=False).encode()
    return template("sweep.html").render(
        policy="" if is_live else _POLICY.format(scripts=own, images=_IMAGES),
        title=", ".join(one.sweep.id for one in sweeps),
        is_live=is_live,
        acts=acts,
        access=access,
        style="" if is_live else Markup(page_style()),
        script=Markup(script),
        data=_packed(data),
        pages=[
            (f"{one.sweep.id}/{number}", _packed(page.encode()))
            for one in sweeps
            for number, page in one.pages.items()
        ],
        plotly="" if is_live else _base64(plotly_gzip()),
        sweeps=sweeps,
        rows=[comparison_row(one) for one in sweeps],
    )


def comparison_row(data: SweepData) -> dict[str, str]:
    """Return what a page of several sweeps says of one, by column."""
    cells = comparison_cells(
        data.summary, data.status.best, _state_of(data.status), data.importance
    )
    return {"sweep": data.sweep.id, **cells}


def part(name: str, *values: object) -> str:
    """Return one part of a page as HTML: a macro of parts.html."""
    return str(getattr(template("parts.html").module, name)(*values))


def template(name: str) -> Template:
    """Return a template; it escapes every value."""
    return _environment().get_template(name)


class _CompiledTemplates(BytecodeCache):
    """Keeps compiled templates where Python keeps its own modules: in `__pycache__` beside them."""

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError, NotImplementedError), _compiled(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError, NotImplementedError):  # a read-only installation: compiled again
            path = _compiled(bucket)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            draft.write_bytes(bucket.bytecode_to_string())
            draft.replace(path)


def _compiled(bucket: Bucket) -> Path:
    source = Path(__file__).with_name("assets") / f"{bucket.key}-{__version__}.jinja.py"
    return Path(cache_from_source(str(source)))


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("hpq_views.page", "assets"),
        bytecode_cache=_CompiledTemplates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"clean": clean, "duration": duration, "value": value}
    found.filters |= {"iso": iso, "clock": clock, "flatten": flatten, "plain": plain, "size": size}
    found.globals |= {
        "address_of": address_of,
        "plural": plural,
        "lead_of": lead_of,
        "counts_of": state_counts,
        "left_of": time_left,
        "target_of": describe_target,
        "saved_of": saved_lines,
        "common_of": _common_of,
        # A page changes its first screen, which has state and counts, but not these lines.
        "facts_of": lambda sweep: "\n".join(map(plain, sweep_lines(sweep, "", is_whole=False))),
        "state_of": _state_of,
        "row_of": lambda trial, sweep: TrialRow(trial=trial, sweep=sweep),
        "notices_of": lambda status: needed_actions(status, explain_waiting(status)),
        "MOST_BARS": _MOST_BARS,
        "MOST_PARAMS": _MOST_PARAMS,
        "MOST_FILES": _MOST_FILES,
        "MOST_ATTEMPTS": MOST_ATTEMPTS,
        "MOST_TEXT": MOST_TEXT,
        "verbs_of": _verbs_of,
        "end_of": attempt_end,
        "has_file": has_file,
        "start_of": attempt_start,
    }
    return found


def _state_of(status: SweepStatus) -> str:
    return state_span(status.sweep, explain_waiting(status)).text


def _common_of(summary: SweepSummary) -> list[str]:
    """Return what the trials of each failure have in common."""
    kinds = Counter(group.kind for group in summary.failures)
    return [
        f"{failure_words(group.kind) if kinds[group.kind] == 1 else group.message}: {words}"
        for group in summary.failures
        for words in group.common
    ]


def _verbs_of(sweep: SweepView) -> list[str]:
    """Return the buttons of a sweep in its state; `priority` and `note` are keys of `set`."""
    is_open, state = not sweep.state.is_over, sweep.state
    allowed = {
        "pause": state is SweepState.RUNNING,
        "resume": state in (SweepState.PAUSED, SweepState.HELD) and not sweep.is_over_budget,
        "stop": is_open and state is not SweepState.STOPPING,
        "cancel": is_open,
        "retry": sweep.counts.failed > 0,
        "priority": is_open,
        "note": True,
    }
    return [verb for verb, is_allowed in allowed.items() if is_allowed]


def asset(name: str) -> str:
    """Return a file of the page."""
    return (resources.files("hpq_views.page") / "assets" / name).read_text("utf-8")


def page_script(page: str) -> str:
    """Return the scripts of a page as one, in a scope of its own."""
    return "'use strict';{" + "".join(asset(f"{name}.js") for name in _SCRIPTS[page]) + "}"


def page_style() -> str:
    """Return the styles of all pages."""
    return asset("uplot.min.css") + asset("page.css")


def live_policy() -> str:
    """Return the policy of the dashboard's pages: all that they load is its own."""
    policy = _POLICY.format(scripts="'self'", images=f"'self' {_IMAGES}")
    policy = policy.replace("style-src", "style-src 'self'")
    return f"{policy}; connect-src 'self'; frame-ancestors 'none'"


@cache
def plotly() -> bytes:
    """Return plotly.js, as the plotly package ships it."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()


@cache
def plotly_gzip() -> bytes:
    """Return plotly.js compressed: 4 % larger than at level 9, in 40 % of its time."""
    return gzip.compress(plotly(), 4, mtime=0)


@cache
def shared_file(name: str) -> bytes:
    """Return a file that the dashboard's pages share, one of SHARED, compressed."""
    if name == "plotly.js":
        return plotly_gzip()
    if name == "uplot.js":
        text = asset("uplot.min.js")
    elif name == "page.css":
        text = page_style()
    else:
        text = page_script(name.removesuffix(".js"))
    return gzip.compress(text.encode(), 9, mtime=0)


@cache
def address_of(name: str) -> str:
    """Return the address of a shared file, which another version of hpq has at another address."""
    return f"/{name}?v={hashlib.sha256(shared_file(name)).hexdigest()[:16]}"


def _sha256(script: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()


def _base64(data: bytes) -> Markup:
    return Markup(base64.b64encode(data).decode())


def _packed(data: bytes) -> Markup:
    return _base64(gzip.compress(data, 6, mtime=0))


def lead_of(data: SweepData) -> list[tuple[str, bool]]:
    """Return the sentence that answers both questions, in parts; True: the part is stressed."""
    sweep, found = data.sweep, data.importance
    counts, ranked = sweep.counts, len(data.standings.order)
    parts: list[tuple[str, bool]] = []
    best = data.status.best[0] if data.status.best else None
    if data.front:
        members, every = len(data.front.trials), len(data.front.points)
        are = plural(every, "result is", "results are")
        parts.append((f"{members:,} of {every:,} {are} on the front", True))
        parts += [(f"; hypervolume {measure(data.volumes[-1][1])}", False)] if data.volumes else []
    elif best is not None and best.objective is not None and sweep.metric:
        rest = f" is the best of {data.standings}" if ranked > 1 else " is the only result"
        result = TrialRow(trial=best, sweep=sweep).objective
        parts += [(f"{clean(sweep.metric.name)} {result}", True), (rest, False)]
    elif counts.failed and counts.failed == counts.ended and sweep.state.is_over:
        all_ = f"All {counts.failed:,} trials" if counts.failed > 1 else "The only trial"
        parts.append((f"{all_} failed", True))
    elif sweep.metric is None:
        parts.append(("The sweep names no metric, so its trials have no ranking", False))
    else:
        yet = "" if sweep.state.is_over else " yet"
        parts.append(
            (f"No trial has finished with a value of {clean(sweep.metric.name)}{yet}", False)
        )
    if data.front:
        pass  # each metric has an answer of its own
    elif found.shares:
        parts += [("; ", False), (found.answer, True)]
    elif ranked and len(sweep.varying) > 1:
        parts.append((f"; {UNCLEAR}", False))
    if counts.failed and best is not None:
        done = counts.progress[0]
        trials = plural(done, "trial")
        parts.append((f"; {counts.failed:,} of {done:,} {trials} failed", False))
    if data.of_all and len(data.trials) < counts.ended - counts.cancelled + counts.running:
        shown = f"{len(data.trials):,} {plural(len(data.trials), 'trial')}"
        parts.append((f"; the page shows the best {shown}", False))
    return [*parts, (".", False)]
