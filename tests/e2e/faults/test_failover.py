"""Failovers by a real Sentinel, with two replicas: what stays, and what is lost and named."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from redis.exceptions import ReadOnlyError, RedisError

from hpq.acknowledged import Marks
from hpq.connection.client import connect
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.trial import Claim, TrialId, TrialState
from hpq.store.keys import Keys
from hpq.store.scripts import Durability, StoreContext
from hpq.store.trials import TrialStore
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids, refused
from tests.support.lab import Lab
from tests.support.sentinel import NAME, PASSWORD, Failover, clock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("redis-sentinel") is None, reason="needs redis-sentinel"),
]
LOAD = "def train(params, trial):\n    return {'loss': params['x']}\n"


@pytest.fixture
def make_failover(tmp_path: Path) -> Iterator[Callable[..., tuple[Failover, Lab]]]:
    """Makes a lab whose Redis is a primary with two replicas, by its Sentinels' URL."""
    made: list[tuple[Failover, Lab]] = []

    def make(*environs: dict[str, str]) -> tuple[Failover, Lab]:
        servers = Failover(Path(tempfile.mkdtemp(prefix="hpq-f-")), environs)
        lab = Lab(tmp_path / "lab", servers, servers.url)  # type: ignore[arg-type]
        made.append((servers, lab))
        return servers, lab

    yield make
    for servers, lab in made:
        try:
            lab.end()
        finally:
            servers.end()


class Committer(Thread):
    """Claims and commits as a worker does, and keeps what was acknowledged and what was not."""

    def __init__(self, url: str, name: str, replicas: int) -> None:
        super().__init__(name=name, daemon=True)
        self._ended, self._misses = Event(), 0
        self._error: RedisError | None = None
        self.marks = Marks()
        durability = Durability(replicas, self.marks.keep, self._missed)
        context = StoreContext.open(
            connect(url, retries=1, timeout_s=3.0), Keys("hpq"), mints=False, durability=durability
        )
        self._store, self._context = TrialStore(context), context
        self.acknowledged = dict[TrialId, float]()
        self.missed = dict[TrialId, float]()

    def _missed(self, _: object) -> None:
        self._misses += 1

    def run(self) -> None:
        who, number = WorkerPresence(name=self.name, host=self.name, queue="default"), 0
        while not self._ended.wait(0.02):
            number += 1
            nonce = f"{self.name}-{number}"
            claim = self._again(lambda: self._store.claim(who, nonce=nonce, lease_ms=4_000))  # noqa: B023
            if isinstance(claim, Claim):
                self._commit(claim, float(time.monotonic_ns()))
            context = self._context
            self._again(lambda: self.marks.check(context))  # noqa: B023  as a reaper does

    def _commit(self, claim: Claim, objective: float) -> None:
        outcome = Outcome(state=TrialState.FINISHED, objective=objective)
        self._misses = 0
        reply = self._again(lambda: self._store.commit(claim, outcome))
        if reply in ("done", "already"):
            kept = self.missed if self._misses else self.acknowledged
            kept[claim.trial] = objective

    def _again(self, call: Callable[[], object]) -> object:
        while True:  # also after the end: what began is finished
            try:
                return call()
            except RedisError as error:
                self._error = error
                time.sleep(0.1)  # else two of these keep a busy Sentinel from its work

    def end(self) -> None:
        self._ended.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{self.name} gets no answer: {self._error}"


def enqueue(lab: Lab, count: int, seed: int) -> tuple[str, list[str]]:
    """Enqueue a sweep; return its id, and the ids of the notices."""
    lab.write("load.py", LOAD)
    path = lab.write(
        f"load-{seed}.yaml",
        f"trainer: load:train\nresident: true\nmethod: grid\nmetric: {{name: loss}}\nseed: {seed}\n"
        f"parameters: {{x: {{values: {list(range(count))}}}}}\n",
    )
    done = lab.hpq("enqueue", path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), ids(done.stderr)


@pytest.mark.parametrize(("failovers", "apart_s"), [(20, 0), (4, 10)])
def test_what_all_replicas_have_survives_each_failover(
    make_failover, tmp_path: Path, failovers: int, apart_s: int
) -> None:
    """F14, F20: under load; the clocks of two servers are also `apart_s` apart."""
    if apart_s and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    ahead = (0, apart_s, -apart_s) if apart_s else ()
    servers, lab = make_failover(*(clock(tmp_path, seconds) for seconds in ahead))
    lab.env |= {"HPQ_WAIT_REPLICAS": "2", "HPQ_LEASE_S": "4"}
    (sid, _), every, kept = enqueue(lab, 300 * failovers, 0), [], []
    committers = [Committer(servers.url, f"committer-{n}", 2) for n in range(2)]
    for committer in committers:
        committer.start()
    fleet = lab.worker()
    for number in range(1, failovers + 1):
        if number % 4 == 0:
            small, notices = enqueue(lab, 1, number)
            every.append(small)
            kept += [] if "replicas-behind" in notices else [small]
        servers.switch(kills=number % 4 == 0)
    for committer in committers:
        committer.end()
    lab.ok("set", sid, "run_cap=1")  # what runs ends
    for one in (sid, *kept, enqueue(lab, 10, 99)[0]):
        lab.wait_over(one)  # and the audit finds that nothing is doubled

    acknowledged = {t: o for c in committers for t, o in c.acknowledged.items()}
    now = {t.id: t.objective for one in (sid, *every) for t in lab.reader.trials.all(one)}
    assert {t: now.get(t) for t in acknowledged} == acknowledged
    assert kept and len(acknowledged) > failovers
    lost = json.loads(lab.ok("audit", sid, "-o", "json"))["went_back"]
    missed = {t: o for c in committers for t, o in c.missed.items() if t.sweep == sid}
    print(len(acknowledged), "acknowledged,", len(missed), "not; lost:", lost)
    named = set(lost["trials"]) if lost else set()
    unnamed = {t.number for t, o in missed.items() if now[t] != o} - named
    print(*(lab.ok("show", f"{sid}/{number}") for number in sorted(unnamed)), sep="\n")
    assert not unnamed
    assert fleet.poll() is None and "Traceback" not in lab.log()


