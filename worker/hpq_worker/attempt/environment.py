"""What training code sees of the environment, and where it works.

Locally a program inherits the environment but for hpq's secrets; in a pod it gets an allow-list and
what the sweep's pass_env asks for within HPQ_PASS_ENV. Secret files that are mounted stay readable.

A port of this machine that nobody else is given while an attempt runs: its MASTER_PORT.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

import hpq
from hpq import process as hpq_process
from hpq.domain.sweep import Sweep, Wandb
from hpq.domain.trial import Claim
from hpq.search.samplers import seed_of
from hpq.settings import Settings
from hpq_worker.files.workdir import SOCKET, Owned
from hpq_worker.process.secrets import POD_ALLOWED

ADDRESS = "127.0.0.1"


@contextmanager
def reserved() -> Iterator[int]:
    """The number of a free port.

    Bound but not listened on: the kernel gives it to nobody who asks for any port, neither to
    another worker nor to a connection that goes out, while whoever names it, with SO_REUSEADDR as
    torch's store does, may listen there.

    Raises:
        OSError: there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((ADDRESS, 0))
        yield int(held.getsockname()[1])


_ROOT = Path(hpq.__file__).parent
# The directory on a program's path in which `import wandb` finds the shim, in any Python.
_SHIMS = {
    Wandb.STAND_IN: str(_ROOT / "wandb_shim" / "stub"),
    Wandb.TEE: str(_ROOT / "wandb_shim" / "tee"),
}
# A worker may itself be a rank of something; its trials are groups of their own.
_OF_A_RANK = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK OMPI_COMM_WORLD_RANK".split()
)

# Where torch.compile and Triton look for what they compiled: of the next trial, too, and kept over
# a restart of the machine, which their own places under /tmp are not.
_COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def of_runner(settings: Settings, sweep: Sweep, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a runner: no secret of hpq's, in a pod what is allowed and passed only.

    What is compiled goes under HPQ_HOME, unless the user has said where.
    """
    ours = hpq_process.ours(environ)
    env = {n: v for n, v in environ.items() if n not in ours | _OF_A_RANK}
    if settings.in_pod:
        passed = set(sweep.launch.pass_env) & set(settings.pass_env)
        env = {n: v for n, v in env.items() if n in POD_ALLOWED | passed}
    env["PYTHONUNBUFFERED"] = "1"
    if not env.get("TORCHINDUCTOR_CACHE_DIR"):  # else torch has Triton's under it
        for name, folder in _COMPILED.items():
            env[name] = env.get(name) or str(settings.cache / folder)
    return env


def of_group(gpus: int, port: int) -> dict[str, str]:
    """Where the processes of one trial meet, which other trials of this machine are not told."""
    return {
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "HPQ_GPUS_PER_TRIAL": str(gpus),
    }


def _for_torchrun(gpus: int, port: int, place: AttemptPaths) -> dict[str, str]:
    """The defaults of torchrun's options; those in the sweep's `command` go first.

    With several ranks each line says whose it is (`--tee 3`): what rank 0 prints counts once.
    """
    tee = {"PET_TEE": "3"} if gpus > 1 else {}
    return {"PET_MASTER_PORT": str(port), "PET_LOG_DIR": str(place.work / "ranks"), **tee}


def of_program(
    runner: Mapping[str, str], sweep: Sweep, claim: Claim, place: AttemptPaths, gpus: int, port: int
) -> dict[str, str]:
    """The environment of a program: its runner's, and what it is told of its trial.

    `import hpq` works in it whatever Python it has; `import wandb` gives what the sweep says.
    """
    shim = _SHIMS.get(sweep.launch.wandb or Wandb.REAL, "")
    paths = [str(place.path), shim, runner.get("PYTHONPATH", "")]
    return {
        "PYTHONFAULTHANDLER": "1",  # stacks in the log where it crashes or is aborted as stalled
        **_for_torchrun(gpus, port, place),
        **runner,
        **of_group(gpus, port),
        **_for_wandb(sweep, claim, place),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "HPQ_SWEEP_ID": claim.trial.sweep,
        "HPQ_TRIAL_ID": str(claim.trial),
        "HPQ_SEED": str(seed_of(sweep, claim.trial.number, claim.params)),
        "HPQ_ATTEMPT": str(claim.attempt),
        "HPQ_ATTEMPT_ID": f"{claim.trial}/{claim.attempt}",
        "HPQ_PARAMS": str(place.params),
        "HPQ_OUT": str(place.out),
        "HPQ_CHECKPOINT_DIR": str(place.checkpoint),
        "HPQ_REPORT": place.socket,
    }


def _for_wandb(sweep: Sweep, claim: Claim, place: AttemptPaths) -> dict[str, str]:
    """What W&B's agent tells: the set to the real wandb; to the stand-in, whose run it is.

    The stand-in asks HPQ_PARAMS for the set. A process that takes WANDB_RUN_ID out of its
    environment wants, as with W&B, a run of its own.
    """
    if sweep.launch.wandb is Wandb.STAND_IN:
        run = f"{claim.trial.sweep}-{claim.trial.number}"
        return {"WANDB_RUN_ID": run, "WANDB_SWEEP_ID": claim.trial.sweep}
    if sweep.launch.wandb is None:
        return {}
    values = {name: {"value": value} for name, value in claim.params.items()}
    told = place.work / "wandb-params.yaml"
    told.write_text(yaml.safe_dump({"wandb_version": 1, **values}, sort_keys=False), "utf-8")
    return {"WANDB_SWEEP_PARAM_PATH": str(told)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPaths:
    """The directories of one attempt. The socket's path is short: the kernel allows 108 bytes."""

    work: Path
    out: Path
    checkpoint: Path
    params: Path
    path: Path
    socket: str
    owned: Owned

    @property
    def code(self) -> Path:
        """Where a copy of the sweep's code goes, if it came with the sweep."""
        return self.work / "code"

    @classmethod
    def make(cls, home: Path, claim: Claim) -> AttemptPaths:
        """Make them afresh."""
        # One flat name: workers of a machine share the folder, and none removes another's parent.
        name = f"{claim.trial.sweep}.{claim.trial.number}.{claim.token}"
        work = home / "work" / name
        work.parent.mkdir(parents=True, exist_ok=True)
        owned = Owned(work)
        try:
            shutil.rmtree(work, ignore_errors=True)
            (work / "out").mkdir(parents=True)
            (work / "checkpoint").mkdir()
            (work / "path").mkdir()
            # The package alone: its site-packages would shadow those of the program's Python.
            (work / "path" / "hpq").symlink_to(_ROOT)
            params = work / "params.json"
            params.write_text(json.dumps(dict(claim.params)), "utf-8")
            short = tempfile.mkdtemp(prefix="hpq-")
            try:
                owned.note(short)
            except OSError:
                os.rmdir(short)
                raise
        except OSError:
            shutil.rmtree(work, ignore_errors=True)
            owned.release()
            raise
        return cls(
            work=work,
            out=work / "out",
            checkpoint=work / "checkpoint",
            params=params,
            path=work / "path",
            socket=f"{short}/{SOCKET}",
            owned=owned,
        )

    def clear(self, *, keep_out: bool) -> None:
        """Remove them, but (`keep_out`) for what the program left in HPQ_OUT; never fails."""
        shutil.rmtree(os.path.dirname(self.socket), ignore_errors=True)
        for name in ("checkpoint", "frozen", "path", "code", "ranks"):
            shutil.rmtree(self.work / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            if not (keep_out and self.out.exists() and any(self.out.iterdir())):
                shutil.rmtree(self.work, ignore_errors=True)
            self.owned.release()
