"""`hpq slurm`: print a job script of workers, or of their Redis server, for sbatch."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from string import Template
from typing import Annotated

from typer import Argument, Option

from hpq.access import connection_record, invitation
from hpq.access.session import load_settings
from hpq.code.signing import key_of
from hpq.error_codes import ExitCode
from hpq.errors import SettingsError, UserError
from hpq.filestore.stores import location
from hpq.notice import Notice, print_message, warn
from hpq.private_files import make_private
from hpq.private_server import binary, keeper
from hpq.redis import address_file
from hpq.redis.credentials import is_local, redact
from hpq.settings import LAST_WORDS_S, Settings, read
from hpq.shell import shell_line
from hpq_ops.installed_files import own_path
from hpq_producer.commands.common_flags import checked_name
from hpq_views.text.text import trials_of


class _Script(Template):
    delimiter = "@"  # the script itself is full of dollars


_HEADER = _Script("""\
#!/bin/bash
#SBATCH --job-name=hpq-@name
#SBATCH --time=@time
#SBATCH @kind
#SBATCH --nodes=1 --ntasks=1
#SBATCH --requeue --open-mode=append
#SBATCH --output=@log
#SBATCH --signal=@signal@@@lead
@options
""")
_WORKERS = _Script("""\
# Each task of this array runs one worker per GPU until its time is up or its queue is idle.
# At most N tasks at once: scontrol update JobId=ID ArrayTaskThrottle=N    End all: scancel ID

task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
end=${SLURM_JOB_END_TIME:-$(squeue -h -j $task -o %e)}  # older Slurm: a date
[[ $end == *T* ]] && end=$(date -d "$end" +%s)
export HPQ_END=${end:+$((end - @lead))}  # Slurm sends SIGTERM: save, and leave
export HPQ_SCRATCH=${TMPDIR:-/tmp}/hpq-$SLURM_JOB_USER@home

srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} \\
  @worker
code=$?
# The time is up, and work is left: go on in a next allocation.
[ $code != @time_up ] || exec scontrol requeue $task
exit $code
""")
# Under srun, since Slurm without cgroups leaves the children of a killed script; srun has the lock,
# too. The script signals Redis itself: srun would kill it.
_REDIS = _Script("""\
# The Redis server of your sweeps, until you type: scancel ID
# Each job copies the data of the last one: the server of a node that Slurm has lost may go on.

redis=@server
umask 077
cd @folder || exit
job="Redis job $SLURM_JOB_ID on $(uname -n)"
mine=data.$(date +%Y-%m-%dT%H-%M-%S).$SLURM_JOB_ID
echo $mine >writer || exit  # each server reads this every second: another name ends it
exec 9>lock
flock -w 60 9  # 1: it is held. Another code: this disk has no locks, and the copy must do.
[ $? != 1 ] || { echo "$job: $(readlink data) is in use; end its server"; exit 1; }
grep -qs : address && sleep 5  # the last server did not sign off, and may read the name now
mkdir $mine || exit
last=$(readlink data) && { cp -a $last/@aof $mine/ && sync -f $mine || exit; }

