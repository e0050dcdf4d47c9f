"""The code of a sweep: verified once for each digest, copied for each attempt.

Another user may have written the bundle in Redis: a worker unpacks it only if the digest of all its
files equals the one in the signed launch record.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpq.code import bundle as packing
from hpq.code.command import starts_program
from hpq.code.editable import EditableInstalls, editable_installs
from hpq.code.manifest import Files, changed, digest_of, manifest, take_snapshot
from hpq.code.signing import home_id
from hpq.domain.attempt import Outcome
from hpq.domain.sweep import Launch, Sweep
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq.errors import UserError
from hpq.notice import Notice
from hpq_worker.files.workdir import DirectoryLock

_VERIFIED = 4  # snapshots in memory; each is at most 10 MiB, or else on this disk alone
_BYTECODE = "__pycache__"
_INSTALLED = ".hpq-editable"  # links to packages, in a tree
_MISSING = re.compile(
    r"FileNotFoundError: \[Errno 2\] [^:]+: '(?P<file>[^']+)'"
    r"|ModuleNotFoundError: No module named '(?P<module>[^']+)'"
)
_NUMBERS = itertools.count(1)


class CodeBundles:
    """The verified snapshots of this worker; `fetch` reads a bundle from Redis."""

    def __init__(
        self, home: Path, fetch: Callable[[str], bytes | None], *, in_pod: bool = False
    ) -> None:
        self._home, self._fetch, self._in_pod = home.absolute(), fetch, in_pod
        self._verified: dict[str, Files] = {}

    def refusal(self, launch: Launch) -> Notice | None:
        """Return why the code of a launch cannot run, with the remedy; None if it can.

        Raises:
            RedisError: the bundle was not verified yet, and Redis is away.
        """
        try:
            self._files(launch.code)
        except ValueError as error:
            text = f"its code in Redis differs from the signed code ({error}); enqueue it again"
            return Notice("code-altered", text)
        return None

    def is_local(self, launch: Launch) -> bool:
        """True if this machine enqueued the launch, and has the directory of its code."""
        return launch.is_frozen and self.works_in(launch) and os.path.isdir(launch.code_dir)

    def works_in(self, launch: Launch) -> bool:
        """True if trials need the code's directory: it runs live, or was enqueued here."""
        if not launch.code_dir or not launch.bundled:
            return bool(launch.code_dir)
        return not self._in_pod and bool(launch.home) and launch.home == home_id(self._home)

    def copy(self, launch: Launch, folder: Path) -> CodeTree:
        """Make the code tree of a launch as a new folder.

        Raises:
            OSError: the files cannot be written, or the bundle was removed.
        """
        try:
            files = self._files(launch.code)
        except ValueError as error:
            raise OSError(f"the code of the sweep: {error}") from None
        packing.write(files, folder)
        tree = CodeTree(folder, files, launch)
        os.makedirs(tree.code_dir, exist_ok=True)
        tree.share_bytecode(self._bytecode(launch))
        if self.is_local(launch):
            tree.link_the_rest()
        return tree

    def own_copy(self, launch: Launch) -> CodeTree:
        """Make a code tree for a runner that outlives attempts.

        Raises:
            OSError: as `copy`.
        """
        path = self._home / "work" / f"code-{launch.code[:12]}.{os.getpid()}.{next(_NUMBERS)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(path)
        try:
            shutil.rmtree(path, ignore_errors=True)
            tree = self.copy(launch, path)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            lock.release()
            raise
        tree.lock = lock
        return tree

    def judge(self, sweep: Sweep, outcome: Outcome | None) -> Outcome | None:
        """Blame this host for a file or module that only the host of the enqueue has.

        Once a trial of the code has finished here, the trial itself is blamed.
        """
        launch = sweep.launch
        if outcome is None or not launch.is_frozen or self.is_local(launch):
            return outcome
        finished = self._bytecode(launch) / "finished-here"
        if outcome.state in (TrialState.FINISHED, TrialState.PRUNED):
            with suppress(OSError):
                finished.parent.mkdir(parents=True, exist_ok=True)
                finished.touch()
        message = outcome.failure.message if outcome.failure else ""
        if (missing := _MISSING.search(message)) and not finished.exists():
            host = str(sweep.provenance.get("host") or "the host of the enqueue")
            needed = missing["file"] or f"the module {missing['module']}"
            text = f"{launch.what} needs {needed}, which is only on {host}; copy it here"
            failure = Failure(kind=FailureKind.DATA_MISSING, message=text, fingerprint=text)
            return replace(outcome, failure=failure)
        return outcome

    def _bytecode(self, launch: Launch) -> Path:
        return self._home / "cache" / "bytecode" / launch.code

    def _files(self, digest: str) -> Files:
        files = self._verified.pop(digest, None)
        if files is None:
            files = packing.read_kept(self._home, digest)
        if files is None:
            data = self._fetch(digest)
            if data is None:
                raise ValueError("it was removed, or was too large for Redis")
            files = packing.unpack(data, digest)
        self._verified[digest] = files
        if len(self._verified) > _VERIFIED:
            del self._verified[next(iter(self._verified))]
        return files


