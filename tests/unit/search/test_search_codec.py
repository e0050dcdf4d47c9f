"""What the maker of sets is told of the space is the space, to the last digit and kind."""

from __future__ import annotations

import json
from dataclasses import fields
from random import Random

import pytest

from hpq.domain.sweep import ObjectiveValue
from hpq.errors import DecodeError
from hpq.search.samplers import Impute, Sampler, Search
from hpq.store.wire.search import decode_search, encode_search
from tests.support.spaces import SPACE


def test_a_search_comes_back_as_it_was() -> None:
    search = Search(
        space=SPACE,
        sampler=Sampler.GP,
        seed=7,
        maximize=True,
        metric="val/acc",
        take=ObjectiveValue.LAST,
        impute=Impute.LATEST,
        impute_while_running=Impute.BEST,
    )
    back = decode_search("k", encode_search(search))
    assert back == search and repr(back) == repr(search)  # 10 is not 10.0
    for seed in range(20):
        assert repr(back.space.draw(Random(seed))) == repr(SPACE.draw(Random(seed)))


def test_nothing_of_a_space_or_a_search_is_left_out() -> None:
    """Whoever adds a field has to write it, too: the worker searches what it is told."""
    assert [field.name for field in fields(SPACE)] == [
        "leaves",
        "varying",
        "when",
        "exclude",
        "derive",
        "require",
        "followers",
        "order",
    ]
    written = json.loads(encode_search(Search(space=SPACE, maximizes=(True, False), constraints=1)))
    assert {field.name for field in fields(Search)} - {"space"} <= written.keys()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"leaves": [{"at": ["a"], "kind": "odd"}]}'])
def test_what_is_no_search_names_the_key(text: str) -> None:
    with pytest.raises(DecodeError, match=r"^hpq:s:x: field search: "):
        decode_search("hpq:s:x", text)
