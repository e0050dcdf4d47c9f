"""`hpq diff`: compare two sweeps or two trials, or a sweep with a working directory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from hpq.access.session import Session, open_session
from hpq.code import bundle
from hpq.code.diff import text_diff
from hpq.code.signing import own_directory
from hpq.code.snapshot import (
    Files,
    digest_of,
    git_root,
    left_out,
    manifest,
    take_snapshot,
)
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trainer_specs import built_in_launch, is_built_in
from hpq.domain.trial import Json, TrialId, flatten
from hpq.errors import SweepFileError, UserError
from hpq.filestore.base import is_safe_name
from hpq.settings import Settings
from hpq.shell import shell_hint
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import read
from hpq_producer.commands.common_flags import Output
from hpq_producer.enqueue.provenance import code_location
from hpq_producer.sweepfile.load import is_sweep_file, sweep_document
from hpq_views.analysis.output_records import finite
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.comparison import result_cells
from hpq_views.command_output.provenance import read_code, versions_of
from hpq_views.command_output.results_table import code_name
from hpq_views.command_output.summary_page import read_moment
from hpq_views.targets import complete_sweep_ids, find_target
from hpq_views.text.console import show_lines, show_table, stdout_info
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span, Style, paint
from hpq_views.text.tables import Column, lay
from hpq_views.text.text import clean, clean_block, first_of, value
from hpq_views.text.yaml_text import to_yaml
from hpq_views.why.verdict import state_span

_MOST = 100  # lines of a diff, or rows of a table, on a terminal
_STYLES = {"+": Style.GREEN, "-": Style.RED, "@": Style.CYAN, "d": Style.BOLD}


def diff(
    one: Annotated[
        str | None,
        Argument(
            metavar="A",
            help="Sweep or trial: SWEEP/7, or 7 of your last sweep. Default: your last sweep.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    other: Annotated[
        str | None,
        Argument(
            metavar="B",
            help="Another of the same kind. Default: the working directory.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Compare two sweeps or two trials: sweep file, code, packages, machine, results.

    One alone is compared with the working directory: sweep file and code as they are now. The exit
    code is 0 whether or not they differ, as with git diff; -o json has `equal`. A terminal shows
    the first 100 lines of each diff, a pipe shows all.

    Examples:
      hpq diff digits-3f2a1 digits-9c0de
      hpq diff digits-3f2a1/7 digits-3f2a1/9
      hpq diff
    """
    with open_session() as session:
        reader, user = session.reader, session.settings.user
        found = find_target(reader, one, user)
        old = side_of(session, found)
        if other is None:
            sid = found if isinstance(found, str) else found.sweep
            new = directory_side(session.settings, reader.sweeps.get(sid), old)
        else:
            second = find_target(reader, other, user)
            if isinstance(found, str) != isinstance(second, str):
                text = f"{found} and {second} are a sweep and a trial; name two sweeps, or two"
                raise UserError(f"{text} trials such as SWEEP/7")
            new = side_of(session, second)
    sections = compare(old, new)
    if output.is_data:
        record = {one.title.replace(" ", "_"): one.record() for one in sections}
        return show_data({"a": old.name, "b": new.name, **record}, output)
    names = (("a", old.name), ("b", new.name))
    show_lines([Span(f"{side}  ", Style.DIM), Span(clean(name))] for side, name in names)
    for section in sections:
        _show(section, shell_hint(["hpq", "diff", *filter(None, (one, other))]))


def _show(section: Section, command: str) -> None:
    """Print a section: one line if it is equal."""
    terminal, note = stdout_info(), clean(section.note)
    print()
    title = "; ".join(filter(None, ("equal" if section.is_equal else "", note)))
    title = f": {title}" if title else ""
    show_lines([[Span(section.title, Style.BOLD), Span(title)]], whole=True)
    most = _MOST if terminal.tty else None
    lines = section.diff.splitlines()
    for line in lines[:most]:
        style = _STYLES.get(line[:1], Style.PLAIN)
        wide = replace(terminal, columns=len(line) * 8 + 1)  # the terminal wraps: nothing is cut
        print(paint([Span(line.expandtabs(), style)], wide) if terminal.tty else line)
    if section.differ:
        columns = [Column(title=""), Column(title="a"), Column(title="b")]
        rows = list(section.differ.items())[:most]
        cells = [[Span(clean(name), Style.DIM), *map(Span, map(_shown, two))] for name, two in rows]
        if lay(columns, cells, terminal.columns).is_whole:
            return show_table(columns, cells)
        for name, *two in cells:
            sides = ([Span(f"  {side}  "), one] for side, one in zip("ab", two, strict=True))
            show_lines([[name], *sides], whole=True)
    rest = max(len(lines), len(section.differ)) - _MOST
    if most and rest > 0:
        show_lines([[Span(f"… {rest:,} more: {command} | less", Style.DIM)]])


