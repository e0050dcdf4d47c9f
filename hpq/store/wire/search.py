"""Encode and decode a Search: the space and the sampler of a suggested sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hpq.search.conditions import Condition, Partial
from hpq.search.continuous import Beta, LogUniform, Normal, Uniform
from hpq.search.discrete import Categorical, Distribution, IntUniform, Weighted
from hpq.search.expressions import Expression
from hpq.search.followers import Follower
from hpq.search.search_spec import Search
from hpq.search.space import Space
from hpq.store.wire.fields import decoding, dumps_in_order, mapping
from hpq.store.wire.records import record

_KINDS: Mapping[str, type[Distribution]] = {
    "categorical": Categorical,
    "weighted": Weighted,
    "int_uniform": IntUniform,
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "normal": Normal,
    "beta": Beta,
}
_APART = ("space", "maximizes", "constraints")
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode_search(search: Search) -> str:
    """Encode a search as JSON; 10 and 10.0 stay different, as ends of a range are."""
    leaves: list[dict[str, Any]] = [
        {"at": list(path), "kind": _NAMES[type(leaf)], **asdict(leaf)}  # type: ignore[call-overload]
        for path, leaf in search.space.leaves
    ]
    data: dict[str, Any] = {
        **{name: getattr(search, name) for name in Search.__slots__ if name not in _APART},
        **({"maximizes": search.maximizes} if search.maximizes else {}),
        **({"constraints": search.constraints} if search.constraints else {}),
        "varying": list(search.space.varying),
        "leaves": leaves,
        "when": [{"at": list(c.path), **asdict(c.wanted)} for c in search.space.when],
        "exclude": [asdict(partial)["tests"] for partial in search.space.exclude],
    }
    if search.space.has_expressions:
        data["derive"] = [[name, expression.text] for name, expression in search.space.derive]
        data["require"] = [expression.text for expression in search.space.require]
    if search.space.followers:
        data["zip"] = [asdict(follower) for follower in search.space.followers]
    return dumps_in_order(data)


def decode_search(key: str, text: str) -> Search:
    """Decode a search.

    Raises:
        DecodeError: the text is invalid (names the key).
    """
    with decoding(f"{key}: field search: {text[:60]!r}"):
        data = mapping(text)
        space = Space(
            tuple((tuple(one["at"]), record(_KINDS[one["kind"]], one)) for one in data["leaves"]),
            tuple(str(name) for name in data["varying"]),
            tuple(Condition(tuple(c["at"]), record(Partial, c)) for c in data.get("when", [])),
            tuple(record(Partial, {"tests": tests}) for tests in data.get("exclude", [])),
            tuple((str(name), Expression.number(text)) for name, text in data.get("derive", [])),
            tuple(map(Expression.test, data.get("require", []))),
            tuple(record(Follower, one) for one in data.get("zip", [])),
        )
        return record(Search, {**data, "space": space})
