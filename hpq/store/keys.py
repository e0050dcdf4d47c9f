"""Every Redis key of hpq, in one place; `lua/lib/prelude.lua` builds the same names for scripts.

Those of RQ are in `tickets.py`.

P is HPQ_PREFIX, S a sweep's id, N a trial's number, Q a queue, W a worker's name, F the id
of a store of files.

P:sweeps        zset  sweep id → created_ms
P:digests       hash  sweep digest → sweep id, to find a sweep that is queued already
P:last          hash  owner → id of the last sweep
P:server        hash  run_id of the server and since when the reaper trusts it; newest_ms: a time
                      up to which the data are complete
P:queues        hash  demand:Q → running + claimable trials of queue Q; booked:Q → when the reaper
                      corrected that; counted:Q → when it last read all open sweeps of Q
P:restarts      zset  newest_ms of the data that a restarted server had → when a script noticed the
                      restart, ms; the newest 100
P:spent         hash  owner → GPU-ms used since the first limit of any owner was set
P:counters      hash  counts of occurrences (stale_commits, leases_expired, code_refused, …), and of
                      ended attempts, ended:OUTCOME:KIND:SECONDS (lua/commit.lua)
P:set-aside     list  the newest 100 ids of entries of ticket queues that were not tickets
P:notice:S      string  the state of sweep S that the last notice told; expires
P:removing      set   ids of sweeps whose deletion is not done
P:removed       zset  sweep id → when it was removed, ms (+ ½: its files stay); the newest 1,000
P:collected:F   string  set when a worker looked for unneeded files in store F; expires
P:provenance    hash  digest → provenance record of an attempt, JSON
P:ran           zset  that digest → number of sweeps with such attempts; or −ms since when none has
P:code          hash  code digest → JSON manifest {path: sha256}
P:b:D           string  code digest → the code itself, a gzipped tar (bundle)
P:b:D:sweeps    set   ids of sweeps with this code; it is removed with the last of them
P:leases        zset  S/N of each running trial → when its lease ends, ms
P:workers       zset  W → last seen, ms
P:histories     zset  sweep id → order in which logs and curves are dropped if memory is short:
                      when it ended, ms; of an open one 10¹⁴ more than when it opened, or
                      than when the reaper looked at it
P:w:W           hash  a worker, with its last claim; expires
P:q:Q:open      zset  sweep id → claim order, for sweeps that are not over
P:q:Q:pending   zset  the same for those of them at which claims look: trials wait, and the state
                      and max_parallel let one start, or a stop has left them to the reaper
P:q:Q:owners    hash  sweep id → owner, of the open ones
P:q:Q:busy      hash  owner with open sweeps → number of their running trials
P:q:Q:idle      zset  W → when it last reported that it is idle, ms
P:q:Q:checked   string  set when a worker of the queue checked its sweeps for notices; expires
P:demand:Q      list  as long as the demand, at most 10,000 (autoscalers read LLEN)
P:s:S           hash  the sweep: launch, metric, limits, flags, counts; with a budget, GPU-ms:
                      spent_ms, of these useful_ms; started_ms: the sum of the times of the claims
                      that run; may_run: the trials that limits of its owner let run, for its
                      demand; thinned_ms: the ended_ms up to which logs and curves of its trials
                      were dropped
P:s:S:params    hash  N → 16 bytes of signature (without a key: none) and the parameters as JSON;
                      of a trial that begins at another one's checkpoint: these, its number, and
                      the checkpoint
P:s:S:waiting   zset  N → order; requeued trials are below 0 and so first
P:s:S:dropped   zset  N → order, of trials cancelled before their first claim (+ ½: by run_cap)
P:s:S:ids       set   16-byte identities of the sweep's parameter sets
P:s:S:running   zset  N → claimed_ms
P:s:S:ended     zset  N → ended_ms
P:s:S:rank      zset  N → objective, of finished and pruned trials
P:s:S:means     zset  first N of a set's replicates → mean of their objectives, if any
P:s:S:band:K    zset  N → K-th value of the metric, if early termination compares at K
P:s:S:restoring string  token of a restore from an archive, or of a removal of files; expires
P:s:S:staged    hash  N → result of an older sweep with which a new one begins; expires
P:s:S:files     set   N of ended trials that have checkpoints or artifacts in a store
P:s:S:stores    set   ids of the stores that ever held its files
P:s:S:events    stream  lifecycle, never trimmed while the sweep lives
P:s:S:ran_on    set   digests of the provenance records of its attempts
P:s:S:origin    hash  long texts about the sweep's origin: diff
P:t:S/N         hash  a trial, created at its first claim; starts: paths of its checkpoints at
                      which other trials begin, a line each
P:t:S/N:log     stream  its output, the newest 1 MiB, until the worker ends the attempt
P:t:S/N:p:M     stream  values of metric M, thinned to 1,000, until the trial ends
P:t:S/N:points  hash  the same of an ended trial: metric → columns (wire/trial.py); #log: output of
                      ended attempts; #usage: what the latest attempt used of its machine

Only operators may write this (U is an owner, * all owners without an own value):

P.limits        hash  U/priority, U/running, U/gpu_ms → the most that an operator lets U have

A prefix isolates names, not permissions. No code of hpq scans for keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpq.domain.trial import TrialId
from hpq.store.wire.trial import metric_names

# The parts that every sweep may have beside its own hash, and their types. Archives and removals
# read this list.
SWEEP_PARTS: Mapping[str, str] = {
    "params": "hash",
    "waiting": "zset",
    "dropped": "zset",
    "ids": "set",
    "running": "zset",
    "ended": "zset",
    "rank": "zset",
    "means": "zset",
    "files": "set",
    "stores": "set",
    "events": "stream",
    "origin": "hash",
    "ran_on": "set",
}


def sweep_parts(bands: Iterable[int]) -> dict[str, str]:
    """Return SWEEP_PARTS with the bands of a sweep that has early termination."""
    return {**SWEEP_PARTS, **{f"band:{band}": "zset" for band in bands}}


def _fixed(name: str) -> Any:
    """Create a property of Keys: the key of this name under the prefix."""
    return property(lambda keys: f"{keys.prefix}:{name}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of all keys under one prefix."""

    prefix: str = "hpq"

    sweeps = _fixed("sweeps")
    digests = _fixed("digests")
    last = _fixed("last")
    server = _fixed("server")
    queues = _fixed("queues")
    restarts = _fixed("restarts")
    counters = _fixed("counters")
    spent = _fixed("spent")
    set_aside = _fixed("set-aside")
    removing = _fixed("removing")
    removed = _fixed("removed")
    provenance = _fixed("provenance")
    code = _fixed("code")
    leases = _fixed("leases")
    workers = _fixed("workers")

    @property
    def limits(self) -> str:
        """The key of operators' limits of owners, which no producer may write."""
        return f"{self.prefix}.limits"

    def _of(self, *parts: object) -> str:
        return ":".join((self.prefix, *map(str, parts)))

    def bundle(self, digest: str) -> str:
        return self._of("b", digest)

    def notice(self, sweep: str) -> str:
        return self._of("notice", sweep)

    def collected(self, store: str) -> str:
        return self._of("collected", store)

    def worker(self, name: str) -> str:
        return self._of("w", name)

    def queue(self, name: str, part: str) -> str:
        """Return a key of a queue; `part` is open, pending, owners, busy, idle or checked."""
        return self._of("q", name, part)

    def demand(self, queue: str) -> str:
        """Return the key of the list whose length is the demand of a queue, for autoscalers."""
        return self._of("demand", queue)

    def sweep(self, sweep: str, part: str = "") -> str:
        """Return the key of a sweep's hash, or of one of its `sweep_parts`."""
        return self._of("s", sweep, part) if part else self._of("s", sweep)

    def ranking(self, sweep: str, replicates: int) -> str:
        """Return the key of a sweep's ranking: of its trials, or of the groups of replicates."""
        return self.sweep(sweep, "rank" if replicates < 2 else "means")

    def trial(self, trial: TrialId, part: str = "") -> str:
        """Return the key of a trial's hash, of its log, or of what an end packed."""
        return self._of("t", trial, part) if part else self._of("t", trial)

    def points(self, trial: TrialId, metric: str) -> str:
        return self._of("t", trial, "p", metric)

    def of_trial(self, trial: TrialId, fields: Iterable[bytes]) -> list[str]:
        """Return all keys of a trial; `fields` are those of its hash."""
        points = (self.points(trial, name) for name in metric_names(fields))
        return [
            self.trial(trial),
            *(self.trial(trial, part) for part in ("log", "points")),
            *points,
        ]

    @property
    def ticket(self) -> str:
        """The prefix of ticket ids, by which an ACL tells tickets from other jobs of RQ."""
        return f"hpq_{self.prefix}_"

    def tickets(self, queue: str) -> str:
        """Return the name of RQ's queue of tickets, which wake the workers of a queue."""
        return f"hpq:{self.prefix}:{queue}"
