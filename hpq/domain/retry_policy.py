"""Decide whether a trial whose attempt failed is retried: how often, where, and at whose charge.

`RETRY_RULES` is the whole policy, one row for each failure kind. Its counters are in Redis, so the
scripts apply it: commit.lua receives the row of the failure, reap.lua the limit of losses, and
release.lua that of returns which the trial caused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hpq.domain.trial import Failure, FailureKind

LOST_MAX = 3  # default of HPQ_LOST_MAX: the loss without progress that makes a trial poison
# Kubernetes evicts a pod whose trial overfills its volume. After this number of such returns, the
# trial is poison. Returns that it did not cause (preemption, a drain, a lost node) cost nothing.
OVERFILLED_MAX = 3
AWAIT_LEASES = 4  # a worker that may end but not requeue its trial is awaited for N leases


class Evidence(StrEnum):
    """What a failure shows about its cause; sweeps are held and workers suspected by it."""

    CODE = "code"  # the training code fails; enough alike of these hold the sweep
    UNCLEAR = "unclear"  # the training code or the worker fails
    NONE = "none"  # the parameters or a limit fail: neither code nor worker
    TAMPERING = "tampering"  # another client of Redis changed the trial: never retried


@dataclass(frozen=True, slots=True)
class RetryRule:
    """One row of `RETRY_RULES`.

    `retries` is how many charged failures of the kind one trial is forgiven; the sweep's `retries`
    adds to it. With `progress` a failure at a step beyond the furthest of all such failures before
    it is retried uncharged; the first has none to compare with, so it is charged. With `elsewhere`
    the next attempt goes to another live host of the queue if there is one. A `released` kind is
    the worker's fault: the trial returns to the front of its queue uncharged, and this worker
    leaves the sweep for a while.
    """

    retries: int = 0
    progress: bool = False
    elsewhere: bool = False
    released: bool = False
    evidence: Evidence = Evidence.NONE


_CODE, _UNCLEAR = Evidence.CODE, Evidence.UNCLEAR

RETRY_RULES: Mapping[FailureKind, RetryRule] = {
    FailureKind.BAD_PARAMS: RetryRule(retries=0),
    FailureKind.DIVERGED: RetryRule(retries=0),
    FailureKind.OUT_OF_MEMORY: RetryRule(retries=1, elsewhere=True, evidence=_UNCLEAR),
    FailureKind.TIMEOUT: RetryRule(retries=0),
    FailureKind.STALLED: RetryRule(retries=1, elsewhere=True, evidence=_UNCLEAR),
    FailureKind.USER_ERROR: RetryRule(retries=0, evidence=_CODE),
    FailureKind.UNREPORTED: RetryRule(retries=0, evidence=_CODE),
    FailureKind.KILLED: RetryRule(retries=1, progress=True, evidence=_UNCLEAR),
    # No worker commits these: reap.lua requeues a lost trial, or makes it poison (HPQ_LOST_MAX), as
    # release.lua does with one that overfills its pods.
    FailureKind.LOST: RetryRule(),
    FailureKind.POISON: RetryRule(retries=0),
    FailureKind.UNREADABLE: RetryRule(retries=0),
    FailureKind.DISTRUSTED: RetryRule(evidence=Evidence.TAMPERING),
    FailureKind.DATA_MISSING: RetryRule(released=True),
    FailureKind.WORKER_FAULT: RetryRule(released=True),
}


def retry_rule(failure: Failure | None) -> RetryRule:
    """Return the rule for a failed attempt; an attempt that did not fail is not retried.

    For one trial, commit.lua retries the failure if `progress` holds, or else if this is at most
    charged failure number `retries` + the sweep's `retries` of its kind. No trial of a stopped or
    cancelled sweep is retried, nor one that was asked to stop. reap.lua requeues a lost trial until
    it is lost HPQ_LOST_MAX times in a row without progress, on two hosts unless the queue has only
    one; then the trial fails as `POISON`.
    """
    return RetryRule() if failure is None else RETRY_RULES[failure.kind]
