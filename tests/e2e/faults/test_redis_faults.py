"""What a Redis server does to its clients while it lives, and what it may have lost after it."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from redis.exceptions import RedisError

from hpq.domain.trial import TrialState
from hpq.store.control import SweepControl
from hpq.store.scripts import StoreContext
from tests.support.ids import ids, refused

QUICK = "def train(params, trial):\n    return {'loss': params['x']}\n"


ENDS = """
    import time
    from pathlib import Path
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


def sockets(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".sock")]


def quick(lab, count: int) -> str:
    lab.write("quick.py", QUICK)
    return lab.enqueue(
        "trainer: quick:train\nresident: true\nmethod: grid\nmetric: {name: loss}\n"
        f"parameters: {{x: {{values: {list(range(1, count + 1))}}}}}\n"
    )


def forget(lab) -> None:
    """Let a server that was killed come back empty."""
    folder = lab.server.socket.parent
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    (folder / "appendonly.aof").unlink(missing_ok=True)  # Redis 6.2


def finished_at_once(lab, sid: str, count: int) -> None:
    lab.wait_over(sid)
    for number in range(1, count + 1):
        assert lab.events(sid, number) == ["claimed", "finished"]
    assert "Traceback" not in lab.log()


def test_a_server_that_comes_back_empty_is_named_and_nothing_is_invented(lab) -> None:
    """F14: kill -9, the data directory emptied, started again, in the midst of two trials."""
    sid = lab.steered(2)
    fleet = lab.worker(2)
    pids = [lab.wait_for("began-1-1"), lab.wait_for("began-2-1")]
    lab.server.kill()
    forget(lab)
    lab.server.start()
    lab.wait_until(lambda: not set(pids) & set(lab.processes()), "the end of the runners")
    lab.wait_until(lambda: ids(lab.log()).count("trial-unknown") >= 2, "both workers to say so")
    assert not lab.redis.exists(lab.keys.sweep(sid)) and lab.reader.sweeps.ids() == []
    assert not lab.redis.keys(f"*{sid}*")  # no beat, commit or reap has made half a trial
    done = lab.hpq("watch", sid)
    assert done.returncode == 4
    assert ids(done.stderr) == ["server-went-back", "sweep-not-found"]
    lab.go()
    lab.wait_over(lab.steered(2, "seed: 2"))
    assert fleet.poll() is None and "Traceback" not in lab.log()


def test_a_result_on_disk_that_redis_does_not_know_waits_until_its_data_are_back(lab) -> None:
    """F14, R20: the result waits on disk, its sweep is lost, and then restored from a copy."""
    sid = lab.steered(1)
    lab.worker()
    lab.wait_for("began-1-1")
    lab.server.kill()
    copy = shutil.copytree(lab.server.socket.parent, lab.folder / "copy", ignore=sockets)
    lab.go()
    spool = lab.home / "spool"
    lab.wait_until(lambda: list(spool.rglob("*.json")), "the result on disk")
    forget(lab)
    lab.server.start()
    lab.wait_until(lambda: list(spool.rglob("*.unknown")), "the result set aside")
    assert not list(spool.rglob("*.json")) and not lab.redis.keys(f"*{sid}*")
    lab.wait_until(lambda: "result-unknown" in ids(lab.log()), "the line that names its file")
    assert ".unknown" in lab.log()
    lab.wait_over(lab.steered(1, "seed: 2"))
    lab.server.kill()
    forget(lab)
    shutil.copytree(copy, lab.server.socket.parent, dirs_exist_ok=True)
    lab.server.start()
    lab.wait_over(sid)
    assert lab.events(sid)[-1] == "finished" and lab.trial(sid).attempt == 1
    # The worker removes the file after the commit.
    lab.wait_until(lambda: not any(path.is_file() for path in spool.rglob("*")), "an empty spool")


def test_a_result_that_comes_when_redis_has_lost_its_trial_is_kept_on_disk(lab) -> None:
    """F14, R20: FLUSHALL while the parent is stopped and its program comes to its end."""
    lab.write("train.py", ENDS)
    sid = lab.enqueue("program: train.py\nmethod: grid\nparameters: {x: {value: 1}}\n")
    lab.worker(HPQ_LEASE_S="60")
    lab.wait_for("began")
    parent = lab.parent()
    os.kill(parent, signal.SIGSTOP)
    try:
        lab.go()
        lab.wait_for_no_process(r"train\.py")
        lab.redis.flushall()
    finally:
        os.kill(parent, signal.SIGCONT)
    spool = lab.home / "spool"
    lab.wait_until(lambda: list(spool.rglob(f"{sid}.1.1-*.unknown")), "the result on disk")
    lab.wait_over(lab.steered(1))


def test_a_server_without_memory_takes_no_half_of_an_enqueue_and_all_of_a_result(lab) -> None:
    """F15: maxmemory is reached while two trials run and one is enqueued."""
    sid = lab.steered(2)
    fleet = lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    before = set(lab.redis.keys("hpq:s*"))
    lab.redis.config_set("maxmemory", 1)
    path = lab.write("more.yaml", "trainer: digits\nmethod: grid\nparameters: {epochs: {value: 1}}")
    done = lab.hpq("enqueue", path)
    refused(done, "redis-memory", "maxmemory", exit=3)
    assert len(done.stderr.strip().splitlines()) == 1 and set(lab.redis.keys("hpq:s*")) <= before
    lab.go()
    finished_at_once(lab, sid, 2)
    lab.redis.config_set("maxmemory", 0)
    assert fleet.poll() is None and not list((lab.home / "spool").rglob("*.json"))


