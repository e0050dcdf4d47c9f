"""`python -m hpq_worker.suggest SWEEP WORKER PID FD [tpe]`: makes a sweep's sets beside that
worker.

`tpe` has `auto` do without a Gaussian process, for whoever follows one that was killed. It ends
with the worker, by SIGTERM, and whenever Redis fails; the next claim that finds the sweep without
one starts another. Any other fault goes, as one line, to the file descriptor as well.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from redis.exceptions import RedisError

from hpq.connection.client import connect
from hpq.errors import ExitCode, HpqError
from hpq.search.search_spec import Sampler
from hpq.settings import read
from hpq.store.event_reader import SweepHistory
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.trials import TrialStore
from hpq.store.wire.search import decode_search
from hpq_worker.process import secrets
from hpq_worker.process.logs import configure
from hpq_worker.process.process_tree import end_with_parent
from hpq_worker.suggest.loop import Suggester

log = logging.getLogger("hpq.suggest")


class _Told(SystemExit):
    """Told to stop; raised wherever the main thread is."""


def serve(sid: str, who: str, *, may_gp: bool = True) -> None:
    """Make sets until there is nothing to make.

    Raises:
        HpqError: the sweep is not there, or cannot be read.
        redis.RedisError: Redis is away.
    """
    settings = read({**os.environ, **secrets.receive()})
    configure(settings)
    keys = Keys(settings.prefix)
    redis = connect(settings.redis_url, retries=1, timeout_s=5.0)
    context = StoreContext.open(redis, keys)
    sweep = TrialStore(context).sweep(sid)
    search = decode_search(keys.sweep(sid), sweep.search)
    lead = SuggestLease(context, sid, who, settings.lease_ms)
    why = Suggester(search, SweepHistory(redis, keys, sid), lead, may_gp=may_gp).run()
    log.info("%s: makes no more sets: %s", sid, why)


def _tell(_number: int, _frame: FrameType | None) -> None:
    raise _Told(0)


def main() -> None:
    """Read the environment and work; a fault is one line."""
    sid, who, parent, last_words = sys.argv[1:5]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, which is later
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _tell)
    end_with_parent()
    if os.getppid() != int(parent):
        return
    try:
        serve(sid, who, may_gp=Sampler.TPE not in sys.argv[5:])
    except _Told:
        os._exit(0)  # another thread may be amid an import, and would crash
    except RedisError as error:
        _complain(sid, error)
        os._exit(ExitCode.OUT_OF_REACH)  # as above; what crashes counts as a fault of the sweep
    except Exception as error:
        what = str(error) if isinstance(error, HpqError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            os.write(int(last_words), what.encode("utf-8", "replace")[:1_000])
        if not isinstance(error, HpqError):
            raise
        _complain(sid, error)
        sys.exit(ExitCode.SOME_FAILED)


def _complain(sid: str, error: Exception) -> None:
    with suppress(BrokenPipeError):
        print(f"hpq suggest: {sid}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
