"""The code of a sweep: verified once for each digest and worker, copied for each attempt.

Another user may have written the bundle in Redis: a worker unpacks it only if the digest of all its
files equals the one in the signed launch record.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpq.code import bundle as packing
from hpq.code.command import is_in_users_directory
from hpq.code.editable import editable_installs
from hpq.code.signing import home_id
from hpq.code.snapshot import Files, digest_of, manifest, take_snapshot
from hpq.domain.attempt import Outcome
from hpq.domain.sweep import Launch, RunnableSweep
from hpq.domain.trial import Failure, FailureKind
from hpq.errors import UserError
from hpq.notice import Notice, plural
from hpq.private_files import make_private
from hpq_worker.attempt.code_tree import CodeTree

_MOST = 4  # snapshots in memory: a worker alternates between few sweeps
_MISSING = re.compile(
    r"FileNotFoundError: (?:[^']*'(?P<file>[^']+)'|(?P<why>.+))"
    r"|ModuleNotFoundError: No module named '(?P<module>[^']+)'"
)


class CodeBundles:
    """The verified snapshots of this worker; `fetch` reads a bundle from Redis."""

    def __init__(
        self,
        home: Path,
        fetch: Callable[[str], bytes | None],
        *,
        work_root: Path | None = None,
        in_pod: bool = False,
    ) -> None:
        self._home = home.absolute()
        self._fetch = fetch
        self._in_pod = in_pod
        self._work = (work_root or home).absolute() / "work"
        self._verified: dict[str, Files] = {}
        self._tree: CodeTree | None = None
        self._process = f"{os.getpid()}.{secrets.token_hex(4)}"  # other machines may share HPQ_HOME

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

    def tree(self, launch: Launch) -> CodeTree:
        """Return a new copy of a launch's code, in place of the one before.

        All copies of this code have one path in this worker: caches of compiled extensions are
        found by it, and the process of a resident trainer stays in it.

        Raises:
            OSError: the files cannot be written, or the bundle was removed.
        """
        self.close()
        try:
            files = self._files(launch.code)
        except ValueError as error:
            raise OSError(f"the code of the sweep: {error}") from None
        path = self._work / f"code-{launch.code[:12]}.{self._process}"
        self._tree = CodeTree(path, files, launch, is_linked=self.is_local(launch))
        return self._tree

    def close(self) -> None:
        """Remove the copy."""
        if self._tree is not None:
            self._tree.remove()
            self._tree = None

    def judge(self, sweep: RunnableSweep, outcome: Outcome | None) -> Outcome | None:
        """Blame this host for a file or module that only the host of the enqueue has.

        Once a trial of the code has finished here, the trial itself is blamed.
        """
        launch = sweep.launch
        if outcome is None or not launch.is_frozen or self.is_local(launch):
            return outcome
        finished = self._home / "cache" / "finished" / launch.code
        if outcome.state.is_complete:
            with suppress(OSError):
                make_private(finished.parent)
                finished.touch(0o600)
        message = outcome.failure.message if outcome.failure else ""
        if (missing := _MISSING.search(message)) and not finished.exists():
            host = str(sweep.provenance.get("host") or "the host of the enqueue")
            module = f"the module {missing['module']}" if missing["module"] else ""
            needed = missing["file"] or module or f"a file ({missing['why']})"
            text = f"{launch.what} needs {needed}, which is only on {host}; copy it here"
            failure = Failure(kind=FailureKind.DATA_MISSING, message=text, fingerprint=text)
            return replace(outcome, failure=failure)
        return outcome

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
        if len(self._verified) > _MOST:
            del self._verified[next(iter(self._verified))]
        return files


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
                files = plural(len(found), "file")
                note = f"--live: {len(found)} {files}, digest {digest_of(found)}"
        return cls(cwd=folder, code_dir=folder, note=note)

    @classmethod
    def in_tree(cls, launch: Launch, tree: CodeTree) -> Place:
        """Return a tree's place; the working directory is the user's for an interpreted program."""
        is_users = tree.is_linked and is_in_users_directory(launch)
        cwd = launch.code_dir if is_users else tree.code_dir
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
        prefix = f"{self.tree.top}/" if self.tree else "\0"
        message = failure.message.replace(prefix, "")
        fingerprint = failure.fingerprint.replace(prefix, "")
        return replace(failure, message=message, fingerprint=fingerprint)

    @property
    def shared(self) -> str:
        """The user's directory if trials run there, beside a copy of the code; else ""."""
        return self.cwd if self.tree and self.cwd != self.code_dir else ""

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