class CodeTree:
    """A directory with copies of a snapshot's files; on the machine that enqueued, with links to
    all other entries of the user's directory, so that programs find data beside the code."""

    def __init__(self, path: Path, files: Files, launch: Launch) -> None:
        self.path, self._files, self.launch = path, files, launch
        self.is_linked = False
        self.lock: DirectoryLock | None = None
        self._folders = {""}
        for folder in {launch.below, *(name.rpartition("/")[0] for name in files)}:
            while folder not in self._folders:
                self._folders.add(folder)
                folder = folder.rpartition("/")[0]

    @property
    def code_dir(self) -> str:
        """The copy of the directory that the sweep's code is started from."""
        return os.path.join(self.path, self.launch.below).rstrip("/")

    def share_bytecode(self, cache: Path) -> None:
        """Let all copies of this code use one cache of bytecode."""
        for folder in {name.rpartition("/")[0] for name in self._files if name.endswith(".py")}:
            target = f"{cache}/{folder}"
            if not os.path.isdir(target):
                os.makedirs(target, exist_ok=True)
            os.symlink(target, f"{self.path}/{folder}/{_BYTECODE}")

    def link_the_rest(self) -> None:
        """Link every entry of the user's directory that the snapshot does not hold."""
        self.is_linked = True
        present = self._folders | self._files.keys()
        for folder in self._folders:
            with suppress(OSError), os.scandir(os.path.join(self.launch.root, folder)) as found:
                for entry in found:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if name not in present and entry.name != _BYTECODE:
                        os.symlink(entry.path, f"{self.path}/{name}")

    def word(self, word: str) -> str:
        """Return a word of the command; for a file of the snapshot, the path of its copy."""
        return self._mapped(word) if self._name(word) in self._files else word

    def python_path(self, value: str) -> list[str]:
        """Return the entries of PYTHONPATH, with paths in the user's code moved to this tree."""
        return [self._mapped(entry) for entry in value.split(os.pathsep) if entry]

    def installs(self, editable: EditableInstalls) -> list[str]:
        """Return the paths in this tree of editable installs from the code's directory."""
        paths = [self._mapped(p) for p in editable.paths if self._name(p) is not None]
        inside = {n: p for n, p in editable.packages.items() if self._name(p) is not None}
        folder = f"{self.path}/{_INSTALLED}"
        for name, path in inside.items():
            os.makedirs(folder, exist_ok=True)
            with suppress(FileExistsError):  # of an earlier trial
                os.symlink(self._mapped(path), f"{folder}/{name}")
        return [*paths, folder] if inside else paths

    def _mapped(self, path: str) -> str:
        name = self._name(path)
        return path if name is None else os.path.normpath(f"{self.path}/{name}")

    def _name(self, path: str) -> str | None:
        """Return a path relative to the root of the code; None for a path outside it."""
        if "\0" in path:
            return None
        root = self.launch.root or "/code"  # code that was sent has no place of its own
        whole = os.path.normpath(os.path.join(self.launch.code_dir or root, path))
        name = os.path.relpath(whole, root)
        return None if name.startswith("..") else name

    def edited_settings(self) -> list[str]:
        """Return the files, except modules, that the user has edited since the snapshot."""
        files = {name: file for name, file in self._files.items() if not name.endswith(".py")}
        return changed(Path(self.launch.root), manifest(files))

    def collect(self, out: Path) -> None:
        """Move files that a program wrote into the tree to HPQ_OUT; replace none there."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, self.path)
                if os.path.islink(path) or not self._is_written(path, relative):
                    continue
                target = out / relative
                if target.exists():
                    target = out / "code" / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)

    def _is_written(self, path: str, name: str) -> bool:
        found = os.lstat(path)
        content, _ = self._files.get(name, (None, 0))
        is_kept = content is not None and found.st_size == len(content)
        return not is_kept or found.st_mtime != packing.WRITTEN_S

    def remove(self) -> None:
        """Remove the tree; never fails."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock is not None:
            with suppress(OSError):
                self.lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an attempt runs: its working directory, the directory of its code, its tree."""

    cwd: str = ""
    code_dir: str = ""
    tree: CodeTree | None = None
    note: str = ""  # of code that runs live

    @classmethod
    def live(cls, launch: Launch, folder: str) -> Place:
        """Return the user's directory; the note has the digest of its current files."""
        note = ""
        with suppress(UserError):  # a file that cannot be read
            if launch.code_dir:
                found = manifest(take_snapshot(Path(folder), most=math.inf))
                note = f"--live: {len(found)} files, digest {digest_of(found)}"
        return cls(cwd=folder, code_dir=folder, note=note)

    @classmethod
    def in_tree(cls, launch: Launch, tree: CodeTree) -> Place:
        """Return a tree's place; the working directory is the user's for an interpreted program."""
        is_users = launch.trainer or starts_program(launch.command, launch.program)
        cwd = launch.code_dir if tree.is_linked and is_users else tree.code_dir
        return cls(cwd=cwd, code_dir=tree.code_dir, tree=tree)

    def words(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words of a command, with the files of the code as paths of their copies."""
        return tuple(self.tree.word(word) for word in command) if self.tree else command

    def environment(self, environ: Mapping[str, str], python: str) -> dict[str, str]:
        """Return an environment whose PYTHONPATH names the copy of the code, not the original.

        The same holds for editable installs of the Python that runs the code.
        """
        if self.tree is None:
            return dict(environ)
        entries = self.tree.python_path(environ.get("PYTHONPATH", ""))
        entries += self.tree.installs(editable_installs(python))
        return {**environ, **({"PYTHONPATH": os.pathsep.join(entries)} if entries else {})}

    def as_enqueued(self, failure: Failure) -> Failure:
        """Return a failure with the paths of the user's code, which are alike in all trials."""
        prefix = f"{self.tree.path}/" if self.tree else "\0"
        message, mark = (t.replace(prefix, "") for t in (failure.message, failure.fingerprint))
        return replace(failure, message=message, fingerprint=mark)

    def close(self, out: Path) -> str:
        """Move files that were written into the tree to HPQ_OUT; return a line for the trial's log.

        The line has the digest of live code, or the settings files that were edited since.
        """
        if self.tree is None:
            return self.note
        self.tree.collect(out)
        if self.cwd == self.code_dir or not (edited := self.tree.edited_settings()):
            return ""
        text = "edited since the enqueue; a program that read the file in"
        return f"{', '.join(edited)}: {text} {self.cwd} read the edited one"