def test_a_result_sent_again_to_a_server_that_was_the_primary_reaches_the_new_one(
    make_failover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F14: the reply of a commit is lost, and the failover is not seen yet."""
    servers, lab = make_failover()
    enqueue(lab, 1, 0)
    redis = connect(servers.url, retries=0, timeout_s=3.0)
    store = TrialStore(StoreContext.open(redis, Keys("hpq"), durability=Durability(2)))
    who = WorkerPresence(name="one", host="one", queue="default")
    claim = store.claim(who, nonce="one-1", lease_ms=60_000)
    assert isinstance(claim, Claim)
    outcome = Outcome(state=TrialState.FINISHED, objective=1.0)
    assert store.commit(claim, outcome) == "done"
    replica = servers.replicas[0]
    redis.connection_pool.disconnect()
    with monkeypatch.context() as before:
        address = ("127.0.0.1", replica)
        before.setattr(redis.connection_pool.proxy, "get_master_address", lambda: address)
        with pytest.raises(ReadOnlyError):
            store.commit(claim, outcome)
    assert store.commit(claim, outcome) == "already"


def test_a_replica_that_was_not_awaited_loses_results_and_sweeps_which_are_named(
    make_failover,
) -> None:
    """F14: one of two replicas acknowledges; the other becomes the primary."""
    servers, lab = make_failover()
    lab.env["HPQ_WAIT_REPLICAS"] = "1"
    behind, other = servers.replicas
    servers.client(other).config_set("replica-priority", 0)  # the Sentinel never promotes it
    sid = lab.steered(3)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    servers.pause(behind)
    servers.cut(behind)
    lab.go()
    lab.wait_until(lambda: lab.trial(sid, 1).state.is_terminal, "a result")
    lost_sweep, notices = enqueue(lab, 1, 1)
    assert "replicas-behind" not in notices  # a replica has it
    servers.kill(servers.primary)
    servers.resume(behind)
    lab.wait_until(lambda: servers.primary == behind, "the failover")

    lab.wait_until(lambda: "server-went-back" in ids(lab.log()), "the worker to report it")
    lab.wait_over(sid)  # the trials whose results were lost ran again
    done = lab.hpq("ls")
    assert "server-went-back" in ids(done.stderr) and lost_sweep in done.stderr
    assert "server-went-back" not in ids(lab.hpq("ls").stderr)  # once
    assert "lost what it had" in lab.hpq("ls").stderr
    lost = json.loads(lab.ok("audit", sid, "-o", "json"))["went_back"]
    assert 1 in lost["trials"] and lost["from"] <= lost["to"]
    assert f"#{lost['trials'][0]}" in lab.ok("audit", sid)
    assert fleet.poll() is None


def test_commands_name_what_is_wrong_with_a_url_and_with_replicas(make_failover) -> None:
    servers, lab = make_failover()
    port = servers.sentinel.connection_pool.connection_kwargs["port"]
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}"
    refused(lab.hpq("ls", HPQ_REDIS_URL=url), "redis-url-invalid", "is a Sentinel")
    for wrong, words in (
        (servers.url.replace(NAME, "other").rpartition(",")[2], "no primary of this NAME"),
        (f"127.0.0.1:{servers.primary}/{NAME}/0", "asks for a password"),
    ):
        done = lab.hpq("ls", HPQ_REDIS_URL=f"redis+sentinel://:{PASSWORD}@{wrong}")
        refused(done, "redis-unreachable", words, "during a failover, try again", exit=3)

    def codes(waits: int) -> set[str]:
        done = lab.hpq("doctor", "--json", HPQ_WAIT_REPLICAS=str(waits))
        return {one["code"] for one in json.loads(done.stdout) if "replicas" in one["code"]}

    assert codes(1) == {"replicas-not-awaited", "replicas-not-required"}
    servers.client(servers.primary).config_set("min-replicas-to-write", 1)
    assert (codes(2), codes(3)) == (set(), {"replicas-behind"})


def test_a_worker_counts_results_that_no_replica_has_and_reports_them_once(lab) -> None:
    lab.env["HPQ_WAIT_REPLICAS"] = "1"
    sid, _ = enqueue(lab, 2, 0)
    lab.worker()
    lab.wait_over(sid)
    misses = lambda: int(lab.redis.hget(lab.keys.counters, "replica_misses"))  # noqa: E731
    lab.wait_until(lambda: misses() == 3, "the misses of two results and the enqueue")
    assert ids(lab.log()).count("replicas-behind") == 1
