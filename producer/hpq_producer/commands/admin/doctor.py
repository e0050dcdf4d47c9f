"""`hpq doctor`: check what hpq needs, or print the settings in use (--settings)."""

from __future__ import annotations

import os
from itertools import zip_longest
from textwrap import wrap
from typing import Annotated

import typer
from typer import Option

from hpq.access import connection_record
from hpq.access.connection_record import NAMESPACE, connection_of_url, namespace_flags
from hpq.access.session import load_settings
from hpq.code.signing import fingerprint, key_of, verifying_key
from hpq.domain.trial import Json
from hpq.error_codes import ExitCode
from hpq.errors import HpqError
from hpq.kubernetes.api import KubernetesApi
from hpq.settings import ABOUT, Settings, describe, read, variable
from hpq_ops.doctor.checkup import Finding, checkup, note
from hpq_ops.doctor.cluster import cluster_checkup, keys_agree
from hpq_producer.commands.common_flags import Context, Namespace, Output
from hpq_views.text.console import show_lines, show_table, stdout_info
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span, Style
from hpq_views.text.tables import GAP, Column
from hpq_views.text.text import clean, width


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
    return found + checkup(settings, in_cluster=True)


def show_settings(output: Format) -> None:
    """Print the settings in use; hide secrets."""
    settings = load_settings()
    connection = connection_record.connection_of_url(settings.home, settings.redis_url)
    shown = {**describe(settings), **_key(settings)}
    if output.is_data:
        return show_data({**shown, "connection": connection.where if connection else None}, output)
    about = dict(ABOUT)
    if connection:
        about["redis_url"] = f"by hpq connect: {connection.where}"
    elif settings.redis_url and not read(os.environ).redis_url:
        about["redis_url"] = "by hpq join; `hpq leave` disconnects"
    names = {field: variable(field) for field in about if variable(field) in shown}
    values = {field: _text(shown[name]) for field, name in names.items()}
    taken = max(map(width, names.values())) + min(_VALUE, max(map(width, values.values())))
    room = max(_MEANING, stdout_info().columns - taken - 2 * GAP)
    rows = [
        [Span(name), Span(value), Span(part, Style.DIM)]
        for field in names
        for name, value, part in zip_longest(
            [names[field]],
            [values[field]],
            wrap(about[field], room, break_on_hyphens=False),
            fillvalue="",
        )
    ]
    show_table(_COLUMNS, rows)


_VALUE, _MEANING = 30, 30  # columns: of values at most, of meanings at least
_COLUMNS = (
    Column(title="setting", keep=100),
    Column(title="value", keep=90, least=10),
    Column(title="meaning", keep=50),
)


def _key(settings: Settings) -> dict[str, Json]:
    """Return the fingerprint of the code key: HPQ_CODE_KEY, else the key under HPQ_HOME."""
    key_print = fingerprint(verifying_key(settings))
    where = "" if settings.code_key else ", under HPQ_HOME"
    return {variable("code_key"): f"*** (key {key_print}{where})"} if key_print else {}


def _text(value: Json) -> str:
    if isinstance(value, list):
        return clean(" ".join(map(str, value)))
    return "" if value is None else clean(str(value))
