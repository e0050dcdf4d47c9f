"""`Sweep.ask` and `Sweep.tell`: the claim and the commit of workers, for a process that is none."""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Mapping

from hpq.access.session import Session
from hpq.code.signing import RowSigner
from hpq.domain.attempt import CommitReply, Nothing, Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import ALTERED, Claim, Failure, FailureKind, Point, TrialState
from hpq.errors import UserError
from hpq.reporting import MAX_NAMES, MAX_TEXT, flatten
from hpq.store.trials import TrialStore

_LONGEST_S = 30 * 86_400.0  # of a lease
_REPAIR_MS = 10_000  # between two corrections of counts
_STEP = 1  # of the values told


def claim_for_caller(session: Session, sweep: SweepView, lease_s: float) -> Claim | None:
    """Claim a trial of a sweep for this process; None if none can start now.

    First requeues trials whose leases have ended: perhaps no worker lives that does.

    Raises:
        UserError: as `Sweep.ask`.
    """
    if not 0 < lease_s <= _LONGEST_S:
        raise UserError(f"lease_s={lease_s}: write seconds, at most {_LONGEST_S:.0f}")
    settings = session.settings
    signer = RowSigner.required(settings, sweep)
    store = TrialStore(session.context)
    store.reap(
        sweep.queue,
        lease_ms=settings.lease_ms,
        lost_max=settings.lost_max,
        every_ms=_REPAIR_MS,
    )
    host = socket.gethostname()
    name = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
    caller = WorkerPresence(name=name, host=host, queue=sweep.queue)
    try:
        nonce = secrets.token_hex(8)
        found = store.claim(
            caller,
            nonce=nonce,
            lease_ms=int(1000 * lease_s),
            only=sweep.id,
            no_starts=True,  # only workers load checkpoints
        )
    finally:
        store.absent(caller)  # a claim registers an idle worker
    if isinstance(found, Nothing):
        if found.unfed:
            text = f"{sweep.id}: its trials are suggested beside a worker, and none is live"
            raise UserError(f"{text}; start one: hpq worker", code="no-worker")
        return None
    if not signer.has_signed(found.trial.number, found.row):
        store.commit(found, Outcome(state=TrialState.FAILED, failure=ALTERED))
        raise UserError(f"{found.trial}: {ALTERED.message}", code="parameters-altered")
    return found


def commit_of_caller(
    session: Session, sweep: SweepView, claim: Claim, result: float | Mapping[str, object]
) -> None:
    """Commit the last values of a trial's metrics as its result.

    Raises:
        UserError: as `Sweep.tell`.
    """
    values = _values(sweep, result)
    needed = [one.name for one in sweep.objectives] or [sweep.metric.name if sweep.metric else ""]
    for name in filter(None, needed):
        if not math.isfinite(values.get(name, math.nan)):
            text = f"{claim.trial}: {name} is {values.get(name, 'missing')}"
            raise UserError(f"{text}; tell a number, or failed='why'", code="invalid-value")
    objective = values[needed[0]] if needed[0] else None
    outcome = Outcome(
        state=TrialState.FINISHED, objective=objective, best=objective, step=_STEP
    ).measured(sweep, values)
    points = tuple(Point(step=_STEP, name=name, value=value) for name, value in values.items())
    last = ReportBatch(
        seq=1, step=_STEP, objective=objective, points=points, metric_order=tuple(values)
    )
    _commit(session, claim, outcome, last)


def fail_of_caller(session: Session, claim: Claim, why: str) -> None:
    """Commit a failure of the code.

    Raises:
        UserError: as `Sweep.tell`.
    """
    text = why[:MAX_TEXT]
    failure = Failure(kind=FailureKind.USER_ERROR, message=text, fingerprint=text)
    _commit(session, claim, Outcome(state=TrialState.FAILED, failure=failure), None)


def _values(sweep: SweepView, result: float | Mapping[str, object]) -> dict[str, float]:
    if not isinstance(result, Mapping):
        if sweep.metric is None or sweep.objectives:
            raise UserError(f"{sweep.id} has not one metric; tell a mapping of names to values")
        result = {sweep.metric.name: result}
    try:
        values = flatten(result)
    except ValueError as error:
        raise UserError(str(error), code="invalid-value") from None
    if len(values) > MAX_NAMES:
        text = f"{len(values):,} metrics; tell at most {MAX_NAMES}"
        raise UserError(text, code="invalid-value")
    return values


def _commit(session: Session, claim: Claim, outcome: Outcome, last: ReportBatch | None) -> None:
    reply = TrialStore(session.context).commit(claim, outcome, last)
    why = ""
    if reply in (CommitReply.STALE, CommitReply.UNKNOWN):
        why = "another has claimed it, or it was removed"
    elif reply is CommitReply.ALREADY:  # perhaps by this commit, whose reply was lost
        now = session.reader.trials.get(claim.trial)
        is_retried = outcome.state is TrialState.FAILED and now.state is TrialState.QUEUED
        if now.attempt != claim.attempt or not (now.state is outcome.state or is_retried):
            why = f"it is {now.state} now"
    if why:
        text = f"{claim.trial}: its lease has ended, and {why}; its result is ignored"
        raise UserError(f"{text}; ask with a longer lease_s", code="attempt-lost")
