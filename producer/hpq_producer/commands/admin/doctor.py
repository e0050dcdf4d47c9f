"""`hpq doctor`."""

from __future__ import annotations

import json as jsonlib
from contextlib import ExitStack
from typing import Annotated

import typer

from hpq.code.signing import fingerprint, key_of
from hpq.errors import ExitCode, HpqError
from hpq_producer.cluster.connect.session import api_of, settings_for
from hpq_producer.commands.common_flags import AsJson, Context, Namespace
from hpq_producer.doctor.cluster import cluster_checkup, keys_agree
from hpq_producer.doctor.local import Finding, checkup
from hpq_producer.session import load_settings
from hpq_producer.terminal.console import show_lines
from hpq_producer.terminal.style import Span


def doctor(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="The cluster, and its Redis by a connection to it.")
    ] = False,
    context: Context = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Check the server, the workers and the data; each finding says what to do."""
    found = _of_cluster(context, namespace) if cluster else checkup(load_settings())
    if json:
        keys = ("level", "code", "what", "remedy")
        print(jsonlib.dumps([{key: getattr(f, key) for key in keys} for f in found]))
    else:
        for finding in found:
            show_lines([[Span(f"{finding.level:7} "), Span(finding.what)]], whole=True)
            if finding.remedy:
                show_lines([[Span(" " * 8), Span(finding.remedy)]], whole=True)
    wrong = [f.exit_code for f in found if f.level == "wrong"]
    raise typer.Exit(wrong[0] if wrong else int(ExitCode.DONE))


def _of_cluster(context: str | None, namespace: str | None) -> list[Finding]:
    """The cluster first; then its Redis, where that can be reached."""
    settings = load_settings()
    try:
        api = api_of(context, namespace, settings)
    except HpqError as error:
        return [Finding.of(error)]
    found = list(cluster_checkup(api))
    if any(f.level == "wrong" and f.exit_code != int(ExitCode.OUT_OF_REACH) for f in found):
        return found  # what is not there cannot be reached
    try:
        with ExitStack() as stack:
            may = api.allows("get", "secrets", "hpq-redis-producer")
            inside = settings_for(api, settings, stack, "producer" if may else "viewer")
            ours = fingerprint(key_of(settings, make=False))
            agrees = keys_agree(ours, inside.code_key.encode(), api.flags)
            found += [agrees] if agrees else []
            found += checkup(inside, in_cluster=api.flags)
    except HpqError as error:
        found.append(Finding.of(error))
    return found
