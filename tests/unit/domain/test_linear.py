"""What others wrote is read in time that grows with its length, not with the square of it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from hpq.domain import durations
from hpq.domain.constraint import Constraint
from hpq.domain.expression import Expression
from hpq.domain.printed_line import mentions, metrics_in_text, metrics_of_line
from hpq.redis.credentials import carried, hide, parse, redact
from hpq.redis.damage import damage
from hpq.sanitize import GuardedStream, visible
from hpq.store import events
from hpq.store.wire.trial import decode_points
from hpq.yamlfile.yaml_reader import resolve
from hpq_producer.scaffold import script
from hpq_views.analysis.filter import Filter
from hpq_views.text.text import abbreviate, clean, clean_block
from hpq_worker.runner.failures import first_to_fail, of_exit, split_rank

Read = Callable[[str], object]
_RANKS = "Root Cause (first observed failure):\n  rank : 1 \n"
# A reader; and texts that repeat: what comes first, and the part that is repeated.
READERS: dict[str, tuple[Read, tuple[tuple[str, str], ...]]] = {
    "a scalar of a sweep file": (resolve, (("1", "0"), ("1", "_1"), ("1", ":1"), ("0", "7"))),
    "a duration": (durations.seconds, (("", "1"), ("1.", "1"))),
    "a constraint": (Constraint.parse, (("", "a"), ("a <= ", "1"), ("", " "))),
    "an expression": (Expression.test, (("a == ", "1"), ("a", " "))),
    "a filter": (Filter.of, (("a == ", "1"), ("a", " "))),
    "a line of metrics": (metrics_of_line, (("a=", "1"), ("", "a "), ("a", " "), ("a=1", " "))),
    "a metric in a line": (
        lambda text: metrics_in_text(["loss"], text),
        (("loss=", "1"), ("", "loss "), ("loss=", "1,111,"), ("loss=1", " 111"), ("loss: 1", "-")),
    ),
    "a metric that a line mentions": (lambda text: mentions("loss", text), (("", "loss "),)),
    "an URL to hide": (redact, (("", "://a:"), ("redis://?", "key"), ("", "&key="), ("", "a"))),
    "an URL": (parse, (("redis://", "a@"), ("redis://a:", "b"), ("redis://", "h,"))),
    "secrets of an URL": (carried, (("s3://?", "token"), ("", "?key"))),
    "a text with URLs": (
        lambda text: hide(text, ["secret"]), (("", "a"), ("", "://a:"), ("", "a?key= ")),
    ),
    "an error of the server": (
        lambda text: damage(ResponseError(f"Command ({text} WRONGTYPE")),
        (("", ") "), ("", "caused error: "), ("", "STREAMS ")),
    ),
    "ids of events": (
        lambda text: events._event_ids("k", text.encode()), (("", "1"), ("", "1-1"), ("", "1 ")),
    ),
    "points": (
        # The second metric of a trial has the ids of the first, here none: two bytes a segment.
        lambda text: decode_points(text.encode(), bytes(10) + b"ddd"), (("", "=d"),),
    ),
    "text for a terminal": (clean, (("", "\x1b["), ("\x1b]", "0"), ("", "\x1b[0"))),
    "a block for a terminal": (clean_block, (("", "\x1b["), ("", "\r"))),
    "a foreign line": (visible, (("", "\x1b"),)),
    "a stream to a terminal": (
        lambda text: GuardedStream(io.StringIO()).write(text), (("", "\x1b[0"), ("\x1b[", "0;")),
    ),
    "a title": (lambda text: abbreviate(text, 9), (("", "a_"), ("", "a"))),
    "a line of a rank": (split_rank, (("", "[1]:"), ("[", "a"), ("[a", "1"))),
    "a report of ranks": (first_to_fail, (("", _RANKS), (_RANKS, "\n"), (_RANKS, " rank : 1 \n"))),
    "the end of a log": (lambda text: of_exit(1, text), (("", "[1]:"), ("", 'a\n  File "'))),
    "metrics that a script prints": (script._MENTION.findall, (("", "a"), ("a", " "))),
}  # fmt: skip
_SHORT, _LONG = 4_000, 16_000


def cpu_s(read: Read, text: str) -> float:
    """Return the CPU time of the quickest of three reads, on which other load has little effect."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        with suppress(Exception):  # a refusal, in whatever words
            read(text)
        found.append(time.process_time() - begun)
    return min(found)


@pytest.mark.parametrize("what", READERS)
def test_a_text_of_four_times_the_length_takes_no_sixteenfold_time(what: str) -> None:
    read, texts = READERS[what]
    for first, part in texts:
        for last in ("", "!", "\n"):
            short, long = (
                cpu_s(read, first + part * (length // len(part)) + last)
                for length in (_SHORT, _LONG)
            )
            assert long < 8 * short + 0.01, (first, part, last, short, long)


def test_a_number_of_yaml_1_1_has_no_more_digits_than_another() -> None:
    assert (resolve("1_000"), resolve("012"), resolve("0b11"), resolve("1:30")) == (1000, 10, 3, 90)
    for text in ("1:" * 8_000 + "1", "1" + "_0" * 8_000, "0b" + "1" * 16_000, "0" + "7" * 16_000):
        with pytest.raises(ValueError, match="digits"):
            resolve(text)