def test_lost_and_doubled_tickets_cost_nothing(lab) -> None:
    """R2, R3, R12, R18: no ticket is minted, RQ's keys are gone; then each ticket lies thrice."""
    sid = lab.steered(2)
    lab.go()
    lab.ok("pause", sid)
    lab.worker(2)
    lab.wait_until(lambda: len(lab.reader.workers.live()) == 2, "two workers")
    for key in lab.redis.keys("rq:*"):
        lab.redis.delete(key)
    SweepControl(StoreContext.open(lab.redis, lab.keys, mints=False)).resume(sid)
    finished_at_once(lab, sid, 2)
    more = lab.steered(4, "seed: 2")
    queue = f"rq:queue:{lab.keys.tickets('default')}"
    for job in lab.redis.lrange(queue, 0, -1):
        lab.redis.rpush(queue, job, job)
    finished_at_once(lab, more, 4)


def test_scripts_that_are_flushed_again_and_again_are_loaded_again(lab) -> None:
    """F17: SCRIPT FLUSH under load, between every two looks at the sweep."""
    sid = quick(lab, 60)
    lab.worker(2)

    def is_over() -> bool:
        lab.redis.script_flush()
        return lab.reader.sweeps.get(sid).state.is_over

    lab.wait_until(is_over, "the end of the sweep")
    finished_at_once(lab, sid, 60)


@pytest.mark.slow
def test_a_server_that_loads_its_data_is_waited_for(make_lab) -> None:
    """F9: back after kill -9, it answers LOADING until a worker says so; a trial ends meanwhile."""
    lab = make_lab("--key-load-delay", "500")  # a minute, unless it is told to hurry
    pipe = lab.redis.pipeline(transaction=False)
    for i in range(100_000):
        pipe.set(f"ballast:{i}", i)
    pipe.execute()
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    lab.server.kill()
    lab.go()
    lab.server.launch()
    lab.wait_until(lambda: "loading" in lab.log().lower(), "a worker to see that it loads")
    lab.redis.config_set("key-load-delay", 0)
    finished_at_once(lab, sid, 2)
    assert fleet.poll() is None


@pytest.mark.slow
def test_a_server_that_is_made_a_replica_and_primary_again_is_waited_for(lab, short_lease) -> None:
    """F9: every write answers READONLY for longer than a lease; a trial ends meanwhile."""
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    lab.redis.replicaof("127.0.0.1", "1")
    lab.wait_until(lambda: "redis-away" in ids(lab.log()), "a beat that failed")
    lab.go()
    lab.wait_until(lambda: "result-on-disk" in ids(lab.log()), "the result on disk")
    lab.redis.replicaof("NO", "ONE")
    finished_at_once(lab, sid, 2)
    assert fleet.poll() is None


@pytest.mark.slow
def test_clients_that_are_paused_past_the_lease_lose_no_trial(lab, short_lease) -> None:
    """F13: CLIENT PAUSE, until both results are on disk, while two workers train."""
    sid = lab.steered(2)
    lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    lab.redis.client_pause(60_000, all=False)  # writes wait, and so do all scripts
    lab.go()
    lab.wait_until(lambda: ids(lab.log()).count("result-on-disk") == 2, "results on disk")
    lab.redis.client_unpause()
    finished_at_once(lab, sid, 2)


@pytest.mark.slow
def test_a_second_restart_within_the_settling_time_expires_nothing(lab) -> None:
    """F9: kill -9 twice within one lease, and the workers come back only after it."""
    sid = lab.steered(2)
    lab.worker(2, HPQ_LEASE_S="10")
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    for _ in range(3):
        lab.server.kill()
        lab.server.start()
        run_id = lab.redis.info("server")["run_id"].encode()
        lab.wait_until(lambda r=run_id: settling(lab) == r, "a reaper's first look")
    lab.wait_until(lambda: is_trusted(lab, 10_000), "the end of the settling")
    lab.go()
    finished_at_once(lab, sid, 2)


def settling(lab) -> bytes | None:
    try:
        return lab.redis.hget(lab.keys.server, "run_id")
    except RedisError:
        return None


def is_trusted(lab, lease_ms: int) -> bool:
    seconds, micros = lab.redis.time()
    now = seconds * 1000 + micros // 1000
    return now - int(lab.redis.hget(lab.keys.server, "since")) > lease_ms


@pytest.mark.slow
def test_the_restart_of_a_lone_worker_costs_no_lease(lab) -> None:
    """Promise 2: it is killed -9 alone; its next start requeues the trial at once."""
    lease_s = 120
    sid = lab.steered(1)
    lab.worker(HPQ_LEASE_S=str(lease_s))
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: settling(lab), "a reaper's first look")
    found = lab.redis.hmget(lab.keys.server, "run_id", "since")
    os.kill(lab.parent(), signal.SIGKILL)
    killed_s, _ = lab.redis.time()
    lab.wait_for("began-1-2")
    assert lab.redis.hmget(lab.keys.server, "run_id", "since") == found  # no new settling began
    back = next(e for e in lab.reader.events.read(sid) if e.what == "requeued")
    assert back.at_ms / 1000 - killed_s < lease_s  # by the server's clock
    lab.go()
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED
