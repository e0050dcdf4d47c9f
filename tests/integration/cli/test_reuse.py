"""`enqueue --reuse`: what an older sweep of the same code has finished is not trained again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from hpq.code import snapshot
from hpq.domain.attempt import Nothing, Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import SweepState
from hpq.domain.trial import Claim, Failure, FailureKind, Point, TrialId, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.enqueue.provenance import CodeLocation, normalize_remote
from hpq_views.watch.event_log import event_line
from tests.support.desk import Desk
from tests.support.folders import git
from tests.support.store_calls import Shelf, end, report

Take = Callable[[], Claim | Nothing]
GRID = (
    "program: train.py\nmethod: grid\nmetric: {name: acc, goal: maximize}\n"
    "parameters:\n  x: {values: [1, 2, 3]}\n"
)
FRONT = "metrics:\n  - {name: acc, goal: maximize}\n  - {name: loss, goal: minimize}"
WIDER = GRID.replace("[1, 2, 3]", "[2.0, 3, 4, 5]")


def finish(store: TrialStore, who: WorkerPresence, claim: Claim, objective: float) -> None:
    report(store, who, claim, acc=[objective], loss=[0.5])
    end(store, claim, objective, step=7)


def two_finished(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, *words: str
) -> str:
    """A sweep of x = 1, 2, 3 of which the first two are finished, and the third failed."""
    sid = desk.sweep(GRID, *words)
    finish(store, who, take(), 0.1)
    finish(store, who, take(), 0.9)
    last = take()
    assert last is not None
    store.commit(last, Outcome(state=TrialState.FAILED))
    return sid


def test_results_of_the_same_code_are_taken_and_say_where_they_come_from(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, redis: Redis, keys: Keys
) -> None:
    old = two_finished(desk, store, who, take)
    done = desk.put(WIDER, "--reuse")
    assert (
        "3 trials queued" in done.stderr
        and f"1 result copied from {old}, {desk.folder}/train.py" in done.stderr
    )
    new = done.stdout.strip()
    assert desk.trials(new) == [
        (2.0, "finished"), (3, "queued"), (4, "queued"), (5, "queued"),
    ]  # fmt: skip
    assert redis.llen(keys.demand("default")) == 3
    assert redis.hget(keys.sweep(new), "dur_n") is None  # no hours of it are its own
    shown = json.loads(desk.hpq("results", new, "--json").stdout)[0]
    assert (shown["reused"], shown["objective"], shown["step"]) == (f"{old}/2", 0.9, 7)
    assert shown["last"] == {"acc": 0.9, "loss": 0.5} and shown["duration_s"] == 0
    assert f"{old}/2" in desk.hpq("results", new).stdout
    assert "result of" in desk.hpq("show", f"{new}/1").stdout
    assert f",{old}/2," in desk.hpq("results", new, "--csv").stdout.splitlines()[1]
    assert json.loads(desk.hpq("best", new, "--json").stdout)["trial"] == 1
    found = audit_sweep(desk.reader, new)
    assert (found.violations, found.reused) == ((), 1)
    assert json.loads(desk.hpq("audit", new, "--json").stdout)["reused"] == 1
    events = desk.reader.events.read(new)
    assert [(e.trial, e.fields["from"]) for e in events if e.what == "reused"] == [(1, f"{old}/2")]
    told = next(e for e in events if e.what == "reused")
    line = event_line(
        told, desk.reader.trials.get(TrialId(sweep=new, number=1)), desk.reader.sweeps.get(new)
    )
    assert line.startswith("#1 ") and f"{old}/2 acc=0.9000  x=2" in line
    # A third sweep names the trial that trained, not the one that took its result.
    third = desk.sweep(WIDER, "--reuse", "--new")
    assert desk.reader.trials.get(TrialId(sweep=third, number=1)).reused == f"{old}/2"


def test_a_copy_has_the_name_tags_and_project_of_the_run_that_trained(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    desk.sweep(GRID)
    run = {"name": "brisk-1", "tags": ["base"], "project": "thesis"}
    claim = take()
    assert isinstance(claim, Claim)
    store.beat(claim, who, ReportBatch(seq=1, run_info=json.dumps(run)), lease_ms=30_000)
    end(store, claim, 0.3)
    new = desk.sweep(WIDER.replace("2.0", "1"), "--reuse")
    copy = desk.reader.trials.get(TrialId(sweep=new, number=1))
    assert (copy.reused, copy.run_name, copy.run_tags) == (str(claim.trial), "brisk-1", ("base",))
    assert desk.reader.sweeps.get(new).project == "thesis"


def test_a_result_that_was_taken_is_trained_after_a_retry(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, control: SweepControl
) -> None:
    two_finished(desk, store, who, take)
    new = desk.sweep(WIDER, "--reuse")
    assert control.retry(new, [1]) == 1
    *_, claim = (take() for _ in range(4))  # last
    assert (claim.trial.number, claim.attempt, claim.unbegun) == (
        1,
        2,
        1,
    )
    trial = desk.reader.trials.get(claim.trial)
    assert (trial.reused, trial.objective) == ("", None)
    finish(store, who, claim, 0.3)
    assert audit_sweep(desk.reader, new).violations == ()


def test_a_sweep_of_which_all_is_known_is_finished_at_once(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, redis: Redis, keys: Keys
) -> None:
    old = two_finished(desk, store, who, take)
    known = desk.sweep(GRID.replace("[1, 2, 3]", "[1, 2]"), "--reuse")
    assert desk.reader.sweeps.get(known).state is SweepState.FINISHED
    assert "2 results" in desk.hpq("summary", known).stdout
    assert desk.hpq("watch", known, "--once").stdout.count("reused") == 2
    ranked = desk.hpq("best", known, "--top", "2").stdout
    assert len(re.findall(r"(?m) reused +0\.[19]", ranked)) == 2 and " 0s " not in ranked
    assert f"{old}/1" in desk.hpq("logs", f"{known}/1").stderr
    assert take() == Nothing() and redis.zcard(keys.queue("default", "open")) == 0
    assert audit_sweep(desk.reader, known).violations == ()


def test_a_copy_and_its_source_are_one_row_of_a_ranking(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    old = two_finished(desk, store, who, take)
    new = desk.sweep(GRID.replace("3]", "4]"), "--reuse")
    for refs in ((old, new), (new, old)):
        done = desk.hpq("best", *refs, "-n", "4", "--json")
        ranked = [(one["sweep"], one["trial"]) for one in json.loads(done.stdout)]
        assert ranked == [(old, 2), (old, 1)]
        assert f"{new}/1" in done.stderr and f"{new}/2" in done.stderr
        compared = desk.hpq("summary", *refs).stdout
        assert len(re.findall(r"(?m)^ +\d+ ", compared)) == 2, compared
    assert not desk.hpq("best", new, "-n", "4").stderr, "the source is in another sweep"
    front = GRID.replace("metric: {name: acc, goal: maximize}", FRONT)
    first, second = desk.sweep(front, "--reuse"), desk.sweep(front, "--reuse", "--new")
    shown = json.loads(desk.hpq("best", first, second, "--json").stdout)
    assert [(one["sweep"], one["trial"]) for one in shown] == [(first, 2)]


def test_after_a_wrong_goal_or_metric_what_was_trained_is_taken(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    old = two_finished(desk, store, who, take, "--name", "wrong")
    turned = desk.sweep(WIDER.replace("maximize", "minimize"), "--reuse")
    other = desk.sweep(WIDER.replace("acc", "loss"), "--reuse")
    for sid, value in ((turned, 0.9), (other, 0.5)):
        trial = desk.reader.trials.get(TrialId(sweep=sid, number=1))
        assert (trial.state, trial.reused, trial.objective) == ("finished", f"{old}/2", value)
    done = desk.put(WIDER.replace("acc", "val_loss"), "--reuse")
    assert "0 results" in done.stderr
    best = desk.put(GRID.replace("acc, goal: maximize", "f1, value: best"), "--reuse")
    assert "0 results" in best.stderr
    assert "--reuse" in desk.hpq("set", other, "goal=maximize").stderr
    assert "--reuse" in desk.hpq("set", other, "metric.name=acc").stderr


def test_trials_that_only_failed_to_report_the_metric_are_results_for_the_right_one(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    wrong = desk.sweep(GRID.replace("acc", "val_loss").replace("[1, 2, 3]", "[1, 2]"))
    crash = Failure(kind=FailureKind.USER_ERROR, message="KeyError")
    unreported = Failure(kind=FailureKind.UNREPORTED, message="no val_loss")
    for failure in (unreported, crash):
        claim = take()
        assert isinstance(claim, Claim)
        points = (Point(step=1, name="acc", value=0.25),)
        store.beat(claim, who, ReportBatch(seq=1, points=points), lease_ms=30_000)
        store.commit(claim, Outcome(state=TrialState.FAILED, failure=failure))
    right = desk.sweep(GRID, "--reuse")
    assert desk.trials(right) == [(1, "finished"), (2, "queued"), (3, "queued")]
    trial = desk.reader.trials.get(TrialId(sweep=right, number=1))
    assert (trial.objective, trial.reused) == (0.25, f"{wrong}/1")
    assert desk.reader.ranking.best(desk.reader.sweeps.get(right), 1)[0].id == trial.id
    assert audit_sweep(desk.reader, right).violations == ()


def test_other_code_or_another_metric_gives_nothing_unless_one_insists(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    two_finished(desk, store, who, take)
    (desk.folder / "train.py").write_text("print('edited')\n")
    assert desk.trials(desk.sweep(WIDER, "--reuse"))[0] == (2.0, "queued")
    insisted = desk.sweep(WIDER, "--reuse", "--any-code", "--new")
    assert desk.trials(insisted)[0] == (2.0, "finished")
    other = desk.put(WIDER.replace("acc, goal", "acc, value: best, goal"), "--reuse", "--any-code")
    assert desk.trials(other.stdout.strip())[0] == (2.0, "queued")
    assert "0 results" in other.stderr
    assert desk.put(WIDER, "--any-code").returncode == 2


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"plot.py": "import train"}, True),  # a new file that nothing imports
        ({"notes.py": None}, True),
        ({"notes.py": "edited"}, True),
        ({"net.py": "x = 2"}, False),
        ({"net.py": None}, False),
        ({"deep.py": "import json"}, False),  # net.py imports it
        ({"json.py": "shadows the library", "net.py": "import json"}, False),
    ],
)
def test_only_what_the_program_imports_makes_other_code(
    desk: Desk,
    store: TrialStore,
    who: WorkerPresence,
    take: Take,
    changes: dict[str, str | None],
    is_same: bool,
) -> None:
    (desk.folder / "train.py").write_text("import net")
    (desk.folder / "net.py").write_text("import deep")
    (desk.folder / "notes.py").write_text("")
    (desk.folder / "deep.py").write_text("")
    old = two_finished(desk, store, who, take)
    for name, text in changes.items():
        if text is None:
            (desk.folder / name).unlink()
        else:
            (desk.folder / name).write_text(text)
    for words in (("--reuse",), ("--reuse", "--any-code", "--new")):
        done = desk.put(WIDER, *words)
        assert ("import" in done.stderr) == (is_same and "--new" not in words)
        first = next(iter(desk.reader.trials.all(done.stdout.strip())))
        is_copied = is_same or "--any-code" in words
        mark = "" if is_same else " (other code)"
        assert first.reused == (f"{old}/2{mark}" if is_copied else "")
    apart = "code" in desk.hpq("summary", old, done.stdout.strip()).stdout
    assert apart != is_same


def test_a_copy_shows_the_curves_the_log_and_the_files_of_the_trial_that_trained(
    desk: Desk,
    store: TrialStore,
    who: WorkerPresence,
    take: Take,
    shelf: Shelf,
    control: SweepControl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HPQ_STORE", str(tmp_path / "store"))
    old = desk.sweep(GRID)
    claim = take()
    assert isinstance(claim, Claim)
    points = tuple(Point(step=n, name="acc", value=n / 10) for n in (1, 2, 3))
    store.beat(claim, who, ReportBatch(seq=1, step=3, log=b"a line\n", points=points), lease_ms=9)
    end(store, claim, 0.3, artifacts=shelf.artifacts(claim))
    copy = f"{desk.sweep(WIDER.replace('2.0', '1'), '--reuse')}/1"
    again = f"{desk.sweep(GRID.replace('3]', '9]'), '--reuse')}/1"  # copies the copy
    for trial in (copy, again):
        assert desk.hpq("get", trial).stdout.split()[:1] == ["file"]
        done = desk.hpq("get", trial, "file", "--out", "here", "--force")
        assert (done.returncode, (desk.folder / "here").read_text()) == (0, "x"), done.stderr
        assert f"{old}/1" in done.stderr
        shown = json.loads(desk.hpq("show", trial, "--json").stdout)
        assert shown["history"]["acc"] == [[1, 0.1], [2, 0.2], [3, 0.3]]
        text = desk.hpq("show", trial).stdout
        assert "a line" in text and "artifacts" in text
        assert desk.hpq("logs", trial).stdout == "a line\n"
    rows = desk.hpq("results", again.partition("/")[0], "--history", "-o", "csv").stdout
    assert [line.split(",")[0] for line in rows.splitlines()[1:]] == ["1", "1", "1"]
    control.cancel(old)
    assert desk.hpq("rm", old, "--yes").returncode == 0
    assert desk.hpq("get", copy).returncode == 4
    assert json.loads(desk.hpq("show", copy, "--json").stdout)["history"]["acc"] == []
    assert desk.hpq("logs", copy).returncode == 0


def test_hpqignore_names_files_that_make_no_other_code(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    (desk.folder / "train.py").write_text("import generated")
    (desk.folder / "generated.py").write_text("")
    (desk.folder / ".hpqignore").write_text("/generated.py\n")
    two_finished(desk, store, who, take)
    (desk.folder / "generated.py").write_text("TIME = 1")
    assert desk.trials(desk.sweep(WIDER, "--reuse"))[0] == (2.0, "finished")


def test_replicates_are_taken_each_for_itself_and_ranked_by_their_mean(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    text = GRID.replace("[1, 2, 3]", "[1, 2]") + "replicates: 2\n"
    old = desk.sweep(text)
    for objective in (0.1, 0.3, 0.4):
        finish(store, who, take(), objective)
    new = desk.sweep(text.replace("[1, 2]", "[3, 1, 2]"), "--reuse")
    trials = list(desk.reader.trials.all(new))
    assert [t.reused for t in trials] == ["", "", f"{old}/1", f"{old}/2", f"{old}/3", ""]
    best = desk.reader.ranking.best(desk.reader.sweeps.get(new), 9)
    assert [(t.id.number, t.objective) for t in best] == [(5, 0.4), (3, 0.2)]
    assert audit_sweep(desk.reader, new).violations == ()


def test_plan_numbers_the_trials_of_replicates(desk: Desk) -> None:
    (desk.folder / "three.yaml").write_text(GRID + "replicates: 3\n")
    rows = [line.split() for line in desk.hpq("plan", "three.yaml").stdout.splitlines()]
    assert [row[0] for row in rows if row[-1].startswith("x=")] == ["1–3", "4–6", "7–9"]


def test_tags_are_kept_shown_and_found(desk: Desk) -> None:
    tagged = desk.sweep(GRID, "--tag", "paper", "--tag", "v2", "--tag", "v2")
    plain = desk.sweep(WIDER)
    assert "paper v2" in desk.hpq("ls").stdout
    only = json.loads(desk.hpq("ls", "--tag", "v2", "--json").stdout)
    assert [(s["id"], s["tags"]) for s in only] == [(tagged, ["paper", "v2"])]
    assert desk.hpq("set", plain, "tags=v2,old").returncode == 0
    found = json.loads(desk.hpq("ls", "--tag", "v2", "--where", "total > 3", "--json").stdout)
    assert [s["id"] for s in found] == [plain]
    assert desk.hpq("ls", "--where", "totl > 3").returncode == 2
    assert desk.put(GRID, "--tag", "two words", "--new").returncode == 2
    same = desk.put(GRID)  # tags are no part of what a sweep is
    assert same.stdout.strip() == tagged
    refused = desk.put(GRID + "tags: [paper]\n").stderr
    assert "[unsupported-key]" in refused and "--tag" in refused


def test_what_is_there_already_says_whose_it_is_and_what_it_is_called(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, control: SweepControl
) -> None:
    sid = desk.sweep(GRID, "--name", "first")
    monkeypatch.setenv("HPQ_USER", "bob")
    said = desk.put(GRID, "--name", "second").stderr
    assert f"{sid} belongs to me" in said and "first" in said
    renamed = desk.put("name: third\n" + GRID)
    assert all(word in renamed.stderr for word in ("first", "--new", "third"))
    assert renamed.stdout.strip() == sid
    said = desk.put(GRID, "--reuse").stderr
    assert "--new --reuse" in said
    assert "me's" not in desk.put(GRID, "--new").stderr
    control.cancel(sid)
    for verb in ("stop", "cancel"):
        done = desk.hpq(verb, sid, "--force")
        assert done.returncode == 0 and sid in done.stderr and "cancelled" in done.stderr


def test_a_result_that_reaches_the_target_leaves_nothing_to_do(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, redis: Redis, keys: Keys
) -> None:
    two_finished(desk, store, who, take)
    new = desk.put(WIDER.replace("maximize", "maximize, target: 0.8"), "--reuse").stdout.strip()
    sweep = desk.reader.sweeps.get(new)
    assert sweep.state is SweepState.FINISHED and sweep.reached and sweep.reached.trial == 1
    assert (sweep.counts.finished, sweep.counts.cancelled) == (1, 3)
    assert redis.llen(keys.demand("default")) == 0 and take() == Nothing()
    assert not audit_sweep(desk.reader, new).violations


def test_another_script_of_the_same_name_gives_nothing_even_to_any_code(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = two_finished(desk, store, who, take)
    other = desk.folder / "other"
    other.mkdir()
    (other / "train.py").write_text("print('something else')\n")
    monkeypatch.chdir(other)
    (other / "sweep.yaml").write_text(WIDER)
    done = desk.hpq("enqueue", "sweep.yaml", "--reuse", "--any-code")
    assert desk.trials(done.stdout.strip())[0] == (2.0, "queued")
    assert "0 results" in done.stderr
    # In its own place it is the same one, edited, whoever asks; its owner is named.
    monkeypatch.chdir(desk.folder)
    monkeypatch.setenv("HPQ_USER", "bob")
    (desk.folder / "train.py").write_text("print('edited')\n")
    done = desk.put(WIDER, "--reuse", "--any-code")
    assert f"1 result copied from me's {old}, {desk.folder}/train.py" in done.stderr
    assert desk.trials(done.stdout.strip())[0] == (2.0, "finished")


def test_code_that_is_sent_has_its_place_too(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    two_finished(desk, store, who, take, "--code", ".")
    (desk.folder / "train.py").write_text("print('edited')\n")
    other = desk.folder / "other"
    other.mkdir()
    (other / "train.py").write_text("print('something else')\n")
    again = ("--reuse", "--any-code", "--code")
    done = desk.put(WIDER, *again, "other")
    assert "0 results" in done.stderr
    done = desk.put(WIDER, *again, ".")
    assert desk.trials(done.stdout.strip())[0] == (2.0, "finished")


def test_two_checkouts_of_one_repository_are_one_place() -> None:
    remotes = (
        "git@Host.org:team/net.git",
        "https://u:p@host.org/team/net",
        "ssh://host.org:22/team/net/",
    )
    assert {normalize_remote(url) for url in remotes} == {"host.org/team/net"}
    assert normalize_remote("../net.git") == ""
    here = CodeLocation(folder="/app", host="a", owner="me", remote="h/net", below="x/")
    assert here.is_same_as(replace(here, folder="/home/bob/net", host="b", owner="bob"))
    assert not here.is_same_as(replace(here, below="y/"))
    assert not here.is_same_as(replace(here, remote="h/other"))
    plain = replace(here, remote="")
    assert plain.is_same_as(replace(plain, host="b")) and plain.is_same_as(here)
    assert not plain.is_same_as(replace(plain, host="b", owner="bob"))


def test_a_sweep_file_beside_the_code_is_no_part_of_it(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    others = {"g1.yaml": GRID, "set.yml": "- hyperparam_set: {x: 1}\n"}
    for name, text in others.items():
        (desk.folder / name).write_text(text)
    (desk.folder / "conf.yaml").write_text("method: adam\nparameters: {lr: 0.1}\n")
    (desk.folder / "broken.yaml").write_text("parameters: [\n")
    (desk.folder / "train.py").write_text("open('conf.yaml')")
    git(desk.folder, "init", "-q")
    git(desk.folder, "add", "-A")
    old = two_finished(desk, store, who, take)
    sweep = desk.reader.sweeps.get(old)
    files = desk.reader.sweeps.manifest(sweep.launch.code)
    assert set(files) == {"train.py", "conf.yaml", "broken.yaml"}
    (desk.folder / "g1.yaml").write_text(WIDER)
    assert snapshot.changed(desk.folder, dict(files)) == []
    done = desk.hpq("enqueue", "g1.yaml", "--reuse")
    assert f"1 result copied from {old}" in done.stderr
    (desk.folder / "conf.yaml").write_text("method: sgd\nparameters: {lr: 0.1}\n")
    done = desk.hpq("enqueue", "g1.yaml", "--reuse")
    assert "0 results" in done.stderr


@pytest.mark.parametrize("method", ["bayes", "random"])
def test_a_sweep_whose_sets_are_made_later_begins_with_the_results_inside_its_space(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, method: str
) -> None:
    """They have run, so they are no part of run_cap."""
    old = desk.sweep(GRID.replace("[1, 2, 3]", "[1.5, 2, 7]"))
    for objective in (0.1, 0.9, 0.4):
        finish(store, who, take(), objective)
    late = GRID.replace("grid", method).replace("values: [1, 2, 3]", "min: 0.0, max: 5.0")
    cap = "points: [{x: 4.5}]\nrun_cap: 6\n" if method == "bayes" else ""
    done = desk.put(late + cap, "--reuse")
    assert f"2 results copied from {old}" in done.stderr
    new = done.stdout.strip()
    begins = [(4.5, "queued")] if cap else []
    assert desk.trials(new) == [*begins, (1.5, "finished"), (2, "finished")]
    sweep = desk.reader.sweeps.get(new)
    if cap:
        assert (sweep.run_cap, sweep.counts.to_come) == (8, 5)
        assert "6 trials" in done.stderr and "bayes" in done.stderr
    else:
        assert sweep.counts.is_open_ended and f"`hpq stop {new}`" in done.stderr
    assert not audit_sweep(desk.reader, new).violations


def test_of_a_finite_space_no_more_sets_are_awaited_than_it_has(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    two_finished(desk, store, who, take)
    late = GRID.replace("grid", "bayes").replace("values: [1, 2, 3]", "min: 1, max: 4")
    new = desk.sweep(late, "--reuse")
    counts = desk.reader.sweeps.get(new).counts
    assert (counts.finished, counts.to_come) == (2, 2)


def test_replicates_are_begun_with_where_all_of_a_set_have_a_result(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    desk.sweep(GRID + "replicates: 2\n")
    for objective in (0.1, 0.2, 0.3):  # both of x = 1, one of x = 2
        finish(store, who, take(), objective)
    late = GRID.replace("grid", "bayes").replace("values: [1, 2, 3]", "min: 0, max: 9")
    new = desk.sweep(late + "replicates: 2\nrun_cap: 4\n", "--reuse")
    assert desk.trials(new) == [(1, "finished"), (1, "finished")]
    assert desk.reader.sweeps.get(new).counts.to_come == 4


def test_a_result_of_another_seed_is_not_taken_for_one_of_this(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    """What a result says it was seeded with is what ran."""
    text = GRID + "replicates: 2\n"
    old = desk.sweep(text)
    for objective in (0.1, 0.3, 0.5, 0.7, 0.4, 0.2):
        finish(store, who, take(), objective)
    done = desk.put(text, "--set", "seed=100", "--reuse", "--name", "other")
    assert "0 results" in done.stderr
    assert [state for _, state in desk.trials(done.stdout.strip())] == ["queued"] * 6
    # Of seeds 1 and 2, one has run; in the file it is the first replicate.
    new = desk.sweep(text, "--set", "seed=1", "--reuse", "--name", "next")
    trials = list(desk.reader.trials.all(new))
    assert [t.reused for t in trials] == [f"{old}/2", "", f"{old}/4", "", f"{old}/6", ""]
    told = json.loads(desk.hpq("results", new, "--json").stdout)
    assert {r["trial"]: r["seed"] for r in told if r["reused"]} == {1: 1, 3: 1, 5: 1}


def test_a_set_with_a_seed_of_its_own_is_taken_whatever_the_sweeps_is(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    own = GRID + "  seed: {value: 7}\n"
    desk.sweep(own)
    for objective in (0.1, 0.3, 0.5):
        finish(store, who, take(), objective)
    done = desk.put(own, "--set", "seed=5", "--reuse", "--name", "own")
    assert [state for _, state in desk.trials(done.stdout.strip())] == ["finished"] * 3


def test_a_search_learns_from_a_result_of_another_seed_which_keeps_its_own(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, control: SweepControl
) -> None:
    old = two_finished(desk, store, who, take, "--set", "seed=5")
    late = GRID.replace("grid", "bayes").replace("values: [1, 2, 3]", "min: 0, max: 9")
    new = desk.sweep(late + "run_cap: 4\n", "--reuse")
    assert desk.trials(new) == [(1, "finished"), (2, "finished")]
    told = json.loads(desk.hpq("results", new, "--json").stdout)
    assert [r["seed"] for r in told] == [5, 5]
    assert f"of {old}/2, seed 5" in desk.hpq("results", new).stdout
    assert f"{old}/1, seed 5" in desk.hpq("show", f"{new}/1").stdout
    # It goes on with the result, and not with a training here.
    third = desk.sweep(late + "run_cap: 5\n", "--reuse")
    assert [t.seed for t in desk.reader.trials.all(third)] == [5, 5]
    assert control.retry(new, [1]) == 1
    assert json.loads(desk.hpq("show", f"{new}/1", "--json").stdout)["seed"] == 0
    # With replicates each of a set has to have the seed that it would be given here.
    several = late + "run_cap: 4\nreplicates: 2\n"
    assert desk.trials(desk.sweep(several, "--reuse")) == []
    assert audit_sweep(desk.reader, new).violations == ()


def test_what_a_taken_result_ran_on_outlives_the_sweep_that_trained_it(
    desk: Desk, store: TrialStore, who: WorkerPresence
) -> None:
    old = desk.sweep(GRID.replace("[1, 2, 3]", "[1]"))
    store.keep_provenance("d-1", '{"host":"far"}')
    finish(store, who, store.claim(who, nonce="n", lease_ms=9_000, provenance="d-1"), 0.5)
    new = desk.sweep(GRID.replace("[1, 2, 3]", "[1, 4]"), "--reuse")
    assert f"{old}/1" in desk.hpq("logs", f"{new}/1").stderr
    assert desk.hpq("rm", old, "--yes").returncode == 0
    said = desk.hpq("logs", f"{new}/1").stderr
    assert f"{old}/1" in said and "hpq logs" not in said
    told = json.loads(desk.hpq("show", f"{new}/1", "--provenance").stdout)
    (attempt,) = told["attempts"]
    assert attempt["ran_on"] == {"host": "far"} and attempt["from"] == f"{old}/1"
    assert audit_sweep(desk.reader, new).violations == ()
    assert desk.reader.audit.missing(desk.reader.sweeps.get(new)) == []


def test_a_search_that_begins_at_its_target_says_so(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take
) -> None:
    two_finished(desk, store, who, take)
    late = GRID.replace("grid", "bayes").replace("values: [1, 2, 3]", "min: 0, max: 9")
    reached = late.replace("maximize", "maximize, target: 0.8") + "run_cap: 4\n"
    said = desk.put(reached, "--reuse").stderr
    assert "#2 has acc 0.9000 >= 0.8" in said and "while the sweep runs" not in said
