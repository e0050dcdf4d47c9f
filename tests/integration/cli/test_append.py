"""`enqueue --into` adds the trials that a sweep lacks, in one step; nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from hpq.domain.attempt import Nothing
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import Claim
from hpq.search.space import Space
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import Scripts
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.attempt import open_claim
from hpq.store.wire.trial import encode_new
from hpq.yamlfile.problems import Problems, SourceMap
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.sweepfile import parameters
from hpq_views.analysis.winner_evidence import judge_winner
from tests.support.desk import Desk
from tests.support.ids import raises, refused
from tests.support.store_calls import end

Take = Callable[[], Claim | Nothing]
GRID = (
    "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters:\n  x: {values: [1, 2, 3]}\n"
)
RANDOM = (
    "program: train.py\nmethod: random\nrun_cap: 4\nmetric: {name: loss}\n"
    "parameters:\n  x: {min: 0.0, max: 1.0}\n  y: {min: 0.0, max: 1.0}\n"
)


def test_an_edited_grid_adds_what_is_new_and_leaves_all_other_trials_as_they_are(
    desk: Desk, store: TrialStore, take: Take, redis: Redis, keys: Keys, control: SweepControl
) -> None:
    sid = desk.sweep(GRID)
    end(store, take(), 0.5)
    edited = GRID.replace("[1, 2, 3]", "[2, 4, 5]")
    done = desk.into(sid, edited)
    assert (done["added"], done["there"], done["trials"]) == (2, 1, 5)
    assert desk.trials(sid) == [
        (1, "finished"), (2, "queued"), (3, "queued"), (4, "queued"), (5, "queued"),
    ]  # fmt: skip
    assert redis.llen(keys.demand("default")) == 4
    assert [e.what for e in desk.reader.events.read(sid)].count("added") == 1
    again = desk.into(sid, edited)
    assert (again["added"], again["there"]) == (0, 3)
    sweep = desk.reader.sweeps.get(sid)
    assert [f.added for f in sweep.files] == [2]
    assert sweep.files[0].origin["text"] == edited and sweep.provenance["text"] == GRID
    # The edited file by itself is this sweep, too, and not another.
    same = desk.put(edited)
    assert same.stdout.strip() == sid and len(desk.trials(sid)) == 5
    assert audit_sweep(desk.reader, sid).violations == ()
    assert [key for key in redis.keys("*") if b"staged" in key] == []
    control.remove(sid)
    assert redis.hlen(keys.digests) == 0


def test_the_range_of_a_sweep_is_that_of_all_its_files(
    desk: Desk, store: TrialStore, take: Take
) -> None:
    sid = desk.sweep(GRID)
    for value in (0.9, 0.8, 0.1):
        end(store, take(), value)
    first = judge_winner(desk.reader, desk.reader.sweeps.get(sid))
    assert first is not None and list(first.edges) == ["x"]
    desk.into(sid, GRID.replace("[1, 2, 3]", "[4, 5]"))
    for _ in range(2):
        end(store, take(), 0.5)
    sweep = desk.reader.sweeps.get(sid)
    found = judge_winner(desk.reader, sweep)
    assert found is not None and found.trial == 3 and found.edges == {}
    every = list(desk.reader.trials.all(sid))
    assert judge_winner(desk.reader, sweep, desk.reader.ranking.best(sweep, 2), every) == found


def test_a_file_with_fewer_trials_than_the_sweep_adds_none_and_cancels_none(desk: Desk) -> None:
    sid = desk.sweep(GRID)
    done = desk.put(GRID.replace("[1, 2, 3]", "[3]"), "--into", sid)
    assert done.returncode == 0 and done.stdout == f"{sid}\n"
    assert "0 trials" in done.stderr
    assert desk.trials(sid) == [(1, "queued"), (2, "queued"), (3, "queued")]
    assert desk.reader.sweeps.get(sid).files == ()


def test_random_goes_on_with_its_sequence_up_to_the_new_count(desk: Desk, take: Take) -> None:
    sid = desk.sweep(RANDOM)
    whole = desk.sweep(RANDOM, "--count", "6", "--new", "--name", "whole")
    assert desk.into(sid, RANDOM, "--count", "6")["added"] == 2
    assert desk.trials(sid) == desk.trials(whole)
    fewer = desk.put(RANDOM, "--into", sid, "--count", "3")
    assert fewer.returncode == 0 and "6 trials" in fewer.stderr


def test_random_in_another_space_keeps_its_trials_and_draws_the_new_ones_from_it(
    desk: Desk,
) -> None:
    sid = desk.sweep(RANDOM)
    before = [dict(t.params) for t in desk.reader.trials.all(sid)]
    narrow = RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {min: 0.0, max: 0.5}")
    assert desk.into(sid, narrow)["added"] == 0
    done = desk.into(sid, narrow, "--count", "7")
    assert (done["added"], done["there"]) == (3, 4)
    trials = [dict(t.params) for t in desk.reader.trials.all(sid)]
    assert trials[:4] == before and all(p["x"] <= 0.5 for p in trials[4:])
    assert {p["y"] for p in trials[4:]}.isdisjoint(p["y"] for p in before)


def test_a_list_adds_its_new_sets(desk: Desk) -> None:
    sets = ["- hyperparam_set: {x: 1}", "- hyperparam_set: {x: 2}", "- hyperparam_set: {x: 3}"]
    words = ("--set", "program=train.py")
    sid = desk.sweep("\n".join(sets[:2]) + "\n", *words)
    done = desk.into(sid, "\n".join(sets[1:]) + "\n", *words)
    assert (done["added"], done["there"]) == (1, 1)
    assert desk.trials(sid) == [(1, "queued"), (2, "queued"), (3, "queued")]


@pytest.mark.parametrize("before", ["", "pause", "finished"])
def test_a_sweep_goes_on_as_it_stands(
    desk: Desk, store: TrialStore, take: Take, before: str, control: SweepControl
) -> None:
    sid = desk.sweep(GRID)
    if before == "finished":
        while isinstance(claim := take(), Claim):
            end(store, claim, 0.5)
    elif before:
        getattr(control, before)(sid)
    assert desk.into(sid, GRID.replace("3]", "3, 4]"))["added"] == 1
    state = desk.reader.sweeps.get(sid).state
    assert state is (SweepState.PAUSED if before == "pause" else SweepState.RUNNING)
    claim = take()
    assert (claim == Nothing()) == (before == "pause")
    assert before != "finished" or (
        isinstance(claim, Claim) and open_claim(claim).params == {"x": 4}
    )
    assert audit_sweep(desk.reader, sid).violations == ()


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_sweep_that_was_ended_takes_nothing(desk: Desk, verb: str, control: SweepControl) -> None:
    sid = desk.sweep(GRID)
    getattr(control, verb)(sid)
    done = desk.put(GRID.replace("3]", "3, 4]"), "--into", sid)
    refused(done, "sweep-over")
    assert len(desk.trials(sid)) == 3


def test_a_file_of_another_code_metric_or_owner_is_no_growth(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = desk.sweep(GRID)
    for text, said in (
        (GRID.replace("loss}", "acc}"), "metric"),
        (GRID.replace("method: grid", "command: [a]\nmethod: grid"), "command"),
    ):
        refused(desk.put(text, "--into", sid), "sweep-differs", said)
    (desk.folder / "train.py").write_text("print('loss=2')\n")
    refused(desk.put(GRID, "--into", sid), "sweep-differs", "code")
    monkeypatch.setenv("HPQ_USER", "another")
    done = desk.put(GRID, "--into", sid)
    assert done.returncode == 4 and "--force" in done.stderr
    assert len(desk.trials(sid)) == 3


def test_growth_sent_twice_or_by_two_adds_once(
    writer: SweepWriter,
    redis: Redis,
    keys: Keys,
    reader: StoreReader,
    sweep_of: Callable[..., SweepView],
) -> None:
    sid = sweep_of(2).id
    rows = [encode_new(ParameterSet(x=x), 0) for x in (2, 3)]
    file = '{"digest":"d","spec":{},"origin":{}}'
    assert writer.append(sid, rows, file, varying=["x"], digest="d") == 1  # x=2 exists
    assert writer.append(sid, rows, file, varying=["x"], digest="d") == 0
    stages = sorted(_stages(redis, keys, sid))
    fields = {"sweep": sid, "first": 3, "count": 1, "file": file, "varying": "[]", "digest": "d"}
    added = [Scripts(redis, keys).run("append", stage=stage, **fields)[1][2] for stage in stages]
    assert sorted(added) == [0, 1]  # a repeated call gets the first one's answer
    assert [t.params["x"] for t in reader.trials.all(sid)] == [1, 2, 3]
    assert audit_sweep(reader, sid).violations == ()


def _stages(redis: Redis, keys: Keys, sid: str) -> list[str]:
    row: Any = redis.hgetall(keys.sweep(sid))
    return [f.decode().removeprefix("file:") for f in row if f.startswith(b"file:")]


def space_of(entry: Any) -> Space:
    out = Problems(SourceMap(file="s.yaml"))
    space = Space.of(parameters.read_leaves({"x": entry}, (), out))
    assert not out.errors
    return space


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ({"values": [1, 2.0]}, [1, 1.0, 2], [3, "1", None, True]),
        ({"value": "a"}, ["a"], ["b"]),
        ({"min": 1, "max": 3}, [1, 3, 2.0], [0, 4, 1.5, "1", True]),
        ({"min": 1.0, "max": 3.0}, [1, 2.5], [0.9, 3.1]),
        ({"distribution": "log_uniform", "min": 0, "max": 1}, [1.0, 2.7], [0.9, 2.8]),
        ({"distribution": "inv_log_uniform", "min": 0, "max": 1}, [1.0, 0.4], [0.3, 1.1]),
        (
            {"distribution": "inv_log_uniform_values", "min": 0.1, "max": 0.3},
            [0.1, 0.3, 0.30000000000000004],
            [0.301],
        ),
        ({"distribution": "q_uniform", "min": 1, "max": 9, "q": 4}, [0, 4, 8], [-4, 12, 11, 1, 5]),
        ({"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.1}, [0.3, 3 * 0.1], [0.25]),
        ({"distribution": "q_normal", "q": 2}, [-4, 0, 1e6], [1, 0.5, "x"]),
        ({"distribution": "q_beta", "a": 2, "b": 2, "q": 0.25}, [0, 0.75, 1], [0.3, 1.25]),
        ({"distribution": "beta", "a": 2, "b": 2}, [0.3], [-0.1, 1.1]),
        ({"distribution": "normal"}, [-1e9, 1e9], ["x", True]),
        ({"parameters": {"y": {"values": [1]}}}, [{"y": 1}], [{"y": 2}, {}, {"y": 1, "z": 1}]),
    ],
)
def test_a_set_is_inside_a_space_that_might_have_given_it(
    entry: Any, inside: list[Any], outside: list[Any]
) -> None:
    space = space_of(entry)
    assert [v for v in inside if not space.contains({"x": v})] == []
    assert [v for v in outside if space.contains({"x": v})] == []
    assert not any(space.contains(params) for params in ({}, {"x": inside[0], "y": 1}))


def test_a_range_of_floats_is_another_space_than_the_same_range_of_integers(desk: Desk) -> None:
    text = RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {min: 0.0, max: 4.0}")
    sid = desk.sweep(text)
    whole = text.replace("x: {min: 0.0, max: 4.0}", "x: {min: 0, max: 4}")
    assert desk.into(sid, whole, "--count", "6")["added"] == 2
    kinds = [type(x) for x, _ in desk.trials(sid)]
    assert kinds == [float] * 4 + [int] * 2


@pytest.mark.parametrize("more", ["", "replicates: 2\n"])
def test_a_seed_that_is_edited_is_not_dropped_in_silence(desk: Desk, more: str) -> None:
    sid = desk.sweep(GRID + more + "seed: 3\n")
    done = desk.put(GRID + more + "seed: 7\n", "--into", sid)
    assert "seed: " in done.stderr
    assert "0 trials" in done.stderr
    done = desk.put(GRID + more + "seed: 3\n", "--into", sid, "--set", "seed=7")
    assert "seed: " in done.stderr
    done = desk.put(GRID + more + "seed: 3\n", "--into", sid)
    assert "seed" not in done.stderr


def test_replicates_come_with_their_set_and_keep_their_places(desk: Desk) -> None:
    text = GRID + "  seed: {value: 7}\nreplicates: 2\n"
    sid = desk.sweep(text)
    done = desk.into(sid, text.replace("[1, 2, 3]", "[3, 4]"))
    assert (done["added"], done["there"]) == (2, 2)
    (desk.folder / "sweep.yaml").write_text(text.replace("[1, 2, 3]", "[3, 4, 5]"))
    said = desk.hpq("plan", "sweep.yaml", "--into", sid).stderr
    assert said.count("x=5") == 1 and "+ seed=7 x=5  ×2 seeds\n" in said
    trials = list(desk.reader.trials.all(sid))
    assert [(t.params["x"], t.params["seed"], t.state.value) for t in trials[4:]] == [
        (3, 7, "queued"), (3, 8, "queued"), (4, 7, "queued"), (4, 8, "queued"),
    ]  # fmt: skip
    fewer = desk.put(text.replace("replicates: 2", "replicates: 3"), "--into", sid)
    assert fewer.returncode == 2 and "replicates" in fewer.stderr


def test_a_condition_turns_one_trial_into_another(desk: Desk) -> None:
    text = GRID + "  y: {values: [1, 2]}\n"
    sid = desk.sweep(text)
    edited = text + "when: {y: {x: [1, 2]}}\nexclude: [{x: 1, y: 2}]\n"
    done = desk.into(sid, edited)
    assert (done["added"], done["there"]) == (1, 3)
    assert [dict(t.params) for t in desk.reader.trials.all(sid)][6:] == [{"x": 3}]


def test_plan_shows_what_enqueue_into_adds(desk: Desk) -> None:
    sid = desk.sweep(GRID)
    (desk.folder / "sweep.yaml").write_text(GRID.replace("[1, 2, 3]", "[1, 2, 9]"))
    said = desk.hpq("plan", "sweep.yaml", "--into", sid)
    assert said.returncode == 0 and said.stdout == ""
    assert "1 trial " in said.stderr and "+ x=9" in said.stderr
    data = json.loads(desk.hpq("plan", "sweep.yaml", "--into", sid, "--json").stdout)
    assert data == {"sweep": sid, "there": 2, "add": [{"x": 9}]}
    assert len(desk.trials(sid)) == 3
    assert desk.into(sid, (desk.folder / "sweep.yaml").read_text())["added"] == 1


def test_a_sweep_whose_sets_are_made_while_it_runs_grows_by_its_cap(desk: Desk) -> None:
    endless = RANDOM.replace("run_cap: 4\n", "")
    sid = desk.sweep(endless)
    assert desk.reader.sweeps.get(sid).counts.is_open_ended
    assert desk.hpq("set", sid, "run_cap=3").returncode == 0
    assert desk.reader.sweeps.get(sid).counts.planned == 3
    done = desk.put(endless, "--into", sid)
    assert done.returncode == 2 and f"hpq set {sid} run_cap=N" in done.stderr
    assert "--reuse" in done.stderr
    assert desk.hpq("set", sid, "run_cap=0").returncode == 0
    assert desk.reader.sweeps.get(sid).counts.is_open_ended


def test_growth_that_breaks_off_leaves_nothing(
    writer: SweepWriter,
    redis: Redis,
    keys: Keys,
    reader: StoreReader,
    sweep_of: Callable[..., SweepView],
) -> None:
    """F28: an enqueue into a sweep that dies between its rows, or whose rows expire."""
    sid = sweep_of(1).id
    rows = [encode_new(ParameterSet(x=x), 0) for x in range(2, 1000)]

    def die(count: int) -> None:
        (staged,) = redis.keys("*staged")
        assert redis.ttl(staged) > 0 and reader.sweeps.get(sid).counts.total == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.append(sid, rows, "{}", varying=[], digest="d", progress=die)
    with raises("rows-expired"):
        writer.append(
            sid, rows, "{}", varying=[], digest="d",
            progress=lambda count: redis.delete(*redis.keys("*staged")),
        )  # fmt: skip
    assert redis.keys("*staged") == [] and reader.sweeps.get(sid).counts.total == 1
    assert audit_sweep(reader, sid).violations == ()
