"""`enqueue --into`: only what is new, once, at once; what is left out is shown and cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from hpq.errors import UserError
from hpq.growing import Growing
from hpq.identity import identity
from hpq.keys import Keys
from hpq.outcome import Grown, Outcome
from hpq.search.space import Space
from hpq.store import Store
from hpq.sweep import Sweep, SweepState
from hpq.trial import Claim, TrialState
from hpq.view import View
from producer.auditing import hold_audit
from producer.inside import is_inside
from producer.look.event_lines import event_line
from producer.sweepfile import parameters
from producer.sweepfile.problems import Places, Problems
from tests.desk import Desk

Take = Callable[[], Claim | None]
GRID = (
    "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters:\n  x: {values: [1, 2, 3]}\n"
)
RANDOM = (
    "program: train.py\nmethod: random\nrun_cap: 4\nmetric: {name: loss}\n"
    "parameters:\n  x: {min: 0.0, max: 1.0}\n  y: {min: 0.0, max: 1.0}\n"
)


def finish(store: Store, claim: Claim | None) -> None:
    assert claim is not None
    outcome = Outcome(state=TrialState.FINISHED, objective=0.5, step=3)
    store.commit(claim, outcome, 0)


def test_an_edited_grid_adds_what_is_new_and_cancels_what_it_leaves_out(
    desk: Desk, store: Store, take: Take, redis: Redis, keys: Keys
) -> None:
    sid = desk.sweep(GRID)
    finish(store, take())
    edited = GRID.replace("[1, 2, 3]", "[2, 4, 5]")
    refused = desk.put(edited, "--into", sid)
    assert refused.returncode == 2 and "say --yes" in refused.stderr
    assert "+ x=4" in refused.stderr and "- #3 x=3" in refused.stderr and "#1" not in refused.stderr
    assert len(desk.trials(sid)) == 3
    done = desk.into(sid, edited, "--yes")
    assert (done["added"], done["cancelled"], done["there"]) == (2, 1, 1)
    assert desk.trials(sid) == [
        (1, "finished"), (2, "queued"), (3, "cancelled"), (4, "queued"), (5, "queued"),
    ]  # fmt: skip
    assert redis.llen(keys.demand("default")) == 3
    lines = [event_line(e, None, desk.view.sweep(sid)) for e in desk.view.events(sid)]
    assert f"{sid}: 2 more trials queued" in lines and "trials cancelled: 1" in lines
    again = desk.into(sid, edited)
    assert (again["added"], again["cancelled"]) == (0, 0)
    sweep = desk.view.sweep(sid)
    assert [(f.added, f.cancelled) for f in sweep.files] == [(2, 1)]
    assert sweep.files[0].origin["text"] == edited and sweep.provenance["text"] == GRID
    # The edited file by itself is this sweep, too, and not another.
    same = desk.put(edited)
    assert same.stdout.strip() == sid and "nothing was added" in same.stderr
    assert hold_audit(desk.view, sid).violations == ()
    assert [key for key in redis.keys("*") if b"staged" in key] == []
    store.remove(sid)
    assert redis.hlen(keys.digests) == 0


def test_what_is_left_out_stays_where_one_says_leave(desk: Desk) -> None:
    sid = desk.sweep(GRID)
    done = desk.into(sid, GRID.replace("[1, 2, 3]", "[3, 4]"), "--leave")
    assert (done["added"], done["cancelled"]) == (1, 0)
    assert [state for _, state in desk.trials(sid)] == ["queued"] * 4


def test_random_goes_on_with_its_sequence_up_to_the_new_count(
    desk: Desk, store: Store, take: Take
) -> None:
    sid = desk.sweep(RANDOM)
    whole = desk.sweep(RANDOM, "--count", "6", "--new", "--name", "whole")
    assert desk.into(sid, RANDOM, "--count", "6")["added"] == 2
    assert desk.trials(sid) == desk.trials(whole)
    fewer = desk.put(RANDOM, "--into", sid, "--count", "3")
    assert fewer.returncode == 0 and "6 trials stay, and the file asks for 3" in fewer.stderr


def test_random_in_a_narrower_space_keeps_what_fits_and_draws_the_rest_anew(desk: Desk) -> None:
    sid = desk.sweep(RANDOM)
    before = [dict(t.params) for t in desk.view.all_trials(sid)]
    narrow = RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {min: 0.0, max: 0.5}")
    done = desk.into(sid, narrow, "--yes")
    stay = [p for p in before if p["x"] <= 0.5]
    assert 0 < len(stay) < 4
    assert (done["added"], done["cancelled"]) == (4 - len(stay), 4 - len(stay))
    trials = list(desk.view.all_trials(sid))
    queued = [dict(t.params) for t in trials if t.state is TrialState.QUEUED]
    assert len(queued) == 4 and all(p["x"] <= 0.5 for p in queued) and queued[: len(stay)] == stay
    assert {p["y"] for p in queued[len(stay) :]}.isdisjoint(p["y"] for p in before)


def test_a_list_adds_its_new_sets(desk: Desk) -> None:
    sets = ["- hyperparam_set: {x: 1}", "- hyperparam_set: {x: 2}", "- hyperparam_set: {x: 3}"]
    words = ("--set", "program=train.py")
    sid = desk.sweep("\n".join(sets[:2]) + "\n", *words)
    done = desk.into(sid, "\n".join(sets[1:]) + "\n", "--yes", *words)
    assert (done["added"], done["cancelled"], done["there"]) == (1, 1, 1)
    assert desk.trials(sid) == [(1, "cancelled"), (2, "queued"), (3, "queued")]


@pytest.mark.parametrize("before", ["", "pause", "finished"])
def test_a_sweep_goes_on_as_it_stands(desk: Desk, store: Store, take: Take, before: str) -> None:
    sid = desk.sweep(GRID)
    if before == "finished":
        while claim := take():
            finish(store, claim)
    elif before:
        store.control(sid, before)
    assert desk.into(sid, GRID.replace("3]", "3, 4]"))["added"] == 1
    state = desk.view.sweep(sid).state
    assert state is (SweepState.PAUSED if before == "pause" else SweepState.RUNNING)
    claim = take()
    assert (claim is None) == (before == "pause")
    assert before != "finished" or (claim is not None and claim.params == {"x": 4})
    assert hold_audit(desk.view, sid).violations == ()


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_sweep_that_was_ended_takes_nothing(desk: Desk, store: Store, verb: str) -> None:
    sid = desk.sweep(GRID)
    store.control(sid, verb)
    done = desk.put(GRID.replace("3]", "3, 4]"), "--into", sid)
    assert done.returncode == 2 and "is over" in done.stderr and len(desk.trials(sid)) == 3


def test_a_file_of_another_code_metric_or_owner_is_no_growth(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = desk.sweep(GRID)
    for text, said in (
        (GRID.replace("loss}", "acc}"), "the metric is another"),
        (
            GRID.replace("method: grid", "command: [a]\nmethod: grid"),
            "the command, or what it is given, is another",
        ),
    ):
        done = desk.put(text, "--into", sid)
        assert done.returncode == 2 and said in done.stderr
    (desk.folder / "train.py").write_text("print('loss=2')\n")
    done = desk.put(GRID, "--into", sid)
    assert done.returncode == 2 and "the code was edited since" in done.stderr
    monkeypatch.setenv("HPQ_USER", "another")
    done = desk.put(GRID, "--into", sid)
    assert done.returncode == 4 and "--force" in done.stderr
    assert len(desk.trials(sid)) == 3


def test_growth_sent_twice_or_by_two_adds_once(
    growing: Growing, redis: Redis, keys: Keys, view: View, sweep_of: Callable[..., Sweep]
) -> None:
    sid = sweep_of(2).id
    rows = [('{"x":2}', identity({"x": 2})), ('{"x":3}', identity({"x": 3}))]
    file = '{"digest":"d","spec":{},"origin":{}}'
    first = growing.grow(sid, rows, file, varying=["x"], digest="d")
    assert first == Grown(added=1, cancelled=0)  # x=2 is there
    assert growing.grow(sid, rows, file, varying=["x"], digest="d", cancel=[1, 3]) == Grown(
        added=0, cancelled=2
    )
    (word, rest) = growing._scripts.run(
        "grow", sid, view.sweep(sid).files[0] and _stage(redis, keys, sid), 2, file, "[]", "d"
    )
    assert (word, rest[2:]) in (("ok", [1, 0]), ("ok", [0, 2]))
    assert [t.params["x"] for t in view.all_trials(sid)] == [1, 2, 3]
    assert hold_audit(view, sid).violations == ()


def _stage(redis: Redis, keys: Keys, sid: str) -> str:
    row: Any = redis.hgetall(keys.sweep(sid))
    return next(f for f in row if f.startswith(b"file:")).decode().removeprefix("file:")


def space_of(entry: Any) -> Space:
    out = Problems(Places(file="s.yaml"))
    space = parameters.read({"x": entry}, (), out)
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
    assert [v for v in inside if not is_inside({"x": v}, space)] == []
    assert [v for v in outside if is_inside({"x": v}, space)] == []
    assert not any(is_inside(params, space) for params in ({}, {"x": inside[0], "y": 1}))


def test_a_grid_steps_from_its_lower_end_and_draws_are_multiples() -> None:
    space = space_of({"distribution": "q_uniform", "min": 1, "max": 9, "q": 4})
    assert [x for x in range(-4, 14) if is_inside({"x": x}, space, is_grid=True)] == [1, 5]


def test_waiting_trials_that_an_integer_space_could_not_have_given_are_cancelled(
    desk: Desk,
) -> None:
    """A range from 0.0 to 4.0 is another space than one from 0 to 4."""
    text = RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {min: 0.0, max: 4.0}")
    sid = desk.sweep(text)
    before = [x for x, _ in desk.trials(sid)]
    whole = text.replace("x: {min: 0.0, max: 4.0}", "x: {min: 0, max: 4}")
    done = desk.into(sid, whole, "--yes")
    assert (done["added"], done["cancelled"]) == (4, 4)
    left = [x for x, state in desk.trials(sid) if state == "queued"]
    assert len(left) == 4 and all(isinstance(x, int) for x in left)
    assert not any(isinstance(x, int) for x in before)
    # More of the same count: it is the space that is another, though 0 == 0.0.
    other = desk.sweep(text, "--new")
    (desk.folder / "sweep.yaml").write_text(whole)
    said = desk.hpq("plan", "sweep.yaml", "--into", other, "--count", "6").stderr
    assert "another space or seed" in said


@pytest.mark.parametrize("more", ["", "replicates: 2\n"])
def test_a_seed_that_is_edited_is_not_dropped_in_silence(desk: Desk, more: str) -> None:
    sid = desk.sweep(GRID + more + "seed: 3\n")
    done = desk.put(GRID + more + "seed: 7\n", "--into", sid)
    assert "seed: stays 3, for new trials, too; --into does not change it" in done.stderr
    assert "nothing new in the file" in done.stderr
    done = desk.put(GRID + more + "seed: 3\n", "--into", sid, "--seed", "7")
    assert "seed: stays 3" in done.stderr
    done = desk.put(GRID + more + "seed: 3\n", "--into", sid)
    assert "seed" not in done.stderr


def test_replicates_come_with_their_set_and_keep_their_places(desk: Desk) -> None:
    text = GRID + "  seed: {value: 7}\nreplicates: 2\n"
    sid = desk.sweep(text)
    done = desk.into(sid, text.replace("[1, 2, 3]", "[3, 4]"), "--yes")
    assert (done["added"], done["cancelled"], done["there"]) == (2, 4, 2)
    (desk.folder / "sweep.yaml").write_text(text.replace("[1, 2, 3]", "[3, 4, 5]"))
    said = desk.hpq("plan", "sweep.yaml", "--into", sid).stderr
    assert said.count("x=5") == 1 and "+ seed=7 x=5  ×2 seeds\n" in said
    trials = list(desk.view.all_trials(sid))
    assert [(t.params["x"], t.params["seed"], t.state.value) for t in trials[4:]] == [
        (3, 7, "queued"), (3, 8, "queued"), (4, 7, "queued"), (4, 8, "queued"),
    ]  # fmt: skip
    fewer = desk.put(text.replace("replicates: 2", "replicates: 3"), "--into", sid)
    assert fewer.returncode == 2 and "replicates" in fewer.stderr


def test_conditions_and_exclusions_say_what_is_left_out(desk: Desk) -> None:
    text = GRID + "  y: {values: [1, 2]}\n"
    sid = desk.sweep(text)
    edited = text + "when: {y: {x: [1, 2]}}\nexclude: [{x: 1, y: 2}]\n"
    done = desk.into(sid, edited, "--yes")
    sets = [(dict(t.params), t.state.value) for t in desk.view.all_trials(sid)]
    left = [params for params, state in sets if state == "queued"]
    assert (done["added"], done["cancelled"], done["there"]) == (1, 3, 3)
    assert left == [{"x": 1, "y": 1}, {"x": 2, "y": 1}, {"x": 2, "y": 2}, {"x": 3}]


def test_what_enqueue_into_would_do_is_shown_by_plan(desk: Desk) -> None:
    sid = desk.sweep(GRID)
    (desk.folder / "sweep.yaml").write_text(GRID.replace("[1, 2, 3]", "[1, 2, 9]"))
    said = desk.hpq("plan", "sweep.yaml", "--into", sid)
    assert said.returncode == 0 and "+ x=9" in said.stderr and "- #3 x=3" in said.stderr
    assert desk.trials(sid) == [(1, "queued"), (2, "queued"), (3, "queued")]


def test_a_sweep_whose_sets_are_made_while_it_runs_grows_by_its_cap(desk: Desk) -> None:
    endless = RANDOM.replace("run_cap: 4\n", "")
    sid = desk.sweep(endless)
    assert desk.view.sweep(sid).counts.is_open_ended
    assert desk.hpq("set", sid, "run_cap=3").returncode == 0
    assert desk.view.sweep(sid).counts.planned == 3
    done = desk.put(endless, "--into", sid)
    assert done.returncode == 2 and f"hpq set {sid} run_cap=N" in done.stderr
    assert "a new sweep, which --reuse begins with these results" in done.stderr
    assert desk.hpq("set", sid, "run_cap=0").returncode == 0
    assert desk.view.sweep(sid).counts.is_open_ended


def test_growth_that_breaks_off_leaves_nothing(
    growing: Growing, redis: Redis, keys: Keys, view: View, sweep_of: Callable[..., Sweep]
) -> None:
    """F28: an enqueue into a sweep that dies between its rows, or whose rows expire."""
    sid = sweep_of(1).id
    rows = [(f'{{"x":{n}}}', identity({"x": n})) for n in range(2, 1000)]

    def die(count: int) -> None:
        (staged,) = redis.keys("*staged")
        assert redis.ttl(staged) > 0 and view.sweep(sid).counts.total == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        growing.grow(sid, rows, "{}", varying=[], digest="d", progress=die)
    with pytest.raises(UserError, match="do it again"):
        growing.grow(
            sid, rows, "{}", varying=[], digest="d",
            progress=lambda count: redis.delete(*redis.keys("*staged")),
        )  # fmt: skip
    assert redis.keys("*staged") == [] and view.sweep(sid).counts.total == 1
    assert hold_audit(view, sid).violations == ()
