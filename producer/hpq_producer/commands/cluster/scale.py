"""`hpq scale`: change the number of worker pods."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from hpq.domain.sweep import DEFAULT_QUEUE
from hpq.errors import HpqError, UserError
from hpq_producer.cluster.connect.session import OpenCluster, open_cluster
from hpq_producer.cluster.pods import autoscaler_of
from hpq_producer.cluster.scale.scale import ScalePlan, Scaling
from hpq_producer.commands.common_flags import Context, Namespace
from hpq_producer.connection_record import kubectl_command
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import clean


def scale(
    count: Annotated[int, Argument(min=0, help="Number of worker pods.")],
    queue: Annotated[
        str, Option(metavar="NAME", help="Queue that the workers serve.")
    ] = DEFAULT_QUEUE,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Set the number of worker pods; idle pods stop first, then those with new checkpoints.

    `kubectl rollout status deployment/hpq-worker` waits until all pods are ready.

    Examples:
      hpq scale 8
      hpq scale 2 --queue a100
    """
    with open_cluster(context, namespace, needs_redis=False) as opened:
        session = opened.session
        reader, control = (session.reader, session.control()) if session else (None, None)
        scaling = Scaling(opened.api, reader, control, queue)
        plan = scaling.plan(count)
        _warn_of_autoscaler(opened, plan)
        if plan.going and session is None:
            print_message(f"busy pods may stop before idle ones: {opened.why}")
        plan, before = scaling.drain(plan), plan.deployment.wanted
        try:
            stay = scaling.apply(plan)
        except HpqError:
            scaling.undrain(plan.going, plan)
            raise
        print_message(f"{plan.deployment.name}: {before} → {count} pods (queue {queue})")
        if plan.trials:
            stopped = ", ".join(map(clean, plan.trials))
            print_message(f"stopped and requeued without a charged attempt: {stopped}")
        if stay:
            print_message(
                f"still running: {', '.join(sorted(stay))}; the cluster is slow or deleted others"
            )


def _warn_of_autoscaler(opened: OpenCluster, plan: ScalePlan) -> None:
    """Warn if an autoscaler will change the number of pods again.

    Raises:
        UserError: KEDA changes it within seconds, so trials would be stopped for nothing. A paused
            ScaledObject has no autoscaler and raises nothing.
    """
    name = autoscaler_of(opened.api, plan.deployment.name)
    if not name:
        return
    kind, _, called = name.partition(" ")
    kubectl = kubectl_command(opened.api.context, opened.api.namespace)
    if kind == "ScaledObject":
        pause = f"{kubectl} annotate scaledobject {called} autoscaling.keda.sh/paused"
        raise UserError(
            f"{name} sets the number of pods and would undo the change within seconds; pause it"
            f" first: {pause}=true --overwrite (undo with: {pause}-)",
            code="autoscaled",
        )
    print_message(
        f"{name} sets the number of pods and will soon undo the change;"
        f" edit its minReplicas and maxReplicas: {kubectl} edit hpa {called}"
    )
