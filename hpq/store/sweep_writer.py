"""Create sweeps and add trials to them.

Rows are written to keys of the sweep that expire, and no reader sees a sweep without its hash; one
script call then makes all of them visible.
Every call may be sent twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from hpq.domain.attempt import Capped
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.store.keys import SWEEP_PARTS
from hpq.store.scripts import BATCH_ROWS, UNFINISHED_TTL_S, StoreContext, check_reply
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire.fields import dumps, flatten, sweep_id
from hpq.store.wire.trial import NewRow, SignRow, encode_result, stored, unsigned


class SweepWriter:
    """Creates sweeps, appends trials, and bounds how many trials a sweep has."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts

    def exists(self, sid: str) -> bool:
        """Return True if the server has a sweep of this id."""
        return bool(self._redis.exists(self._keys.sweep(sid)))

    def has_bundle(self, digest: str) -> bool:
        """Return True if the server has the code snapshot of this digest."""
        return bool(self._redis.exists(self._keys.bundle(digest)))

    def keep_bundle(self, digest: str, bundle: bytes) -> None:
        """Write a code snapshot under its digest; it expires unless a sweep of it is created."""
        self._scripts.run("keep_code", digest, UNFINISHED_TTL_S, bundle)

    def keep_diff(self, sid: str, diff: str) -> None:
        """Write the uncommitted changes of a sweep's code; call before `create`."""
        key = self._keys.sweep(sid, "origin")
        pipe = self._redis.pipeline(transaction=True)
        pipe.hset(key, "diff", diff)
        pipe.expire(key, UNFINISHED_TTL_S)
        pipe.execute()

    def add_rows(
        self, sid: str, first: int, rows: Sequence[NewRow], sign: SignRow = unsigned
    ) -> None:
        """Write up to BATCH_ROWS trials, numbered from `first`; `create` makes them visible."""
        flat = [part for pair in stored(rows, first, sign) for part in pair]
        self._scripts.run("add_rows", sid, UNFINISHED_TTL_S, first, *flat)

    def stage_results(self, sweep: SweepView, results: Iterable[tuple[int, TrialView]]) -> int:
        """Write finished trials with which a sweep begins that is not yet created; return how many.

        Each result comes with the number of the sweep's trial that reuses it.
        """
        pairs = ((str(n), encode_result(trial, sweep).encode()) for n, trial in results)
        return self._stage(sweep.id, pairs)

    def create(self, sweep: SweepView, *, again: bool = False, manifest: str = "") -> str | None:
        """Make a sweep visible; return None, or the id of an existing sweep with its digest.

        With `again` the sweep is created although one with its digest exists. `manifest` is that of
        the code kept with the sweep, as JSON.
        """
        fields = flatten(sweep_codec.encode_sweep(sweep))
        reply, rest = self._scripts.run(
            "create",
            *fields,
            sweep=sweep.id,
            digest=sweep.digest,
            owner=sweep.owner,
            again=again,
            manifest=manifest,
        )
        if reply == "exists":
            return sweep_id(rest[0])
        self._context.mint(rest[0], rest[1])
        return None

    def discard(self, sid: str) -> None:
        """Delete the rows of an enqueue that failed; a created sweep keeps its rows."""
        if self.exists(sid):  # created, and the reply was lost
            return
        self._redis.delete(*(self._keys.sweep(sid, part) for part in (*SWEEP_PARTS, "staged")))

    def append(
        self,
        sid: str,
        rows: Sequence[NewRow],
        file: str,
        *,
        varying: Sequence[str],
        digest: str,
        sign: SignRow = unsigned,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Add trials to a sweep, all visible in one step; return how many were added.

        `file` is the sweep file as `wire.sweep.encode_appended_file` encodes it. Trials that
        another file added meanwhile are left out, and the others numbered and signed again.

        Raises:
            NotFound: the sweep does not exist.
            UserError: the sweep is stopped or cancelled, or staging took longer than an hour.
        """
        reply, names = "behind", dumps(list(varying))
        while reply == "behind":
            stage = f"{sid}-{secrets.token_hex(8)}"
            first: Any = self._redis.hlen(self._keys.sweep(sid, "params"))
            rows = self._missing(sid, rows)
            signed = enumerate(stored(rows, first + 1, sign), 1)
            pairs = ((str(n), identity + row) for n, (row, identity) in signed)
            try:
                count = self._stage(stage, pairs, progress)
                reply, rest = self._scripts.run(
                    "append",
                    sweep=sid,
                    stage=stage,
                    first=first + 1,
                    count=count,
                    file=file,
                    varying=names,
                    digest=digest,
                )
            except BaseException:
                self._redis.delete(self._keys.sweep(stage, "staged"))
                raise
        check_reply(sid, reply)
        if reply == "torn":
            line = f"{sid}: the new trials expired before all were written; run the command again"
            raise UserError(line, code="rows-expired")
        self._context.mint(rest[0], rest[1])
        return int(rest[2])

    def _missing(self, sid: str, rows: Sequence[NewRow]) -> list[NewRow]:
        """Return the rows whose parameters the sweep does not have."""
        key, missing = self._keys.sweep(sid, "ids"), list[NewRow]()
        for start in range(0, len(rows), BATCH_ROWS):
            batch = rows[start : start + BATCH_ROWS]
            found: Any = self._redis.smismember(key, [row.identity for row in batch])
            missing += [row for row, is_there in zip(batch, found, strict=True) if not is_there]
        return missing

    def set_run_cap(self, sid: str, run_cap: int) -> Capped:
        """Allow a sweep at most `run_cap` trials (0: any number), also while it runs.

        Raises:
            NotFound: the sweep does not exist.
            UserError: the sweep is stopped or cancelled.
        """
        done = Capped(dropped=0, back=0, trials=0)
        after = "-inf"
        while after:  # the command, given again, goes on after a crash
            reply, rest = self._scripts.run("set_run_cap", sid, run_cap, after)
            check_reply(sid, reply)
            self._context.mint(rest[0], rest[1])
            dropped = done.dropped + int(rest[2])
            back = done.back + int(rest[3])
            done = Capped(dropped=dropped, back=back, trials=int(rest[4]))
            after = rest[5].decode()
        return done

    def _stage(
        self,
        stage: str,
        pairs: Iterable[tuple[str, bytes]],
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        remaining, count = iter(pairs), 0
        while batch := list(islice(remaining, BATCH_ROWS)):
            flat = [part for pair in batch for part in pair]
            self._scripts.run("stage_rows", stage, UNFINISHED_TTL_S, *flat)
            count += len(batch)
            progress(count)
        return count
