"""A Kubernetes API client: objects as JSON, errors as one line.

The only module that imports the kubernetes library, and only when a command needs a cluster. The
library reads the kubeconfig, logs in, and opens streams.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach, UserError
from hpq.extras import library

_CONNECT_S, _READ_S = 3.0, 10.0
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)  # YAML that is no kubeconfig


def has_kubeconfig(environ: Mapping[str, str]) -> bool:
    """Return True if a kubeconfig file exists; does not read the file."""
    named = environ.get("KUBECONFIG", "")
    places = named.split(os.pathsep) if named else [str(Path.home() / ".kube" / "config")]
    return any(place and Path(place).expanduser().is_file() for place in places)


class KubernetesApi:
    """One cluster, with the credentials of one context of the kubeconfig.

    Every call raises OutOfReach if the cluster does not answer, Forbidden if the credentials lack
    a permission, NotFound if an object does not exist, UserError if the request is invalid.
    """

    def __init__(self, context: str | None, namespace: str, *, timeout_s: float = _READ_S) -> None:
        """Load a context of the kubeconfig (None: the current one) without connecting.

        An answer to `get` may take `timeout_s` seconds.

        Raises:
            OutOfReach: the kubeconfig is missing or unusable.
            UserError: it has no such context, or the kubernetes library is not installed.
        """
        # Here: the import takes half a second.
        kubernetes = library("kubernetes", "a command for clusters", "kubernetes")
        client, config = kubernetes.client, kubernetes.config
        self.context = _context(config, context)
        self.namespace = namespace
        self._timeout_s = timeout_s
        self._configuration = client.Configuration()
        try:
            config.load_kube_config(context=self.context, client_configuration=self._configuration)
        except (config.ConfigException, OSError, *_MALFORMED) as error:
            text = f"kubeconfig, context {self.context}: {_misfit(error)}"
            raise OutOfReach(text, code="kubeconfig-unusable") from None
        self._pool = client.rest.RESTClientObject(self._configuration).pool_manager

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host)

    def of(self, path: str) -> str:
        """Return the URL path of "pods" or "apps/v1/deployments/NAME" in this namespace."""
        group, _, rest = path.partition("/v1/")
        root = f"/apis/{group}/v1" if rest else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{rest or path}"

    def get(self, path: str, **query: str) -> Any:
        """Send a GET request and return the JSON answer."""
        try:
            return json.loads(self.text(path, **query))
        except ValueError:
            line = f"{self.server}: the answer is not from a Kubernetes API; check: kubectl version"
            raise OutOfReach(line, code="cluster-unreachable") from None

    def text(self, path: str, **query: str) -> str:
        """Send a GET request and return the answer, such as a pod's log."""
        from urllib3 import Timeout  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            answer = self._pool.request(
                "GET",
                f"{self.server}{path}" + (f"?{urlencode(query)}" if query else ""),
                headers={**self._headers(), "Accept": "application/json, */*"},
                retries=False,
                timeout=Timeout(connect=min(_CONNECT_S, self._timeout_s), read=self._timeout_s),
            )
        except HTTPError as error:
            raise self._unreachable(error) from None
        text: str = answer.data.decode("utf-8", "replace")
        if answer.status >= 300:
            raise self._error_of_status(answer.status, text)
        return text

    def stream(self, path: str, **query: str | Sequence[str]) -> Any:
        """Open a websocket for port-forward or exec."""
        import websocket  # noqa: PLC0415  # belongs to the kubernetes library
        from kubernetes.stream.ws_client import create_websocket  # noqa: PLC0415
        from websocket import WebSocketBadStatusException, WebSocketException  # noqa: PLC0415

        websocket.setdefaulttimeout(_READ_S)
        url = f"wss{self.server.removeprefix('https')}{path}?{urlencode(query, doseq=True)}"
        headers = {**self._headers(), "sec-websocket-protocol": "v4.channel.k8s.io"}
        try:
            return create_websocket(self._configuration, url, headers)
        except WebSocketBadStatusException as error:
            text = (error.resp_body or b"").decode("utf-8", "replace")
            raise self._error_of_status(error.status_code, text) from None
        except (WebSocketException, OSError) as error:
            raise self._unreachable(error) from None

    def _headers(self) -> dict[str, str]:
        settings = self._configuration.auth_settings().values()
        return {
            one["key"]: one["value"] for one in settings if one["in"] == "header" and one["value"]
        }

    def _unreachable(self, error: Exception) -> HpqError:
        return OutOfReach(
            f"cluster of context {self.context}, {self.server}: no answer: {_last_message(error)};"
            " check the network, or choose another cluster: --context NAME",
            code="cluster-unreachable",
        )

    def _error_of_status(self, status: int, text: str) -> HpqError:
        try:
            message = str(json.loads(text)["message"])
        except (ValueError, KeyError, TypeError):
            message = _last_message(text) or f"HTTP {status}"
        where = f"context {self.context}, namespace {self.namespace}"
        if status == 401:
            return Forbidden(
                f"context {self.context}: the cluster rejected these credentials; log in again, and"
                " check with: kubectl auth whoami",
                code="cluster-credentials-refused",
            )
        if status == 403 and "exceeded quota" not in message:
            return Forbidden(
                f"{where}: {message}; ask an administrator of the namespace for this right"
                " (hpq's Roles: hpq-viewer, hpq-member, hpq-operator)",
                code="cluster-forbidden",
            )
        if status == 404:
            return NotFound(f"{where}: {message}", code="cluster-object-missing")
        if status >= 500:
            line = f"{where}: the API server failed: {message}"
            return OutOfReach(line, code="cluster-unreachable")
        return UserError(f"{where}: {message}", code="cluster-refused")


