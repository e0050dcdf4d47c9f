"""One frame of watch: lines that fill at most so many columns and rows. Pure.

The verdict comes first and is never left out. Below it each section gets the rows that it needs
most, then what is left goes to them in order. All trials share one layout, so that columns align.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpq.codes import Notice
from hpq.domain.snapshot import Snapshot, Worker
from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialView
from hpq_producer.cluster.pods import ClusterSnapshot
from hpq_producer.diagnosis import pods
from hpq_producer.diagnosis.verdict import needed_actions, note_lines, status_lines
from hpq_producer.reports.trial_rows import column_names, curve_widths, trial_columns, trial_row
from hpq_producer.terminal.style import Line, Span, Style, fold
from hpq_producer.terminal.tables import Column, Layout, lay
from hpq_producer.terminal.text import clean, duration, trials_of, width

_LONGEST = 5  # lines of what needs the user
_HEADINGS = ("", "last ended", "best")  # what runs stands right below the table's titles
LEAST_COLUMNS, LEAST_ROWS = 30, 6
ROOMY_ROWS = 16  # from here on there are blanks, a footer and whole sentences
MOST_ROWS = 200  # a taller terminal stays empty below


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a frame shows: a snapshot, curves by trial number, and where the list is scrolled to."""

    snapshot: Snapshot
    curves: Mapping[int, Sequence[float]] = field(default_factory=dict)
    not_taken: Notice | None = None
    skip: int = 0  # running trials above the first one shown
    stale: str = ""  # why the snapshot is not of now
    on_quit: str = "q quits"  # what the key does
    cluster: ClusterSnapshot | None = None  # if its pods are this Redis's workers
    is_live: bool = True  # False: a page that is printed once, without keys, as short as it may be


def frame(scene: Scene, columns: int, rows: int) -> list[Line]:
    """At most `rows` lines of at most `columns` (when painted)."""
    if columns < LEAST_COLUMNS or rows < LEAST_ROWS:
        return [[Span(f"too small: needs {LEAST_COLUMNS}x{LEAST_ROWS}")]]
    head = _head(scene, columns, rows)
    room = min(rows, MOST_ROWS) - len(head)
    if rows < ROOMY_ROWS:
        return [*head, *_body(scene, columns, room)[0]]
    body, legend = _body(scene, columns, room - 1)
    foot = _foot(scene, legend, columns)
    if len(foot) > 1:
        body, legend = _body(scene, columns, room - len(foot))
        foot = _foot(scene, legend, columns)
    if not scene.is_live:
        return [*head, *body, *foot]
    blanks: list[Line] = [[]] * (rows - len(head) - len(body) - len(foot))
    return [*head, *body, *blanks, *foot]


