"""The pure parts of a worker: commands, printed metrics, failures, slots, messages."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpq.command import argv
from hpq.errors import DataMissing, UserError
from hpq.outcome import Outcome
from hpq.report import flatten
from hpq.store import Store
from hpq.sweep import Goal, Metric, Take
from hpq.trial import Failure, FailureKind, TrialState
from hpq.view import View
from worker import devices
from worker.collector import Collector, parse_printed
from worker.failures import of_exception, of_exit
from worker.logs import Inert
from worker.messages import End, Lines, Run, end_message, read_end, read_run, run_message
from worker.spool import Spool

PARAMS = {"lr": 0.1, "opt": "a b", "nest": {"x": 1}, "flag": True, "off": False, "none": None}


def words(*command: str, params: dict[str, object] | None = None) -> list[str]:
    made = argv(
        tuple(command),
        "train.py",
        PARAMS if params is None else params,  # type: ignore[arg-type]
        environ={"HOME": "/h"},
        params_file="/p.json",
        interpreter="python3",
    )
    return list(made)


def test_the_default_command_is_wandbs() -> None:
    assert words(params={"lr": 0.1}) == ["/usr/bin/env", "python3", "train.py", "--lr=0.1"]


@pytest.mark.parametrize(
    ("macro", "expected"),
    [
        ("${args_no_equals}", ["--a", "1", "--b", "x y"]),
        ("${args_no_hyphens}", ["a=1", "b=x y"]),
        ("${args_json}", ['{"a": 1, "b": "x y"}']),
        ("${args_json_file}", ["/p.json"]),
        ("${args_append_hydra}", ["+a=1", "+b=x y"]),
        ("${args_override_hydra}", ["++a=1", "++b=x y"]),
        ("${envvar:HOME}/run", ["/h/run"]),
        ("${envvar:NOWHERE}", ["NOWHERE"]),
        ("--size=${a}", ["--size=1"]),
        ("--size=${unknown}", ["--size=${unknown}"]),
        ("$(id); rm -rf /", ["$(id); rm -rf /"]),
    ],
)
def test_a_macro_becomes_words_and_never_a_shell(macro: str, expected: list[str]) -> None:
    """B6: `$(id); rm -rf /`, spaces and quotes in a command's parameters."""
    assert words(macro, params={"a": 1, "b": "x y"}) == expected


def test_booleans_become_flags_where_the_macro_says_so() -> None:
    assert words("${args_no_boolean_flags}", params={"x": True, "y": False, "z": 2}) == [
        "--x",
        "--z=2",
    ]


def test_values_are_written_as_python_prints_them() -> None:
    assert words("${args}") == [
        "--lr=0.1", "--opt=a b", "--nest={'x': 1}", "--flag=True", "--off=False", "--none=None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("val_loss=0.5", ("val_loss", 0.5)),
        ("  val/loss = 1e-3 ", ("val/loss", 1e-3)),
        ("acc=-.5", ("acc", -0.5)),
        ("loss=nan", ("loss", None)),
        ("lr=0.1", None),
        ("epoch 3: loss=0.5 acc=0.2", None),
        ("x=1.2.3", None),
        ("x=1 2", None),
        ("=3", None),
        ("url=http://1", None),
    ],
)
def test_a_whole_printed_line_is_a_metric_unless_it_names_a_parameter(
    line: str, expected: tuple[str, float | None] | None
) -> None:
    found = parse_printed(line, {"lr": 0.1})
    if expected is None or found is None:
        assert found == expected
    elif expected[1] is None:
        assert found[0] == expected[0] and found[1] != found[1]
    else:
        assert found == expected


def test_steps_are_counted_for_each_metric_where_none_is_given() -> None:
    collector = Collector(None)
    for _ in range(2):
        collector.report({"a": 1.0}, None)
    collector.report({"b": 2.0}, None)
    assert [(p.name, p.step) for p in collector.batch().points] == [("a", 1), ("a", 2), ("b", 1)]


def test_a_batch_stays_the_same_until_it_is_acknowledged() -> None:
    collector = Collector(None)
    collector.report({"a": 1.0}, 1)
    first = collector.batch()
    collector.report({"a": 2.0}, 2)
    assert collector.batch() is first
    collector.acknowledge()
    assert [p.step for p in collector.batch().points] == [2] and collector.batch().seq == 2


def test_the_fifty_first_metric_is_dropped() -> None:
    collector = Collector(None)
    collector.report({f"m{i}": 1.0 for i in range(60)}, 1)
    assert len(collector.names) == 50


@pytest.mark.parametrize(("take", "expected"), [(Take.LAST, 0.7), (Take.BEST, 0.9)])
def test_the_objective_is_the_last_value_or_the_best(take: Take, expected: float) -> None:
    collector = Collector(Metric(name="acc", goal=Goal.MAXIMIZE, take=take))
    for value in (0.5, 0.9, 0.7):
        collector.report({"acc": value}, None)
    assert collector.objective == expected


def test_a_last_value_that_is_not_finite_is_no_objective() -> None:
    collector = Collector(Metric(name="loss"))
    collector.report({"loss": 1.0}, None)
    collector.report({"loss": float("nan")}, None)
    assert collector.objective is None


def test_nested_reports_are_joined_with_dots() -> None:
    assert flatten({"val": {"loss": 1, "acc": {"top1": 0.5}}, "n": True}) == {
        "val.loss": 1.0,
        "val.acc.top1": 0.5,
        "n": 1.0,
    }


@pytest.mark.parametrize("bad", [{"a": "x"}, {"": 1}, {"a\n": 1}, {"a": None}, {"x" * 65: 1}])
def test_what_is_no_metric_is_refused_by_name(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="metric"):
        flatten(bad)


