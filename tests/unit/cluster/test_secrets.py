"""What is said of a Secret that is not there: one alone would lock its role out."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Any

import pytest

from hpq.access.connection_record import ConnectionRecord
from hpq.errors import Forbidden, NotFound
from hpq.kubernetes import start_port_forward
from hpq.kubernetes.redis_access import (
    RedisService,
    expected_secrets,
    explain_missing,
    recreate_secrets,
)
from hpq.redis import tls
from tests.support.ids import raises


class Server:
    """The few answers of an API server that matter here."""

    context, namespace = "moon", "apollo"

    def __init__(self, secrets: list[str] | None, port: str = "redis") -> None:
        self._secrets, self._port = secrets, port

    def of(self, path: str) -> str:
        return path

    def get(self, path: str, **query: str) -> Any:
        if path.startswith("services/"):
            return {"spec": {"ports": [{"port": 6379, "name": self._port}]}}
        if path == "/api/v1/namespaces/apollo":
            return {}
        if path != "secrets":
            raise NotFound(f"{path} not found")
        if self._secrets is None:
            raise Forbidden("may not list")
        return {"items": self._secrets}


@pytest.mark.parametrize("others", [["hpq-redis-users"], None])
def test_a_missing_secret_beside_others_means_recreating_all(others: list[str] | None) -> None:
    with pytest.raises(NotFound) as told:
        RedisService(Server(others)).credentials("viewer", "hpq")  # type: ignore[arg-type]
    order = ["hpq manifests --secrets", "replace --force -f -;", "rollout restart"]
    places = [str(told.value).find(words) for words in order]
    assert -1 < places[0] < places[1] < places[2]
    assert "delete" not in str(told.value)  # of which the code key and the people's users are read


def test_missing_secrets_are_created_by_one_command() -> None:
    with raises("cluster-object-missing") as told:
        RedisService(Server([])).credentials("viewer", "hpq")  # type: ignore[arg-type]
    made = "--secrets --namespace apollo | kubectl --context moon -n apollo create -f -"
    assert f"hpq manifests {made}" in str(told.value)


@pytest.mark.parametrize(
    ("port", "made"), [("redis", "hpq manifests"), ("rediss", "echo 'tls: true' | hpq manifests -")]
)
def test_made_anew_are_a_certificate_of_hpqs_and_the_workers_which_read_them_at_their_start(
    port: str, made: str
) -> None:
    told = recreate_secrets(Server([], port))  # type: ignore[arg-type]
    assert f": {made} --secrets --namespace apollo | kubectl" in told
    assert told.endswith(
        "-n apollo rollout restart statefulset,deployment -l app.kubernetes.io/part-of=hpq"
    )


def test_with_tls_its_certificate_is_among_the_secrets_that_are_expected() -> None:
    assert "hpq-redis-tls" in expected_secrets(Server([], "rediss"))  # type: ignore[arg-type]
    assert "hpq-redis-tls" not in expected_secrets(Server([]))  # type: ignore[arg-type]


def test_the_command_that_installs_hpq_names_the_context_and_an_image() -> None:
    told = explain_missing(Server([]))  # type: ignore[arg-type]
    words = "hpq manifests --image IMAGE --namespace apollo | kubectl --context moon -n apollo"
    assert f"{words} apply -f -" in told and "--gpus 0" in told


def test_a_certificate_that_a_connection_does_not_trust_is_told_with_the_secret_that_has_its_ca(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_port_forward, "KubernetesApi", lambda *_: Server(["one"], "rediss"))
    found = ConnectionRecord(
        pid=1, port=1, context="moon", namespace="apollo", service="hpq-redis",
        user="hpq-viewer", prefix="hpq", password_file="p", scheme="rediss",
    )  # fmt: skip
    refused = tls.why_refused(ssl.SSLError("certificate verify failed: self-signed certificate"))
    told = start_port_forward._explain_certificate(found, refused)
    assert "Secret hpq-redis-viewer " in told and "ca.crt" in told
    assert "echo 'tls: true' | hpq manifests - --secrets" in told
    told = start_port_forward._explain_certificate(replace(found, ca_file="/proc/1/fd/7"), refused)
    assert "Secret hpq-redis-viewer " in told and "no ca.crt" not in told
    elsewhere = tls.why_refused(ssl.SSLError("IP address mismatch, certificate is not valid"))
    assert start_port_forward.connection_record.HOST in start_port_forward._explain_certificate(
        found, elsewhere
    )
    assert start_port_forward._explain_certificate(found, "no Redis answers") == ""
