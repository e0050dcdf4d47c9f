"""The commands that look, as a user runs them: subprocesses against a real Redis."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas
import pytest
import yaml
from redis import Redis

from hpq.code.signing import sign
from hpq.domain.attempt import CommitReply, Nothing, Outcome, ReportBatch, WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import Goal, Launch, Metric, ObjectiveValue, SweepView
from hpq.domain.trainer_specs import built_in_launch
from hpq.domain.trial import Claim, Failure, FailureKind, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq_producer.python_api.frames import trials_frame, write_parquet
from hpq_views.text.style import plain
from hpq_views.watch.app import Search, _important, matching
from tests.support.constants import DEADLINE_S, ROOT
from tests.support.desk import Desk
from tests.support.ids import ids, refused
from tests.support.store_calls import end, fail, report, take

LEASE_MS = 30_000
ESCAPES = "\x1b[31mred\x1b[0m =cmd() [bold]x[/bold]"

Hpq = Callable[..., subprocess.CompletedProcess[str]]
MakeSweep = Callable[..., SweepView]


@pytest.fixture
def done(store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep) -> SweepView:
    """Three trials: finished at 0.5 and 0.9, failed with an ugly message."""
    sweep = sweep_of(3)
    for value in (0.5, 0.9):
        got = take(store, who)
        report(store, who, got, f"at {value} {ESCAPES}\n".encode(), acc=[value / 2, value])
        end(store, got, value)
    fail(store, take(store, who), ESCAPES)
    return sweep


def inert(text: str) -> bool:
    return "\x1b" not in text and "\x9b" not in text


def test_ls_names_sweeps_newest_first(hpq: Hpq, done: SweepView, sweep_of: MakeSweep) -> None:
    sweep_of(2, "later-00000")
    answer = hpq("ls")
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert [row[0] for row in rows] == ["sweep", "later-00000", "demo-00000"]
    assert rows[2][1:6] == ["finished", "3/3", "1", "failed", "0.9000"]
    (first,) = json.loads(hpq("ls", "-n", "1", "--json").stdout)
    assert (first["id"], first["queued"], first["best"]) == ("later-00000", 2, None)
    assert first["sweep"] == first["id"]  # as trials and `enqueue --json` call it


def test_ls_has_a_column_of_tags_where_there_is_one(hpq: Hpq, done: SweepView) -> None:
    assert hpq("ls").stdout.splitlines()[0].endswith("  queue")
    assert hpq("set", done.id, "tags=a,b", "note=lr = 0.1 diverges").returncode == 0
    assert "lr = 0.1 diverges" in hpq("show", done.id).stdout
    titles, row = hpq("ls").stdout.splitlines()
    assert titles.endswith("  tags") and row.endswith("  a b")


def test_ls_of_nothing_says_what_makes_a_sweep_and_prints_no_data(hpq: Hpq, redis: object) -> None:
    answer = hpq("ls")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "hpq enqueue FILE" in answer.stderr
    assert json.loads(hpq("ls", "--json").stdout) == []


def test_best_gives_the_parameters_in_each_form(hpq: Hpq, done: SweepView) -> None:
    assert yaml.safe_load(hpq("best", "--yaml").stdout) == {"x": 2}
    refused(hpq("best", "--args"), "code-not-signed", "--unsigned")
    assert hpq("best", "--args", "--unsigned").stdout == "--x=2\n"
    refused(hpq("best", "--args", "--yaml"), "usage")
    record = json.loads(hpq("best", "demo", "--json").stdout)
    assert (record["trial"], record["objective"], record["param"]) == (2, 0.9, {"x": 2})
    said = hpq("best").stdout.splitlines()
    assert said == ["trial  demo-00000/2", "acc    0.9000", "x      2"], "no seeds tell more"
    (verdict,) = (line for line in hpq("summary").stdout.splitlines() if "verdict" in line)
    assert "leads #1" in verdict and "hpq best demo-00000 -n 2 --confirm 5" in verdict
    ranked = hpq("best", "-n", "5", "-o", "csv").stdout
    assert ranked.splitlines()[0] == hpq("results", "-o", "csv").stdout.splitlines()[0]
    ranks = [line.split()[:2] for line in hpq("best", "-n", "5").stdout.splitlines()[1:3]]
    assert ranks == [["1", "2"], ["2", "1"]]


def test_the_best_are_confirmed_with_other_seeds_by_a_sweep_of_its_own(
    hpq: Hpq,
    done: SweepView,
    reader: StoreReader,
    store: TrialStore,
    who: WorkerPresence,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
) -> None:
    control.stop(done.id)
    answer = hpq("best", "-n", "2", "--confirm", "3", HPQ_USER="me")
    sid = answer.stdout.strip()
    assert answer.returncode == 0 and f"hpq best {sid} -n 2" in answer.stderr
    assert "6 trials queued" in answer.stderr and f"hpq run {sid}" in answer.stderr
    again = hpq("best", done.id, "-n", "2", "--confirm", "3", HPQ_USER="me")
    assert again.stdout.strip() == sid and "already queued" in again.stderr
    data = hpq("best", done.id, "-n", "2", "--confirm", "3", "--json", HPQ_USER="me").stdout
    assert json.loads(data) == {"sweep": sid, "new": False, "trials": 6}
    refused(hpq("best", done.id, "--confirm", "3", "--yaml"), "usage", exit=2)
    sweep = reader.sweeps.get(sid)
    assert (sweep.counts.queued, sweep.replicates, sweep.owner) == (6, 3, "me")
    assert sweep.seed > done.seed, "seeds that the sweep has not used"
    assert [t.params["x"] for t in reader.trials.all(sid)] == [2, 2, 2, 1, 1, 1]
    assert f"{sid} measures the noise: 0/6" in hpq("best", done.id).stdout
    for value in (0.90, 0.91, 0.92, 0.50, 0.51, 0.52):
        end(store, take(store, who), value)
    said = hpq("best", sid, "-n", "2").stdout
    assert "0.9100 ± 0.0100" in said and "verdict  yes" in said
    assert "would stay first in 100%" in said
    again = hpq("best", done.id, "-n", "2", "--confirm", "3", HPQ_USER="me")
    assert again.stdout.strip() == sid and f"hpq best {sid} -n 2" in again.stderr
    assert "hpq run" not in again.stderr and "HPQ_SEED" not in again.stderr, "nothing to train"
    for command in ("best", "summary"):
        linked = hpq(command, done.id).stdout
        assert "verdict  yes" in linked and sid in linked and "--confirm" not in linked
    refused(hpq("best", sid, "--confirm", "2"), "usage", f"hpq best {done.id}", exit=2)
    redis.hset(keys.sweep(sid), "tags", json.dumps(["confirms-x; id\x1b[31m"]))
    again = "hpq best 'x; id [31m' -n 2 --confirm 5"
    refused(hpq("best", sid, "--confirm", "2"), "usage", again)
    record = json.loads(hpq("summary", sid, "--json").stdout)
    assert record["winner"]["order_holds"] == 1.0 and record["importance"]["why_none"]


def test_a_confirmation_does_not_become_the_last_sweep(
    desk: Desk, take: Callable[[], Claim], store: TrialStore
) -> None:
    sid = desk.sweep(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"
    )
    for value in (0.5, 0.9):
        end(store, take(), value)
    confirmation = desk.hpq("best", "-n", "2", "--confirm", "2").stdout.strip()
    assert confirmation != sid
    for command in ("best", "summary"):
        done = desk.hpq(command)
        assert done.returncode == 0 and f"{confirmation} measures the noise: 0/4" in done.stdout
    assert f"{sid}/1" in desk.hpq("best").stdout
    shown = desk.hpq("show").stdout.splitlines()
    assert shown[0].split() == ["sweep", sid]
    (line,) = (one for one in shown if one.startswith("confirmed by"))
    assert confirmation in line and "0/4" in line


@pytest.mark.parametrize("name", ["lr", "seed"])
def test_a_confirmation_speaks_of_hpq_seed_unless_a_parameter_is_the_seed(
    desk: Desk, take: Callable[[], Claim], store: TrialStore, name: str
) -> None:
    sid = desk.sweep(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\n"
        f"parameters:\n  {name}: {{values: [1, 2]}}\n"
    )
    for value in (0.5, 0.9):
        end(store, take(), value)
    answer = desk.hpq("best", sid, "-n", "2", "--confirm", "2")
    assert answer.returncode == 0, answer.stderr
    assert ("HPQ_SEED" in answer.stderr) == (name == "lr")


def test_a_confirmation_that_other_parameters_win_is_no_yes(
    hpq: Hpq, done: SweepView, store: TrialStore, who: WorkerPresence, control: SweepControl
) -> None:
    control.stop(done.id)
    sid = hpq("best", "-n", "2", "--confirm", "2", HPQ_USER="me").stdout.strip()
    for value in (0.50, 0.51, 0.90, 0.91):
        end(store, take(store, who), value)
    said = hpq("best", done.id).stdout
    assert "verdict  not certain" in said and sid in said


def test_code_that_another_key_signed_is_not_confirmed(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(1, launch=Launch(program="train.py", code_dir="/tmp"))
    end(store, take(store, who), 0.5)
    refused(hpq("best", "demo-00000", "--confirm", "2"), "code-key-differs", exit=2)


@pytest.mark.parametrize("words", [("ls",), ("show",), ("summary",), ("watch", "--once")])
def test_a_sweep_without_workers_waits_in_every_view(
    hpq: Hpq, sweep_of: MakeSweep, words: tuple[str, ...]
) -> None:
    sweep_of(2)
    done = hpq(*words, COLUMNS="120")
    said = done.stdout + done.stderr
    assert "waiting" in said and "running" not in said.replace("is running;", ""), said
    assert "start one: hpq worker" in said


@pytest.mark.parametrize("words", ["ls", "show", "summary", "watch --once", "wait --timeout 0.1"])
def test_a_sweep_without_workers_waits_in_the_data_of_every_command(
    hpq: Hpq, sweep_of: MakeSweep, words: str
) -> None:
    sweep_of(2)
    data = json.loads(hpq(*words.split(), "--json").stdout)
    record = data[0] if words == "ls" else data
    if words in ("summary", "watch --once"):
        record = data["sweep"]
    assert (record["state"], record["not_taken"]["code"]) == ("waiting", "no-worker")


def test_hpq_alone_prints_the_help_and_starts_no_server(hpq: Hpq, tmp_path: Path) -> None:
    home = tmp_path / "fresh"
    answer = hpq(HPQ_REDIS_URL="", HPQ_HOME=str(home))
    assert answer.returncode == 0 and answer.stdout == hpq("--help").stdout
    assert not home.exists()


def test_two_sweeps_stand_side_by_side(hpq: Hpq, done: SweepView, sweep_of: MakeSweep) -> None:
    sweep_of(2, "other-00000")
    said = hpq("summary", done.id, "other-00000").stdout
    rows = {line.split("  ")[0]: line.split() for line in said.splitlines()[1:]}
    assert rows["best"][1] == "0.9000" and rows["state"][-1] == "waiting"


@pytest.fixture
def variants(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> tuple[str, str]:
    """Two sweeps of other code with results; the second has the best and the worst."""
    for sid, version, values in (("a-00000", 1, (0.5, 0.75, 0.3)), ("b-00000", 2, (0.9, 0.25))):
        sweep_of(len(values), sid, launch=Launch(trainer="digits", code=f"hpq=={version}"))
        for value in values:
            end(store, take(store, who), value)
    return "a-00000", "b-00000"


def test_trials_of_several_sweeps_are_ranked_together_with_sweep_and_code(
    hpq: Hpq, variants: tuple[str, str], sweep_of: MakeSweep
) -> None:
    a, b = variants
    ranks = [[b, "1"], [a, "2"], [a, "1"], [a, "3"], [b, "2"]]
    said = hpq("summary", a, b, a).stdout.split("\n\n")[1].splitlines()
    rows = [line.split() for line in said]
    assert rows[0][:4] == ["rank", "sweep", "code", "#"]
    assert [[row[1], row[3]] for row in rows[1:]] == ranks
    assert [row[2] for row in rows[1:]] == ["hpq==2", *["hpq==1"] * 3, "hpq==2"]
    rows = [line.split() for line in hpq("best", a, b, "-n", "3").stdout.splitlines()]
    assert [[row[1], row[3]] for row in rows[1:4]] == ranks[:3]
    data = json.loads(hpq("best", a, b, "-n", "9", "--json").stdout)
    assert [[row["sweep"], str(row["trial"])] for row in data] == ranks
    (row, *_) = csv.DictReader(hpq("best", a, b, "-n", "3", "--csv").stdout.splitlines())
    assert (row["sweep"], row["trial"], row["objective"]) == (b, "1", "0.9")
    assert hpq("best", a, b).stdout.startswith(f"trial  {b}/1\n")
    same = sweep_of(1, "c-00000", launch=Launch(trainer="digits", code="hpq==1"))
    assert "code" not in hpq("summary", a, same.id).stdout.split(), "it is the same"
    assert hpq("best", same.id, a, b).stdout.startswith(f"trial  {b}/1\n"), "one has no result"
    refused(hpq("best", same.id, "c-00000"), "no-result", exit=1)
    found = json.loads(hpq("best", a, b, "--where", "objective > 0.8", "-n", "9", "--json").stdout)
    assert [row["sweep"] for row in found] == [b], "none of the other matches"
    refused(hpq("best", a, b, "--where", "objective > 2"), "no-result", a, b, exit=4)
    other = sweep_of(1, "d-00000", varying=("x", "wide")).id
    found = json.loads(hpq("best", a, other, "--where", "x > 1 or wide > 1", "--json").stdout)
    assert (found["sweep"], found["trial"]) == (a, 2), "only the other sweep varies it"
    refused(hpq("best", a, other, "--where", "x > 1 or wdie > 1"), "filter-name-unknown")
    narrow = hpq("summary", a, b, same.id, other, "d-00000", COLUMNS="44").stdout
    assert "(+2 columns)" in narrow.split("\n\n")[0], "dropped, and it says so"
    refused(hpq("summary", a, b, "--json"), "usage", f"hpq best {a} {b}")


@pytest.mark.parametrize(
    "metric",
    [Metric(name="loss", goal=Goal.MAXIMIZE), Metric(name="acc"), None,
     Metric(name="acc", goal=Goal.MAXIMIZE, take=ObjectiveValue.BEST)],
)  # fmt: skip
def test_sweeps_of_another_metric_goal_or_value_are_not_ranked_together(
    hpq: Hpq, done: SweepView, sweep_of: MakeSweep, metric: Metric | None
) -> None:
    other = sweep_of(1, "other-00000", metric=metric)
    for command in ("summary", "best"):
        refused(hpq(command, done.id, other.id), "metrics-differ", done.id, f"report {done.id}")


def test_variants_are_confirmed_by_a_sweep_of_each_and_then_ranked_together(
    hpq: Hpq,
    variants: tuple[str, str],
    store: TrialStore,
    who: WorkerPresence,
    reader: StoreReader,
) -> None:
    answer = hpq("best", *variants, "-n", "5", "--confirm", "2")
    ids = answer.stdout.split()
    assert answer.returncode == 0 and f"hpq best {' '.join(ids)}" in answer.stderr
    params = [[t.params["x"] for t in reader.trials.all(sid)] for sid in ids]
    assert params == [[2, 2, 1, 1, 3, 3], [1, 1, 2, 2]]
    assert all(reader.sweeps.get(sid).launch == built_in_launch("digits") for sid in ids)
    again = json.loads(hpq("best", *variants, "-n", "5", "--confirm", "2", "--json").stdout)
    assert [(one["sweep"], one["new"], one["trials"]) for one in again] == [
        (ids[0], False, 6), (ids[1], False, 4),
    ]  # fmt: skip
    for value in (0.51, 0.52, 0.41, 0.42, 0.31, 0.32, 0.91, 0.92, 0.21, 0.22):
        end(store, take(store, who), value)
    # They name the trials of the variant, and not those that repeat them.
    for sid, confirmation, lead in zip(variants, ids, ("#2 leads #1", "#1 leads #2"), strict=True):
        said = hpq("best", sid).stdout
        assert lead in said and f"means of 2 other seeds, in {confirmation}" in said
    ranking = hpq("best", *ids, "-o", "csv").stdout.splitlines()
    assert ranking[1].split(",")[0] == ids[1], "the mean 0.915 is the best"
    count = len(reader.sweeps.ids())
    refused(hpq("best", variants[0], ids[1], "--confirm", "5"), "usage", variants[1])
    assert len(reader.sweeps.ids()) == count, "what cannot be done for one is done for none"
    two = json.loads(hpq("best", *variants, "-n", "2", "--confirm", "2", "--json").stdout)
    assert [one["trials"] for one in two] == [2, 2], "the two best of one ranking"
    only = ("--confirm", "2", "--where", "x == 3", "--json")
    assert json.loads(hpq("best", *variants, *only).stdout)["trials"] == 2, "of one sweep alone"


def test_best_of_a_sweep_without_results_is_one_line_and_exit_1(
    hpq: Hpq, sweep_of: MakeSweep
) -> None:
    sweep_of(2)
    answer = hpq("best", "--yaml")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "demo-00000" in answer.stderr and "2 queued" in answer.stderr


def test_results_as_csv_are_read_back_by_a_csv_reader(hpq: Hpq, done: SweepView) -> None:
    rows = list(csv.DictReader(io.StringIO(hpq("results", "--csv").stdout)))
    assert [(r["trial"], r["state"], r["param.x"], r["objective"]) for r in rows] == [
        ("1", "finished", "1", "0.5"),
        ("2", "finished", "2", "0.9"),
        ("3", "failed", "3", ""),
    ]
    assert inert(rows[2]["failure.message"])


def test_csv_json_lines_and_pandas_name_columns_alike(hpq: Hpq, done: SweepView) -> None:
    """A row of JSON Lines that pandas flattens has the columns of CSV."""
    lines = hpq("results", "-o", "jsonl").stdout.splitlines()
    (titles, *rows) = csv.reader(hpq("results", "-o", "csv").stdout.splitlines())
    frame = pandas.json_normalize([json.loads(line) for line in lines])
    assert [json.loads(line) for line in lines] == json.loads(hpq("results", "--json").stdout)
    assert (len(lines), len(rows)) == (3, 3)
    assert {"param.x", "last.acc", "failure.message"} <= set(titles) <= set(frame.columns)


def test_results_and_curves_as_parquet_have_the_columns_of_csv(
    hpq: Hpq,
    done: SweepView,
    sweep_of: MakeSweep,
    store: TrialStore,
    who: WorkerPresence,
) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def read(words: list[str]) -> pandas.DataFrame:
        answer = hpq(*words, "-o", "parquet")
        assert answer.returncode == 0, answer.stderr
        return pandas.read_parquet(io.BytesIO(answer.stdout.encode("utf-8", "surrogateescape")))

    for words in (["results"], ["results", "--history"]):
        frame = read(words)
        (titles, *rows) = csv.reader(hpq(*words, "-o", "csv").stdout.splitlines())
        assert list(frame.columns) == titles and len(frame) == len(rows)
    frame = read(["results", "--where", "x > 9"])
    assert {"trial", "param.x", "objective"} <= set(frame.columns) and frame.empty
    sweep_of(1, "e-00000")
    report(store, who, got := take(store, who), acc=[0.5, math.inf])
    end(store, got, 0.5)
    assert list(read(["results", "e-00000"])["last.acc"]) == [math.inf], "as in its history"


def test_a_command_that_writes_no_parquet_refuses_it_before_it_changes_anything(
    hpq: Hpq, reader: StoreReader, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(
        "trainer: digits\nmethod: grid\nparameters: {epochs: {value: 1}}"
    )
    refused(hpq("enqueue", str(tmp_path / "s.yaml"), "-o", "parquet"), "usage", "hpq results")
    assert reader.sweeps.ids(1) == []


def test_a_parquet_column_of_several_types_is_text() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    file = io.BytesIO()
    write_parquet(trials_frame([{"x": 1, "y": "a"}, {"x": 2}, {"x": None, "y": [1]}]), file)
    found = pandas.read_parquet(file)
    assert list(found["y"].dropna()) == ['"a"', "[1]"] and list(found["x"].dropna()) == [1, 2]


def test_history_prints_every_value_in_each_format(hpq: Hpq, done: SweepView) -> None:
    lines = hpq("results", "--history", "-o", "jsonl").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert {(r["attempt"], r["metric"]) for r in rows} == {(1, "acc")}
    assert [(r["trial"], r["step"], r["value"]) for r in rows] == [
        (1, 1, 0.25), (1, 2, 0.5), (2, 1, 0.45), (2, 2, 0.9),
    ]  # fmt: skip
    assert rows == json.loads(hpq("results", "--history", "--json").stdout)
    cells = list(csv.DictReader(hpq("results", "--history", "--csv").stdout.splitlines()))
    assert list(cells[0]) == list(rows[0]) and cells[0]["received"] == rows[0]["received"]
    table = hpq("results", "--history", "--where", "x == 2").stdout.splitlines()
    assert table[0].split() == list(rows[0]) and len(table) == 3
    assert (
        hpq("results", "--history", "--where", "state == failed", "--csv").stdout.count("\n") == 1
    )


def test_results_are_sorted_cut_and_filtered(hpq: Hpq, done: SweepView) -> None:
    def numbers(*args: str) -> list[int]:
        return [row["trial"] for row in json.loads(hpq("results", "--json", *args).stdout)]

    assert numbers() == [1, 2, 3]
    assert numbers("--sort", "objective") == [2, 1, 3]
    assert numbers("--sort", "-x") == [3, 2, 1]
    assert numbers("--top", "1") == [2]
    assert numbers("--sort", "-objective", "--top", "1") == [1]
    assert numbers("--where", "state == failed") == [3]
    wrong = hpq("results", "--sort", "nope")
    refused(wrong, "column-unknown", "nope")


def test_the_column_that_results_are_sorted_by_is_shown(
    hpq: Hpq, redis: Redis, done: SweepView
) -> None:
    for number in (1, 2, 3):  # a trial that took no millisecond has a duration, too
        redis.hset(f"hpq:t:demo-00000/{number}", "ran_ms", 0)

    def titles(*args: str) -> list[str]:
        return hpq("results", *args).stdout.splitlines()[0].split()

    plain = titles()
    assert titles("--sort", "-attempt") == [*plain[:-3], "attempt", *plain[-3:]]
    for shown in ("x", "acc", "objective", "-duration", "number", "step"):
        assert titles("--sort", shown) == plain
    assert hpq("results", "--sort", "worker").stdout.count(" w1 ") == 3


def test_results_sorted_by_the_name_of_a_run_show_it_once(
    hpq: Hpq, redis: Redis, done: SweepView
) -> None:
    for number in (1, 2, 3):
        redis.hset(f"hpq:t:demo-00000/{number}", "run_info", json.dumps({"name": f"r{number}"}))
    assert hpq("results", "--sort", "name").stdout.splitlines()[0].split().count("name") == 1


def test_no_reader_lets_an_escape_sequence_through(hpq: Hpq, done: SweepView) -> None:
    for command in (
        ["results"],
        ["results", "--json"],
        ["summary"],
        ["summary", "--json"],
        ["show"],
        ["show", "3"],
        ["show", "1", "--json"],
        ["logs", "1"],
        ["watch", "--once"],
        ["watch"],
    ):
        answer = hpq(*command)
        assert answer.returncode in (0, 1), (command, answer.stderr)
        assert inert(answer.stdout), command
    assert "[bold]x[/bold]" in hpq("show", "3").stdout


def test_show_tells_all_of_a_sweep_and_of_a_trial(hpq: Hpq, done: SweepView) -> None:
    sweep = hpq("show").stdout
    assert "digits" in sweep and "3: 2 finished, 1 failed" in sweep
    trial = hpq("show", "#2").stdout
    assert "demo-00000/2" in trial and "0.9000" in trial and "at 0.9" in trial
    record = json.loads(hpq("show", "demo/2", "--json").stdout)
    assert record["history"] == {"acc": [[1, 0.45], [2, 0.9]]}


def test_unknown_sweeps_and_trials_are_one_line_and_exit_4(hpq: Hpq, done: SweepView) -> None:
    for args in (
        ["show", "nope"],
        ["show", "99"],
        ["logs", "99"],
        ["watch", "nope"],
        ["wait", "x"],
    ):
        answer = hpq(*args)
        assert (answer.returncode, len(answer.stderr.splitlines())) == (4, 1), args


@pytest.mark.parametrize(
    "words", [["show", ""], ["logs", ""], ["get", ""], ["diff", ""], ["diff", "demo-00000", ""]]
)
def test_an_empty_argument_is_not_the_last_sweep(
    hpq: Hpq, done: SweepView, words: list[str]
) -> None:
    refused(hpq(*words), "sweep-not-found", exit=4)  # an unknown variable of a shell


def test_logs_gives_the_last_lines(hpq: Hpq, done: SweepView) -> None:
    assert hpq("logs", "2", "--tail", "1").stdout == "at 0.9 red =cmd() [bold]x[/bold]\n"


def test_logs_of_a_sweep_are_those_of_the_trial_that_ended_last(hpq: Hpq, done: SweepView) -> None:
    answer = hpq("logs")
    assert (answer.returncode, answer.stderr) == (0, "trial demo-00000/3 printed nothing\n")


def test_a_table_in_a_pipe_is_cut_only_where_columns_says_so(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(1)
    fail(store, take(store, who), "long " * 40 + "end")
    assert "end" in hpq("results").stdout
    cut = hpq("results", COLUMNS="30").stdout.splitlines()
    assert len(cut) == 2 and max(map(len, cut)) <= 30


def test_summary_ranks_draws_bars_and_groups_failures(
    hpq: Hpq, hpq_process: Hpq, done: SweepView
) -> None:
    lines = hpq("summary").stdout.splitlines()
    ranked = [line for line in lines if "●" in line][:2]
    assert [line.split()[1] for line in ranked] == ["2", "1"]
    assert ranked[0].index("●") > ranked[1].index("●"), "points, since no bar could begin at zero"
    assert "(points lie between 0.5000 and 0.9000)" in lines
    assert any(line.startswith("verdict") for line in lines)
    assert any(line.startswith("program failed: 1 trial  demo-00000/3: red") for line in lines)
    plain = hpq_process("summary", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert plain.stdout.isascii() and "|||*" in plain.stdout
    lines = hpq_process("watch", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert lines.stdout.isascii() and "====" in lines.stdout, lines.stderr


def test_workers_lists_who_is_alive(hpq: Hpq, store: TrialStore) -> None:
    assert "hpq worker" in hpq("workers").stderr
    fields = {"state": "idle", "device": f"GPU {ESCAPES}", "takes": dumps(["digits"])}
    there = WorkerPresence(name="w9", host="h", queue="default", fields=fields)
    store.present(there, idle=True, lifetime_ms=600_000)
    answer = hpq("workers")
    assert "w9" in answer.stdout and inert(answer.stdout)
    (record,) = json.loads(hpq("workers", "--json").stdout)
    assert (record["name"], record["takes"]) == ("w9", ["digits"])


def test_wait_answers_how_the_sweep_ended(hpq: Hpq, done: SweepView) -> None:
    waited = hpq("wait", "-o", "json")
    data = json.loads(waited.stdout)
    assert waited.returncode == 1 and "#2" in data["verdict"]
    assert data["next"][:2] == ["hpq logs demo-00000/3", "hpq retry demo-00000"]
    assert "hpq best demo-00000 --yaml" in data["next"]


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (["finished", "finished", "pruned", "cancelled"], 0),
        (["finished", "finished", "diverged", "diverged"], 1),
        (["finished", "finished", "finished", "stalled"], 1),
        (["finished", "unreported", "finished", "finished"], 0),
        (["unreported", "unreported", "unreported"], 5),
    ],
)
def test_wait_and_watch_exit_by_one_rule(
    hpq: Hpq,
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    ends: list[str],
    code: int,
) -> None:
    sweep_of(4, queue="default")
    for end_ in ends:
        state, failure = TrialState.FAILED, None
        if end_ in ("finished", "pruned", "cancelled"):
            state = TrialState(end_)
        else:
            state = TrialState.FINISHED if end_ == "unreported" else state
            failure = Failure(kind=FailureKind(end_), message="no 'acc'; did you mean 'Acc'?")
        value = 0.5 if state is not TrialState.CANCELLED and failure is None else None
        outcome = Outcome(state=state, objective=value, failure=failure)
        if store.commit(take(store, who), outcome) is CommitReply.REQUEUED:
            store.commit(take(store, who), outcome)
    waited = hpq("wait")
    assert waited.returncode == code == hpq("watch").returncode
    if code == 5:
        held = ["sweep-held", "sweep-held-remedy", "metric-unreported"]
        assert ids(waited.stderr) == ["no-worker", *held]
        assert "did you mean 'Acc'?" in waited.stderr and "hpq resume demo-00000" in waited.stderr


def test_every_view_counts_progress_alike_without_cancelled_trials(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sid = sweep_of(12).id
    end(store, take(store, who), 0.5)
    fail(store, take(store, who), "no")
    control.cancel(sid, [12])
    assert "has 7 trials" in hpq("set", sid, "run_cap=7").stderr
    for words in (("watch", "--once"), ("wait", "--timeout", "0"), ("ls",), ("show", sid)):
        answer = hpq(*words)
        assert re.search(r" 2/7\b", answer.stdout + answer.stderr), words
    listed = hpq("ls").stdout
    assert "1 failed, 5 cancelled" in listed
    (record,) = json.loads(hpq("ls", "--json").stdout)
    assert (record["planned"], record["total"]) == (7, 12)


def test_every_view_counts_the_trials_of_a_sweep_that_was_cancelled_before_any_ended(
    hpq: Hpq, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sid = sweep_of(12).id
    control.cancel(sid)
    for words in (("watch", "--once"), ("wait",), ("ls",), ("show", sid)):
        answer = hpq(*words)
        assert re.search(r"\b0/12\b", answer.stdout + answer.stderr), words
        assert "12 cancelled" in answer.stdout + answer.stderr, words
    (record,) = json.loads(hpq("ls", "--json").stdout)
    assert (record["planned"], record["total"]) == (12, 12)


def test_wait_names_the_pause_of_a_sweep_rather_than_missing_workers(
    hpq: Hpq, sweep_of: MakeSweep
) -> None:
    sid = sweep_of(2).id
    assert hpq("pause", sid).returncode == 0
    answer = hpq("wait", "--timeout", "0.1")
    assert ids(answer.stderr) == ["sweep-paused", "timed-out"]


def test_wait_gives_up_in_time_and_says_what_it_waits_for(hpq: Hpq, sweep_of: MakeSweep) -> None:
    sweep_of(2)
    answer = hpq("wait", "--timeout", "0.1")
    assert answer.returncode == 5 and ids(answer.stderr) == ["no-worker", "timed-out"]
    assert "0/2" in answer.stderr


@contextmanager
def running(environ: dict[str, str], *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """hpq in the background, its stdout a pipe."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hpq_producer", *args],
        env=environ,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        bufsize=0,  # so that select tells of every line
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert ready, "nothing printed"
    return process.stdout.readline().decode().rstrip("\n")


