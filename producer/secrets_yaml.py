"""The Secrets of a cluster's hpq: passwords made now, the users that have them, and the code key.

Every call makes new passwords, so what it prints is applied once and kept, never committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from producer import certificates
from producer.acl import DEFAULT_OFF, ROLES, line, users

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
    return _secret(namespace, "hpq-redis-tls", certificates.for_redis(namespace))


def _secret(namespace: str, name: str, data: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "hpq"},
        },
        "type": "Opaque",
        "stringData": dict(data),
    }
