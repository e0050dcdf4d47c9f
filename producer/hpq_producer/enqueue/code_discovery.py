"""Find the code that a sweep file names, and build its launch record, still unsigned."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from filecmp import cmp
from functools import cached_property
from importlib import metadata
from itertools import pairwise, takewhile
from pathlib import Path, PurePath

from hpq.code.command import started
from hpq.code.reach import reach, texts_of
from hpq.code.snapshot import (
    MOST_BYTES,
    TRACKED,
    CodeTooLarge,
    Files,
    digest_of,
    git_root,
    left_out,
    manifest,
    take_snapshot,
    without_ignored,
)
from hpq.domain.sweep import FUNCTION, Launch, Wandb
from hpq.domain.trainer_specs import BUILT_IN, built_in_launch
from hpq.errors import SweepFileError, UserError
from hpq_producer.sweepfile.load import is_sweep_file
from hpq_producer.sweepfile.spec import SweepSpec

_NAMES = frozenset({"name", "description", "metric", "metrics"})  # keys that name no file


@dataclass(frozen=True, kw_only=True)
class DiscoveredCode:
    """A launch record and, if it is the user's code, its files and its directory."""

    launch: Launch
    files: Files | None = None  # of the snapshot
    folder: Path = Path()
    root: Path = Path()  # of the files' names
    is_sent: bool = True  # False: too large; the snapshot stays on this disk
    note: str = ""  # of code that is too large: what the snapshot holds instead
    left_out: tuple[str, ...] = ()  # modules that are not in the snapshot
    namesake: str = ""  # warning: another program of this name is beside the sweep file

    @cached_property
    def manifest(self) -> dict[str, str]:
        """{path: sha256} of the files."""
        return manifest(self.files or {})


class _CodeNotFound(Exception):
    """Raised if the code that a file names is not found; `find_code` adds the position."""


def find_code(
    spec: SweepSpec,
    file: Path,
    cwd: Path,
    code_dir: str | None = None,
    *,
    is_live: bool = False,
) -> DiscoveredCode:
    """Find the code of a sweep file; `code_dir` is --code.

    A program is searched for in the working directory, as W&B does, and then beside the file. Code
    named by `code:` or --code runs from a copy alone. Of other code, a snapshot runs over its
    directory, or the directory itself if `is_live` (--live).

    Raises:
        UserError: the code is not found, or code named by `code:` or --code is too large.
    """
    file = file.resolve()
    if spec.keys.trainer == FUNCTION:
        return DiscoveredCode(launch=Launch(trainer=FUNCTION, wandb=Wandb.STAND_IN))
    if spec.keys.trainer in BUILT_IN:
        return DiscoveredCode(launch=built_in_launch(spec.keys.trainer))
    try:
        folder = _code_folder(spec, file, cwd, code_dir)
        if folder is None:
            digest = _installed(spec.keys.trainer, cwd, file.parent)
            return DiscoveredCode(launch=_launch(spec, digest))
    except _CodeNotFound as error:
        raise SweepFileError(f"{_position(spec)}: {error}", code="code-invalid") from None
    folder, is_named = folder.resolve(), bool(code_dir or spec.keys.code)
    if is_named and is_live:
        raise UserError("--live runs the code's directory itself; remove --code and code:")
    words = {word for word in spec.command if "\0" not in word and Path(word).suffix in TRACKED}
    words |= {spec.keys.program} - {""}
    named = {path for word in words if (path := _normal(folder, word)).is_file()}

    def is_no_code(path: Path) -> bool:
        """Return True for sweep files: an edit of one does not change the code."""
        return path.resolve() == file or (path not in named and is_sweep_file(path))

    root = folder
    files = {}
    is_sent = True
    note = ""
    if is_named or is_live:
        files = take_snapshot(
            folder,
            _below(named, folder),
            is_no_code,
            is_sent=is_named,
            most=MOST_BYTES if is_named else math.inf,
        )
    else:
        root, files, is_sent, note = _frozen(spec, folder, named, is_no_code)
    if not is_live:
        _refuse_link(spec, _normal(folder, spec.keys.program), root)
    launch = replace(
        _launch(spec, digest_of(manifest(files)), folder),
        code_dir="" if is_named else str(folder),
        bundled=not is_live,
        root="" if is_named or is_live else str(root),
    )
    return DiscoveredCode(
        launch=replace(launch, reach=_reach(spec, launch, root, files)),
        files=files,
        folder=folder,
        root=root,
        is_sent=is_sent,
        note=note,
        left_out=() if is_live else tuple(left_out(root, files, is_no_code, is_sent=is_named)),
        namesake="" if is_named else _warn_of_namesake(spec, folder, file.parent),
    )


