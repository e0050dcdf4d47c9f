"""`hpq slurm`: print a job script of workers, or of their Redis server, for sbatch."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
from pathlib import Path
from string import Template
from typing import Annotated

from typer import Argument, Option

from hpq.code.signing import key_of
from hpq.errors import ExitCode, UserError
from hpq.filestore.local import location
from hpq.process import make_private, replace_private
from hpq.settings import LAST_WORDS_S, Settings, read
from hpq.shell import shell_line
from hpq_producer import connection_record, invitation
from hpq_producer.commands.cluster import redis_job
from hpq_producer.commands.common_flags import checked_name
from hpq_producer.doctor.slurm import check_server
from hpq_producer.session import load_settings
from hpq_producer.shipped import own_path
from hpq_producer.terminal.console import print_message, warn


class _Script(Template):
    delimiter = "@"  # the script itself is full of dollars


_SCRIPT = _Script("""\
#!/bin/bash
#SBATCH --job-name=hpq-@name
#SBATCH --time=@time
#SBATCH @kind
#SBATCH --nodes=1 --ntasks=1
#SBATCH --requeue --open-mode=append
#SBATCH --output=@log
#SBATCH --signal=TERM@@@lead
@options
@about

task=@task
end=${SLURM_JOB_END_TIME:-$(squeue -h -j $task -o %e)}  # older Slurm: a date
[[ $end == *T* ]] && end=$(date -d "$end" +%s)
export HPQ_END=${end:+$((end - @lead))}  # Slurm sends SIGTERM: save, and leave
export HPQ_SCRATCH=${TMPDIR:-/tmp}/hpq-$SLURM_JOB_USER@home

srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} \\
  @program
code=$?
# The time is up, and work is left: go on in a next allocation.
[ $code != @time_up ] || exec scontrol requeue $task
exit $code
""")
_WORKERS = """\
# Each task of this array runs one worker per GPU until its time is up or its queue is idle.
# At most N tasks at once: scontrol update JobId=ID ArrayTaskThrottle=N    End all: scancel ID"""
_REDIS = """\
# The Redis server of your sweeps, until you type: scancel ID
# Its data and its address are in @folder.
# Slurm starts only one of your jobs with this name at a time."""


def slurm(
    redis: Annotated[
        bool, Option("--redis", help="Print the job of a Redis server, for all your commands.")
    ] = False,
    partition: Annotated[str, Option(help="Partition. Default: the cluster's.")] = "",
    time: Annotated[
        str, Option(metavar="TIME", help="Limit of each job, as sbatch reads it: [D-]H:MM:SS.")
    ] = "4:00:00",
    jobs: Annotated[int, Option(min=1, max=10_000, help="Number of jobs.")] = 1,
    gpus_per_job: Annotated[int, Option(min=0, max=64, help="GPUs of each job; 0: none.")] = 1,
    queue: Annotated[
        str | None, Option(metavar="NAME", help="Queue that the workers serve. Default: HPQ_QUEUE.")
    ] = None,
    options: Annotated[
        list[str] | None,
        Argument(metavar="-- OPTION", help="Further options of sbatch, as --account=x."),
    ] = None,
) -> None:
    """Print a job script that runs workers on a Slurm cluster; sbatch reads it.

    --redis prints a job that runs their Redis server, if you have none: submit it first.

    Examples:
      hpq slurm --redis --time 7-0 | sbatch
      hpq slurm --partition gpu --time 4:00:00 --jobs 16 -- --account=lab | sbatch
    """
    settings = read(os.environ) if redis else load_settings()
    queue = checked_name("--queue", queue) if queue else settings.queue
    if not redis and (notice := check_server(settings)):
        warn(notice)
    lead = _lead_s(time, settings.grace_s)
    home = settings.home.absolute()
    wanted = [f"--partition={partition}"] if partition else []
    wanted += [f"--gres=gpu:{gpus_per_job}"] if gpus_per_job and not redis else []
    lines = [shell_line([word]) for word in wanted + _checked(options or [])]
    own_home = f"\nexport HPQ_HOME={shell_line([str(home)])}" if "HPQ_HOME" in os.environ else ""
    fields = {
        "name": queue,
        "kind": f"--array=1-{jobs}",
        "log": shell_line([f"{home}/logs/slurm-%A_%a.log"]),
        "about": _WORKERS,
        "task": "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID",
        "program": shell_line([own_path(), "worker", "--queue", queue, "--until-idle", "10m"]),
    }
    if redis:
        program = [sys.executable, "-P", "-m", redis_job.__name__]
        fields |= {
            "name": "redis",
            "kind": "--dependency=singleton",
            "log": shell_line([f"{home}/logs/slurm-%j.log"]),
            "about": _Script(_REDIS).substitute(folder=redis_job.folder_of(home)),
            "task": "$SLURM_JOB_ID",
            "program": shell_line(program),
        }
    options_text = "\n".join(f"#SBATCH {line}" for line in lines)
    text = _SCRIPT.substitute(
        fields,
        time=time,
        lead=lead,
        options=options_text,
        home=own_home,
        time_up=int(ExitCode.TIME_UP),
    )
    make_private(home / "logs")  # without it, Slurm ends the job and writes no reason
    if redis:
        _join(settings)
    print(text, end="")


def _join(settings: Settings) -> None:
    """Make all commands use the server of the Redis job, as `hpq join` does.

    Raises:
        UserError: they use another server.
    """
    url = redis_job.url_of(settings.home)
    connection_record.refuse_other_server(settings, url)
    folder = invitation.folder_of(settings.home)
    if folder.exists():
        return
    key = key_of(settings, make=True)
    assert key is not None
    password = redis_job.folder_of(settings.home) / "password"
    if not password.exists():  # else a server of an earlier `hpq slurm --redis` may run
        replace_private(password, secrets.token_urlsafe(32).encode())
    files = {invitation.CODE_KEY: key.decode(), invitation.PASSWORD: password.read_text("ascii")}
    store = location(settings)
    shared = {"HPQ_STORE": store if "://" in store else str(Path(store).absolute())}
    found = invitation.Invitation(url=url, settings=shared, files=files, versions={})
    invitation.keep(found.write(settings.home.absolute()), settings.home.absolute())
    print_message("your commands now use the Redis job, until `hpq leave`")


def _checked(options: list[str]) -> list[str]:
    if bad := next((word for word in options if not word.startswith("-")), None):
        raise UserError(f"{bad}: write each option of sbatch as one word, as -- --account=x")
    return options


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def _lead_s(time: str, grace_s: float) -> int:
    """Return the seconds before the limit at which workers are stopped.

    Raises:
        UserError: the text is no time limit of Slurm, or the grace is over a tenth of it.
    """
    found = _TIME.fullmatch(time)
    if found is None:
        raise UserError(f"--time {time}: write [DAYS-]HOURS:MINUTES:SECONDS, as 4:00:00 or 1-0")
    days, *parts = (None if part is None else int(part) for part in found.groups())
    given = [part for part in parts if part is not None]
    # Slurm reads M, M:S and H:M:S, but D-H, D-H:M and D-H:M:S.
    units = [3600, 60, 1] if days is not None or len(given) == 3 else [60, 1]
    limit_s = 86_400 * (days or 0) + sum(n * unit for n, unit in zip(given, units, strict=False))
    lead_s = math.ceil(grace_s + LAST_WORDS_S)
    if 10 * lead_s > limit_s:
        text = f"--time {time}: workers are stopped {lead_s} s before (HPQ_GRACE_S + 5 s), which is"
        raise UserError(f"{text} over a tenth of it; use at least {math.ceil(lead_s / 6)} minutes")
    return lead_s
