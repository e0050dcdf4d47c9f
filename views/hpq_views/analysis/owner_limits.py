"""Say what operators' limits of owners mean for a sweep, and refuse what a claim never starts."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.domain.owner import Owner
from hpq.domain.sweep import SweepView
from hpq.domain.usage import short
from hpq.errors import Forbidden
from hpq.notice import Notice, plural
from hpq.shell import shell_hint
from hpq_views.text.text import clean, trials_of


def explain_limit(sweep: SweepView, owner: Owner | None) -> Notice | None:
    """Return why limits of a sweep's owner let none of its trials start; None if one may start.

    A sweep with running trials is none that waits.
    """
    if owner is None or sweep.counts.running or not sweep.counts.waits:
        return None
    name, bound = clean(owner.name), owner.bound(sweep.priority)
    if bound == "priority":
        most = owner.limits["priority"]
        text = f"priority {sweep.priority} is above {name}'s limit of {most}: no trial starts;"
        text += f" `hpq set {sweep.id} priority={most}`, or {_raise(owner, bound, sweep.priority)}"
    elif bound == "gpu_ms":
        text = f"{name} has used {short(owner.gpu_hours)} of {_most(owner)}: no trial starts;"
        text += f" {_raise(owner, 'gpu_hours')}"
    elif bound and owner.limits["running"]:
        allowed = trials_of(owner.limits["running"])
        text = f"{name} runs {owner.running} of at most {allowed} at a time:"
        text += f" the next starts when one of them ends; {_raise(owner, bound)}"
    elif bound:
        text = f"{name} may run no trial (running=0); {_raise(owner, bound)}"
    else:
        return None
    return Notice("owner-limit", text)


def _most(owner: Owner) -> str:
    hours = owner.most_gpu_hours or 0
    return f"{hours:.6g} {plural(hours, 'GPU-hour')}"


def _raise(owner: Owner, limit: str, value: object = "N") -> str:
    command = shell_hint(["hpq", "user", owner.name, "--limit"])
    return f"an operator raises it: {command} {limit}={value}"


def check_owner_limits(owner: Owner | None, priority: int, trials: int | None) -> list[str]:
    """Return what limits mean for a new sweep of N trials. Raises as `check_priority`."""
    check_priority(owner, priority)
    return list(_describe(owner, trials))


def check_priority(owner: Owner | None, priority: int) -> None:
    """Check the priority of a sweep; `owner` is None if no limits are set.

    Raises:
        Forbidden: the owner's greatest priority is lower than this one.
    """
    if owner is not None and owner.bound(priority) == "priority":
        most, name = owner.limits["priority"], clean(owner.name)
        text = f"priority {priority} is above the limit of {name}; the greatest is {most}:"
        text += f" write priority: {most}, or {_raise(owner, 'priority', priority)}"
        raise Forbidden(text, code="owner-limit")


def _describe(owner: Owner | None, trials: int | None) -> Iterator[str]:
    if owner is None:
        return
    name, most = clean(owner.name), owner.limits.get("running")
    if most and (trials is None or trials > most):
        yield f"{name} runs at most {trials_of(most)} at a time"
    if owner.most_gpu_hours is not None:
        left = max(0.0, owner.most_gpu_hours - owner.gpu_hours)
        if left <= owner.most_gpu_hours / 5:
            yield f"{short(left)} of {_most(owner)} of {name} are left"
