"""What is said of a Secret that is not there: one alone would lock its role out."""

from __future__ import annotations

from typing import Any

import pytest

from hpq.errors import Forbidden, NotFound
from producer.cluster.access import Redis


class Server:
    """The few answers of an API server that matter here."""

    context, namespace = "moon", "apollo"

    def __init__(self, secrets: list[str] | None) -> None:
        self._secrets = secrets

    def of(self, path: str) -> str:
        return path

    def get(self, path: str, **query: str) -> Any:
        if path.startswith("services/"):
            return {"spec": {"ports": [{"port": 6379}]}}
        if path != "secrets":
            raise NotFound(f"{path} not found")
        if self._secrets is None:
            raise Forbidden("may not list")
        return {"items": self._secrets}


@pytest.mark.parametrize("others", [["hpq-redis-users"], None])
def test_where_others_are_there_all_secrets_are_to_be_made_anew(others: list[str] | None) -> None:
    with pytest.raises(NotFound) as told:
        Redis(Server(others)).entry("viewer", "hpq")  # type: ignore[arg-type]
    order = ["delete secret -l app.kubernetes.io/part-of=hpq;", "create -f -;", "rollout restart"]
    places = [str(told.value).find(words) for words in order]
    assert -1 < places[0] < places[1] < places[2]


def test_where_none_is_there_they_are_made_once() -> None:
    with pytest.raises(NotFound, match="makes it, once"):
        Redis(Server([])).entry("viewer", "hpq")  # type: ignore[arg-type]
