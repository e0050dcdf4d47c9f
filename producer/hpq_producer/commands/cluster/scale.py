"""`hpq scale`: change the number of worker pods."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from hpq.domain.sweep import DEFAULT_CLASS
from hpq.errors import Held, HpqError, UserError
from hpq_producer.cluster.connect.session import OpenCluster, open_cluster
from hpq_producer.cluster.pods import autoscaler_of, read_cluster
from hpq_producer.cluster.scale.scale import ScalePlan, Scaling, scale_progress
from hpq_producer.commands.common_flags import Context, Namespace
from hpq_producer.connection_record import kubectl_command
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import clean, trials_of

_POLL_S = 0.5


def scale(
    count: Annotated[int, typer.Argument(min=0, help="How many worker pods.")],
    queue: Annotated[str, typer.Option(help="The worker class.")] = DEFAULT_CLASS,
    context: Context = None,
    namespace: Namespace = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all of them are ready.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that --wait waits.")] = 600.0,
) -> None:
    """Scale worker pods: idle ones go first, then those with the newest checkpoint."""
    with open_cluster(context, namespace, needs_redis=False) as opened:
        session = opened.session
        reader, control = (session.reader, session.control()) if session else (None, None)
        scaling = Scaling(opened.api, reader, control, queue)
        plan = scaling.plan(count)
        _warn_of_autoscaler(opened, plan)
        if plan.going and session is None:
            print_message(f"busy pods may go before idle ones: {opened.why}")
        plan, before = scaling.drain(plan), plan.deployment.wanted
        try:
            stay = scaling.apply(plan)
        except HpqError:
            scaling.undrain(plan.going, plan)
            raise
        print_message(f"{plan.deployment.name}: {before} → {count} pods (class {queue})")
        if plan.trials:
            stopped = ", ".join(map(clean, plan.trials))
            print_message(f"stopped and requeued, no attempt charged: {stopped}")
        if stay:
            print_message(
                f"still there: {', '.join(sorted(stay))}; the cluster deleted others or is slow"
            )
        if wait:
            _wait(opened, plan, timeout)


def _warn_of_autoscaler(opened: OpenCluster, plan: ScalePlan) -> None:
    """Say what an autoscaler will make of it.

    Raises:
        UserError: KEDA does, within seconds: trials would be stopped for nothing. Paused it has
            no autoscaler, so that it is not seen here.
    """
    name = autoscaler_of(opened.api, plan.deployment.name)
    if not name:
        return
    kind, _, called = name.partition(" ")
    kubectl = kubectl_command(opened.api.context, opened.api.namespace)
    if kind == "ScaledObject":
        pause = f"{kubectl} annotate scaledobject {called} autoscaling.keda.sh/paused"
        raise UserError(
            f"{name} decides how many pods there are, and would do so again in a moment; pause it"
            f" first: {pause}=true --overwrite (and afterwards: {pause}-)",
            code="autoscaled",
        )
    print_message(
        f"{name} decides how many pods there are, and will soon do so again;"
        f" change its minReplicas and maxReplicas: {kubectl} edit hpa {called}"
    )


def _wait(opened: OpenCluster, plan: ScalePlan, timeout: float) -> None:
    """Return once so many pods are ready and no others are there.

    Raises:
        Held: they are not in time; says why.
    """
    until, printed = time.monotonic() + timeout, ""
    while True:
        progress = scale_progress(read_cluster(opened.api), plan)
        if progress.is_done:
            print_message(f"{trials_of(progress.ready, 'pod')} ready")
            return
        if progress.why and progress.why != printed:
            print_message(clean(progress.why))
            printed = progress.why
        if time.monotonic() > until:
            raise Held(
                f"{progress.ready} of {trials_of(plan.wanted, 'pod')} ready after {timeout:.0f} s"
                + (f": {clean(progress.unmet)}" if progress.unmet else ""),
                code="pods-not-ready",
            )
        time.sleep(_POLL_S)
