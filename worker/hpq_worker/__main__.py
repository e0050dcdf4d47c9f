"""`python -m hpq_worker [--workers N]`: what `hpq worker` and the container image start."""

from __future__ import annotations

from hpq.interrupts import end_on_signals

if __name__ == "__main__":
    end_on_signals()  # before the imports that take time

import argparse
import logging
import os
import sys
from contextlib import closing, suppress

from hpq import process_start as hpq_process
from hpq.errors import HpqError, UserError
from hpq.gpus import visible
from hpq.settings import Settings, read, unknown_settings
from hpq_worker.consumer.run_budget import MOST_RUNS, RunBudget
from hpq_worker.health.endpoint import Endpoint, pages
from hpq_worker.health.health import Health
from hpq_worker.process import devices, secrets
from hpq_worker.process.logs import configure, tell
from hpq_worker.supervisor import Supervisor

log = logging.getLogger("hpq.supervisor")
_WHO = "hpq worker"


def _slots(settings: Settings, workers: int | None, on_cpu: int) -> list[str]:
    gpus = visible(os.environ)
    try:
        note = devices.check(gpus, os.environ, settings.pod_gpus)
    except UserError:
        _count_for_alert(settings)
        raise
    if note:
        log.warning("%s", note)
    found = devices.slots(gpus, settings.gpus_per_trial, settings.trials_per_gpu)
    if line := devices.idle(gpus, settings.gpus_per_trial):
        log.warning("%s", line)
    if workers is None:
        return found if gpus else found * on_cpu
    # More workers than slots share the slots' devices in turn.
    return [found[i % len(found)] for i in range(workers)]


def _count_for_alert(settings: Settings) -> None:
    """Count a worker without its GPUs, which ends before it has a record in Redis."""
    # Half of a supervisor's start and 9 MB of it; it needs them here alone.
    from redis.exceptions import RedisError  # noqa: PLC0415

    from hpq.redis.client import connect  # noqa: PLC0415
    from hpq.store.keys import Keys  # noqa: PLC0415
    from hpq.store.scripts import StoreContext  # noqa: PLC0415
    from hpq.store.trials import TrialStore  # noqa: PLC0415

    with (
        suppress(RedisError),
        closing(connect(settings.redis_url, retries=0, timeout_s=3.0)) as redis,
    ):
        TrialStore(StoreContext.open(redis, Keys(settings.prefix))).count("gpu_missing")


def _health(settings: Settings, slots: int) -> Health | None:
    """Serve the probes until this process ends; None if no port is set."""
    if not settings.port:
        return None
    health = Health(slots, settings.reap_s)
    Endpoint(settings.port, pages(health))
    return health


def main() -> None:
    """Serve until a signal stops the supervisor."""
    hpq_process.open_streams()
    parser = argparse.ArgumentParser(prog="hpq worker")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--workers-on-cpu", type=int, default=1)
    parser.add_argument("--end-with", type=int, metavar="PID", help="exit when parent PID exits")
    parser.add_argument("--until-over", action="store_true", help="exit when HPQ_SWEEP is over")
    parser.add_argument("--until-idle", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--count", type=int, metavar="N", help="exit after N trials")
    args = parser.parse_args()
    try:
        settings = read(os.environ)
        configure(settings)
        for notice in unknown_settings(os.environ) if settings.in_pod else ():
            tell(_WHO, f"warning: {notice}", logging.WARNING)  # else `hpq worker` warns
        if not settings.redis_url:
            where = " in this pod" if settings.in_pod else ""
            text = f"HPQ_REDIS_URL is not set{where}; set it to the URL of the Redis server"
            raise UserError(text, code="setting-missing")
        if args.workers is not None and not 1 <= args.workers <= 1000:
            raise UserError(f"--workers {args.workers}: use 1 to 1000")
        if args.count is not None and not 1 <= args.count <= MOST_RUNS:
            raise UserError(f"--count {args.count}: use 1 to {MOST_RUNS}")
        found = _slots(settings, args.workers, args.workers_on_cpu)[: args.count]
        hidden = secrets.hide(settings.in_pod)
        health = _health(settings, len(found))
        threads = devices.threads(len(found) * settings.gpus_per_trial, os.environ, settings.cpus)
        supervisor = Supervisor(
            found,
            os.environ,
            hidden,
            health,
            threads,
            settings,
            is_until_over=args.until_over,
            until_idle_s=args.until_idle,
            budget=RunBudget.of(args.count) if args.count else None,
            parent=args.end_with,
        )
        code = supervisor.run()
    except HpqError as error:
        tell(_WHO, str(error.notice))
        code = int(error.exit_code)
    sys.exit(code)


if __name__ == "__main__":
    main()
