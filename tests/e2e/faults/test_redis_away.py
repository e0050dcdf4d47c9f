"""Redis is killed and comes back: no worker ends, nothing is lost, doubled or falsely requeued."""

from __future__ import annotations

import subprocess

import pytest

from hpq.domain.trial import TrialState
from tests.support.commands import HPQ
from tests.support.ids import ids
from tests.support.lab import Lab


@pytest.mark.slow
def test_a_trial_goes_on_while_redis_is_away_and_is_committed_once(lab) -> None:
    """F9, R1: kill -9 of Redis (AOF) in the midst of a trial, started again."""
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    one = lab.parent()
    lab.server.kill()
    lab.wait_until(lambda: "redis-away" in ids(lab.log()), "a beat that failed")
    lab.server.start()
    beat = lab.trial(sid).beat_ms
    lab.wait_until(lambda: lab.trial(sid).beat_ms > beat, "the trial's next heartbeat")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == lab.events(sid, 2) == ["claimed", "finished"]
    assert lab.parent() == one and fleet.poll() is None, lab.log()
    assert "Traceback" not in lab.log(), lab.log()


@pytest.mark.slow
def test_a_result_that_comes_while_redis_is_away_is_kept_and_committed_when_it_is_back(lab) -> None:
    """F11, R21: a trial ends while Redis is away."""
    sid = lab.steered(2)
    lab.worker()
    lab.wait_for("began-1-1")
    lab.server.kill()
    lab.wait_until(lambda: "redis-away" in ids(lab.log()), "a beat that failed")
    lab.go()
    spool = lab.home / "spool"
    lab.wait_until(lambda: list(spool.rglob("*.json")), "the result on disk")
    lab.server.start()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "finished"]
    assert lab.trial(sid).objective == 0.1 and lab.trial(sid).attempt == 1
    assert [p.value for p in lab.reader.trials.metric_history(lab.trial(sid).id, "loss")] == [
        1,
        1,
        0.1,
    ]
    assert not list(spool.rglob("*.json"))
    assert "Traceback" not in lab.log(), lab.log()
    lab.wait_until(lambda: "1 [redis-back]" in lab.log(), "the line that it is over")
    assert ids(lab.log()).count("redis-away") == 1, lab.log()


@pytest.mark.slow
def test_a_result_on_disk_survives_its_worker(lab) -> None:
    """F11: the worker ends, too, before Redis is back."""
    sid = lab.steered(1)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    lab.server.kill()
    lab.go()
    spool = lab.home / "spool"
    lab.wait_until(lambda: list(spool.rglob("*.json")), "the result on disk")
    fleet.terminate()
    assert fleet.wait() == 0
    lab.server.start()
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, trial.objective, trial.attempt) == (TrialState.FINISHED, 0.1, 1)


@pytest.mark.slow
def test_a_result_of_after_a_backup_is_kept_until_its_trial_runs_again(lab) -> None:
    """The table of docs/explanation/guarantees.md: the worker lives through the restore."""
    sid = lab.steered(1)
    lab.redis.save()
    lab.worker()
    lab.wait_for("began-1-1")
    lab.server.kill()
    lab.go()
    spool = lab.home / "spool"
    lab.wait_until(lambda: list(spool.rglob("*.json")), "the result on disk")
    (kept,) = spool.rglob("*.json")
    data = lab.server.socket.parent
    (data / "appendonlydir").rename(data / "before-restore")
    (data / "dump.rdb").rename(data / "appendonly.aof")
    lab.server.start()
    lab.wait_over(sid)
    assert ids(lab.log()).count("result-unknown") == 1 and not kept.exists(), lab.log()
    assert kept.with_suffix(".unknown").exists(), lab.log()
    lab.worker()  # asks at its start, and then every five minutes
    lab.wait_until(lambda: not list(spool.rglob("*.unknown")), "the first result to be deleted")
    assert lab.reader.workers.counters()["stale_commits"] == 1
    assert lab.events(sid) == ["claimed", "finished"] and lab.trial(sid).objective == 0.1


