"""Encode and decode a Search: the space and the sampler of a suggested sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hpq.domain.expression import Expression
from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.search.conditions import Condition, Partial, Test
from hpq.search.distributions import (
    Beta,
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    Normal,
    Uniform,
    Weighted,
)
from hpq.search.samplers import Sampler, Search
from hpq.search.space import Follower, Space
from hpq.store.wire import decode
from hpq.store.wire.fields import decoding, dumps_in_order, mapping

_NUMBER = decode.optional(decode.real)
_VALUES = decode.several(decode.anything)
_READERS: Mapping[str, decode.Record[Any]] = {
    "categorical": decode.Record(Categorical, values=_VALUES, constant=decode.flag),
    "weighted": decode.Record(Weighted, values=_VALUES, probabilities=decode.several(decode.real)),
    "int_uniform": decode.Record(IntUniform, low=decode.whole, high=decode.whole),
    "uniform": decode.Record(Uniform, q=_NUMBER, low=decode.real, high=decode.real),
    "log_uniform": decode.Record(LogUniform, q=_NUMBER, low=decode.real, high=decode.real),
    "normal": decode.Record(Normal, q=_NUMBER, mu=decode.real, sigma=decode.real, log=decode.flag),
    "beta": decode.Record(Beta, q=_NUMBER, a=decode.real, b=decode.real),
}
_NAMES: Mapping[type[Distribution], str] = {
    Categorical: "categorical",
    Weighted: "weighted",
    IntUniform: "int_uniform",
    Uniform: "uniform",
    LogUniform: "log_uniform",
    Normal: "normal",
    Beta: "beta",
}
_TEST = decode.Record(
    Test, path=decode.several(decode.text), values=_VALUES, low=_NUMBER, high=_NUMBER
)
_PARTIAL = decode.Record(Partial, tests=decode.several(_TEST))
_FOLLOWER = decode.Record(
    Follower, name=decode.text, leader=decode.text, leading=_VALUES, values=_VALUES
)
_SEARCH = decode.Record(
    Search,
    space=decode.anything,
    sampler=decode.word(Sampler),
    seed=decode.whole,
    replicates=decode.whole,
    maximize=decode.flag,
    metric=decode.text,
    take=decode.word(ObjectiveValue),
    impute=decode.word(Impute),
    impute_while_running=decode.optional(decode.word(Impute)),
    maximizes=decode.several(decode.flag),
    constraints=decode.whole,
)
_APART = ("space", "maximizes", "constraints")


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
        "order": [list(path) for path in search.space.order],
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
        derive, zipped = data.get("derive", []), tuple(map(_FOLLOWER, data.get("zip", [])))
        known = {".".join(one["at"]) for one in data["leaves"]} | {one.name for one in zipped}
        known |= {name for name, _ in derive}
        space = Space(
            tuple((tuple(one["at"]), _READERS[one["kind"]](one)) for one in data["leaves"]),
            tuple(str(name) for name in data["varying"]),
            tuple(Condition(tuple(c["at"]), _PARTIAL(c)) for c in data.get("when", [])),
            tuple(_PARTIAL({"tests": tests}) for tests in data.get("exclude", [])),
            tuple((str(name), Expression.number(text, known)) for name, text in derive),
            tuple(Expression.test(text, known) for text in data.get("require", [])),
            zipped,
            tuple(tuple(path) for path in data.get("order", [])),
        )
        return _SEARCH({**data, "space": space})
