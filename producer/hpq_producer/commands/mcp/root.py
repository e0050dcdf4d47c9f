"""Accept sweep files, and the code that they name, below one directory only.

The server signs what it enqueues with the user's key, so workers run it. What an agent writes
outside the directory must therefore not become code or parameters of a sweep, by whatever name:
`..`, a link, `program:`, `command:`, `code:`, or an import that hpq follows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hpq.code.command import is_plain_python, started
from hpq.code.snapshot import links
from hpq.domain.trainer_specs import BUILT_IN
from hpq.errors import Forbidden, UserError
from hpq_producer.enqueue.code_discovery import DiscoveredCode
from hpq_producer.enqueue.prepare import PreparedSweep, prepare
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import SweepSpec

_PROGRAM = "${program}"


@dataclass(frozen=True, slots=True)
class Root:
    """The directory below which sweep files and their code are; an absolute path without links."""

    path: Path

    def prepare(self, file: str, count: int | None) -> PreparedSweep:
        """Read a sweep file, with at most `count` trials, and find its code.

        Raises:
            UserError: as `load` and `prepare`.
            Forbidden: the file, or what it would run, is not below the directory.
        """
        path = self._sweep_file(file)
        spec = load(path, count=count)
        self._check_command(spec)
        prepared = prepare(spec, path)
        self._check_code(prepared.code)
        return prepared

    def _sweep_file(self, name: str) -> Path:
        try:
            path = (self.path / name).resolve()
            is_file = path.is_file()
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            path, is_file = self.path, False
        if not path.is_relative_to(self.path):
            raise self._outside(name)
        if not is_file or path.suffix not in (".yaml", ".yml"):
            text = f"{name}: no *.yaml file below {self.path}; name one"
            raise UserError(text, code="file-not-found")
        return path

    def _check_command(self, spec: SweepSpec) -> None:
        """Raise Forbidden unless the sweep runs a trainer, or a Python file without a shell.

        The words before the file's arguments have no path to an interpreter, no launcher, and no
        macro that a parameter or the environment fills.
        """
        keys = spec.keys
        for name in (keys.program, keys.code):
            self._check(name, Path(name))
        if keys.trainer:
            return
        words = [word for word in spec.command if word not in ("${env}", "/usr/bin/env")]
        script = started(spec.command)[1]
        is_fixed = script == _PROGRAM or "$" not in script
        is_on_path = "/" not in words[0] if words else False
        if not (is_plain_python(spec.command, keys.program) and is_fixed and is_on_path):
            text = (
                "command: `hpq mcp` accepts only `python FILE.py`; remove the key, or ask the"
                " user to enqueue the file"
            )
            raise Forbidden(text, code="outside-root")

    def _check_code(self, code: DiscoveredCode) -> None:
        """Raise Forbidden unless the code is below the directory, links followed.

        That is each file of the snapshot, each module beside it that trials import as it is, what
        the sweep starts, and every link beside these: it may lead to packages and libraries.
        """
        launch = code.launch
        if launch.trainer in BUILT_IN:
            return
        if code.files is None:  # an installed trainer, or a function
            raise self._outside(launch.trainer)
        for place in (code.folder, code.root):
            self._check(str(place), place)
            for link in links(place):
                self._check(str(link), link)
        for name in (*code.files, *code.left_out):
            self._check(name, code.root / name)
        if launch.trainer:
            module = launch.trainer.partition(":")[0].partition(".")[0]
            starts = [f"{module}.py", f"{module}/__init__.py"]
        else:
            script = started(launch.command)[1]
            starts = [launch.program if script == _PROGRAM else script]
        held = {os.path.normpath(code.root / name) for name in code.files}
        if not any(os.path.normpath(code.folder / start) in held for start in starts):
            raise self._outside(starts[0])

    def _check(self, name: str, path: Path) -> None:
        if path.parts and not (self.path / path).resolve().is_relative_to(self.path):
            raise self._outside(name)

    def _outside(self, name: str) -> Forbidden:
        text = f"{name} is not below {self.path}, to which `hpq mcp` is limited"
        remedy = "; move it there, or ask the user to enqueue the file"
        return Forbidden(text + remedy, code="outside-root")