def test_watch_off_a_terminal_prints_a_line_an_event_and_ends_with_the_sweep(
    environ: dict[str, str], store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(1)
    with running(environ, "watch") as process:
        assert next_line(process).startswith("demo-00000  waiting")
        assert ids(next_line(process)) == ["no-worker"]
        got = take(store, who)
        assert next_line(process) == "#1 started on w1  x=1"
        end(store, got, 0.75)
        assert next_line(process).startswith("#1 finished acc=0.7500 in ")
        assert next_line(process).startswith("demo-00000  finished")
        assert process.wait(DEADLINE_S) == 0


def test_logs_follow_until_the_trial_ends(
    environ: dict[str, str], store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(1)
    got = take(store, who)
    report(store, who, got, b"first\n", acc=[0.1])
    with running(environ, "logs", "-f", "1") as process:
        assert next_line(process) == "first"
        store.beat(got, who, ReportBatch(seq=2, log=b"sec\x1b[3"), lease_ms=LEASE_MS)
        store.beat(got, who, ReportBatch(seq=3, log=b"1mond \xc3"), lease_ms=LEASE_MS)
        store.beat(got, who, ReportBatch(seq=4, log=b"\xa9\n"), lease_ms=LEASE_MS)
        assert next_line(process) == "second é"
        end(store, got, 0.5)
        assert process.wait(DEADLINE_S) == 0


class Terminal:
    """hpq on a terminal of its own: what it draws, and keys for it."""

    def __init__(self, environ: dict[str, str], *args: str, term: str = "xterm-256color") -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hpq_producer", *args],
            env={**environ, "TERM": term},
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.drawn = ""

    def until(self, text: str) -> str:
        """Reads until this text was drawn; answers all that was drawn so far."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.drawn and time.monotonic() < end and self.read():
            pass
        assert text in self.drawn, self.drawn[-2000:]
        return self.drawn

    def to_the_end(self) -> str:
        """Reads until hpq is gone; answers all that was drawn."""
        while self.read():
            pass
        return self.drawn

    def read(self) -> bool:
        """Reads what is drawn next; False at the end."""
        ready, _, _ = select.select([self._master], [], [], DEADLINE_S)
        try:
            part = os.read(self._master, 65536) if ready else b""
        except OSError:  # the other side is closed
            return False
        self.drawn += part.decode("utf-8", "replace")
        return bool(part)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """Closes the terminal under the process."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)


@pytest.fixture
def terminal(environ: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*args: str) -> Terminal:
        opened.append(Terminal(environ, *args))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


LEAVES, HOME = "\x1b[?1049l", "\x1b[H"  # HOME begins a frame


def test_watch_draws_on_another_screen_and_q_gives_the_first_one_back(
    terminal: Callable[..., Terminal], store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(3)
    got = take(store, who)
    shown = terminal("watch")
    assert "\x1b[?1049h" in shown.until("1 running")[:20]
    end(store, got, 0.8125)
    shown.until("0.8125")
    shown.press("q")
    verdict = re.sub(r"\x1b\[[0-9;]*m", "", shown.to_the_end().rpartition(LEAVES)[2])
    assert shown.process.wait(DEADLINE_S) == 0
    assert verdict.startswith("demo-00000  ") and "1 finished" in verdict


def test_keys_open_a_trial_filter_and_cancel_after_a_yes(
    terminal: Callable[..., Terminal],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    reader: StoreReader,
) -> None:
    sweep_of(3)
    got = take(store, who)
    report(store, who, got, b"hello from the trial\n", acc=[0.5])
    shown = terminal("watch")
    shown.until("1 of 3")
    shown.press("\r")
    shown.until("Esc back")
    shown.press("\x1b[F")
    shown.until("hello from the trial")
    shown.press("\x1b")
    shown.press("/x == 2\r")
    shown.until("/x == 2")
    shown.until("1 of 1")
    shown.press("x")
    shown.until("cancel trial #2?")
    shown.press("y")
    shown.until("1 trial cancelled")
    assert [t.state.value for t in reader.trials.all("demo-00000")][1] == "cancelled"
    shown.press("q")
    assert shown.process.wait(DEADLINE_S) == 0


def test_keys_and_events_draw_at_most_four_frames_a_second(
    terminal: Callable[..., Terminal], store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(50)
    shown = terminal("watch")
    shown.until("1 of 50")
    begun = time.monotonic()  # before the frame after which frames are counted is drawn
    shown.press("j")
    drawn = len(shown.until("2 of 50").partition("2 of 50")[0])
    for n in range(3, 13):
        shown.press("j")
        end(store, take(store, who), n / 100)
        shown.until(f"{n} of 50")
    frames = shown.drawn.count(HOME, drawn)
    assert 10 <= frames <= 4 * (time.monotonic() - begun) + 2


def test_a_sweep_of_somebody_else_is_not_changed_by_a_key(
    terminal: Callable[..., Terminal], sweep_of: MakeSweep, reader: StoreReader
) -> None:
    sweep_of(1, owner="her")
    shown = terminal("watch", "demo-00000")
    shown.until("1 of 1")
    shown.press("p")
    shown.until("pause the sweep?")
    shown.press("y")
    shown.until("her's")
    assert reader.sweeps.get("demo-00000").stored is StoredState.OPEN


def test_all_shows_the_sweeps_and_one_that_is_removed_leads_back(
    terminal: Callable[..., Terminal], sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1, "first-00000")
    sweep_of(1, "second-00000")
    shown = terminal("watch", "--all")
    shown.until("1 of 2")
    shown.press("\r")
    shown.until("1 of 1")
    control.remove("second-00000")
    shown.until("no sweep") if "first-00000" not in shown.drawn else None
    shown.until("1 of 1  Enter opens")
    shown.press("q")
    assert shown.process.wait(DEADLINE_S) == 0


def test_a_sweep_removed_while_watched_ends_with_the_reason(
    terminal: Callable[..., Terminal], sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1)
    shown = terminal("watch")
    shown.until("1 queued")
    control.remove("demo-00000")
    said = shown.to_the_end().rpartition(LEAVES)[2]
    assert shown.process.wait(DEADLINE_S) == 4 and "sweep-not-found" in said


def test_a_terminal_that_closes_ends_watch(
    terminal: Callable[..., Terminal], sweep_of: MakeSweep
) -> None:
    sweep_of(1)
    shown = terminal("watch")
    shown.until("1 queued")
    shown.hang_up()
    assert shown.process.wait(DEADLINE_S) != 0


def test_ctrl_z_gives_the_terminal_back_and_going_on_draws_again(
    terminal: Callable[..., Terminal], sweep_of: MakeSweep
) -> None:
    sweep_of(1)
    shown = terminal("watch")
    shown.until("1 queued")
    shown.process.send_signal(signal.SIGTSTP)
    # Without a shell in its session the kernel does not stop a process: it goes on at once.
    shown.until(LEAVES)
    end = time.monotonic() + DEADLINE_S
    while "1 queued" not in shown.drawn.rpartition(LEAVES)[2] and time.monotonic() < end:
        assert shown.read()
    assert "\x1b[?1049h" in shown.drawn.rpartition(LEAVES)[2]
    shown.press("q")
    assert shown.process.wait(DEADLINE_S) == 0


def test_a_dumb_terminal_gets_lines(
    environ: dict[str, str], sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1)
    shown = Terminal({**environ, "DUMB": "1"}, "watch", term="dumb")
    shown.until("demo-00000  waiting")
    control.cancel("demo-00000")
    assert "\x1b" not in shown.to_the_end()
    shown.close()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_restores_the_terminal(
    terminal: Callable[..., Terminal], sweep_of: MakeSweep, sent: signal.Signals, code: int
) -> None:
    sweep_of(1)
    shown = terminal("watch")
    shown.until("1 queued")
    shown.process.send_signal(sent)
    shown.until(LEAVES)
    assert shown.process.wait(DEADLINE_S) == code


def test_a_broken_sweep_does_not_hide_the_others(
    hpq: Hpq, redis: Redis, sweep_of: MakeSweep
) -> None:
    for i, field in enumerate(("metric", "launch", "varying", "n_failed")):
        sweep_of(1, f"broken-{i}")
        redis.hset(f"hpq:s:broken-{i}", field, "5 garbage")
    sweep_of(1, "another-type")
    redis.delete("hpq:s:another-type:waiting")
    redis.set("hpq:s:another-type:waiting", "x")
    sweep_of(1, "whole-00000")
    answer = hpq("ls")
    assert answer.returncode == 0
    rows = {line.split()[0]: line.split()[1] for line in answer.stdout.splitlines()[1:]}
    assert rows.pop("whole-00000") == "waiting"
    assert len(rows) == 5 and set(rows.values()) == {"unreadable"}
    assert "hpq:s:broken-0: field metric: " in answer.stderr
    records = {row["id"]: row for row in json.loads(hpq("ls", "--json").stdout)}
    assert records["whole-00000"]["queued"] == 1
    assert "field varying" in records["broken-2"]["why"]
    one = hpq("show", "broken-0")
    assert (one.returncode, len(one.stderr.splitlines())) == (3, 1)


def test_after_rm_of_my_last_sweep_the_one_before_is_meant(
    hpq: Hpq, reader: StoreReader, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1, "mine-00000")
    sweep_of(1, "hers-00000", owner="her")
    control.remove(sweep_of(1, "mine-11111").id)
    assert "mine-00000" in hpq("show").stdout
    control.remove("mine-00000")
    refused(hpq("show"), "no-sweep", exit=4)


def test_show_says_whether_the_launch_record_is_signed_by_this_users_key(
    hpq: Hpq, redis: Redis, sweep_of: MakeSweep
) -> None:
    sweep = sweep_of(1, launch=Launch(program="train.py", code_dir="/tmp"))

    def signed() -> str:
        mine = {"HPQ_CODE_KEY": "k3y-of-16-letters"}
        said = str(json.loads(hpq("show", "--json", **mine).stdout)["signed"])
        assert re.search(rf"\n.*signed +{re.escape(said)}\n", hpq("show", **mine).stdout)
        return said

    assert signed() == "no"
    redis.hset("hpq:s:demo-00000", "signature", sign(b"k3y-of-16-letters", "hpq", sweep))
    assert signed() == "yes"
    redis.hset("hpq:s:demo-00000", "signature", sign(b"other", "hpq", sweep))
    assert signed().startswith("not ")
    redis.hset("hpq:s:demo-00000", "signature", "no hex: \u00e9")
    assert signed().startswith("not ")


def test_show_prints_the_file_as_it_was_written(hpq: Hpq, sweep_of: MakeSweep) -> None:
    text = "# mine\nmethod: grid  # all of it\n"
    sweep_of(1, provenance={"text": text, "host": "h"}, spec={"method": "grid"})
    shown = hpq("show").stdout
    assert "  # mine\n  method: grid  # all of it\n" in shown and "  host  h\n" in shown
    assert '"method"' not in shown and r"\n" not in shown


def test_show_of_a_trial_leaves_package_versions_to_json(
    hpq: Hpq, store: TrialStore, redis: Redis, done: SweepView
) -> None:
    redis.hset("hpq:t:demo-00000/2", "provenance", "d1")
    store.keep_provenance("d1", dumps({"host": "h", "packages": {"numpy": "2.0"}}))
    shown = hpq("show", "2").stdout
    assert "provenance\n  host  h\n" in shown and "numpy" not in shown
    assert json.loads(hpq("show", "2", "--json").stdout)["provenance"]["packages"]


@pytest.fixture
def nested(store: TrialStore, who: WorkerPresence, writer: SweepWriter) -> SweepView:
    """Two finished trials whose optimizer has a name and a learning rate."""
    sweep = SweepView(
        id="demo-00000", name="demo", digest="d", launch=Launch(program="t.py"), owner="me",
        metric=Metric(name="acc", goal=Goal.MAXIMIZE), varying=("opt.lr", "opt.name"),
    )  # fmt: skip
    sets = [{"opt": {"lr": 0.03106791910697813, "name": n}, "mix": [1, {"a": 2}]} for n in "ab"]
    sets[1]["opt"] = {"lr": 0.5, "name": "b"}
    rows = [(dumps(s), bytes([i]) * 16) for i, s in enumerate(sets)]
    writer.add_rows(sweep.id, 1, rows)
    writer.create(sweep)
    for objective in (0.5, 0.9):
        end(store, take(store, who), objective)
    return sweep


def test_nested_parameters_are_shown_by_their_dotted_names(hpq: Hpq, nested: SweepView) -> None:
    header, first, _ = hpq("results").stdout.splitlines()
    assert header.split()[2:4] == ["opt.lr", "opt.name"]
    assert first.split()[2:4] == ["0.03107", "a"]
    assert "opt.lr=0.5  opt.name=b" in hpq("watch", "--once").stdout
    assert "opt.lr    0.5\n" in hpq("best").stdout and "opt.name" in hpq("summary").stdout
    sorted_ = json.loads(hpq("results", "--sort", "-opt.lr", "--json").stdout)
    assert [row["trial"] for row in sorted_] == [2, 1]
    assert json.loads(hpq("best", "--json").stdout)["param"]["opt"] == {"lr": 0.5, "name": "b"}


def test_versions_that_differ_between_hosts_are_one_warning(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(3)
    libraries = {"numpy": "2.0", "torch": "2.4"}
    for name, torch in (("d1", "2.4"), ("d2", "2.4"), ("d3", "2.5")):
        packages = {**libraries, "torch": torch}
        record = {"host": f"host-{name}", "python": "3.11.7", "packages": packages}
        store.keep_provenance(name, dumps(record))
        got = store.claim(who, nonce=name, lease_ms=LEASE_MS, provenance=name)
        assert isinstance(got, Claim)
        end(store, got, 0.5)
        warned = [line for line in hpq("summary").stdout.splitlines() if "versions differ" in line]
        assert len(warned) == (name == "d3")
    assert "torch 2.4 on host-d1, 2.5 on host-d3" in warned[0] and "numpy" not in warned[0]
    for name, record in (("d4", "[1]"), ("d5", '{"packages": 3, "programs": 4}'), ("d6", "{}")):
        sweep_of(1, f"bad{name}-00000")
        store.keep_provenance(name, record)
        got = store.claim(who, nonce=name, lease_ms=LEASE_MS, provenance=name)
        end(store, got, 0.5)
        assert hpq("summary", f"bad{name}-00000").returncode == (3 if name == "d4" else 0)


def test_csv_has_a_column_for_each_nested_parameter_and_lists_as_json(
    hpq: Hpq, nested: SweepView
) -> None:
    row = next(csv.DictReader(io.StringIO(hpq("results", "--csv").stdout)))
    assert (row["param.opt.lr"], row["param.opt.name"]) == ("0.03106791910697813", "a")
    assert json.loads(row["param.mix"]) == [1, {"a": 2}]


def test_logs_of_a_trial_that_printed_nothing_say_so(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(2)
    end(store, take(store, who), 0.5)
    for words in (["1"], ["1", "--tail", "3"], []):
        answer = hpq("logs", *words)
        assert (answer.returncode, answer.stdout) == (0, "")
        assert answer.stderr.splitlines()[-1] == "trial demo-00000/1 printed nothing"
    assert hpq("logs", "1", "--tail", "0").stderr == hpq("logs", "1", "-f").stderr == ""


def test_logs_of_a_sweep_are_rather_those_of_a_failed_trial(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(2)
    fail(store, take(store, who), ESCAPES)
    end(store, take(store, who), 0.5)
    assert hpq("logs").stderr == "trial demo-00000/1 printed nothing\n"


def test_a_page_in_a_pipe_ends_with_its_last_line(hpq: Hpq, done: SweepView) -> None:
    lines = hpq("watch", "--once").stdout.splitlines()
    assert lines[-1] and "q quits" not in lines[-1] and len(lines) < 20


def test_watch_once_and_wait_give_the_sweep_as_data(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(3)
    end(store, take(store, who), 0.5)
    second = take(store, who)
    shot = json.loads(hpq("watch", "--once", "--json").stdout)
    assert (shot["sweep"]["id"], shot["sweep"]["best"]) == ("demo-00000", 0.5)
    assert [[t["trial"] for t in shot[part]] for part in ("running", "recent", "best")] == [
        [2], [1], [1],
    ]  # fmt: skip
    assert [one["code"] for one in shot["needs_you"]][:1] == ["no-worker"]
    assert hpq("watch", "--json").returncode == 2
    late = hpq("wait", "--json", "--timeout", "0.1")
    data = json.loads(late.stdout)
    assert (late.returncode, data["running"], data["verdict"]) == (5, 1, None)
    assert [one["code"] for one in data["needs_you"]] == ["no-worker"]
    assert data["next"][:2] == ["hpq worker --sweep demo-00000", "hpq wait demo-00000"]
    control.cancel("demo-00000", [3])
    got = store.claim(who, nonce="again", lease_ms=LEASE_MS)
    assert got == Nothing()
    end(store, second, 0.75)
    shot = json.loads(hpq("watch", "--once", "--json").stdout)
    assert (shot["sweep"]["state"], shot["sweep"]["not_taken"]) == ("finished", None)


def test_lines_begin_with_what_runs_already_and_are_never_wrapped(
    environ: dict[str, str], store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(2)
    long = "word " * 60 + "end"
    fail(store, take(store, who), long)
    got = take(store, who)
    with running(environ, "watch") as process:
        assert next_line(process).startswith("demo-00000  running")
        assert re.fullmatch(r"#2 running on w1 for \S+  x=2", next_line(process))
        end(store, got, 0.75)
        assert process.stdout is not None
        rest = process.stdout.read().decode().splitlines()
    failed = [line for line in rest if line.startswith("! 1 failed")]
    assert ids("\n".join(failed)) == ["trials-failed"] and failed[0].count("word") == 60


def test_ls_marks_what_no_live_worker_takes(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(1)
    answer = hpq("ls")
    assert answer.stdout.splitlines()[1].split()[1] == "waiting"
    assert answer.stderr.startswith("! demo-00000: ") and ids(answer.stderr) == ["no-worker"]
    (record,) = json.loads(hpq("ls", "--json", "--where", "state == waiting").stdout)
    assert (record["state"], record["not_taken"]["code"]) == ("waiting", "no-worker")
    assert json.loads(hpq("ls", "--json", "--where", "state == running").stdout) == []
    take(store, who)
    assert hpq("ls").stderr == ""
    (record,) = json.loads(hpq("ls", "--json").stdout)
    assert (record["state"], record["not_taken"]) == ("running", None)


def test_ls_says_once_why_several_sweeps_of_the_private_server_wait(
    hpq_process: Hpq, tmp_path: Path
) -> None:
    private = {"HPQ_REDIS_URL": "", "COLUMNS": "300", "KUBECONFIG": str(tmp_path / "none")}
    for epochs in (1, 2, 3):
        (tmp_path / "sweep.yaml").write_text(
            "trainer: digits\nmetric: {name: loss, goal: minimize}\nmethod: grid\n"
            f"parameters: {{epochs: {{value: {epochs}}}}}\n"
        )
        assert hpq_process("enqueue", "sweep.yaml", **private).returncode == 0
    answer = hpq_process("ls", **private)
    assert len(answer.stdout.splitlines()) == 4 and ids(answer.stderr) == ["no-worker"]
    assert "and 2 more" in answer.stderr and "hpq run SWEEP" in answer.stderr


def test_workers_tell_once_of_each_unfinished_sweep_that_they_leave(
    hpq: Hpq, store: TrialStore, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1, "wanted-00000")
    sweep_of(1, "over-00000")
    control.cancel("over-00000")
    why = {"code": "data-missing", "text": "no data"}
    refuses = dict.fromkeys(("wanted-00000", "over-00000", "gone-0"), why)
    for name in ("w1", "w2"):
        fields = {"state": "idle", "refuses": dumps(refuses)}
        there = WorkerPresence(name=name, host="h", queue="default", fields=fields)
        store.present(there, idle=True, lifetime_ms=600_000)
    said = hpq("workers").stderr
    assert ids(said) == ["data-missing"] and said.startswith("2 ") and "wanted-00000" in said


def test_a_worker_that_misses_beats_is_silent(
    hpq: Hpq, store: TrialStore, redis: Redis, reader: StoreReader
) -> None:
    there = WorkerPresence(name="w1", host="h", queue="default", fields={"state": "busy"})
    store.present(there, idle=False, lifetime_ms=600_000)
    assert [w.state for w in reader.workers.live()] == ["busy"]
    redis.zincrby("hpq:workers", -20_000, "w1")
    assert [w.state for w in reader.workers.live()] == ["silent"]
    redis.zincrby("hpq:workers", -20_000, "w1")
    assert reader.workers.live() == []


def test_the_importance_of_a_single_parameter_is_a_line_that_says_why_there_is_none(
    reader: StoreReader, done: SweepView
) -> None:
    *_, line = _important(reader, reader.sweeps.get(done.id), 80)
    assert "2 parameters" in plain(line)


def test_the_importance_of_an_ended_sweep_is_computed_once_and_again_after_a_retry(
    hpq: Hpq,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: TrialStore,
    control: SweepControl,
    writer: SweepWriter,
    who: WorkerPresence,
) -> None:
    sid, sets = "two-00000", [{"x": i, "y": i % 2} for i in range(1, 11)]
    writer.add_rows(sid, 1, [(dumps(one), ParameterSet(one).identity) for one in sets])
    metric = Metric(name="acc", goal=Goal.MAXIMIZE)
    launch = Launch(trainer="digits")
    writer.create(
        SweepView(id=sid, name="two", digest="d", launch=launch, metric=metric, varying=("x", "y"))
    )
    for value in range(9):
        end(store, take(store, who), value)
    fail(store, take(store, who), ESCAPES)

    def without_sklearn(*more: str) -> str:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "sklearn.ensemble", None)
            return hpq("summary", sid, *more).stdout

    missing = f"{sys.executable} -m pip install scikit-learn"
    assert missing in without_sklearn()  # which is not kept
    first = hpq("summary", sid).stdout
    assert "9 trials" in first and without_sklearn() == first
    kept = json.loads(without_sklearn("-o", "json"))["importance"]
    assert (kept["sets"], kept["why_none"] or kept["shares"][0]["param"]) == (9, "x")
    control.retry(sid, [10])
    assert "9 trials" in without_sklearn()  # the sweep runs: no result is newer
    end(store, take(store, who), 9)
    assert missing in without_sklearn()  # other results
    assert "10 trials" in hpq("summary", sid).stdout
    assert "10 trials" in without_sklearn()
    (tmp_path / "home" / "cache" / "importance" / f"{sid}.json").unlink()
    assert missing in without_sklearn()  # the file alone keeps it


@pytest.mark.parametrize(
    ("order", "numbers"), [("best", [2, 3, 1]), ("newest", [3, 2, 1]), ("number", [1, 2, 3])]
)
def test_watch_sorts_the_trials_that_a_filter_picks(
    reader: StoreReader,
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    order: str,
    numbers: list[int],
) -> None:
    sweep_of(4, metric=Metric(name="acc", goal=Goal.MAXIMIZE))
    for value in (0.5, 0.9, 0.7):
        end(store, take(store, who, "a"), value)
    found = reader.sweeps.get("demo-00000")
    assert matching(reader, found, Search(order, "finished")) == numbers
    assert matching(reader, found, Search(order, "queued")) == [4]
