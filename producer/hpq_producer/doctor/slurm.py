"""Check a Slurm cluster for `hpq doctor --slurm`: partitions, GPUs, and a job on a node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpq.connection.credentials import is_local, redact
from hpq.errors import ExitCode, UserError
from hpq.notice import Notice
from hpq.settings import Settings
from hpq_producer.doctor.local import Finding, good, note, poor, wrong
from hpq_producer.embedded_redis.state import network_disk
from hpq_producer.shipped import own_path

_PATIENCE_S = 45  # for a free node
_TIMEOUT_S = 110  # of the job, with the imports of its first run on a node
_SKEW_S = 2.0
_OWN = "if Slurm wants an account or a partition: export SLURM_ACCOUNT=… SLURM_PARTITION=…"


def slurm_checkup(settings: Settings, here: Sequence[Finding]) -> Iterator[Finding]:
    """Yield what Slurm and a compute node show; `here` are the findings of this machine."""
    if shutil.which("sbatch") is None:
        what = "sbatch is not on PATH: this machine is no login node of Slurm"
        yield wrong("no-sbatch", what, "log in to one, or load Slurm's module")
        return
    asked = _tool("sinfo", "-h", "-o", "%P|%a|%l|%D|%G")
    if asked.returncode:
        what = f"Slurm does not answer: {_last_line(asked.stderr)}"
        yield wrong(
            "slurm-unreachable", what, "`sinfo` shows the same; ask the cluster's operators"
        )
        return
    rows = [line.split("|") for line in asked.stdout.splitlines()]
    for name, state, limit, nodes, gres in rows:
        what = f"partition {name}: {state}, limit {limit}, {nodes} nodes, GRES {gres}"
        yield good("slurm-partition", what)
    has_gpus = any("gpu" in row[4] for row in rows)
    if not has_gpus:
        what = "no partition has GPUs (GRES): jobs with --gres=gpu:1 would be rejected"
        yield poor("no-gres", what, "hpq slurm --gpus-per-job 0")
    yield from _home(settings)
    try:
        if notice := check_server(settings):
            yield poor(notice.code, notice.text)
    except UserError as error:
        yield Finding.of(error)
        return
    yield from _node(["--gres=gpu:1"] if has_gpus else [], settings, here)


def check_server(settings: Settings) -> Notice | None:
    """Return a notice if compute nodes may not reach the server.

    Raises:
        UserError: they cannot, since it is the private server.
    """
    if not settings.redis_url:
        text = (
            "compute nodes cannot reach the private server of this machine: run"
            " `hpq slurm --redis | sbatch`, or `hpq join --no-worker` with a token of your server"
        )
        raise UserError(text, code="setting-missing")
    if not is_local(settings.redis_url):
        return None
    text = f"the server is {redact(settings.redis_url)}, which on a compute node is the node itself"
    return Notice("redis-local", f"{text}; use the host name of the machine with Redis")


def _home(settings: Settings) -> Iterator[Finding]:
    """Check that a job could write its log."""
    probe = settings.home / "logs" / "slurm-doctor"
    try:
        probe.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe.write_bytes(bytes(65_536))
        probe.unlink()
    except OSError as error:
        what = (
            f"HPQ_HOME={settings.home} cannot be written: {error.strerror}; jobs would end at once"
        )
        remedy = "free some space or quota, or set HPQ_HOME to another shared directory"
        yield wrong("home-unusable", what, remedy, exit_code=int(ExitCode.USER))
    if disk := network_disk(settings.home):
        what = f"HPQ_HOME is on {disk}; the work directories of jobs are in their TMPDIR"
        yield good("home-on-network", what)


def _node(options: Sequence[str], settings: Settings, here: Sequence[Finding]) -> Iterator[Finding]:
    """Run `hpq doctor` on a compute node; yield what differs from the findings of this machine."""
    words = ["srun", "--job-name=hpq-doctor", "--time=2", "--ntasks=1", *options]
    words += [
        f"--immediate={_PATIENCE_S}",
        "sh",
        "-c",
        'echo $SLURMD_NODENAME; date +%s; exec "$0" doctor --json',
    ]
    began = time.time()
    try:
        ran = _tool(*words, own_path())
    except subprocess.TimeoutExpired:
        what = f"a job on a compute node did not end within {_TIMEOUT_S} s"
        yield note("slurm-refused", what, "`squeue --me` shows why; try again when a node is free")
        return
    try:
        node, clock, text = ran.stdout.split("\n", 2)
        found = [Finding(**one) for one in json.loads(text)]
    except ValueError:
        if "are busy" in ran.stderr:
            what = f"no node was free within {_PATIENCE_S} s, so none was checked"
            yield note("slurm-refused", what, "`squeue` shows what runs; try again later")
            return
        what = f"a job on a compute node failed: {_last_line(ran.stderr)}"
        yield wrong("slurm-refused", what, _OWN)
        return
    url = redact(settings.redis_url)
    if any(one.code == "redis-answers" and one.what.startswith(url) for one in found):
        yield good("node-answers", f"a job on {node} ran hpq and reached Redis at {url}")
    skew = max(began - float(clock) - 1, float(clock) - time.time())
    if skew > _SKEW_S:
        what = f"the clock of {node} differs by {skew:.0f} s from this machine's"
        yield poor("clock-skew", what, "workers there misjudge the end of their job: ask for NTP")
    known = {(one.code, one.what) for one in here}
    for one in found:
        if one.level == "wrong" or (one.level != "good" and (one.code, one.what) not in known):
            yield replace(one, what=f"on {node}: {one.what}")


def _tool(*words: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ)  # what C sees has no secrets any more (hpq.process.overwrite)
    return subprocess.run(
        words, env=environ, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S,
        check=False,
    )  # fmt: skip


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines()
    return lines[0].strip() if lines else "it printed nothing"
