"""Draw one frame of `hpq watch` for a terminal of N columns and M rows. Pure.

The verdict comes first and is always shown; the list of trials fills the remaining rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from hpq.domain.status import Worker
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import TrialState, TrialView
from hpq_views.analysis.pareto_front import metrics_of
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.results_table import column_names
from hpq_views.command_output.sweep_table import COLUMNS
from hpq_views.text.charts import Scale, buckets, curve, curve_scale, plot
from hpq_views.text.style import Line, Span, Style, TerminalInfo, fold
from hpq_views.text.tables import Column, Layout, lay
from hpq_views.text.text import clean, duration, measure, rounded, trials_of, width
from hpq_views.watch.keys import Mode, Seen, View, position, show_from
from hpq_views.watch.scene import Scene
from hpq_views.watch.trial_columns import (
    curve_widths,
    shown_names,
    trial_cells,
    trial_columns,
)
from hpq_views.why.verdict import front_items, needed_actions, note_lines, status_lines

_LONGEST = 5  # lines of what needs the user
LEAST_COLUMNS, LEAST_ROWS = 30, 6
ROOMY_ROWS = 16  # from here on there are blanks and whole sentences
_FOOT_ROWS = 9  # from here on there is a line of keys
_TYPED = "  Enter applies  Esc cancels  e.g. lr > 0.1 and state == running"
_LEAST_LIST = 4  # rows of trials before workers get any

HELP = (
    ("↑ ↓ PgUp PgDn Home End", "move through all trials"),
    ("Enter", "open the trial: curve, parameters, attempts, log; Esc returns"),
    ("s", "order: best first (running trials by the latest value), newest first, number"),
    ("", "best first, replicates are one row, of the first: their mean, its curve and time"),
    ("/", "filter: lr > 0.1 and state == running; failed; empty: all"),
    ("c", "columns: choose parameters, metrics, names of runs"),
    ("i", "importance: which parameter matters"),
    ("p", "pause the sweep, or resume it"),
    ("x  X", "cancel the trial, the whole sweep"),
    ("r  R", "retry the trial, all failed trials"),
    ("q", "quit; the sweep continues, but `hpq run` first asks about its workers"),
    ("", ""),
    ("▶", "the trial that Enter opens"),
    ("●", "a running trial"),
    ("◆", "a trial on the front of several metrics"),
    ("▁▄█", "the metric over the steps; the title names the values of ▁ and █"),
    ("▲ ▼", "above █ or below ▁: the outer 2 % of the values at each end"),
)


Frame = tuple[
    list[Line], View
]  # at most as many lines as the terminal has, and the view with what it saw


def render(view: View, scene: Scene, terminal: TerminalInfo) -> Frame:
    """At most as many rows and columns as the terminal has."""
    if terminal.columns < LEAST_COLUMNS or terminal.rows < LEAST_ROWS:
        return [[Span(f"too small: needs {LEAST_COLUMNS}x{LEAST_ROWS}")]], view
    if view.mode is Mode.SWEEPS:
        return _sweeps(view, scene, terminal)
    if view.mode in (Mode.LIST, Mode.FILTER) or (view.mode is Mode.CONFIRM and not view.trial):
        return _list(view, scene, terminal)
    return _page(view, scene, terminal)


def _list(view: View, scene: Scene, terminal: TerminalInfo) -> Frame:
    needs = scene.not_taken or scene.sweep_status.sweep.state is SweepState.HELD
    is_low = terminal.rows < (ROOMY_ROWS if needs else _FOOT_ROWS)
    has_foot = not is_low or view.mode is not Mode.LIST
    foot_rows = int(has_foot)
    head = _head(scene, terminal)[: terminal.rows - 2 - foot_rows]
    room = terminal.rows - len(head)
    tail = _workers(scene, terminal.columns, max(0, room - foot_rows - 1 - _LEAST_LIST))
    most = max(1, room - 1 - len(tail) - foot_rows)
    table, layout, seen = _table(view, scene, terminal, most)
    legend = _missing(scene.sweep_status.sweep, view, layout) if scene.rows else []
    now = show_from(replace(view, seen=seen), scene.total, seen.page)
    foot = _foot(now, scene, legend, terminal) if has_foot else []
    if most <= _LEAST_LIST and scene.is_live:
        foot = foot[:1]
    elif len(foot) > 1:
        most = max(1, most - len(foot) + 1)
        table, _, seen = _table(view, scene, terminal, most)
    used = len(head) + 1 + len(seen.numbers) + len(tail) + len(foot)
    blanks: list[Line] = [[]] * max(0, terminal.rows - used if scene.is_live else 0)
    below = [*tail, *blanks, *foot]
    if not scene.rows:  # titles would announce rows
        words = "searching …" if scene.is_searching else _choosing(scene) or position(now)
        return [*head, [Span(words, Style.DIM)], *below], now
    view = show_from(replace(view, seen=seen), scene.total, seen.page)
    return [*head, *table, *below], view


def _choosing(scene: Scene) -> str:
    """What happens before a sweep has its first trial; empty if nothing does."""
    sweep = scene.sweep_status.sweep
    is_begun = sweep.counts.total or not sweep.counts.to_come or not scene.sweep_status.workers
    if is_begun or scene.not_taken or sweep.state is not SweepState.RUNNING:
        return ""
    return "hpq is choosing the first trials"


def _head(scene: Scene, terminal: TerminalInfo) -> list[Line]:
    columns, rows = terminal.columns, terminal.rows
    roomy = rows >= ROOMY_ROWS
    why = scene.not_taken
    front = front_items(scene.front) if scene.front else ()
    head = status_lines(scene.sweep_status, columns, why, 2 if roomy else 1, front)[: rows - 2]
    if roomy and scene.winner and scene.winner.gap is not None:
        (_, verdict), *_ = scene.winner.lines(scene.sweep_status.sweep.id)
        head += fold([Span(f"winner {verdict}", Style.DIM)], columns)
    head += _notes(scene, columns, rows // 3 if roomy else 1, rows - len(head) - 2)
    return [*head, []] if roomy else head[: rows - 2]


def _notes(scene: Scene, columns: int, room: int, most: int) -> list[Line]:
    """What needs the user; `most` lines instead of `room` where nothing goes on without them."""
    is_held = scene.sweep_status.sweep.state is SweepState.HELD
    texts = [one.text for one in needed_actions(scene.sweep_status, scene.not_taken)]
    # Why it is held may be long, and what helps comes after it.
    wants = [2 if is_held and i == 0 else _LONGEST for i in range(len(texts))]
    if scene.stale:
        texts, wants = [scene.stale, *texts], [2, *wants]
    if is_held or scene.not_taken:
        room = max(room, most)
    out: list[Line] = []
    for text, want in zip(texts, wants, strict=True):
        out += note_lines(text, columns, min(want, room - len(out)))
    return out


def _foot(view: View, scene: Scene, legend: Sequence[str], terminal: TerminalInfo) -> list[Line]:
    """What is asked or typed, else the place and the keys; then how to read the table."""
    if view.mode is Mode.CONFIRM and view.act:
        return [[Span(view.act.question, Style.BOLD)]]
    if view.mode is Mode.FILTER:
        return [[Span(f"/{clean(view.draft)}_", Style.BOLD), Span(_TYPED, Style.DIM)]]
    items: list[str] = []
    if scene.is_live:
        order = "by number" if view.order == "number" else f"{view.order} first"
        picked = [f"/{clean(view.filter)}"] if view.filter else []
        place = [] if _choosing(scene) else [position(view)]
        items = [*place, order, *picked, f"? help  q {scene.on_quit}"]
    first = [Span("  ".join(items), Style.DIM)]
    if view.note:
        first = [Span(clean(view.note), Style.YELLOW)]
    if not scene.is_live:
        return fold([Span("  ".join(legend), Style.DIM)], terminal.columns) if legend else []
    if not legend:
        return [first]
    words: Line = [Span("  ".join(legend), Style.DIM)]
    whole = [*first, Span("  "), *words]
    if sum(width(span.text) for span in whole) <= terminal.columns or terminal.rows < ROOMY_ROWS:
        return [whole]
    return [first, words]


def _table(
    view: View, scene: Scene, terminal: TerminalInfo, most: int
) -> tuple[list[Line], Layout, Seen]:
    """The rows that fit, with curves as wide as they may be."""
    status = scene.sweep_status
    sweep = status.sweep
    total = max(scene.total, len(scene.rows))
    shown = show_from(view, total, most)
    skip = max(0, min(shown.top - scene.first, len(scene.rows) - most))
    rows = scene.rows[skip : skip + most]
    picked = shown.cursor - scene.first - skip if scene.is_live else None
    wide = max((len(str(t.id.number)) for t in rows), default=1)
    front = scene.front.numbers if scene.front else frozenset()
    described = [TrialRow(trial=t, sweep=sweep, at=status) for t in rows]
    names, titles = shown_names(sweep, view.columns, terminal.columns)
    widths, is_crowded = curve_widths(terminal.columns), False
    for room in widths:
        if is_crowded and room != widths[-1]:
            continue  # columns were left out: only the narrowest curve gives room for more
        drawn, scale = _curves(scene, rows, room)
        title = _scale_title(scale, room)
        # As wide as the title: half a scale would be another one.
        curves = [drawn.get(t.id.number, "").ljust(len(title)) if title else None for t in rows]
        heads = trial_columns(sweep, names, view.columns, title, titles)
        cells = [
            trial_cells(row, names, drawn_one, _mark(row.trial, place == picked, wide, front))
            for place, (row, drawn_one) in enumerate(zip(described, curves, strict=True))
        ]
        layout = lay(heads, cells, terminal.columns)
        is_crowded = None in layout.widths
        if layout.is_whole:
            break
    seen = Seen(
        total=scene.total,
        page=most,
        numbers=tuple(t.id.number for t in rows),
        first=scene.first + skip,
        names=tuple(dict.fromkeys((*sweep.varying, *_metrics(scene), *_of_runs(described)))),
        is_paused=sweep.state in (SweepState.PAUSED, SweepState.HELD),
    )
    return layout.table(cells, picked), layout, seen


def _mark(trial: TrialView, is_picked: bool, wide: int, front: Container[int]) -> str:
    """What stands before the number, which is aligned to the right."""
    state = "●" if trial.state is TrialState.RUNNING else " "
    if trial.id.number in front:
        state = "◆"
    pick = "▶" if is_picked else " "
    return pick + state + " " * (1 + wide - len(str(trial.id.number)))


def _metrics(scene: Scene) -> list[str]:
    ranking = {metric.name for metric in metrics_of(scene.sweep_status.sweep)}
    found = dict.fromkeys(name for trial in scene.rows for name in trial.metrics)
    return [name for name in found if name not in ranking]


def _of_runs(rows: Sequence[TrialRow]) -> list[str]:
    """Return what scripts give their runs: name, group, tags."""
    return sorted({name for row in rows for name in row.run})


def _curves(
    scene: Scene, rows: Sequence[TrialView], room: int
) -> tuple[Mapping[int, str], Scale | None]:
    """Each row's curve on one scale, and the scale; steps of all rows are one axis."""
    points = {t.id.number: scene.curves.get(t.id.number) or () for t in rows}
    steps = [step for some in points.values() if some for step in (some[0][0], some[-1][0])]
    if not steps or not room:
        return {}, None
    first, last = min(steps), max(steps)
    means = {n: buckets(some, room, first, last) for n, some in points.items()}
    scale = curve_scale(v for some in means.values() for v in some)
    if scale is None:
        return {}, None
    return {n: curve(some, scale) for n, some in means.items()}, scale


