"""`python -m hpq_worker.suggest`: suggest parameter sets of a sweep; a SuggesterConfig on stdin.

The process ends with the worker, on SIGTERM and when Redis fails; the next claim that finds the
sweep without a suggester starts another. Any other error also goes to the pipe of the worker.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from redis.exceptions import RedisError

from hpq.code.signing import RowSigner
from hpq.error_codes import ExitCode
from hpq.errors import HpqError
from hpq.redis.client import connect
from hpq.settings import read
from hpq.store.events import SweepHistory
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.trials import TrialStore
from hpq.store.wire.search import decode_search
from hpq_worker.process.config import SUGGESTER, SuggesterConfig, receive
from hpq_worker.process.logs import configure, tell
from hpq_worker.process.process_tree import end_with_parent
from hpq_worker.suggest.loop import Suggester

log = logging.getLogger("hpq.suggest")


class _Terminated(SystemExit):
    """SIGTERM or SIGINT; raised wherever the main thread is."""


def serve(config: SuggesterConfig) -> None:
    """Suggest parameter sets until the sweep needs no more.

    Raises:
        HpqError: the sweep was removed, or cannot be read.
        redis.RedisError: Redis is away.
    """
    sid, settings = config.sweep, read({**os.environ, **config.secrets})
    configure(settings, worker=config.worker, sweep=sid)
    keys = Keys(settings.prefix)
    redis = connect(settings.redis_url, retries=1, timeout_s=5.0)
    context = StoreContext.open(redis, keys)
    sweep = TrialStore(context).sweep(sid)
    signer = RowSigner.required(settings, sweep)
    search = decode_search(keys.sweep(sid), sweep.search)
    lease = SuggestLease(context, sid, config.worker, settings.lease_ms, signer.sign)
    history = SweepHistory(redis, keys, sid, signer.has_signed)
    why = Suggester(search, history, lease, may_gp=config.may_gp).run()
    log.info("%s: suggests no more trials: %s", sid, why)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated(0)


def main() -> None:
    """Read the environment and serve; an error is one line."""
    config = receive(SUGGESTER)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, which is later
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _terminate)
    end_with_parent()
    if os.getppid() != config.parent:
        return
    try:
        serve(config)
    except _Terminated:
        os._exit(0)  # another thread may be amid an import, and would crash
    except RedisError as error:
        _print_error(config.sweep, error)
        os._exit(ExitCode.OUT_OF_REACH)  # as above; a crash would count as a fault of the sweep
    except Exception as error:
        line = str(error) if isinstance(error, HpqError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            os.write(config.error, line.encode("utf-8", "replace")[:1_000])
        if not isinstance(error, HpqError):
            raise
        _print_error(config.sweep, error)
        sys.exit(ExitCode.SOME_FAILED)


def _print_error(sid: str, error: Exception) -> None:
    with suppress(BrokenPipeError):
        tell("hpq suggest", f"{sid}: {error}")


if __name__ == "__main__":
    main()
