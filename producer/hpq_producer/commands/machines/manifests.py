"""`hpq manifests`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.code import signing
from hpq.errors import HpqError, NotFound, UserError
from hpq.kubernetes.api import KubernetesApi, has_kubeconfig
from hpq.kubernetes.redis_access import installed
from hpq.notice import print_message, warn
from hpq.settings import read
from hpq.yamlfile.document import MAX_BYTES, decode
from hpq_ops.manifests.cluster_file import DEFAULT, SCHEMA_FILE, ClusterFile, Flags, load
from hpq_ops.manifests.objects import folder, to_yaml
from hpq_ops.manifests.render import render
from hpq_ops.manifests.secrets import secret_objects, tls_secret


def manifests(
    file: Annotated[str, Argument(metavar="FILE", help="Cluster file; - for standard input.")] = "",
    same_file: Annotated[
        str, Option("-f", "--file", metavar="FILE", help="The same as FILE.")
    ] = "",
    image: Annotated[str, Option(help="Image of the workers.")] = "",
    namespace: Annotated[
        str | None, Option(metavar="NAME", help="Namespace (default: hpq).")
    ] = None,
    create_namespace: Annotated[
        bool, Option("--create-namespace", help="Print the Namespace, too.")
    ] = False,
    gpus: Annotated[
        int | None,
        Option(min=0, help="GPUs of a pod of the queue default; 0: none. Default: 1."),
    ] = None,
    secrets: Annotated[
        bool, Option("--secrets", help="Print Secrets with new passwords and the code key.")
    ] = False,
    example: Annotated[
        bool, Option("--example", help="Print a cluster file with every key, to edit.")
    ] = False,
) -> None:
    """Print the Kubernetes manifests of Redis and the workers; --secrets prints their Secrets.

    A flag overrides its key of the cluster file.

    Examples:
      hpq manifests --create-namespace --image REGISTRY/hpq:1 | kubectl apply -f -
      hpq manifests --secrets | kubectl create -f -
      hpq manifests --example > cluster.yaml
      hpq manifests cluster.yaml | kubectl apply -f -
    """
    if example:
        print(f"# yaml-language-server: $schema={SCHEMA_FILE.as_uri()}")
        print((folder() / "cluster.yaml").read_text("utf-8"), end="")
        return
    flags: Flags = {}
    if image:
        flags["image",] = f"--image {image}", image
    if namespace is not None:
        flags["namespace",] = f"--namespace {namespace}", namespace
    if gpus is not None:
        flags["queues", DEFAULT, "gpus"] = f"--gpus {gpus}", gpus
    if create_namespace:
        flags["create_namespace",] = "--create-namespace", True
    if file and same_file:
        raise UserError(f"{file} and --file {same_file}: give one cluster file")
    cluster = _read(file or same_file, flags)
    if secrets:
        print(_secrets(cluster), end="")
        return
    if not cluster.image:
        used = f"using {cluster.workers_image}, which the nodes must have"
        warn(f"no image: {used}; set `image` in the cluster file, or use --image")
    print(render(cluster), end="")


def _read(file: str, flags: Flags) -> ClusterFile:
    if file == "-":
        text = decode(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
        return load(text=text, flags=flags)
    return load(Path(file) if file else None, flags=flags)


def _installed(prefix: str, namespace: str) -> tuple[str, list[str]]:
    """Return the code key and the people's users of an installation; "" and [] if there is none."""
    if not has_kubeconfig(os.environ):
        return "", []
    try:
        api = KubernetesApi(None, namespace)
        key, people = installed(api, prefix)
    except NotFound:
        return "", []
    except HpqError as error:
        warn(f"the Secrets in use are unknown, so the code key is this machine's: {error}")
        return "", []
    fingerprint = signing.fingerprint(key.encode())
    print_message(f"keeps code key {fingerprint} of context {api.context}, namespace {namespace}")
    return key, people


def _secrets(cluster: ClusterFile) -> str:
    """Return the Secrets as YAML; refuse a terminal."""
    if sys.stdout.isatty():
        text = "--secrets prints passwords; append `| kubectl create -f -` to the command"
        raise UserError(text, code="secrets-on-terminal")
    settings = read(os.environ)
    prefix = cluster.prefix if "HPQ_PREFIX" in cluster.settings else settings.prefix
    in_use, people = _installed(prefix, cluster.namespace)
    key = settings.code_key or in_use
    if not key:
        own = signing.key_of(settings, make=True)
        assert own is not None
        key = own.decode()
    tls = tls_secret(cluster.namespace) if cluster.tls else None
    made = secret_objects(prefix, cluster.namespace, key, tls, people)
    return to_yaml(made)