def _context(config: Any, wanted: str | None) -> str:
    """Return the chosen context, else the current one."""
    from yaml import YAMLError  # noqa: PLC0415  # as the kubernetes library reads it

    files = config.kube_config
    try:
        merged = files.KubeConfigMerger(files.KUBE_CONFIG_DEFAULT_LOCATION).config
        if merged is None:
            raise config.ConfigException("No configuration found")
        names = [str(one["name"]) for one in merged.value["contexts"]]
        current = str(merged.value.get("current-context") or "")
    except (config.ConfigException, YAMLError, OSError, *_MALFORMED) as error:
        why = "it is not YAML" if isinstance(error, YAMLError) else _misfit(error)
        if "No configuration found" in why:
            text = "no cluster: no kubeconfig found; set KUBECONFIG to the path of one"
            raise OutOfReach(text, code="kubeconfig-unusable") from None
        raise OutOfReach(
            f"no cluster: the kubeconfig (KUBECONFIG, or ~/.kube/config) is unusable: {why};"
            " print it: kubectl config view",
            code="kubeconfig-unusable",
        ) from None
    has = ", ".join(names) or "none"
    if wanted is not None and wanted not in names:
        raise UserError(f"--context {wanted}: the kubeconfig has {has}", code="context-unknown")
    if wanted is None and not current:
        text = f"the kubeconfig has no current context; choose one: --context NAME (it has {has})"
        raise UserError(text, code="context-unknown")
    return wanted if wanted is not None else current


def _misfit(error: Exception) -> str:
    """Return what a kubeconfig lacks, without the entry: the library quotes it with its token."""
    text = _last_message(error).removeprefix("Invalid kube-config file. ")
    return text.partition(" in ")[0] if text.startswith("Expected") else text


def _last_message(error: object) -> str:
    """Return the last message of a chain of errors, without reprs of objects."""
    text = " ".join(str(error).split())
    beginnings = ("(Caused by ", ">, '", "Failed to establish a new connection: ", "[Errno ")
    for beginning in beginnings:
        text = text.rpartition(beginning)[2] or text
    text = text.partition("] ")[2] if text[:3].isdigit() else text
    text = text.strip().rstrip(".)'\"")
    is_open = text.count("(") > text.count(")")
    return text[:300] + ")" if is_open else text[:300]
