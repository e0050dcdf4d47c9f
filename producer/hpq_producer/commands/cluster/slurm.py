"""`hpq slurm`: print a job script of workers for sbatch."""

from __future__ import annotations

import math
import os
import re
from string import Template
from typing import Annotated

from typer import Argument, Option

from hpq.connection.credentials import is_local, redact
from hpq.errors import ExitCode, UserError
from hpq.process import make_private
from hpq.settings import LAST_WORDS_S, Settings
from hpq.shell import shell_line
from hpq_producer.commands.common_flags import checked_name
from hpq_producer.session import load_settings
from hpq_producer.shipped import own_path
from hpq_producer.terminal.console import warn


class _Script(Template):
    delimiter = "@"  # the script itself is full of dollars


_SCRIPT = _Script("""\
#!/bin/bash
#SBATCH --job-name=hpq-@queue
#SBATCH --time=@time
#SBATCH --array=1-@jobs
#SBATCH --nodes=1 --ntasks=1
#SBATCH --requeue --open-mode=append
#SBATCH --output=@log
#SBATCH --signal=TERM@@@lead
@options
# Each task of this array runs one worker per GPU until its time is up or its queue is idle.
# At most N tasks at once: scontrol update JobId=ID ArrayTaskThrottle=N    End all: scancel ID

task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
end=${SLURM_JOB_END_TIME:-$(squeue -h -j $task -o %e)}  # older Slurm: a date
[[ $end == *T* ]] && end=$(date -d "$end" +%s)
export HPQ_END=${end:+$((end - @lead))}  # Slurm sends SIGTERM: checkpoint, return the trial
export HPQ_SCRATCH=${TMPDIR:-/tmp}/hpq-$SLURM_JOB_USER@home

srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} \\
  @hpq worker --queue @queue --until-idle 10m
code=$?
# The time is up, and trials are left: go on in a next allocation.
[ $code != @time_up ] || exec scontrol requeue $task
exit $code
""")


def slurm(
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

    Examples:
      hpq slurm --partition gpu --time 4:00:00 --jobs 16 | sbatch
      hpq slurm --jobs 4 -- --account=lab --cpus-per-task=8 | sbatch
    """
    settings = load_settings()
    queue = checked_name("--queue", queue) if queue else settings.queue
    _check_server(settings)
    lead = _lead_s(time, settings.grace_s)
    logs = settings.home.absolute() / "logs"
    make_private(logs)  # without it, Slurm ends the job and writes no reason
    wanted = [f"--partition={partition}"] if partition else []
    wanted += [f"--gres=gpu:{gpus_per_job}"] if gpus_per_job else []
    home = shell_line([str(settings.home.absolute())])
    lines = [shell_line([word]) for word in wanted + _checked(options or [])]
    print(
        _SCRIPT.substitute(
            queue=queue,
            time=time,
            jobs=jobs,
            lead=lead,
            log=shell_line([f"{logs}/slurm-%A_%a.log"]),
            options="\n".join(f"#SBATCH {line}" for line in lines),
            home=f"\nexport HPQ_HOME={home}" if "HPQ_HOME" in os.environ else "",
            hpq=shell_line([own_path()]),
            time_up=int(ExitCode.TIME_UP),
        ),
        end="",
    )


def _checked(options: list[str]) -> list[str]:
    if bad := next((word for word in options if not word.startswith("-")), None):
        raise UserError(f"{bad}: write each option of sbatch as one word, as -- --account=x")
    return options


def _check_server(settings: Settings) -> None:
    """Refuse the private server, and warn of one that other machines may not reach."""
    if not settings.redis_url:
        text = (
            "compute nodes cannot reach the private server of this machine: run `hpq join"
            " --no-worker` with a token of your server, or set HPQ_REDIS_URL"
        )
        raise UserError(text, code="setting-missing")
    if is_local(settings.redis_url):
        url = redact(settings.redis_url)
        warn(f"compute nodes cannot reach Redis at {url}, unless they are this machine")


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
