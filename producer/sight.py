"""Whether anybody who could run local code sees the directory that it lies in."""

from __future__ import annotations

from pathlib import Path

from hpq.errors import UserError
from producer.launch import Code
from producer.look.export import shell_line
from producer.session import Session


class OutOfSight(UserError):
    """Nobody could run local code where it lies; `why` is that without what to do."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}; {remedy}", code="code-out-of-sight")
        self.why = why


def check_seen(session: Session, worker_class: str, code: Code) -> None:
    """Refuse local code where all workers of a class are pods, which do not have its directory.

    A pod that has it mounted says so by its HPQ_CODE.

    Raises:
        OutOfSight: nobody could run it.
    """
    folder = code.folder
    there = session.view.workers(worker_class) if code.launch.code_dir else []
    if there and all(w.pod and not _has(w.code, folder) for w in there):
        shown = "." if folder == Path.cwd().resolve() else shell_line([str(folder)])
        raise OutOfSight(
            f"{code.launch.what} lies in {folder}, and no worker can see this directory: those of"
            f" class {worker_class} run in pods",
            f"add --code {shown} to send the code along",
        )


def _has(mounted: str, folder: Path) -> bool:
    return bool(mounted) and folder.is_relative_to(mounted)
