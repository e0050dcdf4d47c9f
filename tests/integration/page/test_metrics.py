"""HPQ_PORT of `hpq dashboard`: the fleet's metrics, scraped as Prometheus does."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq.redis.acl import users
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq.store.worker_reader import WorkerReader
from hpq_worker.attempt.environment import reserved_port
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids
from tests.support.server import Server, find_server

parser = pytest.importorskip("prometheus_client.parser", reason="pip install prometheus-client")
for library in ("starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")


@pytest.fixture
def metrics_port(environ: dict[str, str]) -> Iterator[int]:
    with reserved_port() as port:
        environ["HPQ_PORT"] = str(port)
        yield port


@pytest.fixture
def scrape(serve: Callable[..., Any], metrics_port: int) -> Callable[[], str]:
    """Start the dashboard; return a function that returns the text of /metrics."""
    serve()
    return partial(get, metrics_port)


def get(port: int) -> str:
    """Scrape once."""
    call = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    call.request("GET", "/metrics")
    answer = call.getresponse()
    text = answer.read().decode()
    call.close()
    assert answer.status == 200
    return text


def figures(text: str) -> dict[tuple[str, ...], float]:
    """Each sample as (name, values of its labels by their names' order) → value."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_without_a_worker_there_is_what_waits_by_queue_and_owner(
    scrape, sweep_of, redis: Redis, keys: Keys, control: SweepControl
) -> None:
    sweep_of(3, "one-00000", owner="ana")
    sweep_of(2, "two-00000", owner="ben")
    sweep_of(4, "big-00000", owner="ana", queue="big")
    control.pause("two-00000")
    redis.hset(keys.counters, mapping={"leases_expired": 7, "tickets_set_aside": 2})
    text = scrape()
    found = figures(text)
    assert found["hpq_redis_up",] == 1
    assert (found["hpq_demand", "default"], found["hpq_demand", "big"]) == (3, 4)
    # Labels in the order of their names: owner, queue.
    assert found["hpq_trials_waiting", "ana", "default"] == 3
    assert found["hpq_trials_waiting", "ben", "default"] == 2
    assert found["hpq_trials_waiting", "ana", "big"] == 4
    assert found["hpq_trials_running", "ana", "default"] == 0
    assert found["hpq_leases_expired_total",] == 7 and found["hpq_set_aside_total",] == 2
    assert found["hpq_redis_aof_ok",] == 0  # the server of tests keeps no file
    assert not [name for name, *_ in found if name == "hpq_fleet_workers"]
    if promtool := shutil.which("promtool"):
        words = [promtool, "check", "metrics"]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_runs_and_the_states_of_workers_are_shown(
    scrape, sweep_of, store: TrialStore, take, redis: Redis, keys: Keys
) -> None:
    sweep_of(3, owner="ana")
    take()
    for name, state in (("w1", "busy"), ("w2", "idle"), ("w3", "idle")):
        fields = {"host": "h", "queue": "default", "state": state}
        one = WorkerPresence(name=name, host="h", queue="default", fields=fields)
        store.present(one, idle=state == "idle", lifetime_ms=90_000)
    for name, host, gpu_util in (("g1", "node1", "80"), ("g2", "node1", "40"), ("g3", "node2", "")):
        fields = {"queue": "gpu", "state": "busy", "gpu_util": gpu_util}
        one = WorkerPresence(name=name, host=host, queue="gpu", fields=fields)
        store.present(one, idle=False, lifetime_ms=90_000)
    redis.hset(keys.spent, "ana", 7_200_000)
    sweep_of(1, "held-00000", owner="ben")
    redis.hset(keys.sweep("held-00000"), "state", "held")
    sweep_of(1, "big-00000", queue="big")
    found = figures(scrape())
    assert (found["hpq_sweeps_held", "default"], found["hpq_sweeps_held", "big"]) == (1, 0)
    assert found["hpq_gpu_seconds_total", "ana"] == 7200
    assert found["hpq_trials_running", "ana", "default"] == 1
    assert found["hpq_trials_waiting", "ana", "default"] == 2
    assert found["hpq_fleet_workers", "default", "idle"] == 2
    assert found["hpq_fleet_workers", "default", "busy"] == 1
    # Labels in the order of their names: host, queue.
    of_gpus = {name: value for name, value in found.items() if name[0] == "hpq_trial_gpu_util"}
    assert of_gpus == {("hpq_trial_gpu_util", "node1", "gpu"): 60}


