"""A checked sweep file with its code and digest, each computed once.

`enqueue`, `run`, `plan` and `manifests --jobs` make one Submission and pass it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpq.domain.identity import digest
from hpq.domain.sweep import Launch
from hpq.notice import Notice
from hpq_producer.enqueue.code_discovery import DiscoveredCode, find_code
from hpq_producer.sweepfile.spec import SweepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is enqueued: a sweep file and the code that it runs."""

    spec: SweepSpec
    file: Path
    code: DiscoveredCode
    digest: str  # of the sweep: file, seed and code

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the user should know before the sweep runs."""
        namesake = self.code.namesake
        more = (Notice("program-ambiguous", namesake),) if namesake else ()
        return (*self.spec.warnings, *more)


def prepare(spec: SweepSpec, file: Path, code_dir: str | None = None) -> Submission:
    """Find the code of a sweep file, and compute what identifies the sweep; `code_dir` is --code.

    Raises:
        UserError: the code is missing, or too large.
    """
    code = find_code(spec, file, Path.cwd(), code_dir)
    sweep_digest = digest(spec.source, spec.seed, _code_identity(code.launch))
    return Submission(spec=spec, file=file, code=code, digest=sweep_digest)


def _code_identity(launch: Launch) -> str:
    """The code as identity has it: what runs in its directory is other code in another one."""
    return f"{launch.code} in {launch.code_dir}" if launch.code_dir else launch.code
