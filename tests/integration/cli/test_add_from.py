"""`hpq add --from` adds trials that begin at the checkpoint of an ended trial of the sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from redis import Redis

import hpq
from hpq.domain.attempt import Nothing, Outcome, Reason, WorkerPresence
from hpq.domain.trial import Checkpoint, Claim, Failure, FailureKind, TrialId, TrialState
from hpq.filestore.stores import open_files
from hpq.store.control import SweepControl
from hpq.store.events import SweepHistory
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq.store.wire.attempt import open_claim
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.desk import Desk
from tests.support.ids import refused
from tests.support.mcp_agent import connected
from tests.support.store_calls import Shelf, beat, end

Take = Callable[[], Claim | Nothing]
GRID = (
    "program: train.py\nmethod: grid\nmetric: {name: loss}\nkeep: {best: 2}\nparameters:\n"
    "  lr: {values: [1, 2, 3]}\n  epochs: {value: 30}\nderive: {steps: epochs * 10}\n"
)


@pytest.fixture
def trained(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, shelf: Shelf
) -> Callable[..., tuple[str, Checkpoint]]:
    """Return a function that enqueues a sweep whose first trial has ended with a checkpoint."""

    def train(text: str = GRID) -> tuple[str, Checkpoint]:
        sid = desk.sweep(text)
        claim = take()
        found = replace(
            shelf.put(claim, "checkpoint-1"),
            step=30,
            last=0.5,
            best=0.25,
            counts={"loss": 30},
            logged=30,
        )
        beat(store, who, claim, 1, 30, checkpoint=found)
        end(store, claim, 0.5, step=30)
        return sid, found

    return train


def test_a_new_trial_begins_at_the_checkpoint_and_step_with_the_parent_s_other_parameters(
    desk: Desk, trained, take: Take, store: TrialStore, who: WorkerPresence
) -> None:
    sid, kept = trained()
    assert desk.add(sid, "--from", "1", "epochs=90", "--outside")["added"] == [4]
    while (claim := take()).trial.number != 4:
        end(store, claim, 9.0)
    opened = open_claim(claim)
    assert opened.params == {"lr": 1, "epochs": 90, "steps": 900}
    assert claim.checkpoint == replace(kept, last=None, best=None)
    assert opened.start is not None and opened.start.trial == 1
    trial = desk.reader.trials.get(claim.trial)
    assert (trial.step, trial.objective) == (30, None)
    end(store, claim, 0.1)
    trial = desk.reader.trials.get(claim.trial)
    assert (trial.objective, trial.best) == (0.1, None)
    assert audit_sweep(desk.reader, sid).violations == ()


def test_an_ordinary_trial_begins_at_the_beginning(desk: Desk, trained, take: Take) -> None:
    trained()
    claim = take()
    assert (claim.checkpoint, open_claim(claim).start) == (None, None)


def test_show_diff_and_results_name_the_parent(
    desk: Desk, trained, take: Take, store: TrialStore
) -> None:
    sid, _ = trained()
    desk.add(sid, "--from", "1", "epochs=90", "--outside")
    while isinstance(claim := take(), Claim):
        end(store, claim, 0.1)
    assert "#1, step 30" in desk.hpq("show", f"{sid}/4").stdout
    assert "#1, step 30" not in desk.hpq("show", f"{sid}/2").stdout
    assert "#1, step 30" in desk.hpq("diff", f"{sid}/1", f"{sid}/4").stdout
    rows = desk.hpq("results", sid, "-o", "json").stdout
    assert rows.count('"start"') == 1


def test_a_set_is_added_once_from_each_trial_and_anew_without_a_start(
    desk: Desk, trained, take: Take
) -> None:
    sid, _ = trained()
    words = ("lr=2", "--from", "1")
    assert desk.add(sid, *words)["added"] == [4]
    assert desk.add(sid, *words)["exists"][0]["trial"] == 4
    assert desk.add(sid, "lr=2")["exists"][0]["trial"] == 2
    assert desk.add(sid, *words, "--again")["added"] == [5]


def test_each_of_the_best_is_continued(
    desk: Desk, trained, take: Take, store: TrialStore, who: WorkerPresence, shelf: Shelf
) -> None:
    sid, _ = trained()
    claim = take()
    beat(store, who, claim, 1, 30, checkpoint=shelf.put(claim, "checkpoint-1"))
    end(store, claim, 0.4, step=30)
    words = ("--from", "best:2", "epochs=90")
    refused(desk.hpq("add", sid, *words), "outside-space")
    assert desk.add(sid, *words, "--outside")["added"] == [4, 5]
    starts = [desk.reader.trials.get(TrialId(sweep=sid, number=n)).start for n in (4, 5)]
    assert [start and start.trial for start in starts] == [2, 1]


def test_the_parent_s_checkpoint_stays_when_keep_drops_it_and_when_the_parent_runs_again(
    desk: Desk,
    trained,
    take: Take,
    store: TrialStore,
    who: WorkerPresence,
    shelf: Shelf,
    control: SweepControl,
) -> None:
    sid, kept = trained(GRID.replace("best: 2", "best: 1"))
    desk.add(sid, "--from", "1", "epochs=90", "--outside")
    own = None
    while isinstance(claim := take(), Claim):
        if claim.trial.number == 4:
            assert claim.checkpoint is not None and claim.checkpoint.path == kept.path
            own = shelf.put(claim, "checkpoint-1")
            beat(store, who, claim, 1, 31, checkpoint=own)
        end(store, claim, 0.1 / claim.trial.number)
        assert kept.path.removeprefix("hpq/") in shelf.left()
    assert desk.reader.trials.get(TrialId(sweep=sid, number=1)).checkpoint is None
    assert own is not None and own.path.removeprefix("hpq/") in shelf.left()
    control.retry(sid, [1, 4])
    for number in (1, 4):
        claim = take()
        assert claim.trial.number == number
        expected = {1: None, 4: kept.path}[number]
        assert (claim.checkpoint and claim.checkpoint.path) == expected
        end(store, claim, 1.0)
        assert kept.path.removeprefix("hpq/") in shelf.left()
    assert desk.hpq("rm", sid, "--yes", "--force").returncode == 0
    assert shelf.left() == []


def test_the_checkpoint_of_a_failed_trial_stays_when_that_is_retried_and_saves_another(
    desk: Desk,
    trained,
    take: Take,
    store: TrialStore,
    who: WorkerPresence,
    shelf: Shelf,
    control: SweepControl,
) -> None:
    sid, _ = trained(GRID.replace("keep: {best: 2}\n", ""))
    claim = take()
    kept = replace(shelf.put(claim, "checkpoint-1"), step=5)
    beat(store, who, claim, 1, 5, checkpoint=kept)
    failure = Failure(kind=FailureKind.USER_ERROR, message="out of luck")
    store.commit(claim, Outcome(state=TrialState.FAILED, failure=failure), None)
    assert desk.add(sid, "--from", "2", "lr=3")["added"] == [4]
    control.retry(sid, [2])
    while (claim := take()).trial.number != 2:
        if claim.trial.number == 4:
            assert claim.checkpoint is not None and claim.checkpoint.path == kept.path
        end(store, claim, 9.0)
    assert claim.checkpoint == kept
    newer = replace(shelf.put(claim, "checkpoint-1"), step=9)
    beat(store, who, claim, 1, 9, checkpoint=newer)
    both = {pointer.path.removeprefix("hpq/") for pointer in (kept, newer)}
    assert both <= set(shelf.left())
    end(store, claim, 0.1)
    assert both & set(shelf.left()) == {kept.path.removeprefix("hpq/")}


def test_a_lost_first_attempt_begins_at_the_start_again_and_a_later_one_at_its_own_checkpoint(
    desk: Desk, trained, take: Take, store: TrialStore, who: WorkerPresence, shelf: Shelf
) -> None:
    sid, kept = trained()
    desk.add(sid, "--from", "1", "epochs=90", "--outside")
    while (claim := take()).trial.number != 4:
        end(store, claim, 9.0)
    store.release(claim, Reason.STOPPING)
    claim = take()
    assert claim.attempt == 2 and claim.checkpoint is not None
    assert claim.checkpoint.path == kept.path
    own = replace(shelf.put(claim, "checkpoint-1"), step=40)
    beat(store, who, claim, 1, 40, checkpoint=own)
    store.release(claim, Reason.STOPPING)
    claim = take()
    assert claim.checkpoint == own


def damage(redis: Redis, keys: Keys, sid: str, field: str, value: str) -> None:
    redis.hset(keys.trial(TrialId(sweep=sid, number=1)), field, value)


BAD = {
    "no such trial": ("9", "trial-not-found", 4),
    "of another sweep": ("other-00000/1", "usage", 2),
    "no trial": ("best", "usage", 2),
    "nothing has a result": ("best:0", "usage", 2),
    "it waits": ("2", "trials-running", 2),
}


@pytest.mark.parametrize("case", BAD)
def test_a_start_that_is_none_is_refused_with_its_id(desk: Desk, trained, case: str) -> None:
    ref, code, exit_code = BAD[case]
    sid, _ = trained()
    refused(desk.hpq("add", sid, "--from", ref, "lr=2"), code, ref, exit=exit_code)
    assert len(list(desk.reader.trials.all(sid))) == 3


def test_a_trial_without_a_checkpoint_is_refused_and_the_setting_named(
    desk: Desk, trained, take: Take, store: TrialStore
) -> None:
    sid, _ = trained(GRID.replace("keep: {best: 2}\n", ""))
    refused(desk.hpq("add", sid, "--from", "1", "lr=2"), "no-checkpoint", f"{sid}/1", "keep:")
    refused(desk.hpq("add", sid, "--from", "best:1", "lr=2"), "no-checkpoint", f"{sid}/1")
    claim = take()
    refused(desk.hpq("add", sid, "--from", "2", "lr=2"), "trials-running", str(claim.trial))
    assert len(list(desk.reader.trials.all(sid))) == 3


def test_a_pointer_to_files_of_another_trial_is_no_start(
    desk: Desk, trained, redis: Redis, keys: Keys, take: Take, shelf: Shelf
) -> None:
    sid, kept = trained()
    path = shelf.put(take(), "checkpoint-1").path
    damage(redis, keys, sid, "checkpoint", f'{{"store":"{kept.store}","path":"{path}"}}')
    refused(desk.hpq("add", sid, "--from", "1", "lr=2"), "no-checkpoint", f"{sid}/1")


def test_files_in_another_store_or_in_none_are_refused_where_this_machine_has_a_store(
    desk: Desk, trained, shelf: Shelf, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid, kept = trained()
    monkeypatch.setenv("HPQ_STORE", str(tmp_path / "elsewhere"))
    open_files(str(tmp_path / "elsewhere"))
    words = ("add", sid, "--from", "1", "lr=2")
    refused(desk.hpq(*words), "store-differs", f"{sid}/1", kept.store)
    monkeypatch.setenv("HPQ_STORE", str(tmp_path / "store"))
    assert desk.hpq(*words).returncode == 0
    shelf.files.remove(kept.path)
    refused(desk.hpq(*words, "--again"), "no-checkpoint", f"{sid}/1")


def test_a_checkpoint_that_goes_while_a_trial_is_added_is_refused(
    desk: Desk, trained, redis: Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid, _ = trained()

    def forget(*_: object) -> list[str]:
        redis.hdel(keys.trial(TrialId(sweep=sid, number=1)), "checkpoint")
        return []

    monkeypatch.setattr("hpq_producer.enqueue.add.check_capacity", forget)
    refused(desk.hpq("add", sid, "--from", "1", "lr=2"), "no-checkpoint", f"{sid}/1")
    assert len(list(desk.reader.trials.all(sid))) == 3


def test_a_built_in_trainer_is_refused(desk: Desk, trained) -> None:
    sid, _ = trained("trainer: digits\nmethod: grid\nparameters: {epochs: {values: [1, 2]}}\n")
    refused(desk.hpq("add", sid, "--from", "1", "epochs=2"), "usage", sid, "digits")


def test_a_sweep_with_replicates_is_refused(desk: Desk, trained) -> None:
    sid, _ = trained(GRID + "replicates: 2\n")
    refused(desk.hpq("add", sid, "--from", "1", "lr=2"), "usage", sid)


def test_another_key_a_removed_sweep_and_a_call_that_changes_nothing_are_refused(
    desk: Desk, trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid, _ = trained()
    refused(desk.hpq("add", sid, "--from", "1"), "usage")
    refused(desk.hpq("add", sid, "--from", "1", "--count", "2"), "usage")
    with monkeypatch.context() as patch:
        patch.setenv("HPQ_CODE_KEY", "another key of a user")
        refused(desk.hpq("add", sid, "--from", "1", "lr=2"), "code-key-differs", sid)
    assert len(list(desk.reader.trials.all(sid))) == 3
    assert desk.hpq("rm", sid, "--yes", "--force").returncode == 0
    refused(desk.hpq("add", sid, "--from", "1", "lr=2"), "sweep-not-found", sid, exit=4)


def test_the_parameters_of_a_continued_trial_are_neither_confirmed_nor_reused(
    desk: Desk, trained, take: Take, store: TrialStore
) -> None:
    sid, _ = trained()
    desk.add(sid, "--from", "1", "lr=5", "--outside")
    while isinstance(claim := take(), Claim):
        end(store, claim, 0.5 / claim.trial.number)
    refused(desk.hpq("best", sid, "--confirm", "2"), "usage", f"{sid}/4", "#1")
    again = desk.sweep(GRID.replace("[1, 2, 3]", "[2, 5]"), "--reuse")
    assert [t.reused for t in desk.reader.trials.all(again)] == [f"{sid}/2", ""]


def test_bayes_does_not_learn_from_a_continued_trial(
    desk: Desk, trained, redis: Redis, keys: Keys
) -> None:
    sid, _ = trained()
    desk.add(sid, "--from", "1", "lr=2")
    history = SweepHistory(redis, keys, sid)
    assert [number for number, _ in history.parameters(1, 4)] == [1, 2, 3]


def test_python_adds_each_set_from_each_of_the_best(desk: Desk, trained) -> None:
    sid, _ = trained()
    sets = [{"epochs": 60}, {"epochs": 90}]
    added = hpq.Sweep(sid).add(sets, outside=True, start_from="best:1")
    assert [(t.number, t.params) for t in added] == [
        (4, {"lr": 1, "epochs": 60, "steps": 600}),
        (5, {"lr": 1, "epochs": 90, "steps": 900}),
    ]
    (again,) = hpq.Sweep(sid).add({"epochs": 90}, outside=True, start_from=1)
    assert again.number == 5


def test_an_agent_reads_where_a_continued_trial_began(desk: Desk, trained) -> None:
    sid, _ = trained()
    desk.add(sid, "--from", "1", "lr=2")
    with connected(desk.folder, {}) as agent:
        (row,) = agent.gets("results", sweep=sid, where="number == 4 and state == queued")["trials"]
    assert row["start"] == {"trial": 1, "step": 30}


def test_parameters_of_a_parent_that_the_change_makes_inactive_are_left_out(
    desk: Desk, trained
) -> None:
    text = (
        "program: train.py\nmethod: grid\nmetric: {name: loss}\nkeep: {best: 2}\nparameters:\n"
        "  opt: {values: [sgd, adam]}\n  momentum: {values: [0.5, 0.9]}\n"
        "when: {momentum: {opt: sgd}}\n"
    )
    sid, _ = trained(text)
    first = desk.reader.trials.get(TrialId(sweep=sid, number=1)).params
    assert first == {"opt": "sgd", "momentum": 0.5}
    (number,) = desk.add(sid, "--from", "1", "opt=adam")["added"]
    assert desk.reader.trials.get(TrialId(sweep=sid, number=number)).params == {"opt": "adam"}
    refused(desk.hpq("add", sid, "--from", "1", "opt=adam", "momentum=0.9"), "condition-unmet")
    refused(desk.hpq("add", sid, "--from", "1", "lr=1"), "unknown-parameter")
    refused(desk.hpq("add", sid, "--from", "1", "momentum=0.7"), "outside-space")


@pytest.fixture
def won(
    desk: Desk, trained, take: Take, store: TrialStore, who: WorkerPresence
) -> Callable[..., str]:
    """Return a function that ends all trials; the one that began at #1 leads with 0.1."""

    def train(text: str = GRID) -> str:
        sid, _ = trained(text)
        desk.add(sid, "--from", "1", "epochs=90", "--outside")
        while isinstance(claim := take(), Claim):
            beat(store, who, claim, 1, 31)
            end(store, claim, 0.1 if claim.trial.number == 4 else 9.0)
        return sid

    return train