def _frozen(
    spec: SweepSpec, folder: Path, named: set[Path], is_no_code: Callable[[Path], bool]
) -> tuple[Path, Files, bool, str]:
    """Return the root of local code, its snapshot, whether it can be sent, and a note.

    The root is that of the git checkout, or else the directory; for too much code, the program's
    own directory.
    """
    program = _normal(folder, spec.keys.program)
    place = folder if program.is_relative_to(folder) else program.parent
    whole = git_root(place) or place
    for root in dict.fromkeys((whole, place, program.parent)):
        if not place.is_relative_to(root) and not program.is_relative_to(root):
            continue
        with contextlib.suppress(CodeTooLarge):
            files = take_snapshot(root, _below(named, root), is_no_code)
            return root, files, True, _note(whole, root)
    root = program.parent if spec.keys.program else place
    files = take_snapshot(root, _below(named, root), is_no_code, most=math.inf)
    return root, files, False, _note(whole, root)


def _note(whole: Path, root: Path) -> str:
    if root == whole:
        return ""
    return f"{whole} has more than 10 MiB of code: the snapshot holds {root} alone"


def _refuse_link(spec: SweepSpec, program: Path, root: Path) -> None:
    """Raise SweepFileError if the program is a link out of the root: no snapshot holds its file."""
    is_below = program.is_file() and program.is_relative_to(root)
    if is_below and not program.resolve().is_relative_to(root.resolve()):
        text = f"{_position(spec)}: {program} is a link to {program.resolve()}, outside {root}"
        raise SweepFileError(f"{text}; copy that file, or name it", code="code-invalid")


def _normal(folder: Path, word: str) -> Path:
    """Return the path that a word of a command may name; links are not followed."""
    return Path(os.path.normpath(folder / word))


def _below(named: Iterable[Path], root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in named if path.is_relative_to(root)]


def _warn_of_namesake(spec: SweepSpec, folder: Path, beside: Path) -> str:
    program = spec.keys.program
    ours, other = folder / program, beside / program
    if not program or folder == beside or not (ours.is_file() and other.is_file()):
        return ""
    if ours.samefile(other) or cmp(ours, other, shallow=False):
        return ""
    return (
        f"two programs are named {program}: this sweep runs the one in {folder}, not the one"
        f" beside the sweep file; for that one, add --code {beside}"
    )


def _reach(spec: SweepSpec, launch: Launch, root: Path, files: Files) -> str:
    """Return the digest of the files that decide the results of a sweep's trials."""
    texts = texts_of({key: one for key, one in spec.source.items() if key not in _NAMES})
    names = without_ignored(root, sorted(reach(launch, files, texts)))
    return digest_of(manifest({name: files[name] for name in names}))


def _launch(spec: SweepSpec, digest: str, folder: Path = Path()) -> Launch:
    keys = spec.keys
    command = spec.command
    if _is_console_script(keys.program) and not (folder / keys.program).is_file():
        command = tuple(word for word in command if word != "${interpreter}")  # it starts itself
    return Launch(
        trainer=keys.trainer,
        program=keys.program if (folder / keys.program).is_file() else _started_program(spec),
        command=command,
        code=digest,
        pass_env=keys.pass_env,
        resident=keys.resident,
        preload=keys.preload,
        wandb=None if keys.trainer else keys.wandb,
    )


def _code_folder(spec: SweepSpec, file: Path, cwd: Path, code_dir: str | None) -> Path | None:
    """Return the directory of local code; None for an installed trainer."""
    keys = spec.keys
    named = code_dir if code_dir is not None else keys.code
    if named:
        folder = (cwd if code_dir is not None else file.parent) / Path(named).expanduser()
        if not folder.is_dir():
            key = "--code" if code_dir is not None else "code"
            what = "is no directory" if folder.exists() else "does not exist"
            starts = spec.keys.program or spec.keys.trainer or "the program"
            text = f"{key}: {folder} {what}; name the directory of {starts}"
            raise UserError(text, code="code-invalid")
        _find_folder(spec, [folder])
        return folder
    places = [cwd, file.parent]
    if keys.trainer:
        return next((p for p in places if _has_module(p, keys.trainer)), None)
    return _find_folder(spec, places)


