"""The Redis users of single people on a cluster: on the running server, and in Secrets.

The Secret hpq-redis-users keeps a user for the server's next start; the Secret hpq-user-NAME holds
the password and the code key for `hpq connect --user`.
"""

from __future__ import annotations

import base64
import secrets
from urllib.parse import quote

from hpq.code.signing import personal_key
from hpq.connection import server
from hpq.connection.credentials import parse, with_place
from hpq.errors import NotFound
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.redis_access import RedisService, secret_of
from hpq_producer.connection_record import ConnectionRecord
from hpq_producer.manifests.acl import line, personal_role, personal_user
from hpq_producer.manifests.secrets import SERVER, secret

_USERS, _ACL = "hpq-redis-users", "users.acl"


class PersonalUsers:
    """Invites people to the Redis of a connection, and removes them; needs the admin's Secret."""

    def __init__(self, connection: ConnectionRecord) -> None:
        """Read the administrator's credentials. Raises as `RedisService`."""
        self._api = KubernetesApi(connection.context, connection.namespace)
        self._service, self._prefix = RedisService(self._api), connection.prefix
        admin = self._service.credentials("admin", connection.prefix)
        self._ca = admin.ca
        parts = parse(connection.url)
        user, password = quote(admin.user, safe=""), quote(admin.password, safe="")
        place = f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"
        self._url = with_place(parts, place)

    def invite(self, name: str) -> None:
        """Create or replace a person's user and Secret; the password is new.

        Raises:
            HpqError: a Secret cannot be read or written, or Redis refuses.
        """
        key = self._service.code_key()
        if not key:
            raise NotFound("Secret hpq-code-key is missing or has no key", code="secret-missing")
        role, password = personal_role(name), secrets.token_urlsafe(32)
        user = personal_user(name, self._prefix, SERVER)
        self._keep(user.name, line(user, {role: password}, aclfile=True))
        server.set_user(self._url, user.name, password, user.rules)
        data = {
            "username": user.name,
            "password": password,
            "code-key": personal_key(key.encode(), name).decode(),
            **({"ca.crt": self._ca} if self._ca else {}),
        }
        made = secret(self._api.namespace, secret_of(role), {})
        made["data"] = {key: _encoded(text) for key, text in data.items()}
        del made["stringData"]  # server-side apply merges it wrongly
        self._api.apply(self._api.of(f"secrets/{secret_of(role)}"), made)

    def revoke(self, name: str) -> bool:
        """Remove a person's user and Secret. Raises as `invite`.

        Returns:
            False if the server had no such user.
        """
        role = personal_role(name)
        user = f"{self._prefix}-{role}"
        self._keep(user, "")
        found = server.remove_user(self._url, user) is not None
        self._api.delete(self._api.of(f"secrets/{secret_of(role)}"))
        return found

    def _keep(self, user: str, own: str) -> None:
        """Replace a user's line in the aclfile of the server's next start."""
        path = self._api.of(f"secrets/{_USERS}")
        found = self._api.get(path)
        old = base64.b64decode(found["data"][_ACL]).decode().splitlines()
        lines = [one for one in old if not one.startswith(f"user {user} ")]
        text = "\n".join([*lines, *[own] * bool(own), ""])
        # A Secret that another administrator has changed since is refused, not overwritten.
        seen = {"resourceVersion": found["metadata"]["resourceVersion"]}
        self._api.merge(path, {"metadata": seen, "data": {_ACL: _encoded(text)}})


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
