"""JSON becomes a dataclass by a table of readers: no field is left out, and no type is guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest

from hpq.store.wire import decode


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    n: int = 0


@dataclass(frozen=True)
class Outer:
    name: str
    n: int = 1
    x: float = 0.0
    is_on: bool = False
    color: Color = Color.RED
    limit: float | None = None
    inner: Inner | None = None
    tags: tuple[str, ...] = ()
    sizes: dict[str, int] | None = None
    data: object = None


INNER = decode.Record(Inner, n=decode.whole)
READERS = {
    "name": decode.text,
    "n": decode.whole,
    "x": decode.real,
    "is_on": decode.flag,
    "color": decode.word(Color),
    "limit": decode.optional(decode.real),
    "inner": decode.optional(INNER),
    "tags": decode.several(decode.text),
    "sizes": decode.by_name(decode.whole),
    "data": decode.anything,
}
OUTER = decode.Record(Outer, **READERS)


@pytest.mark.parametrize("name", READERS)
def test_a_field_without_a_reader_is_an_error_before_anything_is_read(name: str) -> None:
    rest = {one: read for one, read in READERS.items() if one != name}
    with pytest.raises(TypeError, match=rf"Outer: .*{name}"):
        decode.Record(Outer, **rest)


def test_a_reader_of_no_field_is_an_error_before_anything_is_read() -> None:
    with pytest.raises(TypeError, match=r"Inner: .*old"):
        decode.Record(Inner, n=decode.whole, old=decode.text)


def test_each_field_is_read_and_what_is_missing_has_its_default() -> None:
    text = """{"name": "a", "n": 2, "x": 3, "is_on": true, "color": "red", "limit": null, "sizes":
        {"f": 1}, "inner": {"n": 4, "new": 1}, "tags": ["t"], "data": [1, {}], "unknown": 1}"""
    expected = Outer("a", 2, 3, True, Color.RED, None, Inner(4), ("t",), {"f": 1}, [1, {}])
    found = OUTER.parse(text)
    assert found == expected and isinstance(found.x, int) and isinstance(found.color, Color)
    assert OUTER({"name": "a"}) == Outer("a")
    assert OUTER.values(found)["inner"] == Inner(4) and OUTER.values(found).keys() == READERS.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 1), ("name", None), ("n", True), ("n", 1.0), ("n", "1"), ("x", False), ("x", "1"),
        ("x", float("nan")), ("x", float("inf")), ("x", 10**400), ("x", None), ("is_on", 1),
        ("is_on", "true"), ("color", "blue"), ("color", 1), ("limit", "1"), ("inner", [1]),
        ("inner", {"n": "1"}), ("tags", "ab"), ("tags", [1]), ("tags", None), ("sizes", []),
        ("sizes", {"f": 1.5}),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_an_error_that_names_the_field(name: str, value) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: "):
        OUTER({"name": "a", name: value})


@pytest.mark.parametrize("data", [None, 1, "x", [], [["name", "a"]]])
def test_what_is_no_mapping_is_an_error(data: object) -> None:
    with pytest.raises(ValueError, match="mapping"):
        OUTER(data)
