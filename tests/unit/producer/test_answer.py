"""Answers of `hpq mcp` fit 4 kB, whatever they hold, and what is cut can be read in pieces."""

from __future__ import annotations

import json
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpq_producer.commands.mcp import answer

FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TEXT = st.text(max_size=300) | st.builds(str.__mul__, st.text(min_size=1), st.integers(1, 400))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=200) | st.dictionaries(TEXT, inner, max_size=60),
    max_leaves=60,
)
RECORDS = st.dictionaries(TEXT, JSON, max_size=80)


@FEW
@given(RECORDS)
def test_any_record_fits_and_a_short_one_is_whole(record: dict) -> None:
    text = answer.fitted(record, "how to read it")
    assert len(text) <= answer.MOST
    whole = json.dumps(record, separators=(",", ":"))
    assert (json.loads(text) == record) or len(whole) > answer.MOST


@FEW
@given(st.lists(RECORDS, max_size=40), st.integers(0, 3), TEXT)
def test_pages_fit_and_have_each_record_once(records: list[dict], start: int, edge: str) -> None:
    shown = 0
    following: int | None = min(start, len(records))
    first = following
    while following is not None:
        text = answer.page("records", records, following, {"edge": edge}, "more")
        assert len(text) <= answer.MOST
        page = json.loads(text)
        assert page["records"] or not records[first:]
        shown += len(page["records"])
        following = page["next"]
    assert shown == len(records) - first


@FEW
@given(TEXT, st.integers(-400, 400))
def test_pieces_of_a_text_fit_and_make_the_whole(text: str, start: int) -> None:
    begins: list[int] = []
    read = ""
    following: int | None = start
    while following is not None:
        part = answer.part({"a.b": {"c": text}}, "a.b.c", following)
        assert len(part) <= answer.MOST
        found = json.loads(part)
        begins.append(found["start"])
        read += found["text"]
        following = found["next"]
    assert text[begins[0] :] == read and found["characters"] == len(text)


@FEW
@given(st.lists(TEXT, max_size=60), RECORDS)
def test_events_fit_and_the_cursor_is_that_of_the_last_one(lines: list[str], state: dict) -> None:
    events = [(str(n), line) for n, line in zip(count(1), lines, strict=False)]
    text = answer.status(state, events, "0", is_whole=True)
    assert len(text) <= answer.MOST
    found = json.loads(text)
    assert found["cursor"] == str(len(found["events"]))
    assert found["all"] == (len(found["events"]) == len(lines)) and (found["events"] or not lines)
