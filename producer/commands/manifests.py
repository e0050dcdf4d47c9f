"""`hpq manifests`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
import yaml

from hpq import signing
from hpq.errors import UserError
from hpq.settings import read
from hpq.sweep import NAME_RULE
from producer import manifests as rendering
from producer.secrets_yaml import secret_objects

app = typer.Typer()


@app.command("manifests")
def manifests(
    image: Annotated[str, typer.Option(help="The workers' image.")] = "",
    namespace: Annotated[str, typer.Option(help="Where all of it goes.")] = "hpq",
    queue: Annotated[str, typer.Option(help="The workers' class.")] = "default",
    replicas: Annotated[int | None, typer.Option(min=0, help="How many worker pods.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs of each; 0: none.")] = None,
    components: Annotated[
        list[str] | None, typer.Option("--with", help="A component of k8s/components; repeatable.")
    ] = None,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="New passwords and the code key, to apply once.")
    ] = False,
) -> None:
    """Print the manifests for a cluster: hpq manifests --secrets, then hpq manifests."""
    if not NAME_RULE.match(namespace):
        raise UserError(f"--namespace {namespace}: use a-z, 0-9 and '-'")
    if not NAME_RULE.match(queue):
        raise UserError(f"--queue {queue}: use a-z, 0-9 and '-'")
    if secrets:
        settings = read(os.environ)
        key = signing.key_of(settings, make=True)
        assert key is not None
        if sys.stdout.isatty():
            raise UserError(
                "--secrets prints passwords: `hpq manifests --secrets | kubectl apply -f -`"
            )
        print(
            yaml.safe_dump_all(
                secret_objects(settings.prefix, namespace, key.decode()), sort_keys=False
            ),
            end="",
        )
        return
    print(
        rendering.render(
            rendering.Wanted(
                image=image,
                namespace=namespace,
                queue=queue,
                replicas=replicas,
                gpus=gpus,
                components=tuple(components or ()),
            )
        ),
        end="",
    )
