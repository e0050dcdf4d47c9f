"""`hpq scale`: more or fewer worker pods, after saying what that stops."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hpq.errors import Held, HpqError, UserError
from hpq.sweep import DEFAULT_CLASS
from producer.asking import ask
from producer.cluster.opening import Opened, open_cluster
from producer.cluster.pods import autoscaler_of, look
from producer.cluster.scaling import Plan, Scaling, Settled, standing
from producer.cluster.tunnel import kubectl_in
from producer.cluster.victims import Agreement
from producer.commands.options import Context, Namespace
from producer.look.out import talk
from producer.look.text import clean, duration, trials_of
from producer.writing import store_of

app = typer.Typer()
_POLL_S = 0.5
_TRIES = 5


@app.command("scale")
def scale(
    count: Annotated[int, typer.Argument(min=0, help="How many worker pods.")],
    queue: Annotated[str, typer.Option(help="The worker class.")] = DEFAULT_CLASS,
    context: Context = None,
    namespace: Namespace = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until all of them are ready.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that --wait waits.")] = 600.0,
) -> None:
    """More or fewer worker pods: idle ones go first, then those that lose least."""
    with open_cluster(context, namespace, needs_redis=False) as opened:
        session = opened.session
        view, store = (session.view, store_of(session)) if session else (None, None)
        scaling = Scaling(opened.api, view, store, queue)
        plan = scaling.plan(count)
        _mind_autoscaler(opened, plan)
        if plan.going:
            plan = _agreed(scaling, plan, opened, yes)
        before = plan.workers.wanted
        try:
            settled = scaling.apply(plan)
        except HpqError:
            scaling.let_go(plan)
            raise
        talk(f"{plan.workers.name}: {before} → {count} pods (class {queue})")
        if settled.stay:
            talk(_otherwise(settled))
        if wait:
            _wait(opened, plan, timeout)


def _agreed(scaling: Scaling, plan: Plan, opened: Opened, yes: bool) -> Plan:
    """The plan, once the user has agreed to what it stops, and its workers take nothing more.

    Raises:
        UserError: there is nobody to ask.
    """
    if opened.session is None:
        talk(f"what the pods are at is not known: {opened.why}")
        ask(f"Let {trials_of(len(plan.going), 'pod')} go all the same?", yes)
        return plan
    agreed = Agreement()
    for _ in range(_TRIES):
        if not agreed.covers_all(plan.stops):
            _say(plan)
            talk("a stopped trial goes to the front of its queue, and no attempt is charged")
            ask(_question(plan), yes)
            agreed.add(plan.stops)
        told = scaling.hold(plan)
        new = scaling.again(plan, told, agreed)
        going, before = ({p.name for p in one.going} for one in (new, plan))
        if going == before and agreed.covers_all(new.stops):
            if not new.trials <= agreed.trials:
                talk("meanwhile others began in these pods:")
                _say(new)
            return new
        scaling.let_go(plan)
        plan = new
    raise UserError("the pods take trials faster than they can be chosen; pause the sweep first")


def _question(plan: Plan) -> str:
    blind = sum(not stake.is_known for stakes in plan.stops.values() for stake in stakes)
    known = sum(map(len, plan.stops.values())) - blind
    words = [f"stop {trials_of(known)}"] if known else []
    if blind:
        words.append(f"let {trials_of(blind, 'pod')} go that may be at work")
    return f"{' and '.join(words).capitalize()}?"


def _say(plan: Plan) -> None:
    """What stops, and what that throws away."""
    idle = len(plan.going) - len(plan.stops)
    if idle:
        talk(f"{trials_of(idle, 'pod')} of those that go {'is' if idle == 1 else 'are'} idle")
    for pod, stakes in plan.stops.items():
        for stake in stakes:
            if not stake.is_known:
                talk(f"what {clean(pod)} is at is not known: no worker of it is on this Redis")
                continue
            since = "its last checkpoint" if stake.has_checkpoint else "its start"
            talk(
                f"{clean(pod)} stops {clean(stake.trial)}, {duration(stake.ran_ms)} in: at most"
                f" {duration(stake.unsaved_ms)} lost, since {since}"
            )


def _otherwise(settled: Settled) -> str:
    """That not those went that were said to; a trial that was stopped is in its queue again."""
    stay, instead = (", ".join(sorted(names)) for names in (settled.stay, settled.instead))
    if not instead:
        return f"still there: {stay}; what decides about pods there is slow, or has decided anew"
    return f"not as said: the cluster took {instead}, and {stay} stayed; what ran there is queued"


def _mind_autoscaler(opened: Opened, plan: Plan) -> None:
    """Say what an autoscaler will make of it.

    Raises:
        UserError: KEDA does, within seconds: trials would be stopped for nothing. Paused it has
            no autoscaler, so that it is not seen here.
    """
    name = autoscaler_of(opened.api, plan.workers.name)
    if not name:
        return
    kind, _, called = name.partition(" ")
    kubectl = kubectl_in(opened.api.context, opened.api.namespace)
    if kind == "ScaledObject":
        pause = f"{kubectl} annotate scaledobject {called} autoscaling.keda.sh/paused"
        raise UserError(
            f"{name} decides how many pods there are, and would do so again in a moment; pause it"
            f" first: {pause}=true --overwrite (and afterwards: {pause}-)"
        )
    talk(
        f"{name} decides how many pods there are, and will soon do so again;"
        f" change its minReplicas and maxReplicas: {kubectl} edit hpa {called}"
    )


def _wait(opened: Opened, plan: Plan, timeout: float) -> None:
    """Return once so many pods are ready and no others are there.

    Raises:
        Held: they are not in time; says why.
    """
    until, said = time.monotonic() + timeout, ""
    while True:
        now = standing(look(opened.api), plan)
        if now.is_reached:
            talk(f"{trials_of(now.ready, 'pod')} ready")
            return
        if now.why and now.why != said:
            talk(clean(now.why))
            said = now.why
        if time.monotonic() > until:
            raise Held(
                f"{now.ready} of {trials_of(plan.wanted, 'pod')} ready after {timeout:.0f} s"
                + (f": {clean(now.lacks)}" if now.lacks else "")
            )
        time.sleep(_POLL_S)
