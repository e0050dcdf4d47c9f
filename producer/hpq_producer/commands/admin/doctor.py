"""`hpq doctor`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer
from typer import Option

from hpq.code.signing import fingerprint, key_of
from hpq.errors import ExitCode, HpqError
from hpq_producer.cluster.connect.session import api_of, settings_for
from hpq_producer.commands.common_flags import Context, Namespace, Output
from hpq_producer.doctor.cluster import cluster_checkup, keys_agree
from hpq_producer.doctor.local import Finding, checkup
from hpq_producer.doctor.settings import show_settings
from hpq_producer.session import load_settings
from hpq_producer.terminal.console import show_lines
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.style import Span


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
    """Check the cluster first; then its Redis, if it can be reached."""
    settings = load_settings()
    try:
        api = api_of(context, namespace, settings)
    except HpqError as error:
        return [Finding.of(error)]
    found = list(cluster_checkup(api))
    if any(f.level == "wrong" and f.exit_code != int(ExitCode.OUT_OF_REACH) for f in found):
        return found  # without the cluster its Redis cannot be reached
    try:
        with ExitStack() as stack:
            try:
                inside = settings_for(api, settings, stack)
            except HpqError as error:
                if error.code != "cluster-forbidden":
                    raise
                inside = settings_for(api, settings, stack, "viewer")
            ours = fingerprint(key_of(settings, make=False))
            agrees = keys_agree(ours, inside.code_key.encode(), api.flags)
            found += [agrees] if agrees else []
            found += checkup(inside, in_cluster=api.flags)
    except HpqError as error:
        found.append(Finding.of(error))
    return found