def _find_folder(spec: SweepSpec, places: list[Path]) -> Path:
    keys, program = spec.keys, _started_program(spec)
    is_file = program.endswith(".py") and not any(_is_module(spec, place) for place in places)
    if is_file and _runs_a_module(spec):
        module = ".".join(PurePath(program).with_suffix("").parts)
        raise _CodeNotFound(f"-m runs a module, not a file; write program: {module}")
    for place in places:
        if keys.trainer and _has_module(place, keys.trainer):
            return place
        if keys.program and ((place / keys.program).is_file() or _is_module(spec, place)):
            return place
        if spec.command and not program and _names_a_file(spec.command, place):
            return place
    script = _script(spec.command)
    if spec.command and not program and not script:
        return places[0]
    if _is_console_script(program):
        return places[0]
    what = program or script or keys.trainer
    looked = " nor in ".join(dict.fromkeys(str(p) for p in places))
    if line := _as_command(program, spec.command):
        raise _CodeNotFound(f"no file {program!r} in {looked}; for a command line, {line}")
    close = (
        get_close_matches(what, _similar_names(what, places), n=1) if what != keys.trainer else []
    )
    hint = f"did you mean {close[0]!r}?" if close else "name its directory with `code:` or --code"
    if what == program and not close and not re.search(r"[./]", what):  # a console script?
        hint += ", or install it here"
    raise _CodeNotFound(f"{what!r} is not in {looked}; {hint}")


def _as_command(program: str, command: tuple[str, ...]) -> str:
    """Return how to write a command line that stands in place of the program; "" for a name."""
    words = program.split()
    if words in ([], [program]):
        return ""
    has_python = re.fullmatch(r"python[\d.]*", os.path.basename(words[0]))
    rest = words[1:] if has_python else words
    flags = list(takewhile(lambda word: word.startswith("-") and word != "-m", rest))
    rest = rest[len(flags) :]
    if rest[:1] == ["-m"]:
        flags.append("-m")
        rest = rest[1:]
    name, *options = rest or ["train.py"]
    if flags[-1:] != ["-m"] and not name.endswith(".py"):  # torchrun train.py
        return f"remove it, and write command: {json.dumps([*words, '${args}'])}"
    has_more = bool(flags or options)
    if not has_more or "${program}" not in command:
        return f"write program: {name}" + (", and its options in command" if has_more else "")
    place = command.index("${program}")
    line = [*command[:place], *flags, *command[place : place + 1], *options, *command[place + 1 :]]
    return f"write program: {name} and command: {json.dumps(line)}"


def _started_program(spec: SweepSpec) -> str:
    """Return the program; "" if the command does not start it: W&B then needs no such file."""
    is_started = not spec.command or any("${program}" in word for word in spec.command)
    return spec.keys.program if is_started else ""


def _is_module(spec: SweepSpec, folder: Path) -> bool:
    """Return True if the command runs the program as a module (`python -m`) of the folder."""
    path = folder.joinpath(*spec.keys.program.split("."))
    is_there = path.with_name(f"{path.name}.py").is_file() or (path / "__main__.py").is_file()
    return _runs_a_module(spec) and is_there


def _runs_a_module(spec: SweepSpec) -> bool:
    return [a for a, b in pairwise(spec.command) if b == "${program}"] == ["-m"]


def _is_console_script(program: str) -> bool:
    """Return True for the bare name of a command on PATH."""
    return bool(program) and os.path.basename(program) == program and bool(shutil.which(program))


def _names_a_file(command: tuple[str, ...], folder: Path) -> bool:
    """Return True if the folder has the script of a command, or, without one, a file it names."""
    if script := _script(command):
        return (folder / script).is_file()
    return any((folder / word).is_file() for word in command if word and "\0" not in word)


def _script(command: tuple[str, ...]) -> str:
    """Return the file that a command starts; "" if it starts none, or one outside the code."""
    script = started(command)[1] if command else ""
    return "" if "${" in script or "\0" in script or os.path.isabs(script) else script


def _position(spec: SweepSpec) -> str:
    """Return where the file or an option names the code: file:line:col: key."""
    key = "program" if spec.keys.program else "trainer" if spec.keys.trainer else "command"
    return f"{spec.source_map.find((key,))[1]}: {key}"


def _similar_names(program: str, places: list[Path]) -> list[str]:
    """Return files with the program's suffix in its directory, for a hint on a typo."""
    inside = PurePath(program).parent
    found: list[str] = []
    for place in places:
        with contextlib.suppress(OSError):
            found += [
                str(inside / entry.name)
                for entry in sorted((place / inside).iterdir())
                if entry.suffix == PurePath(program).suffix and entry.is_file()
            ]
    return found


def _has_module(folder: Path, trainer: str) -> bool:
    top = trainer.partition(":")[0].split(".")[0]
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def _installed(trainer: str, *looked: Path) -> str:
    """Return the distribution and version of an installed trainer."""
    module = trainer.partition(":")[0]
    top = module.split(".")[0]
    if importlib.util.find_spec(top) is None:
        places = " nor in ".join(dict.fromkeys(str(p) for p in looked))
        raise _CodeNotFound(f"{trainer!r}: module {top!r} is neither in {places} nor installed")
    names = metadata.packages_distributions().get(top, [])
    return "+".join(f"{name}=={metadata.version(name)}" for name in names) or f"module {top}"
