"""Words and numbers for the terminal: inert, short, never wider than told."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpq_views.command_output.logs import Cleaner
from hpq_views.text.charts import Scale, buckets, curve, curve_scale, plot
from hpq_views.text.text import (
    abbreviate,
    clean,
    clean_block,
    deviation,
    duration,
    fit,
    measure,
    number,
    pad,
    to_ascii,
    width,
)
from tests.support.constants import DEVIATIONS


@given(st.text())
def test_clean_text_holds_nothing_that_acts_on_a_terminal(text: str) -> None:
    """B6: any text, with escape sequences and control characters, on a terminal."""
    for char in clean(text):
        assert unicodedata.category(char) != "Cc"
    assert all(unicodedata.category(c) != "Cc" or c in "\n\t" for c in clean_block(text))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("a\x00b\nc", "a b c"),
        ("[red]not markup[/red]", "[red]not markup[/red]"),
        ("gnp.\u202efdp", "gnp. fdp"),
        ("an unfinished \x1b[31", "an unfinished "),
    ],
)
def test_escape_sequences_go_as_a_whole(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_a_progress_bar_in_a_log_becomes_lines() -> None:
    assert clean_block("10%\r20%\r\ndone\n") == "10%\n20%\ndone\n"


@given(st.text(), st.integers(0, 40))
def test_padded_text_has_exactly_its_columns_unless_it_is_too_wide_to_cut(
    text: str, columns: int
) -> None:
    text = clean(text)
    assert width(fit(text, columns)) <= columns
    assert width(pad(text, columns)) == columns


def test_wide_characters_count_twice() -> None:
    assert width("学習") == 4
    assert fit("学習率", 5) == "学習…"


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_are_short(value: float) -> None:
    assert len(number(value)) <= 11
    assert len(measure(value)) <= 11


@pytest.mark.parametrize(
    ("value", "shown"),
    [(8621.3, "8621"), (0.918, "0.9180"), (9000.0, "9000"), (9999.7, "1e4"), (12e6, "1.2e7")],
)
def test_values_of_metrics_have_four_digits_and_no_bare_point(value: float, shown: str) -> None:
    assert (measure(value), measure(-value)) == (shown, f"-{shown}")


@pytest.mark.parametrize(("sd", "mean", "shown"), DEVIATIONS)
def test_a_standard_deviation_ends_with_the_last_digit_of_its_mean(
    sd: float, mean: float, shown: str
) -> None:
    assert deviation(sd, mean) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.94261, "0.9426"), (1.2e-05, "1.2e-5"), (1200.0, "1200"), (0.5, "0.5")]
)
def test_numbers_read_as_people_write_them(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0s"),
        (400, "0.4s"),
        (13_200, "13s"),
        (83_000, "1m23s"),
        (59_600, "1m00s"),
        (3_599_700, "1h00m"),
        (7_500_000, "2h05m"),
        (86_399_000, "1d00h"),
        (273_600_000, "3d04h"),
    ],
)
def test_durations_have_two_units_at_most(ms: int, shown: str) -> None:
    assert duration(ms) == shown


def test_names_are_shortened_word_by_word() -> None:
    assert abbreviate("max_learning_rate", 20) == "max_learning_rate"
    assert abbreviate("max_learning_rate", 8) == "m_l_rate"
    assert abbreviate("max_learning_rate", 4) == "mlr"
    assert abbreviate("momentum", 5) == "mome…"


def test_ascii_keeps_the_width_and_the_shape() -> None:
    assert to_ascii(curve([1, 2, 3], Scale(low=1, high=3))) == "_=#"
    assert to_ascii("".join(plot([(1, 0), (9, 5)], 8, 2))).isascii()
    assert len(to_ascii("é…▁")) == 3


def test_a_curve_shows_rise_gaps_and_what_lies_beyond_its_scale() -> None:
    one = Scale(low=0, high=1)
    assert curve([0, 1], one) == "▁█"
    assert curve([0, math.nan, 1], one) == "▁ █"
    assert curve([-1, 0.5, 2], one) == "▼▅▲"
    assert curve([5, 5], Scale(low=5, high=5)) == "▅▅"


def test_buckets_span_the_whole_history_and_repeat_what_is_before_a_blank() -> None:
    rise = [(float(step), 0.14 + 0.83 * step / 1000) for step in range(1001)]
    means = buckets(rise, 10, 0, 1000)
    assert len(means) == 10 and means[0] < 0.2 and means[-1] > 0.9
    assert buckets([(1, 5.0), (10, 7.0)], 10, 1, 10) == [5.0] * 9 + [7.0]
    assert buckets([(1, 5.0)], 10, 1, 10) == [5.0]
    assert buckets([], 10, 0, 1) == []
    assert math.isnan(buckets([(1, math.inf)], 1, 1, 1)[0])
    assert buckets([(1, 1e308), (2, 1e308)], 1, 1, 2) == [1e308]


def test_the_scale_of_curves_leaves_out_the_outermost_values() -> None:
    found = curve_scale([*map(float, range(100)), 1e9, -1e9, math.nan])
    assert found is not None and (found.low, found.high) == (1.0, 98.0)
    assert curve_scale([math.nan]) is None


def test_a_large_curve_is_as_wide_and_tall_as_told() -> None:
    lines = plot([(n, n * n) for n in range(100)], 30, 5)
    assert [len(line) for line in lines] == [30] * 5
    assert lines[0].strip() and lines[-1].strip()
    assert plot([(1, math.nan)], 30, 2) == ["", ""]


@pytest.mark.parametrize("cut", range(1, 19))
def test_a_log_that_comes_in_pieces_is_cleaned_as_if_it_came_whole(cut: int) -> None:
    data = "one\x1b[31mtwo é\r\n3".encode()
    cleaner = Cleaner()
    pieces = cleaner.take(data[:cut]) + cleaner.take(data[cut:]) + cleaner.take(b"", final=True)
    assert pieces == "onetwo é\n3"


def test_a_finished_sequence_at_the_end_of_a_piece_holds_nothing_back() -> None:
    assert Cleaner().take(b"\x1b[32mok\x1b[0m\n") == "ok\n"
