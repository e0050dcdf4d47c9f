"""Create sweeps and add trials to them.

Rows of a new sweep are written to keys that expire, and no reader sees a sweep without its hash.
One script call then makes all of them visible. Every call may be sent twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hpq.domain.attempt import Capped
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.search.replicates import replicated
from hpq.store.keys import SWEEP_PARTS
from hpq.store.scripts import BATCH_ROWS, UNFINISHED_TTL_S, StoreContext, check_reply
from hpq.store.sweep_reader import known_sets
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire.fields import dumps, flatten, sweep_id
from hpq.store.wire.row import NewRow, SignRow, encode_new, stored, unsigned
from hpq.store.wire.trial import encode_result

_TRIES = 50  # of a call that adds trials, while a suggester adds others


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The sets that a call added to a sweep; `first` is the number of the first of the trials."""

    first: int
    sets: tuple[ParameterSet, ...] = ()
    trials: int = 0


class SweepWriter:
    """Creates sweeps, appends trials, and bounds how many trials a sweep has."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts

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

    def create(
        self, sweep: SweepView, *, again: bool = False, is_last: bool = True, manifest: str = ""
    ) -> str | None:
        """Make a sweep visible; return None, or the id of an existing sweep with its digest.

        With `again` the sweep is created although one with its digest exists. If it `is_last`,
        commands without an id mean it. `manifest` is that of the code kept with it, as JSON.
        """
        fields = flatten(sweep_codec.encode_sweep(sweep))
        reply, rest = self._scripts.run(
            "create",
            *fields,
            sweep=sweep.id,
            digest=sweep.digest,
            owner=sweep.owner,
            again=again,
            last=is_last,
            manifest=manifest,
        )
        if reply == "exists":
            return sweep_id(rest[0])
        self._context.mint(rest[0], rest[1])
        return None

    def discard(self, sid: str) -> None:
        """Delete the rows of an enqueue that failed; a created sweep keeps its rows."""
        if self._redis.exists(self._keys.sweep(sid)):  # created, and the reply was lost
            return
        self._redis.delete(*(self._keys.sweep(sid, part) for part in (*SWEEP_PARTS, "staged")))

    def append(
        self,
        sid: str,
        sets: Sequence[ParameterSet],
        *,
        replicates: int = 1,
        again: bool = False,
        whole: bool = False,
        outside: Collection[bytes] = (),
        file: str = "",
        varying: Sequence[str] = (),
        sign: SignRow = unsigned,
    ) -> Appended:
        """Add trials of different sets to a sweep, all in one call; return what was added.

        Sets that the sweep has are left out, unless `again`; if it has any, `whole` adds nothing.
        `outside` are the identities of those outside its space. `file` is the sweep file that
        describes them, as `wire.sweep.encode_appended_file` encodes it. The checkpoints at which
        sets begin stay with the sweep.

        Raises:
            NotFound: the sweep does not exist.
            UserError: the sweep was stopped or cancelled, no trial fits its budget, a checkpoint
                was removed, or its suggester adds trials faster than this call can.
        """
        call = secrets.token_hex(8)
        for _ in range(_TRIES):
            total: Any = self._redis.hlen(self._keys.sweep(sid, "params"))
            known = known_sets(self._redis, self._keys, sid, sets)
            new = [one for one in sets if again or one.identity not in known]
            first = total + 1
            if not new or (whole and len(new) < len(sets)):
                return Appended(first=first)
            rows: list[NewRow] = []
            numbers = ""
            for one in new:
                for replicate, params in enumerate(replicated(one, replicates)):
                    number = first + len(rows)
                    # A copy has an identity of its own: no replicate has so high a number.
                    salt = number if one.identity in known else replicate
                    rows.append(encode_new(params, salt))
                    numbers += f"{number} " if one.identity in outside else ""
            starts = {str(one.start.trial): one.start.checkpoint.path for one in new if one.start}
            reply, rest = self._scripts.run(
                "append",
                *(part for pair in stored(rows, first, sign) for part in pair),
                sweep=sid,
                first=first,
                varying=dumps(list(varying)),
                file=file,
                outside=numbers,
                call=call,
                starts=starts,
            )
            if reply == "budget":
                bound = rest[0].decode()
                raised = f"{bound}={'+8h' if bound == 'budget.until' else 'N'}"
                text = f"{sid}: no further trial fits {bound}; raise it: hpq set {sid} {raised}"
                raise UserError(text, code="budget-spent")
            if reply == "moved":
                text = f"{sid}/{int(rest[0])}: its checkpoint was removed or replaced meanwhile;"
                text += " name another trial, or leave out --from (start_from)"
                raise UserError(text, code="no-checkpoint")
            if reply == "over":
                text = (
                    f"{sid} was stopped or cancelled; `hpq retry {sid} --cancelled` opens it again"
                )
                raise UserError(text, code="sweep-over")
            if reply != "behind":
                check_reply(sid, reply)
                self._context.mint(rest[0], rest[1])
                return Appended(first=first, sets=tuple(new), trials=len(rows))
        text = f"{sid}: other trials are added faster than these; run `hpq pause {sid}`, then again"
        raise UserError(text, code="sweep-grows")

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

    def _stage(self, stage: str, pairs: Iterable[tuple[str, bytes]]) -> int:
        remaining, count = iter(pairs), 0
        while batch := list(islice(remaining, BATCH_ROWS)):
            flat = [part for pair in batch for part in pair]
            self._scripts.run("stage_rows", stage, UNFINISHED_TTL_S, *flat)
            count += len(batch)
        return count
