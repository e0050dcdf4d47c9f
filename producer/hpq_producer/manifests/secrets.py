"""The Secrets of a cluster's hpq: new passwords, the users that have them, the code key, TLS.

Every call makes new passwords, so its output is applied once and kept, never committed.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hpq import __version__
from hpq.errors import UserError
from hpq_producer.manifests.acl import DEFAULT_OFF, ROLES, line, users

_DAYS = 3650


def redis_certificate(namespace: str) -> Mapping[str, str]:
    """The files of the Secret hpq-redis-tls: tls.crt, tls.key and ca.crt, for ten years.

    Also for localhost, which is what Redis is called at the end of a port-forward.

    Raises:
        UserError: there is no openssl, or it refuses.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        line = "openssl is not on PATH; it makes the certificate of --with tls"
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
        return {"tls.crt": text, "tls.key": key.read_text("ascii"), "ca.crt": text}


_SERVER = (7, 0)  # the Redis of k8s/base
Manifest = dict[str, object]


def secret_objects(
    prefix: str, namespace: str, code_key: str, tls: Manifest | None = None
) -> list[Manifest]:
    """One Secret with the server's users, one a role with its password, and one with the code key.

    The server's default user is off: nobody comes in without a name. With the Secret `tls`, each
    role has its CA beside the password, so that no one needs to read the server's private key.
    """
    files = tls["stringData"] if tls else {}
    assert isinstance(files, dict)
    ca = {"ca.crt": files["ca.crt"]} if files else {}
    passwords = {role: secrets.token_urlsafe(32) for role in ROLES}
    lines = [line(user, passwords, aclfile=True) for user in users(prefix, _SERVER)]
    found = [
        _secret(namespace, "hpq-redis-users", {"users.acl": "\n".join([DEFAULT_OFF, *lines, ""])}),
        *(
            _secret(
                namespace,
                f"hpq-redis-{role}",
                {"username": f"{prefix}-{role}", "password": passwords[role], **ca},
            )
            for role in ROLES
        ),
        _secret(namespace, "hpq-code-key", {"key": code_key}),
        *([tls] if tls else []),
    ]
    return found


def tls_secret(namespace: str) -> Manifest:
    """The Secret of the component tls: a certificate of Redis's own.

    Raises:
        UserError: there is no openssl, or it refuses.
    """
    return _secret(namespace, "hpq-redis-tls", redis_certificate(namespace))


def _secret(namespace: str, name: str, data: Mapping[str, str]) -> Manifest:
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
