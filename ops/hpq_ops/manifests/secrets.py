"""Generate the Secrets of a cluster: passwords, ACL users, the code key, the TLS certificate.

Every call generates new passwords: apply its output once, and never commit it to git.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpq import __version__
from hpq.errors import UserError
from hpq.redis.acl import DEFAULT_OFF, administrator, copier, limiter, line, users

_DAYS = 3650
SERVER = (7, 0)  # the version in k8s/base
Manifest = dict[str, object]


def tls_secret(namespace: str) -> Manifest:
    """Generate the Secret of TLS: a self-signed certificate, valid for ten years.

    The names include localhost, for connections through a port-forward.

    Raises:
        UserError: openssl is missing or fails.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        line = "openssl is not on PATH; install it, tls needs it for the certificate"
        raise UserError(line, code="program-missing")
    names = ["hpq-redis", f"hpq-redis.{namespace}", f"hpq-redis.{namespace}.svc", "localhost"]
    also = ",".join([*(f"DNS:{name}" for name in names), "IP:127.0.0.1"])
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder, "tls.key"), Path(folder, "tls.crt")
        done = subprocess.run(
            [
                *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(_DAYS)),
                *("-subj", "/CN=hpq-redis", "-addext", f"subjectAltName={also}"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            line = f"openssl req: {done.stderr.strip().splitlines()[-1]}"
            raise UserError(line, code="openssl-failed")
        text = certificate.read_text("ascii")
        made = {"tls.crt": text, "tls.key": key.read_text("ascii"), "ca.crt": text}
    return secret(namespace, "hpq-redis-tls", made)


def secret_objects(
    prefix: str,
    namespace: str,
    code_key: str,
    tls: Manifest | None = None,
    people: Sequence[str] = (),
) -> list[Manifest]:
    """Generate the Secrets of the server's users, of each role's password, and of the code key.

    `people` are lines of the aclfile to keep: those of single people. The server's default user is
    off. With the Secret `tls`, each role's Secret has the CA, so that
    no role needs to read the server's private key.
    """
    files = tls["stringData"] if tls else {}
    assert isinstance(files, dict)
    ca = {"ca.crt": files["ca.crt"]} if files else {}
    # KEDA is in another namespace, where a short name of Redis leads to no Service. It looks up
    # each key, also of a server without TLS.
    of_keda = {
        "address": f"hpq-redis.{namespace}.svc:6379",
        "tls": "enable" if tls else "disable",
        "ca.crt": ca.get("ca.crt", ""),
    }
    made = [*users(prefix, SERVER), copier(prefix), limiter(prefix), administrator(prefix)]
    passwords = {user.role: secrets.token_urlsafe(32) for user in made}
    lines = [line(user, passwords, aclfile=True) for user in made]
    acl = "\n".join([DEFAULT_OFF, *lines, *people, ""])
    found = [
        secret(namespace, "hpq-redis-users", {"users.acl": acl}),
        *(
            secret(
                namespace,
                f"hpq-redis-{user.role}",
                {
                    "username": user.name,
                    "password": passwords[user.role],
                    **ca,
                    **(of_keda if user.role == "autoscaler" else {}),
                },
            )
            for user in made
        ),
        secret(namespace, "hpq-code-key", {"key": code_key}),
        *([tls] if tls else []),
    ]
    return found


def secret(namespace: str, name: str, data: Mapping[str, str]) -> Manifest:
    """Return a Secret of hpq."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/part-of": "hpq",
                "app.kubernetes.io/managed-by": "hpq",
                "app.kubernetes.io/version": __version__,
            },
        },
        "type": "Opaque",
        "stringData": dict(data),
    }