# Clients send the password, and the server must answer with the proof.
password=$(head -c 32 /dev/urandom | base64) proof=$(head -c 32 /dev/urandom | base64)
until port=$((20000 + RANDOM % 12000)); ! (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; do :; done
srun --chdir="$PWD/$mine" "$redis" - > >(tee $mine/log) 2>&1 <<END &
port $port
pidfile redis.pid
requirepass $password
syslog-ident $proof
@durable
END
server=$! again=
stop() { kill $(<$mine/redis.pid); } 2>/dev/null  # Redis saves, and ends
trap stop TERM             # scancel, or preemption
trap 'again=1; stop' USR1  # the time is up
until grep -qs "Ready to accept connections" $mine/log; do
  kill -0 $server || exit
  sleep 0.2
done

# The port is its own now. Publish the server, and remove the data before the last ones.
ln -sfn $mine next && mv -T next data || exit
echo "$(uname -n):$port $password $proof" >line && mv line address || exit
for old in data.*; do [[ $old == $mine || $old == $last ]] || rm -r $old; done
while kill -0 $server 2>/dev/null; do
  newest=$(<writer) && [ "$newest" != $mine ] && echo "$job: $newest takes over" && stop
  sleep 1
done
wait $server
code=$?
[ "$(<writer)" != $mine ] || { echo "$job has ended" >line && mv line address; }
[ -z "$again" ] || exec scontrol requeue $SLURM_JOB_ID
exit $code
""")


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
    if not redis and (notice := _check_server(settings)):
        warn(notice)
    lead = _lead_s(time, settings.grace_s)
    home = settings.home.absolute()
    wanted = [f"--partition={partition}"] if partition else []
    wanted += [f"--gres=gpu:{gpus_per_job}"] if gpus_per_job and not redis else []
    lines = [shell_line([word]) for word in wanted + _checked(options or [])]
    fields = {
        "name": "redis" if redis else queue,
        "time": time,
        "kind": "--dependency=singleton" if redis else f"--array=1-{jobs}",
        "log": shell_line([f"{home}/logs/slurm-{'%j' if redis else '%A_%a'}.log"]),
        "signal": "B:USR1" if redis else "TERM",
        "lead": str(lead),
        "options": "\n".join(f"#SBATCH {line}" for line in lines),
    }
    body = _redis(home) if redis else _workers(home, queue, lead)
    try:
        make_private(home / "logs")  # without it, Slurm ends the job and writes no reason
    except OSError as error:
        text = f"HPQ_HOME={home} cannot be written: {error.strerror}; jobs write their logs there"
        line = f"{text}; set it to a shared directory of yours with free space"
        raise SettingsError(line, code="home-unusable") from None
    if redis:
        _join(settings)
    print(_HEADER.substitute(fields) + body, end="")


def _workers(home: Path, queue: str, lead: int) -> str:
    """Return what a job of workers runs."""
    worker = shell_line([own_path(), "worker", "--queue", queue, "--until-idle", "10m"])
    own_home = f"\nexport HPQ_HOME={shell_line([str(home)])}" if "HPQ_HOME" in os.environ else ""
    return _WORKERS.substitute(
        lead=lead, home=own_home, worker=worker, time_up=int(ExitCode.TIME_UP)
    )


def _redis(home: Path) -> str:
    """Return what a job of Redis runs.

    Raises:
        OutOfReach: no server is installed.
    """
    found = binary.packaged() or binary.find()  # a node may lack what the login node has on PATH
    durable = [shell_line([name, value]) for name, value in keeper.DURABLE.items()]
    # Redis 6 does not see the directory that later versions write, and would start empty.
    aof = "appendonly.aof" if found.version < (7,) else "appendonly*"
    return _REDIS.substitute(
        folder=shell_line([str(_folder(home))]),
        server=shell_line([str(found.path)]),
        aof=aof,
        durable="\n".join(durable),
    )


def _folder(home: Path) -> Path:
    """Return the directory of the Redis job: its address and its data."""
    return home.absolute() / "redis-job"


def _check_server(settings: Settings) -> Notice | None:
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


def _join(settings: Settings) -> None:
    """Make all commands use the server of the Redis job, as `hpq join` does.

    Raises:
        UserError: they use another server.
    """
    make_private(_folder(settings.home))
    url = address_file.url_of(_folder(settings.home) / "address")
    connection_record.refuse_other_server(settings, url)
    folder = invitation.folder_of(settings.home)
    if folder.exists():
        return
    key = key_of(settings, make=True)
    assert key is not None
    store = location(settings)
    shared = {"HPQ_STORE": store if "://" in store else str(Path(store).absolute())}
    files = {invitation.CODE_KEY: key.decode()}
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
        least = trials_of(math.ceil(lead_s / 6), "minute")
        raise UserError(f"{text} over a tenth of it; use at least {least}")
    return lead_s