def test_best_and_the_ranking_say_that_the_winner_began_at_another_trial(desk: Desk, won) -> None:
    sid = won()
    alone = desk.hpq("best", sid).stdout
    assert f"{sid}/4" in alone and "#1, step 30" in alone
    for command in (("best", sid, "-n", "2"), ("summary", sid)):
        (row,) = [x for x in desk.hpq(*command).stdout.splitlines() if "#1, step 30" in x]
        assert "0.1" in row
    for output in ("--args", "--yaml"):
        done = desk.hpq("best", sid, output)
        assert "epochs" in done.stdout and f"{sid}/4" in done.stderr and "#1" in done.stderr
    assert desk.hpq("best", f"{sid}/2", "--args").stderr == ""


def test_where_leaves_out_the_trials_that_a_confirmation_refuses(desk: Desk, won) -> None:
    sid = won()
    refused(desk.hpq("best", sid, "--confirm", "2"), "usage", "--where 'start.trial == null'")
    words = ("-n", "2", "--where", "start.trial == null", "--confirm", "2")
    assert desk.hpq("best", sid, *words).returncode == 0
    found = desk.hpq("results", sid, "--where", "start.trial == 1 and start.step == 30")
    assert [line.split()[0] for line in found.stdout.splitlines()[1:]] == ["4"]


