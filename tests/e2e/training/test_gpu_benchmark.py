"""The plan for a GPU in short, on a CPU."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

pytest.importorskip("torch")

from benchmarks import gpu, gpu_parts
from tests.support.constants import ROOT
from tests.unit.trainers.test_datasets import batches

pytestmark = pytest.mark.torch
CODE = ROOT / ".published"
STAMP = {"commit": "c", "small": True}


def planned(folder: Path, *words: str) -> CompletedProcess[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HPQ_REDIS_URL": "redis://127.0.0.1:1",  # a user's own server is left alone
    }
    command = [sys.executable, "-m", "benchmarks.gpu", "out", "--data", ".", "--home", "home"]
    options = {"env": environ, "cwd": folder, "capture_output": True, "text": True}
    return run([*command, "--commit", "c", *words], **options)


def every_row(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "out" / "gpu.jsonl").read_text().splitlines()]


def lab(folder: Path, until: float) -> gpu_parts.Lab:
    batches(folder / "cifar-10-batches-py")
    (folder / "out").mkdir()
    return gpu_parts.Lab(
        out=folder / "out",
        home=folder / "home",
        data=folder,
        published=None,
        rows=gpu.Rows(file=folder / "out" / "gpu.jsonl", stamp=STAMP),
        is_small=True,
        until=until,
    )


@pytest.mark.slow
def test_the_parts_run_in_their_order_and_a_later_call_runs_none_again(tmp_path: Path) -> None:
    batches(tmp_path / "cifar-10-batches-py")
    names = [part.name for part in gpu.PLAN if CODE.is_dir() or not part.needs_published]
    given = ["--small", "--minutes", "60", "--only", *names]
    if CODE.is_dir():
        given += ["--published", str(CODE)]
    done = planned(tmp_path, *given)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = every_row(tmp_path)
    assert [row["part"] for row in rows if "done" in row] == names
    assert all(row["commit"] == "c" and row["date"] for row in rows)
    assert "convolution" in (tmp_path / "out" / "kernels_8.txt").read_text("utf-8")
    trials = [row["trial"] for row in rows if row["part"] == "sweep" and "trial" in row]
    assert trials == [1, 2]
    assert not [path for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert planned(tmp_path, *given).returncode == 0
    assert every_row(tmp_path) == rows


def test_each_part_of_the_plan_is_there() -> None:
    assert list(gpu_parts.PARTS) == [part.name for part in gpu.PLAN]


def test_parity_continues_at_the_next_pair_and_gives_one_verdict_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def trained(*given: object) -> float:
        seeds.append(given[-1])
        return 90.0 + len(seeds)

    monkeypatch.setattr(gpu_parts, "trained", trained)
    monkeypatch.setattr(gpu_parts, "published_trained", trained)
    here = lab(tmp_path, time.monotonic() + 600)
    figures = {"hpq": 90.0, "published": 91.0, "seconds": 1.0}
    here.rows.say("parity", pair=0, **figures)
    gpu.Rows(file=here.rows.file, stamp={**STAMP, "commit": "d"}).say("parity", pair=1, **figures)
    gpu_parts.parity(here)
    assert seeds == [1, 1, 2, 2]
    *pairs, verdict = here.rows.of("parity")
    assert [row["pair"] for row in pairs] == [0, 1, 2]
    assert verdict["pairs"] == 3 and verdict["difference"] == pytest.approx(-1.0)
    assert verdict["hpq"] == pytest.approx((90 + 91 + 93) / 3)


@pytest.mark.parametrize("left_s", [-1.0, 30.0])
def test_parity_begins_no_pair_that_would_last_beyond_the_deadline(
    left_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_parts, "trained", lambda *given: pytest.fail("a pair began"))
    here = lab(tmp_path, time.monotonic() + left_s)
    here.rows.say("parity", pair=0, hpq=90.0, published=90.0, seconds=3600.0)
    with pytest.raises(TimeoutError):
        gpu_parts.parity(here)
    assert len(here.rows.of("parity")) == 1


def test_a_part_ends_at_its_limit_with_all_that_it_has_started(tmp_path: Path) -> None:
    rows = gpu.Rows(file=tmp_path / "gpu.jsonl", stamp=STAMP)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    words = ["sh", "-c", f"exec 3>{pipe}; echo begun >&3; sleep 3600; true"]
    assert gpu.run_part(rows, "kernels", words, 5.0) < 0
    os.set_blocking(reading, True)
    with os.fdopen(reading, "rb") as held:  # to its end: no process holds the pipe any more
        assert held.read() == b"begun\n"
    (row,) = rows.of("kernels")
    assert "failed" in row and not rows.has("kernels")


def test_a_part_that_fails_is_missing_until_it_ends_well(tmp_path: Path) -> None:
    rows = gpu.Rows(file=tmp_path / "gpu.jsonl", stamp=STAMP)
    other = gpu.Rows(file=tmp_path / "gpu.jsonl", stamp={**STAMP, "commit": "d"})
    assert gpu.run_part(rows, "half", [sys.executable, "-c", "raise SystemExit(1)"], 600) == 1
    assert not rows.has("half")
    assert gpu.run_part(rows, "half", [sys.executable, "-c", ""], 600) == 0
    assert rows.has("half") and not other.has("half")


def test_a_torn_row_is_skipped_and_the_next_one_is_a_line_of_its_own(tmp_path: Path) -> None:
    rows = gpu.Rows(file=tmp_path / "gpu.jsonl", stamp=STAMP)
    rows.say("parity", pair=0)
    rows.file.write_text(rows.file.read_text("utf-8") + '{"part": "parity", "pa', "utf-8")
    assert [row["pair"] for row in rows.of("parity")] == [0]
    rows.say("parity", pair=1)
    assert [row["pair"] for row in rows.of("parity")] == [0, 1]


@pytest.mark.slow
def test_a_sweep_that_cannot_begin_gives_its_reason_and_no_trial_of_an_older_one(
    tmp_path: Path,
) -> None:
    sweep = ["--small", "--minutes", "60", "--only", "sweep", "--commit"]
    unable = planned(tmp_path, *sweep, "a")
    batches(tmp_path / "cifar-10-batches-py")
    assert planned(tmp_path, *sweep, "b").returncode == 0
    (tmp_path / "cifar-10-batches-py").rename(tmp_path / "elsewhere")
    late = planned(tmp_path, *sweep, "c")
    assert unable.returncode == late.returncode == 1
    for commit in ("a", "c"):
        rows = [row for row in every_row(tmp_path) if row["commit"] == commit]
        assert not [row for row in rows if "trial" in row]
        assert "hpq data cifar10" in rows[-1]["failed"]


def test_a_part_runs_again_without_what_it_leaves_for_later_parts(tmp_path: Path) -> None:
    rows = gpu.Rows(file=tmp_path / "gpu.jsonl", stamp=STAMP)
    data, cold = (part for part in gpu.PLAN if part.fills)
    assert gpu.is_missing(data, rows, tmp_path)
    for part in (data, cold):
        rows.say(part.name, done=1.0)
        assert gpu.is_missing(part, rows, tmp_path)
    (tmp_path / data.fills).mkdir()
    assert not gpu.is_missing(data, rows, tmp_path) and gpu.is_missing(cold, rows, tmp_path)


def test_what_a_compilation_left_that_was_cut_off_is_not_measured_as_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lab(tmp_path, time.monotonic() + 600)
    monkeypatch.setattr(gpu_parts, "say_steps", lambda *given, **how: None)
    gpu_parts.compile_cold(here)
    gpu_parts.compile_warm(here)

    def cut_off(*given: object, **how: object) -> None:
        (here.home / gpu.KERNELS).mkdir(exist_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gpu_parts, "say_steps", cut_off)
        gpu_parts.compile_cold(here)
    with pytest.raises(FileNotFoundError):
        gpu_parts.compile_warm(here)


def test_without_time_no_part_begins_and_the_command_that_continues_is_printed(
    tmp_path: Path,
) -> None:
    late = planned(tmp_path, "--small", "--minutes", "0", "--only", "data", "sweep")
    assert late.returncode == 1
    assert "missing: data, sweep" in late.stdout and "--only data sweep" in late.stdout
    assert not (tmp_path / "out" / "gpu.jsonl").exists()


def test_rows_of_changed_files_are_not_measured_under_the_name_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "commit", lambda: "0123abc, changed")
    monkeypatch.setattr(gpu, "PLAN", ())
    words = ["gpu", f"{tmp_path}/out", "--data", ".", "--home", f"{tmp_path}/home"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as refused:
        gpu.main()
    assert refused.value.code == 2 and "--commit" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*words, "--small"])
    gpu.main()


def test_without_a_gpu_or_the_published_code_it_says_so(tmp_path: Path) -> None:
    refused = planned(tmp_path, "--only", "shipped", "captured")
    assert refused.returncode == 2 and refused.stderr.count("benchmarks.gpu: no GPU") == 1
    assert planned(tmp_path, "--only", "parity").returncode == 2
    assert not (tmp_path / "out" / "gpu.jsonl").exists()