@pytest.mark.slow
def test_a_redis_that_hangs_past_the_lease_requeues_nothing_falsely(lab, short_lease) -> None:
    """F10, R15: SIGSTOP of Redis past two leases."""
    sid = lab.steered(2)
    lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    lab.server.freeze()
    lab.wait_until(lambda: ids(lab.log()).count("redis-away") >= 2, "beats that failed")
    lab.server.thaw()
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == lab.events(sid, 2) == ["claimed", "finished"]


def test_a_server_that_lost_its_data_ends_the_trial_and_the_worker_goes_on(lab) -> None:
    """F14, R20: FLUSHALL in the midst of a trial."""
    lab.steered(1)
    lab.worker()
    began = lab.wait_for("began-1-1")
    lab.redis.flushall()
    lab.wait_until(lambda: began not in lab.processes(), "the end of the runner")
    lab.go()
    lab.wait_over(lab.steered(2))
    assert "Traceback" not in lab.log(), lab.log()


@pytest.mark.slow
def test_an_idle_worker_waits_for_redis_and_takes_the_next_sweep(lab) -> None:
    """R1, R25: kill -9 of Redis while a worker waits for a ticket."""
    fleet = lab.worker()
    lab.wait_until(lambda: lab.reader.workers.live(), "a worker")
    one = lab.parent()
    lab.server.kill()
    lab.wait_until(lambda: "redis-away" in ids(lab.log()), "the worker to see it")
    lab.server.start()
    lab.go()
    sid = lab.steered(2)
    lab.wait_over(sid)
    assert lab.parent() == one and fleet.poll() is None, lab.log()
    assert "Traceback" not in lab.log(), lab.log()


@pytest.mark.slow
def test_a_worker_told_to_stop_while_redis_is_away_goes(lab) -> None:
    """F5: SIGTERM while Redis is away."""
    fleet = lab.worker()
    lab.wait_until(lambda: lab.reader.workers.live(), "a worker")
    lab.server.kill()
    lab.wait_until(lambda: "redis-away" in ids(lab.log()), "the worker to see it")
    fleet.terminate()
    assert fleet.wait() == 0


def test_a_worker_without_a_server_says_so_in_one_line(lab) -> None:
    """F16: no server at all, at the start of a worker; then there is one."""
    sid = lab.steered(1)
    lab.server.kill()
    fleet = lab.worker()
    lab.wait_until(lambda: "redis-unreachable" in ids(lab.log()), "the line")
    assert "Traceback" not in lab.log(), lab.log()
    done = lab.hpq("ls")
    assert done.returncode == 3 and len(done.stderr.strip().splitlines()) == 1
    lab.server.start()
    lab.go()
    lab.wait_over(sid)
    assert fleet.poll() is None


@pytest.mark.slow
def test_commands_that_wait_go_on_when_redis_is_back(lab) -> None:
    sid = lab.steered(1)
    lab.worker()
    lab.wait_for("began-1-1")
    waiting = [Waiting(lab, "wait", sid), Waiting(lab, "watch", sid)]
    lab.wait_until(lambda: "running" in waiting[1].said(), "the first line of watch")
    reads = lambda: [one["cmd"] for one in lab.redis.client_list()].count("xread")  # noqa: E731
    lab.wait_until(lambda: reads() == len(waiting), "both to wait for events")
    lab.server.kill()
    for one in waiting:
        lab.wait_until(lambda one=one: ids(one.said()) == ["redis-away"], "the line of the outage")
    lab.server.start()
    lab.go()
    for one in waiting:
        assert one.process.wait() == 0, one.said()
        assert "1 finished" in one.said() and ids(one.said()) == ["redis-away"]


def test_a_wait_ends_in_time_though_redis_is_away(lab) -> None:
    one = Waiting(lab, "wait", lab.steered(1), "--timeout", "4")
    lab.wait_until(lambda: "no-worker" in ids(one.said()), "the begin of the wait")
    lab.server.kill()
    assert one.process.wait() == 5, one.said()
    assert ids(one.said())[-1] == "timed-out"


class Waiting:
    """A command off a terminal that waits."""

    def __init__(self, lab: Lab, *words: str) -> None:
        self._path = lab.folder / f"said-{words[0]}"
        with self._path.open("wb") as out:
            self.process = subprocess.Popen(
                [HPQ, *words],
                cwd=lab.code,
                env=lab.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        lab.workers.append(self.process)

    def said(self) -> str:
        """What it has printed."""
        return self._path.read_text("utf-8")