def _scale_title(scale: Scale | None, room: int) -> str:
    if scale is None:
        return ""
    low, high = (rounded(measure(x), max(3, (room - 3) // 2)) for x in (scale.low, scale.high))
    if low == high:  # no room for the digits that differ
        return f"all ≈{rounded(measure(scale.low), max(3, room - 5))}"
    return f"▁{low} █{high}"


def _missing(sweep: SweepView, view: View, layout: Layout) -> list[str]:
    """`+3 parameters`, and what the titles are in full that had to be shortened."""
    names = {*map(clean, sweep.varying), *map(clean, view.columns)}
    gone = len(names - layout.titles.keys())
    legend = layout.legend(column_names(sweep) | set(map(clean, view.columns)))
    more = [f"+{trials_of(gone, 'parameter')} (c)"] if gone else []
    return [*more, *([legend] if legend else [])]


def _workers(scene: Scene, columns: int, room: int) -> list[Line]:
    """Live workers, in at most `room` lines."""
    status = scene.sweep_status
    if not status.workers or room < 1:
        return []
    states = Counter(clean(w.state) for w in status.workers)
    words = f"workers: {', '.join(f'{n:,} {s}' for s, n in sorted(states.items()))}"
    rows = _worker_rows(status.workers, status.at_ms, columns)
    # The list may have all but a fifth; what it leaves blank is free.
    room = min(room, 1 + len(rows), max(3, room // 5, room + _LEAST_LIST - len(scene.rows)))
    if room < 2:
        return [[Span(words, Style.DIM)]]
    rule = [Span(f"{words} " + "─" * max(0, columns - width(words) - 1), Style.DIM)]
    hidden = len(rows) - (room - 1)
    if hidden > 0:
        rows = [*rows[: room - 2], [Span(f"and {hidden + 1:,} more: hpq workers", Style.DIM)]]
    return [rule, *rows]


_WORKER_COLUMNS = (
    Column(title="worker", keep=90, least=8),
    Column(title="state", keep=80),
    Column(title="trial", keep=70, least=8),
    Column(title="seen", keep=60, right=True),
    Column(title="device", keep=50, least=8),
)


def _worker_rows(workers: Sequence[Worker], at_ms: int, columns: int) -> list[Line]:
    rows = [
        [
            Span(clean(w.name)),
            Span(clean(w.state), Style.RED if w.state == "faulty" else Style.PLAIN),
            Span(clean(w.trial)),
            Span(f"seen {duration(at_ms - w.seen_ms)} ago"),
            Span(clean(w.device)),
        ]
        for w in workers
    ]
    layout = lay(_WORKER_COLUMNS, rows, columns)
    return [layout.row(row) for row in rows]


def _page(view: View, scene: Scene, terminal: TerminalInfo) -> Frame:
    """A text that fills the screen: a trial, help, importance, or the choice of columns."""
    if view.mode is Mode.HELP:
        lines, keys = _pairs(HELP), "Esc back"
    elif view.mode is Mode.IMPORTANCE:
        lines, keys = list(scene.importance), "Esc back"
    elif view.mode is Mode.COLUMNS:
        lines, keys = _choices(view), "Space chooses  Esc back"
    else:
        lines, keys = _trial(scene, terminal), "↑↓ scroll  x cancel  r retry  Esc back"
    whole = [part for line in lines for part in fold(line, terminal.columns)]
    room = terminal.rows - 1
    is_list = view.mode is Mode.COLUMNS
    top = min(view.line, max(0, len(whole) - room))
    if is_list:
        top = max(0, min(view.line - room // 2, len(whole) - room))
    shown = whole[top : top + room]
    more = f"  {top + 1:,}–{top + len(shown):,} of {len(whole):,}" if len(whole) > room else ""
    foot: Line = [Span(keys + more, Style.DIM)]
    if view.note:
        foot = [Span(clean(view.note), Style.YELLOW)]
    if view.mode is Mode.CONFIRM and view.act:
        foot = [Span(view.act.question, Style.BOLD)]
    blanks: list[Line] = [[]] * (room - len(shown))
    old = view.seen
    total = len(view.seen.names) if is_list else max(1, len(whole) - room + 1)
    seen = Seen(total=total, page=room, names=old.names, is_paused=old.is_paused)
    return [*shown, *blanks, foot], replace(view, seen=seen)


def _choices(view: View) -> list[Line]:
    lines: list[Line] = []
    for place, name in enumerate(view.seen.names):
        box = f"[{'x' if name in view.columns else ' '}] {clean(name)}"
        mark, style = ("▶ ", Style.BOLD) if place == view.line else ("  ", Style.PLAIN)
        lines.append([Span(mark + box, style)])
    return lines or [[Span("nothing varies", Style.DIM)]]


def _pairs(rows: Sequence[tuple[str, str]]) -> list[Line]:
    wide = max(width(key) for key, _ in rows)
    return [
        [Span(key + " " * (wide - width(key)) + "  ", Style.BOLD), Span(text)] for key, text in rows
    ]


def _trial(scene: Scene, terminal: TerminalInfo) -> list[Line]:
    """A large curve, then all that `hpq show` has, with the end of the log."""
    found, sweep = scene.detail, scene.sweep_status.sweep
    if found is None:
        return [[Span("the trial is not there any more", Style.DIM)]]
    row = TrialRow(trial=found.trial, sweep=sweep, at=scene.status)
    rest = found.lines(row, terminal.columns)
    lines = list(islice(rest, 2))  # its id and its state
    points = found.curves.get(sweep.metric.name, ()) if sweep.metric else ()
    finite = [p.value for p in points if p.value - p.value == 0]
    if finite and sweep.metric:
        high, low = measure(max(finite)), measure(min(finite))
        wide = max(width(high), width(low))
        pairs = [(float(p.step), p.value) for p in points]
        height = max(3, min(12, terminal.rows // 3))
        drawn = plot(pairs, terminal.columns - wide - 1, height)
        labels = [high, *[""] * (height - 2), low]
        lines.append([Span(clean(sweep.metric.name), Style.DIM)])
        lines += [
            [Span(f"{label:>{wide}} ", Style.DIM), Span(row, Style.CYAN)]
            for label, row in zip(labels, drawn, strict=True)
        ]
        ends = f"step {points[0].step}", f"step {points[-1].step}"
        gap = max(1, terminal.columns - wide - 1 - sum(map(len, ends)))
        lines.append([Span(" " * (wide + 1) + ends[0] + " " * gap + ends[1], Style.DIM)])
    return [*lines, *rest]


def _sweeps(view: View, scene: Scene, terminal: TerminalInfo) -> Frame:
    """The newest sweeps as a table; Enter opens one."""
    found = scene.sweeps
    rows = found.rows() if found else []
    line = max(0, min(view.line, len(rows) - 1))
    room = terminal.rows - 2
    top = max(0, min(line - room + 1, len(rows) - room))
    layout = lay(COLUMNS, rows, terminal.columns)
    shown = rows[top : top + room]
    ids = tuple(sweep.id for sweep in found.sweeps) if found else ()
    seen = Seen(total=len(rows), page=room, sweeps=ids)
    foot: Line = [Span(f"{line + 1:,} of {len(rows):,}  Enter opens  q {scene.on_quit}", Style.DIM)]
    blanks: list[Line] = [[]] * (room - len(shown))
    return [*layout.table(shown, line - top), *blanks, foot], replace(view, seen=seen)
