"""What the wire does between worker and Redis: replies lost and torn, holes, delays, dead ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ids import ids
from tests.support.proxy import Proxy


@pytest.fixture
def proxy(lab) -> Iterator[Proxy]:
    proxy = Proxy(str(lab.server.socket))
    yield proxy
    proxy.close()


def through(proxy: Proxy, **env: str) -> dict[str, str]:
    return {"HPQ_REDIS_URL": proxy.url, **env}


@pytest.mark.parametrize("torn", [False, True], ids=["lost", "torn"])
def test_a_lost_reply_of_claim_beat_and_commit_changes_nothing(lab, proxy, torn) -> None:
    """F12: Redis did it and the answer was cut off, or cut in the middle; the client asks again."""
    sid = lab.steered(3)
    blows = [proxy.lose(name, torn=torn) for name in ("claim", "beat", "commit", "presence")]
    blows += [proxy.lose(name, skip=1, torn=torn) for name in ("claim", "commit")]
    lab.go()
    lab.worker(**through(proxy))
    lab.wait_over(sid)
    assert [blow.struck.is_set() for blow in blows] == [True] * len(blows)
    for number in (1, 2, 3):
        assert lab.events(sid, number) == ["claimed", "finished"]
        history = lab.reader.trials.metric_history(lab.trial(sid, number).id, "loss")
        assert [p.value for p in history] == [number, number, number / 10]  # no report twice
    assert "Traceback" not in lab.log()


def test_a_lost_reply_of_release_gives_the_trial_back_once(lab, proxy) -> None:
    """F12: the answer to a release was cut off while its worker stops."""
    sid = lab.steered(1)
    fleet = lab.worker(**through(proxy))
    lab.wait_for("began-1-1")
    blow = proxy.lose("release")
    fleet.terminate()
    assert fleet.wait() == 0 and blow.struck.is_set()
    assert lab.events(sid) == ["claimed", "requeued"]
    lab.go()
    lab.worker()
    lab.wait_over(sid)


def test_a_wire_that_fails_right_after_a_claim_costs_no_attempt(lab, proxy) -> None:
    """F12, R21: what a claim needs to know of its sweep is asked until it is answered."""
    sid = lab.steered(1)
    blows = [proxy.lose(b"HGETALL\r\n$%d\r\n" % len(lab.keys.sweep(sid))) for _ in range(8)]
    lab.go()
    lab.worker(**through(proxy, HPQ_LEASE_S="30"))
    lab.wait_over(sid)
    assert all(blow.struck.is_set() for blow in blows)
    assert lab.events(sid) == ["claimed", "finished"]


@pytest.mark.parametrize("torn", [False, True], ids=["lost", "torn"])
def test_a_lost_reply_of_an_enqueue_makes_one_sweep(lab, proxy, torn) -> None:
    """F12: the answers to the rows and to the creation were cut off."""
    blows = [proxy.lose(name, torn=torn) for name in ("add_rows", "create")]
    direct, lab.env["HPQ_REDIS_URL"] = lab.env["HPQ_REDIS_URL"], proxy.url
    sid = lab.steered(3)
    lab.env["HPQ_REDIS_URL"] = direct
    assert all(blow.struck.is_set() for blow in blows)
    assert lab.reader.sweeps.ids() == [sid] and lab.reader.sweeps.get(sid).counts.total == 3
    lab.ok("cancel", sid, "--yes")
    lab.audit(sid)


@pytest.mark.slow
def test_a_hole_longer_than_the_lease_gives_the_trial_to_a_worker_outside_it(lab, proxy) -> None:
    """F13, F4: nothing passes for longer than a lease; then everything held arrives, too late."""
    sid = lab.steered(1)
    lab.worker(**through(proxy))
    first = lab.wait_for("began-1-1")
    proxy.hole()
    lab.worker()
    lab.end_lease(sid)
    lab.wait_for("began-1-2")
    proxy.mend()
    lab.wait_until(lambda: first not in lab.processes(), "the end of the first attempt")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    lab.wait_until(lambda: "attempt-lost" in ids(lab.log(0)), "the first worker's line")


@pytest.mark.slow
def test_a_lone_worker_in_a_hole_trains_on_and_its_result_is_taken(lab, proxy, short_lease) -> None:
    """F10, F13: a hole past the lease while a trial trains and ends, and nobody else is there."""
    sid = lab.steered(2)
    fleet = lab.worker(**through(proxy))
    lab.wait_for("began-1-1")
    proxy.hole()
    lab.wait_until(lambda: "redis-away" in ids(lab.log()), "a beat that failed")
    lab.go()
    lab.wait_until(lambda: "result-on-disk" in ids(lab.log()), "the result on disk")
    proxy.mend()
    lab.wait_over(sid)
    assert {t.attempt for t in lab.reader.trials.all(sid)} == {1}
    assert fleet.poll() is None and "Traceback" not in lab.log()


def test_a_slow_redis_costs_time_only(lab, proxy) -> None:
    """F13: each request and each reply takes 0.05 s longer."""
    proxy.delay_s = 0.05
    sid = lab.steered(2)
    lab.go()
    lab.worker(**through(proxy))
    lab.wait_over(sid)
    assert lab.events(sid) == lab.events(sid, 2) == ["claimed", "finished"]


@pytest.mark.parametrize("harm", ["cut", "half_open"])
def test_connections_that_die_in_a_trial_are_made_anew(lab, proxy, harm) -> None:
    """F13: all connections are reset, or the server forgets them and no client hears of it."""
    sid = lab.steered(2)
    fleet = lab.worker(**through(proxy))
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: lab.trial(sid).step == 1, "the first beat, on a connection of its own")
    getattr(proxy, harm)()
    if harm == "half_open":  # a reset is mended at once and without a word
        lab.wait_until(lambda: "redis-away" in ids(lab.log()), "a beat that failed")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == lab.events(sid, 2) == ["claimed", "finished"]
    assert fleet.poll() is None and "Traceback" not in lab.log()


def test_a_cancel_said_while_the_worker_is_cut_off_is_heard_at_its_next_beat(lab, proxy) -> None:
    """F29, R17: stop and cancel lie in Redis; they are no message that can be missed."""
    sid = lab.steered(2)
    lab.worker(**through(proxy))
    lab.wait_for("began-1-1")
    proxy.hole()
    lab.ok("cancel", f"{sid}/1", "--yes")
    lab.ok("pause", sid)
    proxy.mend()
    lab.wait_until(lambda: "cancelled" in lab.events(sid), "the end of the trial")
    assert "told to stop" in lab.printed(sid)
    assert lab.events(sid, 2) == []  # paused: nothing is claimed
    lab.ok("resume", sid)
    lab.go()
    lab.wait_over(sid)
