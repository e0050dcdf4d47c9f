"""What an ordinary trial costs Redis: an empty resident trial with one report, a real worker.

Counts and bytes, so that a busy machine does not decide: even the ratio of Redis's CPU time to that
of RQ's SimpleWorker trebles with the load. Nothing that a sweep does not use (max_parallel,
run_cap, time limits, pruning, replicates) may cost it a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import page
from benchmarks.cost import DIGITS, HPQ, Cost, cost, middle, rounds_of
from benchmarks.server import Server, private_server

BOUNDS = {
    "commands": 46,  # executed, in scripts too; one counts the attempts of the whole fleet
    "round trips": 3,
    "bytes in": 750,
    "bytes of a queued trial": 380,
    "bytes of a finished trial": 1_200,
    "bytes that training digits adds": 8_192,  # 200 epochs, seven metrics
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with the durability of the deployed one."""
    with private_server() as server:
        yield server


@pytest.fixture(scope="module")
def measured(server: Server) -> Cost:
    """The medians of three rounds.

    The counts are those of the round with the fewest bytes: timers of a busy machine only add.
    """
    (rounds,) = rounds_of(server, [HPQ], jobs=200, rounds=3)
    least = min(rounds, key=lambda one: one.bytes_in)
    counts = {"executed": least.executed, "trips": least.trips, "bytes_in": least.bytes_in}
    return replace(middle(rounds), **counts)


def test_an_ordinary_trial_costs_redis_no_more_than_its_bounds(measured: Cost) -> None:
    _hold(
        {
            "commands": measured.executed,
            "round trips": measured.trips,
            "bytes in": measured.bytes_in,
            "bytes of a queued trial": measured.queued_bytes,
            "bytes of a finished trial": measured.finished_bytes,
        },
        measured,
    )


def test_the_page_of_benchmarks_has_the_counts_of_this_code(measured: Cost) -> None:
    printed = {
        "commands executed": (measured.executed, _printed("commands executed")),
        "round trips": (measured.trips, _printed("round trips")),
        "bytes sent to Redis": (measured.bytes_in, _printed("bytes sent to Redis")),
        # The difference is that of a trial; each alone has a share of the sweep's own keys.
        "bytes in Redis, finished": (
            measured.finished_bytes - measured.queued_bytes,
            _printed("bytes in Redis, finished") - _printed("bytes in Redis, queued"),
        ),
    }
    # Timers add a part of a round trip to each trial on a busy machine, never a whole one.
    of_timers = {"round trips": 0.9, "bytes sent to Redis": 130}
    stale = {
        name: (now, then)
        for name, (now, then) in printed.items()
        if now != pytest.approx(then, rel=0.1, abs=of_timers.get(name, 0))
    }
    assert not stale, f"{stale}: run `python -m benchmarks drain --page {page.PAGE}`"


@pytest.mark.torch
def test_the_points_of_a_digits_trial_take_no_more_than_their_bytes(server: Server) -> None:
    found = cost(server, DIGITS, jobs=4)
    _hold({"bytes that training digits adds": found.finished_bytes - found.queued_bytes}, found)


def _hold(found: dict[str, float], spent: Cost) -> None:
    print({name: round(value, 2) for name, value in found.items()}, spent.commands)
    over = {name: value for name, value in found.items() if value > BOUNDS[name]}
    assert not over, (over, spent.commands)


def _printed(name: str) -> float:
    """Return the median of a row of the page's table `drain`."""
    (row,) = re.findall(rf"^\| hpq, {name}[^|]*\|([^|]*)\|", page.read(page.PAGE, "drain"), re.M)
    return float(row.split()[0].replace(",", ""))
