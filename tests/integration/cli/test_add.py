"""`hpq add` adds trials to a sweep that is there, all in one step; nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from redis import Redis

import hpq
from hpq.domain.attempt import Nothing
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import Claim, TrialId, TrialView
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trial_reader import TrialReader
from hpq.store.trials import TrialStore
from hpq.store.wire.attempt import open_claim
from hpq_ops.audit.sweep_audit import audit_sweep
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
BAYES = RANDOM.replace("random", "bayes")
WIDE = (
    "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters:\n"
    "  x: {values: [1, 2]}\n  opt: {parameters: {name: {values: [adam, sgd]}}}\n"
    "  k: {value: 5}\nexclude: [{x: 2, opt.name: sgd}]\nderive: {z: x * k}\n"
)
LIST = "- hyperparam_set: {x: 1}\n- hyperparam_set: {x: 2}\n"
PROGRAM = ("--set", "program=train.py")


def params_of(desk: Desk, sid: str) -> list[dict[str, object]]:
    return [dict(trial.params) for trial in desk.reader.trials.all(sid)]


@pytest.mark.parametrize("text", [RANDOM, BAYES])
def test_a_set_is_added_once_and_named_with_its_result_from_then_on(
    desk: Desk, text: str, store: TrialStore, take: Take, redis: Redis, keys: Keys
) -> None:
    sid = desk.sweep(text)
    before = desk.reader.sweeps.get(sid).counts
    done = desk.hpq("add", sid, "x=0.5", "y=0.25")
    number = before.total + 1
    assert done.returncode == 0 and done.stdout == f"{sid}/{number}\n", done.stderr
    after = desk.reader.sweeps.get(sid).counts
    assert (after.total, after.planned) == (number, before.planned + 1)
    assert redis.llen(keys.demand("default")) == after.planned
    while (claim := take()).trial.number != number:
        end(store, claim, 0.5)
    assert open_claim(claim).params == {"x": 0.5, "y": 0.25}
    end(store, claim, 0.125)
    found = desk.add(sid, "y=0.25", "x=0.5")
    assert found["added"] == []
    assert found["exists"] == [
        {"trial": number, "state": "finished", "objective": 0.125, "params": {"x": 0.5, "y": 0.25}}
    ]
    said = desk.hpq("add", sid, "y=0.25", "x=0.5")
    assert said.returncode == 0 and said.stdout == ""
    assert f"#{number} " in said.stderr and "loss=0.125" in said.stderr
    assert desk.add(sid, "x=0.5", "y=0.25", "--again")["added"] == [number + 1]
    assert desk.add(sid, "x=0.5", "y=0.25", "--again")["added"] == [number + 2]
    assert audit_sweep(desk.reader, sid).violations == ()


def test_constants_and_derived_parameters_are_completed_and_nested_names_have_dots(
    desk: Desk,
) -> None:
    sid = desk.sweep(WIDE)
    assert len(params_of(desk, sid)) == 3
    assert desk.add(sid, "x=1", "opt.name=sgd")["exists"][0]["trial"] == 3
    found = desk.add(sid, "x=2", "opt.name=sgd", "--outside")
    assert found["outside"] == found["added"] == [4]
    found = desk.add(sid, "x=7", "opt.name=adam", "k=6", "--outside")
    assert found["added"] == [5]
    assert params_of(desk, sid)[3:] == [
        {"x": 2, "opt": {"name": "sgd"}, "k": 5, "z": 10},
        {"x": 7, "opt": {"name": "adam"}, "k": 6, "z": 42},
    ]
    sweep = desk.reader.sweeps.get(sid)
    assert sweep.outside == {4, 5} and "k" in sweep.varying
    assert desk.add(sid, "x=7", "opt.name=adam", "k=6", "--outside")["outside"] == []
    assert "outside the space" in desk.hpq("show", f"{sid}/5").stdout
    assert "outside the space" not in desk.hpq("show", f"{sid}/1").stdout


BAD = {
    "an unknown name": (("x=1", "opt.name=sgd", "lr=1", "--outside"), "unknown-parameter"),
    "another type": (("x=one", "opt.name=sgd", "--outside"), "outside-space"),
    "a truth value": (("x=true", "opt.name=sgd", "--outside"), "outside-space"),
    "outside": (("x=3", "opt.name=sgd"), "outside-space"),
    "excluded": (("x=2", "opt.name=sgd"), "condition-unmet"),
    "one is missing": (("x=1",), "missing-parameter"),
    "not finite": (("x=.inf", "opt.name=sgd", "--outside"), "invalid-value"),
    "derived": (("x=1", "opt.name=sgd", "z=5"), "conflicting-keys"),
    "twice": (("x=1", "x=2", "opt.name=sgd"), "usage"),
    "no value": (("x=1", "opt.name"), "usage"),
    "nothing": ((), "usage"),
    "two sources": (("x=1", "--count", "3"), "usage"),
    "no such file": (("--file", "no.yaml"), "file-not-found"),
    "too many draws": (("--count", "10001"), "too-many-sets"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_the_space_does_not_have_is_refused_and_nothing_is_added(
    desk: Desk, case: str
) -> None:
    words, code = BAD[case]
    sid = desk.sweep(WIDE)
    refused(desk.hpq("add", sid, *words), code)
    error = json.loads(desk.hpq("add", sid, *words, "-o", "json").stdout)["error"]
    assert error["code"] == code
    assert len(params_of(desk, sid)) == 3


FILES = {
    "a list": ("- {x: 0.5, y: 0.5}\n- {x: 0.25, y: 0.5}\n", 2),
    "entries": ("- hyperparam_set: {x: 0.5, y: 0.5}\n", 1),
    "a grid": ("x: [0.25, 0.5]\ny: [0.5, 0.75, 1.0]\n", 6),
    "a grid with one value": ("x: [0.25, 0.5]\ny: 0.5\n", 2),
    "a set that comes twice": ("- {x: 0.5, y: 0.5}\n- {y: 0.5, x: 0.5}\n", 1),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("text", [RANDOM, BAYES])
def test_a_file_has_a_list_of_sets_or_a_grid(desk: Desk, kind: str, text: str) -> None:
    sid = desk.sweep(text)
    content, count = FILES[kind]
    (desk.folder / "points.yaml").write_text(content)
    total = desk.reader.sweeps.get(sid).counts.total
    assert len(desk.add(sid, "--file", "points.yaml")["added"]) == count
    again = desk.add(sid, "--file", "points.yaml")
    assert (again["added"], len(again["exists"])) == ([], count)
    assert len(params_of(desk, sid)) == total + count


BAD_FILES = {
    "one of two is wrong": ("- {x: 0.5, y: 0.5}\n- {x: 5, y: 0.5}\n", "outside-space"),
    "not a set": ("- {x: 0.5, y: 0.5}\n- 3\n", "invalid-value"),
    "another file": ("password: secret\n", "sweep-file-invalid"),
    "an empty list": ("[]\n", "invalid-value"),
    "too many": (f"x: {[*range(10_001)]}\ny: [0.5]\n", "too-many-sets"),
    "a parameter that the sweep lacks": (GRID.replace("x:", "lr:"), "unknown-parameter"),
    "draws without a number": (RANDOM, "usage"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_wrong_adds_nothing(desk: Desk, kind: str) -> None:
    sid = desk.sweep(RANDOM)
    content, code = BAD_FILES[kind]
    (desk.folder / "points.yaml").write_text(content)
    done = desk.hpq("add", sid, "--file", "points.yaml")
    refused(done, code)
    assert "secret" not in done.stderr and len(params_of(desk, sid)) == 4


def test_ten_thousand_sets_are_added_in_one_step(desk: Desk) -> None:
    sid = desk.sweep(RANDOM)
    assert len(desk.add(sid, "--count", "10000")["added"]) == 10_000
    assert [e.what for e in desk.reader.events.read(sid)].count("added") == 1
    assert audit_sweep(desk.reader, sid).violations == ()


def test_count_continues_the_sequence_of_the_sweep_whatever_was_added(desk: Desk) -> None:
    sid = desk.sweep(RANDOM)
    whole = desk.sweep(RANDOM, "--count", "7", "--new", "--name", "whole")
    wanted = params_of(desk, whole)
    fifth = [f"{name}={value}" for name, value in wanted[4].items()]
    desk.add(sid, "x=0.5", "y=0.5")
    desk.add(sid, *fifth)
    assert len(desk.add(sid, "--count", "2")["added"]) == 2
    assert params_of(desk, sid) == [*wanted[:4], {"x": 0.5, "y": 0.5}, *wanted[4:]]


def test_count_of_an_edited_file_draws_from_its_ranges_and_keeps_the_older_on_record(
    desk: Desk, redis: Redis, keys: Keys, control: SweepControl
) -> None:
    sid = desk.sweep(RANDOM)
    before = params_of(desk, sid)
    narrow = RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {min: 0.5, max: 2.0}")
    (desk.folder / "other.yaml").write_text(narrow)
    (desk.folder / "helper.py").write_text("")  # the code of the sweep is frozen
    found = desk.add(sid, "--file", "other.yaml", "--count", "3")
    assert found["added"] == [5, 6, 7]
    trials = params_of(desk, sid)
    assert trials[:4] == before and all(p["x"] >= 0.5 for p in trials[4:])
    assert {p["y"] for p in trials[4:]}.isdisjoint(p["y"] for p in before)
    assert found["outside"] == [n for n in (5, 6, 7) if trials[n - 1]["x"] > 1]
    sweep = desk.reader.sweeps.get(sid)
    assert [(file.added, file.text) for file in sweep.files] == [(3, narrow)]
    assert sweep.provenance["text"] == RANDOM
    assert "max: 2.0" in desk.hpq("show", sid).stdout
    other = desk.sweep(narrow)  # by itself the file is another sweep
    assert other != sid
    for one in (sid, other):
        control.remove(one)
    assert redis.hlen(keys.digests) == 0


def test_the_points_of_a_file_come_before_what_is_drawn_from_it(desk: Desk) -> None:
    sid = desk.sweep(RANDOM)
    points = [{"x": 0.5, "y": 0.5}, {"x": 1.5, "y": 0.25}]
    text = RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {min: 0.0, max: 2.0}")
    (desk.folder / "other.yaml").write_text(f"{text}points: {points}\n")
    assert desk.add(sid, "--file", "other.yaml", "--count", "3")["added"] == [5, 6, 7]
    assert params_of(desk, sid)[4:6] == points


def test_an_infinite_value_of_a_normal_parameter_is_refused(desk: Desk) -> None:
    sid = desk.sweep(RANDOM.replace("x: {min: 0.0, max: 1.0}", "x: {distribution: normal}"))
    for value in (".inf", ".nan"):
        refused(desk.hpq("add", sid, f"x={value}", "y=0.5"), "invalid-value")


def test_an_edited_grid_adds_what_is_new_and_leaves_all_other_trials_as_they_are(
    desk: Desk, store: TrialStore, take: Take
) -> None:
    sid = desk.sweep(GRID)
    for value in (0.9, 0.8, 0.1):
        end(store, take(), value)
    first = judge_winner(desk.reader, desk.reader.sweeps.get(sid))
    assert first is not None and list(first.edges) == ["x"]
    (desk.folder / "other.yaml").write_text(GRID.replace("[1, 2, 3]", "[2, 4, 5]"))
    found = desk.add(sid, "--file", "other.yaml")
    assert (found["added"], [one["trial"] for one in found["exists"]]) == ([4, 5], [2])
    assert desk.trials(sid) == [
        (1, "finished"), (2, "finished"), (3, "finished"), (4, "queued"), (5, "queued"),
    ]  # fmt: skip
    for _ in range(2):
        end(store, take(), 0.5)
    sweep = desk.reader.sweeps.get(sid)
    found = judge_winner(desk.reader, sweep)
    assert found is not None and found.trial == 3 and found.edges == {}
    every = list(desk.reader.trials.all(sid))
    assert judge_winner(desk.reader, sweep, desk.reader.ranking.best(sweep, 2), every) == found


def test_a_list_takes_any_value_of_its_parameters(desk: Desk) -> None:
    sid = desk.sweep(LIST, *PROGRAM)
    assert desk.add(sid, "x=3")["added"] == [3]
    (desk.folder / "more.yaml").write_text(LIST + "- hyperparam_set: {x: 4}\n")
    found = desk.add(sid, "--file", "more.yaml")
    assert (found["added"], len(found["exists"])) == ([4], 2)
    refused(desk.hpq("add", sid, "lr=3"), "unknown-parameter")
    refused(desk.hpq("add", sid, "--count", "3"), "sets-listed")
    assert desk.trials(sid) == [(x, "queued") for x in (1, 2, 3, 4)]


def test_a_set_of_a_list_has_every_parameter_that_all_its_sets_have_unless_outside(
    desk: Desk,
) -> None:
    text = "- hyperparam_set: {x: 1, lr: 0.1}\n- hyperparam_set: {x: 2, lr: 0.2, wd: 0.5}\n"
    sid = desk.sweep(text, *PROGRAM)
    refused(desk.hpq("add", sid, "x=3"), "missing-parameter", "lr")
    (desk.folder / "more.yaml").write_text("- {x: 3, lr: 0.3}\n- {lr: 0.4}\n")
    refused(desk.hpq("add", sid, "--file", "more.yaml"), "missing-parameter", "more.yaml:2", "[1]")
    assert len(params_of(desk, sid)) == 2
    assert desk.add(sid, "x=3", "lr=0.3")["outside"] == []
    done = desk.add(sid, "x=3", "--outside")
    assert (done["added"], done["outside"]) == ([4], [4])
    assert params_of(desk, sid)[2:] == [{"x": 3, "lr": 0.3}, {"x": 3}]


def test_errors_of_words_for_a_list_name_the_word_alone(desk: Desk) -> None:
    sid = desk.sweep("- hyperparam_set: {epochs: 1, width: 8}\n", "--set", "trainer=cifar10")
    for word, code in (("widht=8", "unknown-parameter"), ("width=none", "invalid-value")):
        done = desk.hpq("add", sid, "epochs=2", word)
        refused(done, code, word)
        assert "[0]" not in done.stderr and "hyperparam_set" not in done.stderr


@pytest.mark.parametrize("before", ["running", "pause", "finished", "target"])
def test_a_sweep_that_ended_by_itself_opens_again_and_a_paused_one_stays_so(
    desk: Desk, store: TrialStore, take: Take, before: str, control: SweepControl
) -> None:
    text = GRID.replace("{name: loss}", "{name: loss, target: 0.2}")
    sid = desk.sweep(text)
    if before in ("finished", "target"):
        while isinstance(claim := take(), Claim):
            end(store, claim, 0.5 if before == "finished" else 0.1)
    elif before == "pause":
        control.pause(sid)
    assert desk.add(sid, "x=4", "--outside")["added"] == [4]
    sweep = desk.reader.sweeps.get(sid)
    assert sweep.state is (SweepState.PAUSED if before == "pause" else SweepState.RUNNING)
    assert sweep.reached is None
    claim = take()
    assert (claim == Nothing()) == (before == "pause")
    if before in ("finished", "target"):
        assert isinstance(claim, Claim) and open_claim(claim).params == {"x": 4}
    assert audit_sweep(desk.reader, sid).violations == ()


def test_a_target_that_was_reached_stops_no_added_trial(
    desk: Desk, store: TrialStore, take: Take
) -> None:
    sid = desk.sweep(GRID.replace("{name: loss}", "{name: loss, target: 0.2}"))
    first, second = take(), take()
    assert isinstance(first, Claim) and isinstance(second, Claim)
    end(store, first, 0.1)
    assert desk.reader.sweeps.get(sid).reached is not None
    assert desk.add(sid, "x=4", "--outside")["added"] == [4]
    end(store, second, 0.05)  # it ran when the target was reached
    assert desk.reader.sweeps.get(sid).state is SweepState.RUNNING
    claim = take()
    assert isinstance(claim, Claim) and open_claim(claim).params == {"x": 4}
    assert audit_sweep(desk.reader, sid).violations == ()


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_sweep_that_a_person_ended_takes_nothing(
    desk: Desk, verb: str, control: SweepControl
) -> None:
    sid = desk.sweep(GRID)
    getattr(control, verb)(sid)
    refused(desk.hpq("add", sid, "x=4", "--outside"), "sweep-over")
    assert len(desk.trials(sid)) == 3


def test_a_sweep_without_budget_of_another_key_or_owner_or_removed_takes_nothing(
    desk: Desk, redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch, control: SweepControl
) -> None:
    sid = desk.sweep(GRID + "budget: {gpu_hours: 1}\n")
    redis.hset(keys.sweep(sid), "spent_ms", 3_600_000)
    refused(desk.hpq("add", sid, "x=4", "--outside"), "budget-spent", "budget.gpu_hours")
    assert len(desk.trials(sid)) == 3
    sid = desk.sweep(GRID)
    with monkeypatch.context() as patch:
        patch.setenv("HPQ_CODE_KEY", "another key of a colleague")
        refused(desk.hpq("add", sid, "x=4", "--outside"), "code-key-differs")
    with monkeypatch.context() as patch:
        patch.setenv("HPQ_USER", "another")
        refused(desk.hpq("add", sid, "x=4", "--outside"), "sweep-of-another", "--force", exit=4)
        assert desk.add(sid, "x=4", "--outside", "--force")["added"] == [4]
    assert len(desk.trials(sid)) == 4
    control.remove(sid)
    refused(desk.hpq("add", sid, "x=4"), "sweep-not-found", exit=4)


def test_replicates_come_with_their_set_and_keep_their_places(desk: Desk) -> None:
    sid = desk.sweep(GRID + "  seed: {value: 7}\nreplicates: 2\n")
    assert desk.add(sid, "x=4", "--outside")["added"] == [7, 8]
    assert desk.add(sid, "x=1", "--again")["added"] == [9, 10]
    trials = params_of(desk, sid)
    assert trials[6:] == [
        {"x": 4, "seed": 7}, {"x": 4, "seed": 8}, {"x": 1, "seed": 7}, {"x": 1, "seed": 8},
    ]  # fmt: skip
    refused(desk.hpq("add", sid, "--count", "1"), "usage", "2")
    drawn = desk.sweep(RANDOM + "replicates: 2\n")
    found = desk.add(drawn, "--count", "3")
    assert (found["added"], len(found["notes"]), found["state"]) == ([5, 6], 1, "waiting")
    assert desk.add(drawn, "--count", "4")["notes"] == []
    assert "(waiting)" in desk.hpq("add", drawn, "--count", "2").stderr
    assert audit_sweep(desk.reader, sid).violations == ()


def test_a_row_that_redis_changed_gives_no_parameter_to_a_new_one(
    desk: Desk, redis: Redis, keys: Keys
) -> None:
    sid = desk.sweep(WIDE)
    spec = redis.hget(keys.sweep(sid), "spec")
    redis.hset(keys.sweep(sid), "spec", spec.replace(b'"value":5', b'"value":6'))
    desk.add(sid, "x=2", "opt.name=sgd", "--outside")
    assert params_of(desk, sid)[3]["k"] == 5
    search = redis.hget(keys.sweep(sid), "search")
    redis.hset(keys.sweep(sid), "search", search.replace(b"5", b"6"))
    refused(desk.hpq("add", sid, "x=7", "opt.name=sgd", "--outside"), "code-key-differs")


def test_a_set_whose_trial_was_altered_is_refused_and_nothing_is_added_unless_again(
    desk: Desk, redis: Redis, keys: Keys
) -> None:
    sid = desk.sweep(GRID)
    row = redis.hget(keys.sweep(sid, "params"), 2)
    redis.hset(keys.sweep(sid, "params"), 2, row.replace(b"2}", b"9}"))
    (desk.folder / "more.yaml").write_text("x: [1, 2, 4]\n")
    more = ("add", sid, "--file", "more.yaml", "--outside")
    refused(desk.hpq(*more), "parameters-altered", "--again")
    with raises("parameters-altered"):
        hpq.Sweep(sid).add({"x": 2})
    assert len(params_of(desk, sid)) == 3
    assert desk.add(sid, "x=2", "--again")["added"] == [4]
    found = desk.add(*more[1:])
    assert ([one["trial"] for one in found["exists"]], found["added"]) == ([1, 4], [5])


def test_only_the_trials_of_sets_that_exist_are_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = desk.sweep(GRID.replace("[1, 2, 3]", str(list(range(1, 1001)))))
    read: list[int] = []
    get_many = TrialReader.get_many

    def counted(reader: TrialReader, sid: str, numbers: Sequence[int]) -> list[TrialView]:
        read.extend(numbers)
        return get_many(reader, sid, numbers)

    monkeypatch.setattr(TrialReader, "get_many", counted)
    assert [one["trial"] for one in desk.add(sid, "x=700")["exists"]] == [700]
    assert read == [700]


def test_an_add_sent_twice_or_beside_another_adds_once(
    writer: SweepWriter, redis: Redis, keys: Keys, reader: StoreReader,
    sweep_of: Callable[..., SweepView], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """F28: an add that is sent twice, or beside another."""
    sid = sweep_of(2).id
    sets = [ParameterSet(x=x) for x in (2, 3)]
    scripts = writer._scripts
    run = scripts.run

    def twice(name: str, *words: object, **named: object) -> object:
        first = run(name, *words, **named)
        assert run(name, *words, **named) == first
        return first

    monkeypatch.setattr(scripts, "run", twice)
    done = writer.append(sid, sets)  # x=2 exists
    assert (done.first, done.trials, done.sets) == (3, 1, (ParameterSet(x=3),))
    assert writer.append(sid, sets).trials == 0

    def behind(name: str, *words: object, **named: object) -> object:
        monkeypatch.setattr(scripts, "run", run)
        assert writer.append(sid, [ParameterSet(x=4), ParameterSet(x=5)]).first == 4
        return run(name, *words, **named)

    monkeypatch.setattr(scripts, "run", behind)
    done = writer.append(sid, [ParameterSet(x=5), ParameterSet(x=6)])
    assert (done.first, done.sets) == (6, (ParameterSet(x=6),))
    assert [t.params["x"] for t in reader.trials.all(sid)] == [1, 2, 3, 4, 5, 6]

    def meanwhile(name: str, *words: object, **named: object) -> object:
        monkeypatch.setattr(scripts, "run", run)
        assert writer.append(sid, [ParameterSet(x=7)], again=True, varying=["y"]).trials == 1
        return run(name, *words, **named)

    monkeypatch.setattr(scripts, "run", meanwhile)
    assert writer.append(sid, [ParameterSet(x=7)], again=True, varying=["x"]).first == 8
    assert [t.params["x"] for t in reader.trials.all(sid)] == [1, 2, 3, 4, 5, 6, 7, 7]
    assert {"x", "y"} <= set(reader.sweeps.get(sid).varying)
    assert audit_sweep(reader, sid).violations == ()


def test_an_add_whose_reply_is_lost_adds_once_although_others_add_before_it_is_sent_again(
    writer: SweepWriter, redis: Redis, keys: Keys, reader: StoreReader,
    sweep_of: Callable[..., SweepView], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sid = sweep_of(2).id
    others = iter(range(10, 100))
    run = writer._scripts.run

    def resent(name: str, *words: object, **named: object) -> object:
        monkeypatch.setattr(writer._scripts, "run", run)
        run(name, *words, **named)  # its reply is lost
        for _ in range(10):
            writer.append(sid, [ParameterSet(x=next(others))])
        return run(name, *words, **named)

    monkeypatch.setattr(writer._scripts, "run", resent)
    done = writer.append(sid, [ParameterSet(x=1), ParameterSet(x=2)], again=True)
    assert (done.first, done.trials) == (3, 2)
    monkeypatch.setattr(writer._scripts, "run", resent)
    done = writer.append(sid, [ParameterSet(x=3), ParameterSet(x=4)], whole=True)
    assert (done.first, done.trials) == (15, 2)
    xs = [t.params["x"] for t in reader.trials.all(sid)]
    assert xs == [1, 2, 1, 2, *range(10, 20), 3, 4, *range(20, 30)]
    for x in others:
        writer.append(sid, [ParameterSet(x=x)])
    assert redis.hstrlen(keys.sweep(sid), "last_added") < 500
    assert audit_sweep(reader, sid).violations == ()


def test_an_add_that_is_always_behind_gives_up_and_says_how_to_go_on(
    writer: SweepWriter, reader: StoreReader, sweep_of: Callable[..., SweepView],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sid = sweep_of(1).id
    monkeypatch.setattr(writer._scripts, "run", lambda *_, **__: ("behind", [b"", b"0"]))
    with raises("sweep-grows"):
        writer.append(sid, [ParameterSet(x=9)])
    assert reader.sweeps.get(sid).counts.total == 1
    assert reader.trials.get(TrialId(sweep=sid, number=1)).params == {"x": 1}


def test_a_run_cap_that_would_tear_replicates_apart_is_refused(
    desk: Desk, store: TrialStore, take: Take
) -> None:
    sid = desk.sweep(BAYES + "replicates: 2\n")
    refused(desk.hpq("set", sid, "run_cap=5", "priority=3"), "invalid-value", "4 or 6")
    sweep = desk.reader.sweeps.get(sid)
    assert (sweep.run_cap, sweep.priority) == (4, 0)
    odd = desk.sweep(BAYES.replace("run_cap: 4", "run_cap: 5") + "replicates: 2\nname: odd\n")
    assert desk.reader.sweeps.get(odd).run_cap == 4
    for cap in ("6", "0"):
        assert desk.hpq("set", sid, f"run_cap={cap}").returncode == 0
    assert desk.reader.sweeps.get(sid).run_cap == 0


def test_an_ended_sweep_whose_code_was_deleted_does_not_open_again(
    desk: Desk, store: TrialStore, take: Take, redis: Redis, keys: Keys
) -> None:
    sid = desk.sweep(GRID)
    sweep = desk.reader.sweeps.get(sid)
    redis.hset(keys.sweep(sid), "bundle", "")  # as lua/lib/sharing.lua deletes it
    redis.delete(keys.bundle(sweep.bundle))
    assert desk.add(sid, "x=4", "--outside")["added"] == [4]  # it is not over
    while isinstance(claim := take(), Claim):
        end(store, claim, 0.5)
    refused(desk.hpq("add", sid, "x=5", "--outside"), "code-not-kept", "--reuse")
    assert len(desk.trials(sid)) == 4
    assert desk.reader.sweeps.get(sid).state is SweepState.FINISHED


def test_a_person_who_stops_a_sweep_that_its_target_stops_has_the_last_word(
    desk: Desk, store: TrialStore, take: Take, control: SweepControl
) -> None:
    sid = desk.sweep(GRID.replace("{name: loss}", "{name: loss, target: 0.2}"))
    first, second = take(), take()
    assert isinstance(first, Claim) and isinstance(second, Claim)
    end(store, first, 0.1)
    assert desk.hpq("stop", sid, "--yes").returncode == 0
    refused(desk.hpq("add", sid, "x=4", "--outside"), "sweep-over")
    end(store, second, 0.5)
    refused(desk.hpq("add", sid, "x=4", "--outside"), "sweep-over")
    assert len(desk.trials(sid)) == 3


@pytest.mark.parametrize("text", [RANDOM, BAYES])
def test_count_adds_so_many_although_others_add_the_same_draws_first(
    desk: Desk, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = desk.sweep(text)
    before = desk.reader.sweeps.get(sid).counts.total
    append = SweepWriter.append

    def late(writer: SweepWriter, *args: object, **more: object) -> object:
        monkeypatch.setattr(SweepWriter, "append", append)
        desk.add(sid, "--count", "2")
        return append(writer, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(SweepWriter, "append", late)
    assert len(desk.add(sid, "--count", "3")["added"]) == 3
    trials = params_of(desk, sid)
    assert len(trials) == before + 5 and len({str(one) for one in trials}) == before + 5


def test_hours_that_running_trials_reserve_are_not_used_up_yet(
    desk: Desk, store: TrialStore, take: Take, redis: Redis, keys: Keys
) -> None:
    sid = desk.sweep(GRID + "timeout: 1h\nbudget: {gpu_hours: 1}\n")
    claim = take()
    assert isinstance(claim, Claim)
    assert desk.add(sid, "x=4", "--outside")["added"] == [4]
    end(store, claim, 0.5, ran_ms=3_600_000)
    assert desk.reader.sweeps.get(sid).state is SweepState.HELD
    refused(desk.hpq("add", sid, "x=5", "--outside"), "budget-spent")


def test_a_grid_has_its_own_steps_inside_its_space(desk: Desk) -> None:
    sid = desk.sweep(
        GRID.replace(
            "{values: [1, 2, 3]}", "{distribution: q_uniform, min: 0.05, max: 0.95, q: 0.1}"
        )
    )
    total = len(desk.trials(sid))
    assert desk.add(sid, "x=0.15")["exists"][0]["trial"] == 2
    refused(desk.hpq("add", sid, "x=0.17"), "outside-space")
    (desk.folder / "wide.yaml").write_text(
        GRID.replace(
            "{values: [1, 2, 3]}", "{distribution: q_uniform, min: 0.05, max: 1.15, q: 0.1}"
        )
    )
    found = desk.add(sid, "--file", "wide.yaml")
    assert len(found["exists"]) == total and len(found["added"]) == 2
    by_hand = desk.add(sid, *(f"x={value}" for value in ("0.95",)), "--outside")
    assert by_hand["outside"] == [] and found["outside"] == found["added"]


def test_zipped_values_may_be_outside_the_space_together(desk: Desk) -> None:
    zipped = GRID.replace("[1, 2, 3]", "[1, 2]") + "  y: {values: [3, 4]}\nzip: [[x, y]]\n"
    sid = desk.sweep(zipped)
    refused(desk.hpq("add", sid, "x=1", "y=4"), "condition-unmet")
    refused(desk.hpq("add", sid, "x=9", "y=3"), "outside-space", "1, 2")
    refused(desk.hpq("add", sid, "x=9", "--outside"), "missing-parameter")
    assert desk.add(sid, "x=9", "y=3", "--outside")["outside"] == [3]
    assert desk.add(sid, "x=1", "y=4", "--outside")["outside"] == [4]
    assert params_of(desk, sid)[2:] == [{"x": 9, "y": 3}, {"x": 1, "y": 4}]