def test_attempts_are_counted_by_outcome_kind_and_duration_also_after_their_sweep_is_removed(
    scrape, hpq, sweep_of, store: TrialStore, take
) -> None:
    sid = sweep_of(6, retries=1).id
    never = 10 * 4**9 * 1000
    for ran_ms in (None, 1_000, 1_001, never):
        store.commit(take(), Outcome(state=TrialState.FINISHED, objective=1.0, ran_ms=ran_ms))
    failed = Failure(kind=FailureKind.USER_ERROR, message="bad")
    for _ in range(3):  # the second attempt of a trial is its last
        store.commit(take(), Outcome(state=TrialState.FAILED, failure=failed, ran_ms=60_000))
    late = take()
    store.commit(late, Outcome(state=TrialState.PRUNED, ran_ms=5_000))
    store.commit(late, Outcome(state=TrialState.PRUNED, ran_ms=5_000))
    assert hpq("stop", sid).returncode == hpq("rm", sid, "--yes").returncode == 0
    found = figures(scrape())
    # Labels in the order of their names: kind, outcome.
    ended = {
        name[1:]: value for name, value in found.items() if name[0] == "hpq_trial_attempts_total"
    }
    assert ended == {
        ("", "finished"): 4, ("user_error", "requeued"): 2, ("user_error", "failed"): 1,
        ("", "pruned"): 1,
    }  # fmt: skip
    bucket = "hpq_trial_duration_seconds_bucket"
    within = [found[bucket, le] for le in ("1.0", "4.0", "16.0", "64.0", "262144.0", "+Inf")]
    assert within == [2, 3, 4, 7, 7, 8]
    assert "user error" not in hpq("doctor").stdout


def test_a_scrape_with_a_thousand_sweeps_is_two_commands_each_and_kept(
    scrape, sweep_of, redis: Redis, keys: Keys
) -> None:
    sweep_of(1, owner="ana")
    names = {f"many-{n:05}": f"owner{n % 20}" for n in range(1_000)}
    redis.hset(keys.queue("default", "owners"), mapping=names)
    pipe = redis.pipeline()
    for sid in names:
        pipe.zadd(keys.sweep(sid, "waiting"), {"1": 1, "2": 2})
    pipe.execute()

    def sent() -> int:
        return int(redis.info("stats")["total_commands_processed"])

    before = sent()
    found = figures(scrape())
    after = sent()
    again = figures(scrape())
    assert found["hpq_trials_waiting", "owner7", "default"] == 100
    assert found.items() <= again.items() and sent() - after <= 2
    assert 2_000 < after - before < 2_030


def test_redis_away_is_a_figure_and_no_error(
    tmp_path: Path, environ: dict[str, str], serve, metrics_port: int
) -> None:
    server = Server(tmp_path, find_server())
    server.start()
    environ["HPQ_REDIS_URL"] = server.url
    served = serve("--no-token")
    server.kill()
    try:
        assert figures(get(metrics_port)) == {("hpq_redis_up",): 0}
        assert served.get("/livez")[0] == 200
        server.start()
        until = time.monotonic() + DEADLINE_S
        while not figures(get(metrics_port))["hpq_redis_up",]:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        server.kill()


def test_a_value_that_another_client_damaged_hides_no_other(
    scrape, sweep_of, store: TrialStore, redis: Redis, keys: Keys
) -> None:
    sweep_of(2, owner="ana")
    redis.hset(keys.queues, "demand:broken", "x")
    damage = {"stale_commits": "many", "ended:x": 1, "ended:x:y:²": 1, f"ended:x:y:{'9' * 5000}": 1}
    redis.hset(keys.counters, mapping=damage)
    for name in ("w1", "w2", "w3"):
        fields = {"host": "h", "queue": "default", "state": "idle"}
        one = WorkerPresence(name=name, host="h", queue="default", fields=fields)
        store.present(one, idle=True, lifetime_ms=90_000)
    redis.hset(keys.worker("w2"), "pid", "x")
    redis.hset(keys.worker("w3"), "gpu_util", "nan")
    found = figures(scrape())
    assert found["hpq_fleet_workers", "default", "idle"] == 1
    assert found["hpq_demand", "default"] == 2 and ("hpq_demand", "broken") not in found
    assert found["hpq_stale_commits_total",] == 0
    assert found["hpq_trial_duration_seconds_bucket", "+Inf"] == 0


def test_the_user_that_only_reads_may_read_it(
    sweep_of, redis: Redis, redis_url: str, keys: Keys
) -> None:
    sweep_of(2, owner="ana")
    version = tuple(map(int, redis.info("server")["redis_version"].split(".")[:2]))
    (viewer,) = [one for one in users("hpq", version) if one.role == "viewer"]
    redis.execute_command("ACL", "SETUSER", "seen", "reset", "on", ">pw", *viewer.rules)
    with Redis.from_url(redis_url, username="seen", password="pw") as reads:
        assert WorkerReader(reads, keys, 30_000).fleet().demand == {"default": 2}
    redis.execute_command("ACL", "DELUSER", "seen")


def test_a_port_that_is_taken_ends_the_command_with_one_line(serve, hpq, metrics_port) -> None:
    serve()
    done = hpq("dashboard", "--port", "0")
    assert done.returncode == 2 and ids(done.stderr) == ["port-unusable"]