def _shown(one: Json) -> str:
    """Return a value with all its digits: what differs must not look alike."""
    if one is None:
        return ""
    return repr(one) if isinstance(one, float) else value(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is compared of a sweep, a trial or a working directory.

    `keys` are those of the sweep file as YAML, sorted; `text` is the file itself, "" if --set or an
    entry of a list made other keys. `facts` are tables by title: packages, machine and results.
    """

    name: str
    file: str = ""  # name of the sweep file
    text: str = ""
    keys: str = ""
    no_file: str = ""  # why there is no sweep file
    code: str = ""
    launch: Launch | None = None  # of a sweep or a trial
    files: Files | None = None
    names: Mapping[str, str] = field(default_factory=dict)  # path → SHA-256
    why: str = ""  # why `files` are not known
    beyond: Sequence[str] = ()  # of a directory: code that a snapshot does not hold
    facts: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One thing that was compared; `differ` has the two values by name."""

    title: str
    note: str
    diff: str = ""
    differ: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)
    is_equal: bool = False

    def record(self) -> dict[str, Any]:
        """Return the section as `-o json` prints it."""
        pairs = {name: list(pair) for name, pair in self.differ.items()}
        return {"equal": self.is_equal, "note": self.note, "diff": self.diff, "differ": pairs}


def side_of(session: Session, found: str | TrialId) -> Side:
    """Read a sweep or a trial that `find_target` has found, before another one is found."""
    reader = session.reader
    sweep = session.verifiable(found if isinstance(found, str) else found.sweep)
    files, why = None, ""
    try:
        files = read_code(reader, sweep)
    except UserError as error:
        if error.code != "code-not-kept":
            raise
        files, why = bundle.read_kept(session.settings.home, sweep.launch.code), str(error)
    texts = [str(sweep.provenance.get("text") or ""), *(file.text for file in sweep.files)]
    specs = [sweep.spec, *(file.spec for file in sweep.files)]
    text, keys = _as_text(texts, specs)
    if isinstance(found, TrialId):
        digests, facts = _of_trial(session, sweep, found)
    else:
        digests, facts = _of_sweep(session, sweep)
    records = [reader.sweeps.provenance(one) for one in sorted(digests)]
    versions = [versions_of(record) for record in records]
    packages = _merged({n: v for n, v in one.items() if n != "Python"} for one in versions)
    machine = _merged(
        {name: record.get(name) for name in ("host", "device", "gpus", "image", "platform")}
        | {"Python": one.get("Python")}
        for record, one in zip(records, versions, strict=True)
    )
    return Side(
        name=str(found), file=_file_of(sweep).name, text=text, keys=keys, code=sweep.launch.code,
        launch=sweep.launch,
        files=files, why=why,
        names=manifest(files) if files else reader.sweeps.manifest(sweep.launch.code),
        facts={"packages": packages, "machine": machine, **facts},
    )  # fmt: skip


def _of_trial(session: Session, sweep: SweepView, found: TrialId) -> tuple[set[str], Any]:
    trial = session.reader.trials.get(found)
    row = TrialRow(trial=trial, sweep=sweep)
    results = {"state": trial.state.value, "objective": finite(trial.objective), "seed": row.seed}
    results |= {"step": trial.step or None, "time": row.time or None, "why": row.why or None}
    metrics = {name: finite(last) for name, last in trial.metrics.items()}
    parameters = flatten(trial.params) | ({"(begins at)": row.start} if row.start else {})
    facts = {"parameters": parameters, "results": {**results, **metrics}}
    return {trial.provenance} - {""}, facts


def _of_sweep(session: Session, sweep: SweepView) -> tuple[set[str], Any]:
    it = read_moment(session, sweep, 1)
    summary, best = it.summary, it.best[:1]
    results = result_cells(summary, best, state_span(it.sweep, None).text)
    for row in [TrialRow(trial=trial, sweep=sweep) for trial in best]:
        results["best trial"] = str(row.trial.id.number)
        results |= {f"best {name}": row.param(name) for name in sweep.varying}
    return summary.ran_on, {"results": {name: text for name, text in results.items() if text}}


def directory_side(settings: Settings, sweep: SweepView, old: Side) -> Side:
    """Read the working directory as a sweep's code and file are there now.

    The root is the same directory of the current directory's git checkout, or else the current
    directory; if it has fewer files of the code, this user's directory of the enqueue.
    """
    launch, here = sweep.launch, Path.cwd()
    was = Path(launch.root or code_location(sweep).folder)
    roots = [git_root(here) or here]
    if own_directory(settings, sweep):  # else Redis alone names `was`: only its text is used
        whole = git_root(was)
        below = was.relative_to(whole) if whole and was.is_relative_to(whole) else Path()
        roots = [roots[0] / below, was]
    file = _file_of(sweep)
    inner = file.relative_to(was) if file.is_relative_to(was) else file
    names = [*old.names, str(inner)]
    root = max(roots, key=lambda at: sum((at / name).is_file() for name in names))
    files = None
    code = ""
    why = old.why
    beyond = list[str]()

    def is_no_code(path: Path) -> bool:
        return str(path.relative_to(root)) not in old.names and is_sweep_file(path)

    if is_built_in(launch):
        code = built_in_launch(launch.trainer).code
    elif named := [name for name in old.names if (root / name).is_file()]:
        files = take_snapshot(
            root,
            named,
            is_no_code,
            is_sent=not launch.code_dir,
            most=math.inf,
        )
        code = digest_of(manifest(files))
        beyond = left_out(root, files, is_no_code, is_sent=not launch.code_dir)
    elif old.names:
        why = f"{root} has no file of this code; run hpq diff in the directory of the code"
    file = root / inner if inner.name else inner
    text = ""
    keys = None
    no_file = "not compared: the sweep was enqueued without a file"
    if file.name and not file.parent.is_dir():  # wandb.sweep writes its dictionary to such a file
        file, no_file = Path(), f"not compared: {file.parent} no longer exists"
    elif file.name and not (_is_inside(root, file) or is_sweep_file(file)):
        no_file = f"not compared: {file} is not in {root}, and is no YAML sweep file"
        file = Path()
    try:
        if file.name:  # a path that Redis holds: it may be that of any file
            text = read(file)
            keys = sweep_document(text, str(file)).data
    except SweepFileError as error:
        text, no_file = "", f"not compared: {error}"
    return Side(
        name=f"{root} as it is now", file=file.name, text=text, no_file=no_file,
        keys=to_yaml(keys, sort_keys=True),
        code=code, files=files, names=manifest(files or {}), why=why, beyond=beyond,
    )  # fmt: skip


def _is_inside(root: Path, file: Path) -> bool:
    """Return False for a file elsewhere: Redis, which names the file, could name a private one."""
    return file.is_relative_to(root) and is_safe_name(str(file.relative_to(root)))


def _file_of(sweep: SweepView) -> Path:
    return Path(str(sweep.provenance.get("file") or ""))


def _parsed(text: str) -> Json:
    """Return the keys of a sweep file; None if it is not valid."""
    try:
        return yaml_reader.parse(text, "").data if text else None
    except SweepFileError:
        return None


def _as_text(texts: list[str], specs: list[Mapping[str, Json]]) -> tuple[str, str]:
    """Return the files of a sweep as text, "" if a text has other keys than ran, and as YAML."""
    is_whole = all(_parsed(text) == spec for text, spec in zip(texts, specs, strict=True))
    keys = "---\n".join(to_yaml(dict(spec), sort_keys=True) for spec in specs)
    return ("---\n".join(texts) if is_whole else ""), keys


def _merged(records: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    """Return the values of several records by name, joined: `2.4, 2.5`."""
    found: dict[str, set[str]] = {}
    for record in records:
        for name, one in record.items():
            words = one if isinstance(one, list) else [one]
            found.setdefault(name, set()).update(value(word) for word in words if word)
    return {name: ", ".join(sorted(words)) for name, words in found.items() if words}


def compare(a: Side, b: Side) -> list[Section]:
    """Compare two sides; packages, machine and results only if both have them."""
    shared = [title for title in a.facts if title in b.facts]
    return [_file(a, b), _code(a, b), *(_facts(title, a, b) for title in shared)]


def _file(a: Side, b: Side) -> Section:
    old, new = (a.text, b.text) if a.text and b.text else (a.keys, b.keys)
    if b.no_file and not b.text:
        return Section(title="sweep file", note=b.no_file)
    name = a.file if a.file == b.file and is_safe_name(a.file) else "sweep.yaml"
    diff = _diff(*({name: (text.encode(), 0o644)} for text in (old, new)))
    note = "" if (old, new) == (a.text, b.text) else "the keys with --set applied"
    return Section(title="sweep file", note=note, diff=diff, is_equal=old == new)


def _diff(old: Files, new: Files) -> str:
    return clean_block(text_diff(old, new))


def _code(a: Side, b: Side) -> Section:
    note = f"not in the snapshot, not compared: {first_of(b.beyond)}" if b.beyond else ""
    if a.code and a.code == b.code:
        return Section(title="code", note=note, is_equal=True)
    if a.launch and b.launch and a.launch.has_code_of(b.launch):
        note = "; ".join(filter(None, (note, "files that neither program imports differ")))
    if a.files is not None and b.files is not None:
        return Section(title="code", note=note, diff=_diff(a.files, b.files))
    differ = {
        name: (a.names.get(name, "")[:8], b.names.get(name, "")[:8])
        for name in sorted({*a.names, *b.names})
        if a.names and b.names and a.names.get(name) != b.names.get(name)
    }
    why = dict.fromkeys(one.why for one in (a, b) if one.files is None and one.why)
    if not differ and a.code != b.code:
        differ = {"code": (code_name(a.code), code_name(b.code))}
    return Section(title="code", note="; ".join(filter(None, (note, *why))), differ=differ)


def _facts(title: str, a: Side, b: Side) -> Section:
    old, new = a.facts[title], b.facts[title]
    if unknown := [side.name for side in (a, b) if not side.facts[title]]:
        return Section(title=title, note=f"not known of {' and '.join(unknown)}")
    names = dict.fromkeys([*old, *new])
    differ = {n: (old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)}
    return Section(title=title, note="", differ=differ, is_equal=not differ)