def test_the_same_mistake_has_the_same_fingerprint(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\ndef f(d):\n    return d[sys.argv[1]]\nf({})\n")
    marks = set()
    for key in ("a", "b"):
        done = subprocess.run(
            [sys.executable, str(script), key], capture_output=True, text=True, check=False
        )
        failure = of_exit(done.returncode, done.stderr)
        assert failure.kind is FailureKind.USER_ERROR and f"'{key}'" in failure.message
        marks.add(failure.fingerprint)
    assert marks == {"KeyError train.py:3"}


def test_a_signal_is_named() -> None:
    failure = of_exit(-9, "")
    assert failure.kind is FailureKind.KILLED and failure.message == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError("x"), FailureKind.OUT_OF_MEMORY),
        (DataMissing("no images"), FailureKind.DATA_MISSING),
        (RuntimeError("boom"), FailureKind.USER_ERROR),
        (RuntimeError("CUDA error: out of memory\nCompile with …"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("CPUAllocator: can't allocate memory: you"), FailureKind.OUT_OF_MEMORY),
    ],
)
def test_exceptions_have_kinds(error: Exception, kind: FailureKind) -> None:
    assert of_exception(error).kind is kind


def test_a_message_survives_the_pipe() -> None:
    run = Run(trial="s/1", attempt=2, params={"a": [1, {"b": None}]}, argv=("x", "y"), env={})
    (line,) = Lines().feed(run_message(run))
    assert read_run(json.loads(line)["run"]) == run
    end = End(failure=Failure(kind=FailureKind.TIMEOUT, message="m"), status=3)
    assert read_end(json.loads(end_message("s/1/1", end))["end"]) == end


def test_lines_are_put_together_from_pieces() -> None:
    lines = Lines()
    assert lines.feed(b"a\nb") == [b"a"]
    assert lines.feed(b"c\n\nd") == [b"bc", b""]
    assert lines.rest() == b"d" and lines.rest() == b""


def test_gpus_are_dealt_out_to_slots() -> None:
    assert devices.slots(["0", "1", "2", "3"], 2, 1) == ["0,1", "2,3"]
    assert devices.slots(["0", "1"], 1, 2) == ["0", "0", "1", "1"]
    assert devices.slots([], 1, 1) == [""]


@pytest.mark.parametrize(("gpus", "per", "share"), [(["0"], 2, 1), (["0", "1"], 2, 2)])
def test_gpus_that_cannot_be_dealt_out_are_refused(gpus: list[str], per: int, share: int) -> None:
    with pytest.raises(UserError, match="HPQ_GPUS_PER_TRIAL"):
        devices.slots(gpus, per, share)


def test_hidden_gpus_are_not_counted() -> None:
    assert devices.visible({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert devices.visible({"CUDA_VISIBLE_DEVICES": "2, 3"}) == ["2", "3"]


def test_cores_are_shared_by_slots_unless_the_user_has_said() -> None:
    cores = len(os.sched_getaffinity(0))
    assert devices.threads(1000, {}) == "1"
    assert devices.threads(1, {}) == str(cores)
    assert devices.threads(1, {"OMP_NUM_THREADS": "7"}) == "7"
    assert devices.threads(1, {}, cpus=1) == "1"  # a pod's request, not the node's cores
    assert devices.threads(1, {}, cpus=10_000) == str(cores)


def test_what_a_worker_logs_acts_on_no_terminal() -> None:
    record = logging.LogRecord("hpq", logging.INFO, "", 0, "\x1b[31m%s\nnext", ("\u202e",), None)
    assert Inert("%(message)s").format(record) == "\\x1b[31m\\u202e\nnext"


def test_a_checkpoint_says_how_many_finite_values_of_the_metric_it_has_behind_it() -> None:
    got = Collector(Metric(name="loss"))
    for value in (0.5, float("nan"), float("inf"), 0.25):
        got.report({"loss": value, "other": 1.0}, None)
    got.report({"loss": 0.25}, 4)  # at the step of the one before: it takes its place
    mark = got.mark()
    assert (mark.logged, mark.counts["loss"], mark.best) == (2, 5, 0.25)
    again = Collector(Metric(name="loss"))
    again.resume(mark)
    again.report({"loss": 0.1}, None)
    assert again.mark().logged == 3


def test_a_result_on_disk_is_left_to_its_worker_while_that_lives(
    tmp_path: Path, store: Store, view: View, sweep_of, take
) -> None:
    sweep_of(1)
    mine, others = Spool(tmp_path, "hpq"), Spool(tmp_path, "hpq")
    mine.put(claim := take(), Outcome(state=TrialState.FINISHED), 0)
    assert others.flush(store) == 0 and view.trial(claim.trial).state is TrialState.RUNNING
    mine.close()
    assert others.flush(store) == 1 and view.trial(claim.trial).state is TrialState.FINISHED


def test_a_spooled_result_that_redis_does_not_know_stays_on_disk(
    tmp_path, store, sweep_of, take, redis
) -> None:
    sweep_of(1)
    spool = Spool(tmp_path, "hpq")
    spool.put(take(), Outcome(state=TrialState.FINISHED), 0)
    spool.close()
    redis.flushall()
    for _ in range(2):
        assert spool.flush(store) == 0
        assert [p.suffix for p in tmp_path.rglob("*.*")] == [".unknown"]


def test_a_module_that_an_image_lacks_is_mended_in_the_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    failure = of_exit(1, "ModuleNotFoundError: No module named 'x'", ["python", "t.py"])
    assert "FROM hpq-worker" in failure.message and "HPQ_PYTHON" not in failure.message