def _head(scene: Scene, columns: int, rows: int) -> list[Line]:
    roomy = rows >= ROOMY_ROWS
    head = status_lines(scene.snapshot, columns, 2 if roomy else 1)[: rows - 2]
    head += _notes(scene, columns, rows // 3 if roomy else 1, rows - len(head) - 2)
    return [*head, []] if roomy else head[: rows - 1]


def _notes(scene: Scene, columns: int, room: int, most: int) -> list[Line]:
    """What needs the user; `most` lines instead of `room` where nothing goes on without them."""
    is_held = scene.snapshot.sweep.state is SweepState.HELD
    texts = [one.text for one in needed_actions(scene.snapshot, scene.not_taken)]
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


def _foot(scene: Scene, legend: Sequence[str], columns: int) -> list[Line]:
    """What keys do and how to read the table, in one line or else in two; printed once, whole."""
    running, total = len(scene.snapshot.running), scene.snapshot.sweep.counts.running
    keys = [scene.on_quit] if scene.is_live else []
    if scene.is_live and (running < total or scene.skip):
        keys.append(f"↑↓ scroll: running {scene.skip + 1}–{scene.skip + running} of {total}")
    items = [*keys, *legend]
    text = "  ".join(items)
    if len(items) > 1 and width(text) > columns:
        items = ["  ".join(items[:-1]), items[-1]]
    else:
        items = [text] if text else []
    lines: list[Line] = [[Span(item, Style.DIM)] for item in items]
    if scene.is_live:
        return lines
    return [part for line in lines for part in fold(line, columns)]


def _body(scene: Scene, columns: int, room: int) -> tuple[list[Line], list[str]]:
    """The lines, and what the table lacks: parameters left out, titles in full."""
    shot = scene.snapshot
    parts = (shot.running, shot.recent, shot.best)
    titles = 1 if any(parts) else 0
    wants = [
        len(part) + bool(head) if part else 0 for part, head in zip(parts, _HEADINGS, strict=True)
    ]
    workers, troubled = _worker_rows(scene, columns)
    have = 1 + len(workers) + len(troubled) if workers or scene.cluster else 0
    shares = share(room - titles, wants=[*wants, have], first=[4, 3, 3, 1], least=[1, 2, 2, 1])
    cut = [
        part[: max(0, n - bool(head))]
        for part, head, n in zip(parts, _HEADINGS, shares, strict=False)
    ]
    table, layout = _table(scene, cut, columns)
    out: list[Line] = [layout.header()] if any(table) else []
    for head, part in zip(_HEADINGS, table, strict=True):
        if part:
            out += [_heading(head, columns)] if head else []
            out += [layout.row(row) for row in part]
    if shares[3]:
        words = f"workers: {_count_workers(shot.workers)}"
        if scene.cluster:
            words += f"; {pods.count_pods(scene.cluster, shot.sweep.worker_class)}"
        rows = [*troubled, *workers][: shares[3] - 1]  # what is wrong is seen first
        # A rule announces rows; without any it would look as if they were missing.
        out += [_heading(words, columns), *rows] if rows else [[Span(words, Style.DIM)]]
    return out, _missing(scene, layout) if any(table) else []


def _table(
    scene: Scene, parts: Sequence[Sequence[TrialView]], columns: int
) -> tuple[list[list[list[Span]]], Layout]:
    """The rows of each part, with curves as wide as they may be, and the layout of all."""
    shot, heads = scene.snapshot, trial_columns(scene.snapshot.sweep, columns)
    for room in curve_widths(columns):
        table = [[trial_row(t, shot, scene.curves, columns, room) for t in p] for p in parts]
        layout = lay(heads, [row for part in table for row in part], columns)
        if layout.is_whole:
            break
    return table, layout


def _missing(scene: Scene, layout: Layout) -> list[str]:
    """`+3 parameters`, and what the titles are in full that had to be shortened."""
    sweep = scene.snapshot.sweep
    gone = layout.left_out([clean(name) for name in sweep.varying])
    legend = layout.legend(column_names(sweep))
    return [*([f"+{trials_of(gone, 'parameter')}"] if gone else []), *([legend] if legend else [])]


def _worker_rows(scene: Scene, columns: int) -> tuple[list[Line], list[Line]]:
    """The live workers, and the pods that are not at work."""
    shot = scene.snapshot
    workers = _worker_table(shot.workers, shot.at_ms, columns) if shot.workers else []
    if scene.cluster is None:
        return workers, []
    return workers, pods.pod_rows(scene.cluster, shot.workers, shot.sweep.worker_class, columns)


def share(room: int, wants: Sequence[int], first: Sequence[int], least: Sequence[int]) -> list[int]:
    """Rows for each section: its first few while there is room, then the rest in order.

    A section that would get less than its least gets none.
    """
    given = []
    for want, few, enough in zip(wants, first, least, strict=True):
        some = min(want, few, room)
        given.append(some if some >= enough else 0)
        room -= given[-1]
    for i, want in enumerate(wants):
        more = min(want - given[i], room) if given[i] else 0
        given[i] += more
        room -= more
    return given


def _count_workers(workers: Sequence[Worker]) -> str:
    states = Counter(clean(w.state) for w in workers)
    return ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none"


def _heading(title: str, columns: int) -> Line:
    return [Span(f"{title} " + "─" * max(0, columns - len(title) - 1), Style.DIM)]


_WORKER_COLUMNS = (
    Column(title="worker", keep=90, least=8),
    Column(title="state", keep=80),
    Column(title="trial", keep=70, least=8),
    Column(title="seen", keep=60, right=True),
    Column(title="device", keep=50, least=8),
)


def _worker_table(workers: Sequence[Worker], at_ms: int, columns: int) -> list[Line]:
    rows = [
        [
            Span(clean(w.name)),
            Span(clean(w.state), Style.RED if w.state == "faulty" else Style.PLAIN),
            Span(clean(w.trial)),
            Span(f"{duration(at_ms - w.seen_ms)} ago"),
            Span(clean(w.device)),
        ]
        for w in workers
    ]
    layout = lay(_WORKER_COLUMNS, rows, columns)
    return [layout.row(row) for row in rows]
