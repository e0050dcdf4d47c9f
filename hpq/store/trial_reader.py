"""Plain reads of trials: their rows, their ranking, their curves and what they printed.

The half of `view` that looks inside a sweep; the same rules hold: ordinary read commands only, a
bounded number of them for each question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis import Redis

from hpq.domain.snapshot import Event
from hpq.domain.sweep import Goal, Sweep
from hpq.domain.trial import Params, Point, ReplicateGroup, Trial, TrialId
from hpq.errors import NotFound
from hpq.store.event_reader import event_of
from hpq.store.keys import Keys
from hpq.store.wire import trial as trial_codec


def _ranking(sweep: Sweep) -> str:
    return "rank" if sweep.replicates < 2 else "means"


class TrialsView:
    """Answers questions about the trials of one prefix of one Redis server."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def trials(self, sid: str, numbers: Sequence[int]) -> list[Trial]:
        """The trials with these numbers, in this order.

        Raises:
            NotFound: the sweep was removed.
        """
        if not numbers:
            return []
        params_key = self._keys.sweep(sid, "params")
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(self._keys.sweep(sid))
        pipe.hmget(params_key, [str(n) for n in numbers])
        pipe.zmscore(self._keys.sweep(sid, "dropped"), [str(n) for n in numbers])
        for n in numbers:
            pipe.hgetall(self._keys.trial(TrialId(sweep=sid, number=n)))
        is_there, params, dropped, *rows = pipe.execute()
        if not is_there:
            raise NotFound(
                f"sweep {sid!r} is not there; `hpq ls` lists what is", code="sweep-not-found"
            )
        out = []
        for n, raw, drop, row in zip(numbers, params, dropped, rows, strict=True):
            trial = TrialId(sweep=sid, number=n)
            values = trial_codec.decode_params(f"{params_key} field {n}", raw)
            key = self._keys.trial(trial)
            out.append(trial_codec.decode_trial(key, trial, row, values, dropped=drop is not None))
        return out

    def trial(self, trial: TrialId) -> Trial:
        """One trial.

        Raises:
            NotFound: the sweep has no such number.
        """
        if not self._redis.hexists(self._keys.sweep(trial.sweep, "params"), str(trial.number)):
            raise NotFound(
                f"trial {trial} is not there; `hpq results {trial.sweep}` lists them",
                code="trial-not-found",
            )
        return self.trials(trial.sweep, [trial.number])[0]

    def eldest(self, sids: Sequence[str]) -> dict[str, Trial]:
        """Of each sweep the trial that has run longest, where one runs."""
        pipe = self._redis.pipeline(transaction=False)
        for sid in sids:
            pipe.zrange(self._keys.sweep(sid, "running"), 0, 0)
        out: dict[str, Trial] = {}
        for sid, found in zip(sids, pipe.execute(), strict=True):
            with suppress(NotFound):  # removed meanwhile
                for trial in self.trials(sid, [int(n) for n in found]):
                    out[sid] = trial
        return out

    def has_sets(self, sid: str, identities: Sequence[bytes]) -> list[bool]:
        """Which of these sets the sweep has, whatever became of them."""
        key = self._keys.sweep(sid, "ids")
        found: Any = self._redis.smismember(key, list(identities)) if identities else []
        return [bool(one) for one in found]

    def all_trials(self, sid: str, chunk: int = 500) -> Iterator[Trial]:
        """Every trial of a sweep in order of number, read in chunks."""
        total: Any = self._redis.hlen(self._keys.sweep(sid, "params"))
        for start in range(1, total + 1, chunk):
            yield from self.trials(sid, range(start, min(start + chunk, total + 1)))

    def best(self, sweep: Sweep, top: int) -> list[Trial]:
        """The trials with the best objectives, best first; of equal ones, the lower number.

        Where sets have replicates, one trial stands for those of each set: ranked by their mean,
        which is its objective here, with its `group`.
        """
        numbers = self._ranked(sweep, top)
        if sweep.replicates < 2:
            return self.trials(sweep.id, numbers)
        return self._groups(sweep, numbers)

    def _groups(self, sweep: Sweep, firsts: Sequence[int]) -> list[Trial]:
        pipe = self._redis.pipeline(transaction=False)
        for first in firsts:
            members = [str(first + i) for i in range(sweep.replicates)]
            pipe.zmscore(self._keys.sweep(sweep.id, "rank"), members)
        groups = [
            ReplicateGroup(
                first=first,
                of=sweep.replicates,
                objectives=tuple(s for s in scores if s is not None),
            )
            for first, scores in zip(firsts, pipe.execute(), strict=True)
        ]
        # A retry may have come between the two reads: then the group has nothing to show now.
        groups = [group for group in groups if group.objectives]
        trials = self.trials(sweep.id, [group.first for group in groups])
        return [
            replace(trial, objective=group.mean, group=group)
            for trial, group in zip(trials, groups, strict=True)
        ]

    def leaders(self, sweeps: Sequence[Sweep]) -> list[float | None]:
        """The best objective of each sweep, in one round trip; None where there is none."""
        pipe = self._redis.pipeline(transaction=False)
        for sweep in sweeps:
            desc = sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE
            key = self._keys.sweep(sweep.id, _ranking(sweep))
            pipe.zrange(key, 0, 0, desc=desc, withscores=True)
        return [float(rows[0][1]) if rows else None for rows in pipe.execute()]

    def story(self, trial: TrialId) -> list[Event]:
        """The newest hundred or so events of one trial, oldest first; none of an older hpq's."""
        raw: Any = self._redis.hget(self._keys.trial(trial), "told")
        ids, events = (raw or b"").decode().split(), self._keys.sweep(trial.sweep, "events")
        pipe = self._redis.pipeline(transaction=False)
        for eid in ids:
            pipe.xrange(events, eid, eid)
        return [event_of(events, *row) for rows in pipe.execute() for row in rows]

    def bundle(self, digest: str) -> bytes | None:
        """The code of a digest as `hpq.bundle` packs it; None where it is not kept."""
        raw: Any = self._redis.get(self._keys.bundle(digest)) if digest else None
        return raw if isinstance(raw, bytes) else None

    def manifest(self, digest: str) -> Mapping[str, str]:
        """{path: sha256} of a code digest; empty where it is not kept, or not readable."""
        raw: Any = self._redis.hget(self._keys.code, digest) if digest else None
        where = f"{self._keys.code} field {digest}"
        found = trial_codec.decode_params(where, raw) if raw else {}
        return {path: str(mark) for path, mark in found.items()}

    def origin(self, sid: str, field: str) -> str:
        """What is long of where a sweep came from (`diff`); empty for none."""
        raw: Any = self._redis.hget(self._keys.sweep(sid, "origin"), field)
        return raw.decode("utf-8", "replace") if raw else ""

    def gone(self, sweep: Sweep) -> list[str]:
        """What a sweep refers to and the server has not: its code, what attempts ran on."""
        digest = sweep.bundle
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(self._keys.bundle(digest))
        pipe.hexists(self._keys.code, digest)
        pipe.smembers(self._keys.sweep(sweep.id, "ran_on"))
        has_code, has_manifest, raw = pipe.execute()
        ran_on = sorted(one.decode() for one in raw)
        kept: Any = self._redis.hmget(self._keys.provenance, ran_on) if ran_on else []
        out = [] if has_code or not digest else [f"code {digest}"]
        out += [] if has_manifest or not digest else [f"manifest of code {digest}"]
        lost = (one for one, record in zip(ran_on, kept, strict=True) if record is None)
        return out + [f"what attempts ran on, {one}" for one in lost]

    def provenance(self, digest: str) -> Params:
        """What an attempt ran on, by the digest that the trial carries; empty where it is gone."""
        raw: Any = self._redis.hget(self._keys.provenance, digest) if digest else None
        return (
            trial_codec.decode_params(f"{self._keys.provenance} field {digest}", raw) if raw else {}
        )

    def _ranked(self, sweep: Sweep, top: int) -> list[int]:
        if sweep.metric is None or top < 1:
            return []
        desc = sweep.metric.goal is Goal.MAXIMIZE
        key = self._keys.sweep(sweep.id, _ranking(sweep))
        rows: Any = self._redis.zrange(key, 0, top - 1, desc=desc, withscores=True)
        if rows:  # all that tie with the last row, so that the lowest numbers win
            rows = rows + [(n, rows[-1][1]) for n in self._redis.zrangebyscore(
                key, rows[-1][1], rows[-1][1], start=0, num=1000)]  # fmt: skip
        sign = -1 if desc else 1
        order = sorted({(sign * score, int(n)) for n, score in rows})
        return [n for _, n in order[:top]]

    def history(self, trial: TrialId, metric: str) -> list[Point]:
        """The values of one metric in order of report, thinned to about 1,000."""
        rows: Any = self._redis.xrange(self._keys.points(trial, metric))
        return [
            Point(step=int(f[b"s"]), name=metric, value=float(f[b"v"])) for _, f in rows
        ]  # fmt: skip

    def histories(self, trials: Sequence[TrialId], metric: str, last: int) -> list[list[Point]]:
        """The newest values of one metric for several trials, in one round trip."""
        pipe = self._redis.pipeline(transaction=False)
        for trial in trials:
            pipe.xrevrange(self._keys.points(trial, metric), count=last)
        return [
            [Point(step=int(f[b"s"]), name=metric, value=float(f[b"v"])) for _, f in reversed(rows)]
            for rows in pipe.execute()
        ]

    def log(
        self, trial: TrialId, after: str = "0", block_ms: int | None = None
    ) -> tuple[bytes, str]:
        """What the trial printed after an entry, and the id of the newest entry read."""
        answer: Any = self._redis.xread({self._keys.trial(trial, "log"): after}, block=block_ms)
        if not answer:
            return b"", after
        entries = answer[0][1]
        return b"".join(fields[b"d"] for _, fields in entries), entries[-1][0].decode()
