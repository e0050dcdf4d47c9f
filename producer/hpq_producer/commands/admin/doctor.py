"""`hpq doctor`."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from hpq.access.connection_record import NAMESPACE, connection_of_url, namespace_flags
from hpq.access.session import load_settings
from hpq.code.signing import fingerprint, key_of
from hpq.errors import ExitCode, HpqError
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.redis_access import kubectl_of
from hpq_ops.doctor.cluster import cluster_checkup, keys_agree
from hpq_ops.doctor.local import Finding, checkup, note
from hpq_ops.doctor.settings import show_settings
from hpq_producer.commands.common_flags import Context, Namespace, Output
from hpq_views.text.console import show_lines
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span


def doctor(
    cluster: Annotated[
        bool, Option("--cluster", help="Check the cluster; with `hpq connect` also its Redis.")
    ] = False,
    settings: Annotated[
        bool, Option("--settings", help="Print the settings in use instead; hide secrets.")
    ] = False,
    context: Context = None,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
) -> None:
    """Check the server, the workers and the data; print what to do about each problem.

    Examples:
      hpq doctor --cluster -n research
      hpq doctor --settings -o yaml
    """
    if settings:
        return show_settings(output)
    found = _of_cluster(context, namespace) if cluster else checkup(load_settings())
    if output.is_data:
        keys = ("level", "code", "what", "remedy")
        show_data([{key: getattr(f, key) for key in keys} for f in found], output)
    else:
        for finding in found:
            show_lines([[Span(f"{finding.level:7} "), Span(finding.what)]], whole=True)
            if finding.remedy:
                show_lines([[Span(" " * 8), Span(finding.remedy)]], whole=True)
    wrong = [f.exit_code for f in found if f.level == "wrong"]
    raise typer.Exit(wrong[0] if wrong else int(ExitCode.DONE))


def _of_cluster(context: str | None, namespace: str | None) -> list[Finding]:
    """Check the named cluster, else that of the connection, else the kubeconfig's current one."""
    settings = load_settings()
    connection = connection_of_url(settings.home, settings.redis_url)
    if context is None and connection is not None:
        context, namespace = connection.context, namespace or connection.namespace
    try:
        api = KubernetesApi(context, namespace or NAMESPACE)
    except HpqError as error:
        return [Finding.of(error)]
    found = list(cluster_checkup(api))
    if connection is None and not settings.redis_url:
        remedy = "hpq connect" + "".join(namespace_flags(api.context, api.namespace))
        return [*found, note("not-connected", "no connection: Redis itself is not checked", remedy)]
    if connection is not None:
        if (connection.context, connection.namespace) != (api.context, api.namespace):
            what = f"connected to {connection.where}: the Redis of this namespace is not checked"
            return [*found, note("not-connected", what, "hpq connect --stop")]
        ours = fingerprint(key_of(settings, make=False))
        agrees = keys_agree(ours, connection.environ().get("HPQ_CODE_KEY", ""))
        found += [agrees] if agrees else []
    return found + checkup(settings, in_cluster=kubectl_of(api))