def test_a_command_that_is_refused_is_not_proposed_for_a_winner_with_a_start(
    desk: Desk, won
) -> None:
    sid = won()
    (verdict,) = [x for x in desk.hpq("summary", sid).stdout.splitlines() if "unknown:" in x]
    assert "--confirm" not in verdict and f"{sid}/4" in verdict and "#1" in verdict


def test_results_show_the_start_of_a_failed_trial_beside_its_failure(
    desk: Desk, trained, take: Take, store: TrialStore
) -> None:
    sid, _ = trained()
    desk.add(sid, "--from", "1", "epochs=90", "--outside")
    failure = Failure(kind=FailureKind.USER_ERROR, message="out of luck")
    while isinstance(claim := take(), Claim):
        store.commit(claim, Outcome(state=TrialState.FAILED, failure=failure), None)
    (row,) = [x for x in desk.hpq("results", sid).stdout.splitlines() if "#1, step 30" in x]
    assert "out of luck" in row


def test_best_of_a_sweep_without_a_result_is_refused_as_hpq_best_refuses(desk: Desk) -> None:
    sid = desk.sweep(GRID)
    refused(desk.hpq("add", sid, "--from", "best:1", "lr=2"), "no-result", sid, exit=1)
    refused(desk.hpq("best", sid), "no-result", sid, exit=1)


def test_a_value_outside_the_space_names_the_option_that_allows_it_and_itself_once(
    desk: Desk, trained
) -> None:
    sid, _ = trained()
    done = desk.hpq("add", sid, "--from", "1", "epochs=90")
    refused(done, "outside-space", "hpq add --outside")
    assert done.stderr.count("epochs") == 1
