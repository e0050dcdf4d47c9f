"""Identities, digests and slugs: what is the same, and what is not."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpq.domain.identity import ParameterSet, canonical, digest, slug
from hpq.domain.sweep import NAME_RULE
from hpq.domain.trial import Json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
PARAMS = st.dictionaries(st.text(max_size=6), JSON, max_size=5)


def respelled(value: Json) -> Json:
    """The same value with keys the other way round and whole numbers as the other type."""
    if isinstance(value, dict):
        return {key: respelled(inner) for key, inner in reversed(value.items())}
    if isinstance(value, list):
        return [respelled(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    return value


@given(PARAMS)
def test_an_identity_does_not_depend_on_spelling(params: dict[str, Json]) -> None:
    other = respelled(params)
    assert isinstance(other, dict)
    assert ParameterSet(other).identity == ParameterSet(params).identity
    assert len(ParameterSet(params).identity) == 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": 1}, {"b": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 2**63}, {"a": 2**63 + 1}),
        ({"a": 0.1}, {"a": 0.1 + 2**-56}),
    ],
)
def test_different_sets_have_different_identities(
    one: dict[str, Json], other: dict[str, Json]
) -> None:
    assert ParameterSet(one).identity != ParameterSet(other).identity


def test_a_replicate_is_another_trial() -> None:
    assert len({ParameterSet(a=1).salted(replicate) for replicate in range(3)}) == 3
    assert ParameterSet(a=1).salted(0) == ParameterSet(a=1).identity


def test_canonical_json_is_sorted_and_plain() -> None:
    assert canonical({"b": -0.0, "a": {"d": 3.0, "c": [1e-3, None]}}) == (
        b'{"a":{"c":[0.001,null],"d":3},"b":0}'
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_named_by_its_path(bad: float) -> None:
    with pytest.raises(ValueError, match=re.escape("a.b[1]: ")):
        _ = ParameterSet(a={"b": [0, bad]}).identity


def test_a_set_of_more_than_64_kib_is_refused() -> None:
    canonical({"a": "x" * 65_000})
    with pytest.raises(ValueError, match="70,008 bytes"):
        canonical({"a": "x" * 70_000})


def test_identities_and_digests_do_not_change_from_version_to_version() -> None:
    assert ParameterSet({"lr": 0.1, "n": 3}).identity.hex() == "0d4181ebaf9f8081e89a5afe567386f4"
    assert digest({"method": "grid"}, 0, "") == "0270edea8797726a780dedbdeec13974"


def test_a_digest_leaves_the_words_out_and_tells_int_from_float() -> None:
    spec: dict[str, Json] = {"method": "grid", "parameters": {"a": {"min": 0, "max": 1}}}
    base = digest(spec, 0, "c0de")
    assert digest({**spec, "name": "x", "description": "y", "seed": 0}, 0, "c0de") == base
    assert digest(dict(reversed(spec.items())), 0, "c0de") == base
    assert digest(spec, 1, "c0de") != base
    assert digest(spec, 0, "c0df") != base
    floats: dict[str, Json] = {"method": "grid", "parameters": {"a": {"min": 0.0, "max": 1.0}}}
    assert digest(floats, 0, "c0de") != base


@given(st.text())
def test_a_slug_can_begin_an_id(name: str) -> None:
    assert NAME_RULE.match(slug(name)) and len(slug(name)) <= 40


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("CIFAR10 16 sets", "cifar10-16-sets"),
        ("a_b..c", "a-b-c"),
        ("-", "sweep"),
        ("é", "sweep"),
        ("x" * 39 + "-y", "x" * 39),
    ],
)
def test_a_slug_keeps_what_can_be_read(name: str, part: str) -> None:
    assert slug(name) == part
