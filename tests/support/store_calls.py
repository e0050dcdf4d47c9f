"""A worker's calls of the store, and the files of its attempts."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from redis import Redis

from hpq.domain.attempt import (
    CommitReply,
    HeartbeatReply,
    Nothing,
    Outcome,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Failure,
    FailureKind,
    Point,
    TrialId,
    TrialState,
)
from hpq.filestore.base import Files, folder_of
from hpq.filestore.stores import open_files
from hpq.store.file_garbage import FileGarbage
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq.store.worker_reader import server_ms

LEASE = 30_000


def ask(store: TrialStore, who: WorkerPresence, nonce: str = "", **more) -> Claim | Nothing:
    """Claim, by default with a new nonce; there may be no trial."""
    return store.claim(who, nonce=nonce or secrets.token_hex(8), lease_ms=LEASE, **more)


def take(store: TrialStore, who: WorkerPresence, nonce: str = "", **more) -> Claim:
    """Claim a trial, by default with a new nonce."""
    claim = ask(store, who, nonce, **more)
    assert isinstance(claim, Claim)
    return claim


def points(*steps: int) -> tuple[Point, ...]:
    return tuple(Point(step=step, name="acc", value=float(step)) for step in steps)


def beat(
    store: TrialStore, who: WorkerPresence, claim: Claim, seq: int, *steps: int, **more
) -> HeartbeatReply:
    batch = ReportBatch(seq=seq, step=max(steps, default=0), points=points(*steps), **more)
    return store.beat(claim, who, batch, lease_ms=LEASE)


def report(
    store: TrialStore,
    who: WorkerPresence,
    claim: Claim,
    log: bytes = b"",
    **curves: Sequence[float],
) -> None:
    """Report the values of each metric at steps 1, 2, … in one batch; `acc` is the objective."""
    points = tuple(
        Point(step=step, name=name, value=value)
        for name, values in curves.items()
        for step, value in enumerate(values, start=1)
    )
    steps = max(map(len, curves.values()))
    last = curves["acc"][-1] if "acc" in curves else None
    batch = ReportBatch(seq=1, step=steps, objective=last, points=points, log=log)
    store.beat(claim, who, batch, lease_ms=LEASE)


def end(store: TrialStore, claim: Claim, value: float, *, step: int = 1, **more) -> CommitReply:
    outcome = Outcome(state=TrialState.FINISHED, objective=value, step=step, **more)
    return store.commit(claim, outcome)


def fail(
    store: TrialStore, claim: Claim, message: str, kind: FailureKind = FailureKind.USER_ERROR
) -> CommitReply:
    failure = Failure(kind=kind, message=message, fingerprint="f")
    return store.commit(claim, Outcome(state=TrialState.FAILED, failure=failure))


def reaped(store: TrialStore, queue: str, **more) -> int | None:
    """Reap, and return how many trials were requeued or ended; None while the server settles."""
    found = store.reap(queue, **more)
    return None if found is None else found.queued + found.ended


def remove_all(garbage: FileGarbage, files: Files) -> None:
    """Look at the whole store, as a worker does for which that is due."""
    for sid in garbage.sweeps_in(files):
        garbage.remove_of_sweep(files, sid)


def let_a_millisecond_pass(redis: Redis) -> None:
    """Wait until the clock of a server shows another millisecond: what it shows has an age then."""
    began = server_ms(redis)
    while server_ms(redis) < began + 2:
        pass


def was_killed(line: int, steps: tuple[str, ...], act: Callable[[], object]) -> bool:
    """Act in another process, killed at this line of the files `steps`; False if it has ended."""
    if pid := os.fork():
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(steps):
            return None
        count += event == "line"
        if count == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    try:
        sys.settrace(trace)
        act()
    finally:
        os._exit(0)  # also after an error: then nothing was done


def forged_paths(trial: TrialId, own: str) -> list[str]:
    """Return paths for a pointer to files that are not the trial's; `own`: what would be right."""
    base, token, what = f"hpq/{trial}", own.split("/")[3], own.split("/")[4]
    other = {"artifacts": "checkpoint-1"}.get(what, "artifacts")
    return [
        f"hpq/{trial.sweep}/{trial.number + 1}/{token}/{what}",  # another trial's
        f"hpq/other-00000/{trial.number}/{token}/{what}",
        f"other/{trial}/{token}/{what}",
        f"{base}/{token}/{other}",  # what training code has written for another use
        f"{base}/{token}/{what}/deep",
        f"{base}/{token}",
        base,
        f"{base}/../{trial.number}/{token}/{what}",
        f"{base}/{token}/../{token}/{what}",
        f"{own}/",
        f"{own}/.",
        f"{own}\n",
        f"/{own}",
        f"{base}/x-{token}/{what}",
        f"{base}/\u0661-abc/{what}",  # a digit to Python
        token,
        "",
    ]


class Shelf:
    """A file store with deletable files."""

    def __init__(self, folder: Path, redis: Redis, keys: Keys) -> None:
        self.files = open_files(str(folder))
        self.garbage = FileGarbage(StoreContext.open(redis, keys))
        self.redis = redis

    def put(self, claim: Claim, what: str) -> Checkpoint:
        """Write files of an attempt, and a pointer to them."""
        path = f"{folder_of('hpq', claim.trial, claim.token)}/{what}"
        with self.files.write(f"{path}/file") as file:
            file.write(b"x")
        return Checkpoint(store=self.files.id, path=path, step=1)

    def artifacts(self, claim: Claim) -> Artifacts:
        path = self.put(claim, "artifacts").path
        return Artifacts(store=self.files.id, path=path, files={"file": 1})

    def left(self) -> list[str]:
        """Return the files left after a worker has looked for unneeded ones."""
        remove_all(self.garbage, self.files)
        return [name.removesuffix("/file") for name in self.files.names("hpq")]


def claimed(take: Callable[[], Claim | Nothing]) -> Claim:
    """Return the next claim; there must be one."""
    got = take()
    assert isinstance(got, Claim)
    return got
