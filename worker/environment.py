"""What training code sees of the environment, and where it works.

Locally a program inherits the environment but for hpq's secrets; in a pod it gets an allow-list and
what the sweep's pass_env asks for within HPQ_PASS_ENV. Secret files that are mounted stay readable.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpq.hiding import OURS
from hpq.settings import Settings
from hpq.sweep import Sweep
from hpq.trial import Claim
from worker.secrets import POD_ALLOWED


def of_runner(settings: Settings, sweep: Sweep, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a runner: no secret of hpq's, in a pod what is allowed and passed only."""
    env = {n: v for n, v in environ.items() if n not in OURS}
    if settings.in_pod:
        passed = set(sweep.launch.pass_env) & set(settings.pass_env)
        env = {n: v for n, v in env.items() if n in POD_ALLOWED | passed}
    env["PYTHONUNBUFFERED"] = "1"
    return env


def of_program(runner: Mapping[str, str], claim: Claim, place: Place) -> dict[str, str]:
    """The environment of a program: its runner's, and what it is told of its trial."""
    return {
        "PYTHONFAULTHANDLER": "1",  # stacks in the log where it crashes or is aborted as stalled
        **runner,
        "HPQ_SWEEP_ID": claim.trial.sweep,
        "HPQ_TRIAL_ID": str(claim.trial),
        "HPQ_ATTEMPT": str(claim.attempt),
        "HPQ_ATTEMPT_ID": f"{claim.trial}/{claim.attempt}",
        "HPQ_PARAMS": str(place.params),
        "HPQ_OUT": str(place.out),
        "HPQ_CHECKPOINT_DIR": str(place.checkpoint),
        "HPQ_REPORT": place.socket,
    }


def _drop_copies(work: Path) -> None:
    for name in ("checkpoint", "frozen"):
        shutil.rmtree(work / name, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directories of one attempt. The socket's path is short: the kernel allows 108 bytes."""

    work: Path
    out: Path
    checkpoint: Path
    params: Path
    socket: str

    @classmethod
    def make(cls, home: Path, claim: Claim) -> Place:
        """Make them afresh."""
        # One flat name: workers of a machine share the folder, and none removes another's parent.
        name = f"{claim.trial.sweep}.{claim.trial.number}.{claim.attempt}"
        work = home / "work" / name
        shutil.rmtree(work, ignore_errors=True)
        for older in work.parent.glob(f"{claim.trial.sweep}.{claim.trial.number}.*"):
            _drop_copies(older)  # of an attempt whose worker was killed: gigabytes, perhaps
        (work / "out").mkdir(parents=True)
        (work / "checkpoint").mkdir()
        params = work / "params.json"
        params.write_text(json.dumps(dict(claim.params)), "utf-8")
        short = tempfile.mkdtemp(prefix="hpq-")
        return cls(
            work=work,
            out=work / "out",
            checkpoint=work / "checkpoint",
            params=params,
            socket=f"{short}/report",
        )

    def clear(self) -> None:
        """Remove them, but for what the program left in HPQ_OUT; never fails."""
        shutil.rmtree(os.path.dirname(self.socket), ignore_errors=True)
        _drop_copies(self.work)
        with contextlib.suppress(OSError):
            if not self.out.exists() or not any(self.out.iterdir()):
                shutil.rmtree(self.work, ignore_errors=True)
