"""How many round trips a command waits for: far from its server, each costs a tenth of a second."""

from __future__ import annotations

import socket
from collections.abc import Callable
from socketserver import TCPServer
from threading import Thread

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.redis.round_trips import Question, ask, together
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_views.text.style import TerminalInfo
from hpq_views.watch.keys import View
from hpq_views.watch.scene import SceneReader
from tests.support.desk import Desk
from tests.support.ids import refused
from tests.support.round_trips import counted
from tests.support.server import calls
from tests.support.store_calls import end, report, take

MakeSweep = Callable[..., SweepView]

SIZE = TerminalInfo(columns=80, rows=24)
SESSION = 3  # connect, log in, the server's version and whether it lost data


def test_questions_take_as_many_round_trips_as_the_longest_and_keep_their_answers_apart(
    redis: Redis,
) -> None:
    redis.mset({"a": "1", "b": "2", "c": "3"})

    def values(*names: str) -> Question[list[object]]:
        found = []
        for name in names:
            (answer,) = yield lambda pipe, name=name: pipe.get(name)
            found.append(answer)
        return found

    def nothing() -> Question[str]:
        yield from ()
        return "nothing"

    def wrong() -> Question[object]:
        first, second = yield lambda pipe: (pipe.lpush("a", "x"), pipe.get("a"))
        return [type(first), second]

    redis.ping()
    with counted() as trips:
        found = ask(redis, together(values("a", "b", "c"), nothing(), wrong(), values("c")))
    assert found == [[b"1", b"2", b"3"], "nothing", [ResponseError, b"1"], [b"3"]]
    assert trips.count == 3
    with counted() as trips:
        assert ask(redis, together(nothing(), together())) == ["nothing", []]
    assert trips.count == 0


def test_a_session_connects_once(desk: Desk, redis: Redis) -> None:
    with counted() as trips:
        assert desk.hpq("logs", "absent").returncode != 0
    by_id_and_by_prefix = 2
    assert (trips.connects, trips.count) == (1, SESSION + by_id_and_by_prefix)


def test_show_of_a_trial_reads_all_its_metrics_at_once(
    desk: Desk, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(2)
    spent = []
    for metrics in (1, 100):
        claim = take(store, who)
        report(
            store, who, claim, b"a line\n", acc=[0.5], **{f"m{i}": [1.0] for i in range(metrics)}
        )
        end(store, claim, 0.5)
        with counted() as trips:
            done = desk.hpq("show", str(claim.trial))
        assert done.returncode == 0, done.stderr
        spent.append(trips.count)
    assert spent[0] == spent[1] <= SESSION + 5


def test_watch_reads_a_trial_with_all_its_metrics_at_once(
    store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, reader: StoreReader
) -> None:
    sid = sweep_of(3).id
    spent = []
    for metrics in (1, 100):
        claim = take(store, who)
        report(store, who, claim, acc=[0.5], **{f"m{i}": [1.0] for i in range(metrics)})
        end(store, claim, metrics)
        with counted() as trips:
            scene = SceneReader(reader).read(View(sweep=sid, trial=claim.trial.number), SIZE)
        assert scene.detail is not None
        assert len(scene.detail.curves) == 1 + metrics
        spent.append(trips.count)
    assert spent[0] == spent[1]


def test_watch_once_takes_few_round_trips_whatever_its_trials_are(
    desk: Desk, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sid = sweep_of(6).id
    spent = []
    for objective in (0.5, 0.6, 0.5):  # the last ties with the first
        end(store, take(store, who), objective)
        report(store, who, take(store, who), acc=[0.55])
        with counted() as trips:
            assert desk.hpq("watch", sid, "--once").returncode == 0
        spent.append(trips.count)
    assert max(spent) <= SESSION + 8, spent


def test_enqueue_takes_few_round_trips(desk: Desk) -> None:
    text = "program: train.py\nmethod: grid\nparameters: {{x: {{values: [1, {}]}}}}\n"
    desk.sweep(text.format(2))  # the server has the scripts from then on
    with counted() as trips:
        desk.sweep(text.format(3))
    assert trips.count <= SESSION + 8
    with counted() as trips:
        desk.sweep(text.format(3))  # which is there
    assert trips.count <= SESSION + 4


def test_show_reads_the_record_of_a_sweep_once(
    desk: Desk, redis: Redis, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    """Also to check the signature of the parameters."""
    sid = sweep_of(2).id
    redis.config_resetstat()
    assert desk.hpq("show", f"{sid}/1").returncode == 0
    of_the_trial = 1
    assert calls(redis)["hgetall"] == 1 + of_the_trial


def test_csv_reads_each_trial_once(
    desk: Desk, redis: Redis, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    trials = 20
    sid = sweep_of(trials).id
    for _ in range(trials):
        end(store, take(store, who), 0.5)
    redis.config_resetstat()
    rows = desk.hpq("results", sid, "-o", "csv").stdout.splitlines()
    assert len(rows) == 1 + trials
    of_sweeps = 5
    assert calls(redis)["hgetall"] <= trials + of_sweeps


def test_a_server_that_closes_each_connection_is_unreachable(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(connection: socket.socket, _: object, server: object) -> None:
        connection.close()

    with TCPServer(("127.0.0.1", 0), close) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HPQ_REDIS_URL", f"redis://127.0.0.1:{server.server_address[1]}")
        refused(desk.hpq("ls"), "redis-unreachable", exit=3)
        server.shutdown()
