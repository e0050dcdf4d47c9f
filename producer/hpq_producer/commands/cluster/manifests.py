"""`hpq manifests`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import yaml
from typer import Option

from hpq.code import signing
from hpq.connection import sentinel
from hpq.connection.credentials import SECRETS, carried
from hpq.domain.sweep import NAME_RULE
from hpq.errors import UserError
from hpq.settings import ABOUT, read, variable
from hpq_producer.connection_record import NAMESPACE
from hpq_producer.enqueue.submission import prepare
from hpq_producer.enqueue.submit import enqueue_sweep
from hpq_producer.manifests import render as rendering
from hpq_producer.manifests.components import parse
from hpq_producer.manifests.jobs import refuse_too_many
from hpq_producer.manifests.jobs import render as render_jobs
from hpq_producer.manifests.secrets import secret_objects, tls_secret
from hpq_producer.session import Session, open_session
from hpq_producer.sweepfile.load import load
from hpq_producer.terminal.console import print_message, warn
from hpq_producer.terminal.text import trials_of

# setting that the manifests fill in → the option for it
_OWN_FLAGS = {
    "HPQ_QUEUE": "--queue",
    "HPQ_IMAGE": "--image",
    "HPQ_CPUS": "--cpu",
    "HPQ_POD_GRACE_S": "--set HPQ_GRACE_S",
}

_COMPONENTS = (
    "Add a component: bucket, queue=QUEUE:GPUS, cpu, dataset, egress, git-code=URL@COMMIT,"
    " keda=MAX, kueue=LOCALQUEUE, monitoring, nfs=SERVER:/PATH, spot, store or tls. Repeatable."
    " docs/guides/kubernetes.md describes them."
)


def manifests(
    image: Annotated[str, Option(help="Image of the workers.")] = "",
    namespace: Annotated[
        str | None, Option(metavar="NAME", help="Namespace (default: hpq).")
    ] = None,
    queue: Annotated[str, Option(metavar="NAME", help="Queue that the workers serve.")] = "default",
    gpus: Annotated[int | None, Option(min=0, help="GPUs per pod; 0: none. Default: 1.")] = None,
    cpu: Annotated[
        str, Option(metavar="CPUS", help="CPUs per pod, e.g. 16 or 500m. Default: 2 per GPU.")
    ] = "",
    memory: Annotated[
        str, Option(metavar="SIZE", help="Memory per pod, e.g. 64Gi. Default: 8Gi per GPU.")
    ] = "",
    components: Annotated[
        list[str] | None, Option("--with", metavar="NAME[=VALUE]", help=_COMPONENTS)
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="HPQ_NAME=VALUE", help="Setting of the workers. Repeatable."),
    ] = None,
    secrets: Annotated[
        bool, Option("--secrets", help="Print Secrets with new passwords and the code key.")
    ] = False,
    jobs: Annotated[
        str | None, Option(metavar="FILE|SWEEP", help="Print a Job per trial, not workers.")
    ] = None,
) -> None:
    """Print the Kubernetes manifests of Redis and the workers; --secrets prints their Secrets.

    Examples:
      hpq manifests --secrets | kubectl create -f -
      hpq manifests --image REGISTRY/hpq:1 --with keda=8 | kubectl apply -f -
    """
    _check(namespace, queue)
    parts = tuple(parse(text) for text in components or ())
    options = rendering.ManifestOptions(
        image=image,
        namespace=namespace or NAMESPACE,
        queue=queue,
        gpus=gpus,
        cpu=cpu,
        memory=memory,
        parts=parts,
        settings=_settings(settings or []),
    )
    rendering.check(options)
    if "keda" in options.components:
        remedy = "name the primary's Service, or remove --with keda"
        sentinel.refuse(options.settings.get("HPQ_REDIS_URL", ""), f"KEDA does not ask: {remedy}")
    if secrets:
        print(_secrets(options.namespace, with_tls="tls" in options.components), end="")
        return
    for warning in _warnings(options):
        warn(warning)
    text = rendering.render(options) if jobs is None else _jobs(options, jobs, namespace)
    print(text, end="")


def _check(namespace: str | None, queue: str) -> None:
    if namespace is not None and not NAME_RULE.match(namespace):
        raise UserError(f"--namespace {namespace}: use a-z, 0-9 and '-'")
    if not NAME_RULE.match(queue):
        raise UserError(f"--queue {queue}: use a-z, 0-9 and '-'")


def _warnings(options: rendering.ManifestOptions) -> Iterator[str]:
    if not options.image:
        yield f"no --image: using {rendering.IMAGE}, which the nodes must have"
    if options.queue != "default" and not options.queues:
        yield (
            f"--queue {options.queue}: replaces the queue default; to keep both, use"
            f" --with queue={options.queue}:GPUS"
        )


def _jobs(options: rendering.ManifestOptions, what: str, namespace: str | None) -> str:
    """Return the Jobs of a sweep, or of a sweep file, which is enqueued if no sweep has it.

    Their namespace is that of the sweep's Redis; another `namespace` is an error.
    """
    if options.queue != "default" or options.queues:
        raise UserError(f"--jobs {what}: the sweep sets the queue; remove --queue")
    with open_session() as session:
        if connected := session.connection and session.connection.namespace:
            if namespace not in (None, connected):
                line = f"--namespace {namespace}: the sweep is in the Redis of {connected}"
                raise UserError(line, code="namespace-mismatch")
            options = replace(options, namespace=connected)
        sweep = session.reader.sweeps.get(_sweep_of(session, what))
        refuse_too_many(what, None if sweep.sampler else sweep.counts.total)
        left = [t for t in session.reader.trials.all(sweep.id) if not t.state.is_terminal]
        if not left:
            line = f"{sweep.id} ({sweep.state}): no trial is left; `hpq retry` queues failed ones"
            raise UserError(line, code="nothing-waits")
        manifests = rendering.render(replace(options, queue=sweep.queue))
        text = render_jobs(manifests, sweep, left)
        if session.reader.workers.live(sweep.queue):
            print_message(
                f"warning: workers of queue {sweep.queue!r} are running and also claim the"
                " sweep's trials"
            )
    for_them = f"-n {options.namespace} -l hpq/sweep={sweep.id}"
    print_message(
        f"{sweep.id}: {trials_of(len(left), 'Job')}; follow them with `hpq watch {sweep.id}`,"
        f" remove them with `kubectl delete jobs {for_them}`"
    )
    return text


def _sweep_of(session: Session, what: str) -> str:
    file = Path(what)
    if not file.suffix and not file.exists():
        return session.find(what)
    submission = prepare(load(file), file)
    refuse_too_many(what, None if submission.spec.is_late else submission.spec.trials)
    for warning in submission.warnings:
        warn(warning)
    return enqueue_sweep(session, submission).sid


def _settings(texts: list[str]) -> dict[str, str]:
    """Parse --set NAME=VALUE; refuse a value that no worker could use."""
    found: dict[str, str] = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not is_given or not name.startswith("HPQ_"):
            raise UserError(
                f"--set {text}: write HPQ_NAME=VALUE; `hpq doctor --settings` lists the names"
            )
        if name in SECRETS - {"HPQ_REDIS_URL"}:
            line = f"--set {name}: this is a secret; `hpq manifests --secrets` creates it"
            raise UserError(line, code="setting-secret")
        if name in rendering.own_settings():
            use = f"; use {_OWN_FLAGS[name]}" if name in _OWN_FLAGS else ""
            line = f"--set {name}: the manifests set it{use}"
            raise UserError(line, code="setting-fixed")
        if name == "HPQ_PORT":
            line = f"--set {name}: the pods' probes and policies need port 9108"
            raise UserError(line, code="setting-fixed")
        if carried(value):
            raise UserError(
                f"--set {name}: the password would be in a ConfigMap; for HPQ_STORE create a Secret"
                " hpq-store with it, and add --with bucket",
                code="setting-secret",
            )
        found[name] = value
    read({"HPQ_REDIS_URL": "redis://any", **found})
    for name in found.keys() - {variable(field) for field in ABOUT}:
        line = f"--set {name}: unknown setting; list the names: hpq doctor --settings"
        raise UserError(line, code="setting-unknown")
    return found


def _secrets(namespace: str, *, with_tls: bool) -> str:
    """Return the Secrets as YAML; refuse a terminal."""
    if sys.stdout.isatty():
        text = "--secrets prints passwords; use `hpq manifests --secrets | kubectl create -f -`"
        raise UserError(text, code="secrets-on-terminal")
    settings = read(os.environ)
    key = signing.key_of(settings, make=True)
    assert key is not None
    tls = tls_secret(namespace) if with_tls else None
    made = secret_objects(settings.prefix, namespace, key.decode(), tls)
    return yaml.safe_dump_all(made, sort_keys=False)
