"""Commands on sweeps, owners and workers: pause, stop, cancel, set, retry, limit, drain, remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpq.domain.trial import TrialId
from hpq.errors import DecodeError, UserError
from hpq.redis.damage import answered
from hpq.store.keys import SWEEP_PARTS
from hpq.store.scripts import BATCH_ROWS, StoreContext, check_reply
from hpq.store.wire.fields import flatten


class SweepControl:
    """Changes the state of sweeps, and limits of owners. Every call may be sent twice."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts

    def limit_owner(self, owner: str, limits: Mapping[str, int | None]) -> None:
        """Set limits of an owner by name of LIMITS; None removes one.

        Raises:
            redis.NoPermissionError: this Redis user is no administrator's.
        """
        words: list[str | int] = [owner]
        for name, value in limits.items():
            words += [name, "" if value is None else value]
        _, rest = self._scripts.run("limit_owner", *words)
        for i in range(0, len(rest), 2):
            self._context.mint(rest[i], rest[i + 1])

    def probe(self) -> None:
        """Change nothing.

        Raises:
            redis.RedisError: the Redis user may not change sweeps.
        """
        self._scripts.run("control", "", "pause")  # no sweep has this id

    def pause(self, sid: str) -> None:
        """Let no further trial of a sweep start.

        Raises:
            NotFound: the sweep does not exist.
            UserError: the sweep is stopped or cancelled.
        """
        self._control(sid, "pause")

    def resume(self, sid: str) -> None:
        """Let trials of a paused or held sweep start again.

        Raises:
            NotFound: the sweep does not exist.
            UserError: the sweep is stopped or cancelled.
        """
        self._control(sid, "resume")

    def stop(self, sid: str) -> int:
        """Cancel the queued trials of a sweep; return how many. Running trials run on.

        Raises:
            NotFound: the sweep does not exist.
        """
        return self._control(sid, "stop")

    def cancel(self, sid: str, numbers: Sequence[int] = ()) -> int:
        """Cancel the trials with these numbers (none: the whole sweep); return how many.

        Raises:
            NotFound: the sweep does not exist.
        """
        if not numbers:
            return self._control(sid, "cancel")
        batches = (numbers[i : i + BATCH_ROWS] for i in range(0, len(numbers), BATCH_ROWS))
        return sum(self._control(sid, "cancel", *batch) for batch in batches)

    def set(self, sid: str, fields: Mapping[str, str]) -> None:
        """Change limits of a sweep: max_parallel, priority, retries, timeout_s.

        Raises:
            NotFound: the sweep does not exist.
        """
        self._control(sid, "set", *flatten(fields))

    def retry(self, sid: str, numbers: Sequence[int]) -> int:
        """Queue trials in a terminal state again, behind all others; return how many.

        Raises:
            NotFound: the sweep does not exist.
        """
        queued = 0
        for start in range(0, len(numbers), BATCH_ROWS):
            reply, rest = self._scripts.run(
                "requeue_ended", sid, *numbers[start : start + BATCH_ROWS]
            )
            check_reply(sid, reply)
            self._context.mint(rest[0], rest[1])
            queued += int(rest[2])
        return queued

    def drain(self, worker: str, *, undo: bool = False) -> str | None:
        """Let a worker claim no further trial until `undo`.

        Returns:
            The id of the trial that the worker runs, "" if it is idle, None if it is not alive.
        """
        reply, rest = self._scripts.run("drain", worker, "undo" if undo else "drain")
        return None if reply == "unknown" else str(rest[0].decode())

    def remove(self, sid: str, *, keep_files: bool = False, last_event: str = "") -> list[str]:
        """Delete a sweep with all its keys, and finish removals that were interrupted.

        With `last_event`, the sweep must be over, and that id be the id of its last event.

        Returns:
            The ids of the file stores that have files of the sweep. `FileGarbage` removes these
            files, unless `keep_files` is set.

        Raises:
            UserError: the sweep has changed since `last_event`.
        """
        parts = {**SWEEP_PARTS, "restoring": "string"}
        del parts["params"]  # they count the trials that `finish_removals` deletes
        reply, stores = self._scripts.run(
            "remove", sweep=sid, keep=keep_files, last=last_event or None, parts=parts
        )
        self.finish_removals()
        if reply == "changed":
            text = f"{sid} has changed meanwhile, so it was not deleted; run the command again"
            raise UserError(text, code="sweep-changed")
        return [raw.decode("utf-8", "replace") for raw in stores]

    def finish_removals(self) -> None:
        """Delete the keys of sweeps whose removal was interrupted."""
        for pending in self.pending_removals():
            self._delete_removed(pending)

    def pending_removals(self) -> frozenset[str]:
        """Return the ids of sweeps whose removal was interrupted or is under way."""
        found: Any = self._redis.smembers(self._keys.removing)
        return frozenset(raw.decode("utf-8", "replace") for raw in found)

    def _delete_removed(self, sid: str) -> None:
        """Delete the keys that the script `remove` left; several calls may do so at once."""
        params = self._keys.sweep(sid, "params")
        total: Any = self._redis.hlen(params)
        for first in range(1, total + 1, BATCH_ROWS):
            if not self._redis.sismember(self._keys.removing, sid):  # another call has finished
                return
            delete_trials(self._context, sid, first, min(first + BATCH_ROWS - 1, total))
        self._redis.unlink(params)
        self._redis.srem(self._keys.removing, sid)

    def _control(self, sid: str, verb: str, *args: str | int) -> int:
        touched = 0
        is_more = True
        while is_more:  # the reaper ends the rest of many trials if this process dies
            reply, rest = self._scripts.run("control", sid, verb, *args)
            check_reply(sid, reply)
            self._context.mint(rest[0], rest[1])
            touched += int(rest[2])
            is_more = bool(int(rest[3]))
        return touched


def delete_trials(context: StoreContext, sid: str, first: int, last: int) -> None:
    """Delete the keys of the trials `first` to `last` of a sweep."""
    redis, keys = context.redis, context.keys
    for start in range(first, last + 1, BATCH_ROWS):
        numbers = range(start, min(start + BATCH_ROWS, last + 1))
        trials = [TrialId(sweep=sid, number=n) for n in numbers]
        pipe = redis.pipeline(transaction=False)
        for trial in trials:
            pipe.hkeys(keys.trial(trial))
        owned: list[str] = []
        for trial, fields in zip(trials, pipe.execute(raise_on_error=False), strict=True):
            try:
                if answered(keys.trial(trial), fields):
                    owned += keys.of_trial(trial, fields)
            except DecodeError:  # another type, left by another client of Redis
                owned += keys.of_trial(trial, ())
        if owned:
            redis.unlink(*owned)
