"""Artifacts: copied to the store, published with the commit, taken out with `hpq get`, or not."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess

import pytest

from hpq.domain.trial import TrialId, TrialState
from tests.support.commands import HPQ
from tests.support.ids import ids, refused
from tests.support.lab import bare, files_of

SAVES = """
    import os, time
    from pathlib import Path

    HERE = Path.cwd()

    def train(params, trial):
        x = params["x"]
        (trial.checkpoint_dir / "state").write_text(str(x))
        model = Path(os.getcwd()) / f"model-{x}"
        model.write_text(f"model {x}")
        trial.save(model, "model.txt")
        trial.save(model, "deep/er/model.txt")
        model.unlink()
        for odd in ("../up", "/abs", "a/../b", ""):
            try:
                trial.save(__file__, odd)
            except ValueError as error:
                print(error)
        (HERE / f"began-{x}-{trial.attempt}").touch()
        while not ((HERE / "go").exists() or (HERE / f"go-{x}").exists()):
            if trial.should_stop:
                return None
            time.sleep(0.01)
        return {"loss": abs(x - 3)}
"""
SWEEP = """
    trainer: saves:train
    method: grid
    metric: {{name: loss, goal: minimize}}
    parameters: {{x: {{values: [{values}]}}}}
    {more}
"""


def begin(lab, values: str = "1", more: str = "", go: bool = True) -> str:
    lab.write("saves.py", SAVES)
    if go:
        lab.go()
    return lab.enqueue(SWEEP.format(values=values, more=more))


def test_what_a_trainer_saves_is_listed_and_taken_out(lab, shelf) -> None:
    sid = begin(lab)
    lab.worker()
    lab.wait_over(sid)
    want = ["1/1/artifacts/deep/er/model.txt", "1/1/artifacts/model.txt"]
    lab.wait_until(lambda: files_of(shelf, sid) == want, "the checkpoint, if there was one, to go")
    assert lab.printed(sid).count("'..'") == 4
    assert not list(lab.home.glob(f"work/{sid}.*")), "nothing of it stays where it ran"
    assert "deep/er/model.txt  7 B" in lab.ok("show", f"{sid}/1")
    assert lab.ok("get", "best").split() == ["deep/er/model.txt", "7", "B", "model.txt", "7", "B"]
    for what, out in ((sid, "a"), ("best", "b"), (f"{sid}/1", "c")):
        lab.ok("get", what, "deep/er/model.txt", "--out", out)
        assert (lab.code / out).read_text() == "model 1"
    lab.ok("get", sid, "model.txt")
    assert (lab.code / "model.txt").read_text() == "model 1"
    again = lab.hpq("get", sid, "model.txt")
    refused(again, "file-exists", "model.txt")
    lab.ok("get", sid, "model.txt", "--force")
    for name in ("../../../.hpq-store", "/etc/passwd", "no-such"):
        none = lab.hpq("get", sid, name, "--out", "x")
        refused(none, "no-files", exit=4)
        assert not (lab.code / "x").exists()
    other = lab.hpq("get", sid, "model.txt", "--out", "x", HPQ_STORE=str(lab.folder / "other"))
    refused(other, "store-unusable", "HPQ_STORE", exit=3)


def test_a_name_that_redis_holds_cannot_lead_out_of_the_store(lab, shelf) -> None:
    """B6: names and pointers of artifacts in Redis are changed to paths with `..`."""
    sid = begin(lab)
    lab.worker()
    lab.wait_over(sid)
    key, field = lab.keys.trial(TrialId(sweep=sid, number=1)), "artifacts"
    told = lab.redis.hget(key, field).decode()
    (lab.folder / "secret").write_text("secret")
    lab.redis.hset(key, field, told.replace("deep/er/model.txt", "../../../../../../secret"))
    none = lab.hpq("get", sid, "../../../../../../secret", "--out", "x")
    assert none.returncode == 4 and not (lab.code / "x").exists()
    lab.redis.hset(key, field, told.replace(json.loads(told)["path"], ".."))
    (lab.folder / "model.txt").write_text("secret")
    none = lab.hpq("get", sid, "model.txt", "--out", "x")
    assert none.returncode == 3 and not (lab.code / "x").exists()


def test_the_files_of_a_program_go_to_the_store_through_a_url(lab) -> None:
    pytest.importorskip("fsspec")
    url = f"file://{lab.folder}/by-url"
    lab.env["HPQ_STORE"] = url
    lab.write(
        "train.py",
        """
        import os
        from pathlib import Path
        out = Path(os.environ["HPQ_OUT"])
        (out / "a").mkdir()
        (out / "a" / "model").write_bytes(bytes(3_000_000))
        (out / "link").symlink_to("/etc/passwd")
        print("loss=1")
        """,
    )
    sid = lab.enqueue(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    assert files_of(lab.folder / "by-url", sid) == ["1/1/artifacts/a/model"]  # and no link
    lab.ok("get", sid, "model", "--out", "got")  # the only file of this base name
    assert (lab.code / "got").stat().st_size == 3_000_000
    lab.ok("rm", sid, "--yes")
    assert files_of(lab.folder / "by-url", sid) == []


def test_keep_says_whose_files_stay(lab, shelf) -> None:
    sid = begin(lab, "1, 2, 3, 4, 5", "keep: {best: 2, last: 1}", go=False)
    lab.worker()
    for x in range(1, 6):
        lab.wait_for(f"began-{x}-1")
        (lab.code / f"go-{x}").touch()
    lab.wait_over(sid)
    # loss is |x - 3|: 3 is best, 2 and 4 tie for the second place, 5 was the last.
    want = [2, 3, 4, 5]
    lab.wait_until(lambda: {p.split("/")[0] for p in files_of(shelf, sid)} == set(map(str, want)),
                   "the others' files to go")  # fmt: skip
    assert [p for p in files_of(shelf, sid) if re.fullmatch(r"2/1/checkpoint-\d+/state", p)]
    assert [n for n in range(1, 6) if lab.trial(sid, n).artifacts] == want
    gone = lab.hpq("get", f"{sid}/1", "model.txt")
    assert gone.returncode == 4 and "`keep`" in gone.stderr
    lab.ok("rm", sid, "--yes")
    assert files_of(shelf, sid) == []


def test_artifacts_are_published_once_and_by_the_attempt_that_commits(lab, shelf) -> None:
    """F1: kill -9 of a parent whose trial has saved artifacts; the next attempt saves them, too."""
    sid = begin(lab, go=False)
    lab.worker()
    lab.wait_for("began-1-1")
    os.kill(lab.parent(), signal.SIGKILL)
    lab.end_lease(sid)
    lab.wait_for("began-1-2")
    lab.go()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert bare(trial.artifacts.path) == f"hpq/{sid}/1/2/artifacts"
    assert trial.artifacts.files == {"model.txt": 7, "deep/er/model.txt": 7}
    assert trial.checkpoint is None
    lab.wait_until(lambda: len(files_of(shelf, sid)) == 2, "the checkpoints to go")
    assert all(name.startswith("1/2/artifacts/") for name in files_of(shelf, sid))


def test_a_result_that_waited_on_disk_still_names_its_artifacts(lab, shelf) -> None:
    """F11: Redis is gone as a trial with artifacts ends; its worker ends before Redis is back."""
    sid = begin(lab, go=False)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    lab.server.kill()
    lab.go()
    lab.wait_until(lambda: list(lab.home.glob("spool/hpq/*.json")), "the result on disk")
    fleet.terminate()
    assert fleet.wait() == 0
    lab.server.start()
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).artifacts.files["model.txt"] == 7
    assert lab.ok("get", sid, "model.txt", "--out", "got") == ""


@pytest.mark.parametrize("words", [("worker", "--sweep"), ("run",)])
def test_files_of_the_last_trials_arrive_when_the_store_comes_back(lab, shelf, words) -> None:
    """Files: the store is away while the last trials end, and their worker would end, too."""
    sid = begin(lab, "1, 2, 3", go=False)
    command = [HPQ, *words, sid, "--workers", "1"]
    with (lab.folder / "said").open("wb") as out:
        fleet = subprocess.Popen(command, cwd=lab.code, env=lab.env, stdout=out, stderr=out)
    lab.workers.append(fleet)
    lab.wait_for("began-1-1")
    shelf.rename(lab.folder / "away")
    lab.go()
    lab.wait_over(sid)
    refused(lab.hpq("get", f"{sid}/3", "model.txt"), "files-not-stored", str(lab.home), exit=4)
    for words in (["ls"], ["show", sid], ["show", f"{sid}/3"]):
        shown = lab.hpq(*words)
        assert "not stored yet" in shown.stdout + shown.stderr, words
    assert json.loads(lab.ok("show", sid, "-o", "json"))["files_not_stored"] == 3
    (lab.folder / "away").rename(shelf)
    assert fleet.wait() == 0
    for number in (1, 2, 3):
        trial = lab.trial(sid, number)
        assert trial.artifacts.files == {"model.txt": 7, "deep/er/model.txt": 7}
        lab.ok("get", str(trial.id), "model.txt", "--out", f"got-{number}")
        assert (lab.code / f"got-{number}").read_text() == f"model {number}"
    lab.audit(sid)
    assert not list(lab.home.glob(f"work/{sid}.*"))


def test_a_worker_that_is_stopped_says_which_files_wait_and_the_next_one_stores_them(
    lab, shelf
) -> None:
    """Files: the store is away as a trial ends, and its worker is stopped before it is back."""
    sid = begin(lab, go=False)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    shelf.rename(lab.folder / "away")
    lab.go()
    lab.wait_over(sid)
    fleet.terminate()
    assert fleet.wait() == 0
    (out,) = lab.home.glob(f"work/{sid}.1.1-*/out")
    last = [line for line in lab.log().splitlines() if "files-not-stored" in ids(line)][-1]
    assert str(out) in last
    (lab.folder / "away").rename(shelf)
    lab.worker()
    lab.wait_until(lambda: lab.trial(sid).artifacts, "the files to arrive")
    lab.wait_until(lambda: not out.exists(), "the files to go from the disk of the worker")
    lab.ok("get", sid, "model.txt", "--out", "got")
    assert (lab.code / "got").read_text() == "model 1"


def test_a_retried_trial_begins_anew_and_its_older_files_go(lab, shelf) -> None:
    sid = begin(lab)
    lab.worker()
    lab.wait_over(sid)
    lab.ok("retry", f"{sid}/1", "--yes")
    lab.wait_until(lambda: lab.trial(sid).attempt == 2, "the second attempt")
    lab.wait_over(sid)
    assert bare(lab.trial(sid).artifacts.path).endswith("/1/2/artifacts")
    lab.wait_until(lambda: len(files_of(shelf, sid)) == 2, "the first attempt's files to go")
    assert all(name.startswith("1/2/artifacts/") for name in files_of(shelf, sid))


def test_rm_from_a_shell_with_another_store_says_what_stays_until_a_worker_removes_it(
    lab, shelf
) -> None:
    sid = begin(lab)
    fleet = lab.worker()
    lab.wait_over(sid)
    lab.wait_until(
        lambda: len(files_of(shelf, sid)) == 2, "the checkpoint, if there was one, to go"
    )
    fleet.terminate()
    assert fleet.wait() == 0
    there = (shelf / ".hpq-store").read_text().strip()
    said = lab.hpq("rm", sid, "--yes", HPQ_STORE=str(lab.folder / "other"))
    assert said.returncode == 0 and f"store {there} " in said.stderr
    assert len(files_of(shelf, sid)) == 2
    lab.worker()
    lab.wait_until(lambda: not (shelf / "hpq" / sid).exists(), "the files to go")


def test_without_a_store_nothing_is_kept_and_that_is_said(lab) -> None:
    sid = begin(lab)
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED and lab.trial(sid).artifacts is None
    none = lab.hpq("get", sid, "model.txt")
    refused(none, "no-files", "HPQ_OUT", "HPQ_STORE", exit=4)
    (out,) = lab.home.glob("work/*/out")
    assert "HPQ_STORE" in lab.printed(sid) and str(out) in lab.printed(sid)
    assert (out / "model.txt").read_text() == "model 1"
    path = lab.write("keep.yaml", SWEEP.format(values="1", more="keep: {best: 1}"))
    said = lab.hpq("enqueue", path).stderr
    assert "HPQ_STORE" in said and "`keep`" in said
    plain = lab.write("plain.yaml", SWEEP.format(values="9", more=""))
    assert "HPQ_STORE" in lab.hpq("enqueue", plain).stderr
    short = lab.write("short.yaml", SWEEP.format(values="8", more="timeout: 5m"))
    assert "STORE" not in lab.hpq("enqueue", short).stderr


def test_hpq_run_keeps_files_under_its_home(lab) -> None:
    lab.write("saves.py", SAVES)
    lab.go()
    path = lab.write("run.yaml", SWEEP.format(values="1", more=""))
    lab.ok("run", path, "--workers", "1", HPQ_REDIS_URL="")
    listed = lab.ok("get", "best", HPQ_REDIS_URL="")
    assert "model.txt" in listed and (lab.home / "store" / ".hpq-store").exists()
    (sid,) = [p.name for p in (lab.home / "store" / "hpq").iterdir()]
    lab.ok("rm", sid, "--yes", HPQ_REDIS_URL="")
    assert not (lab.home / "store" / "hpq" / sid).exists()
    for pid in lab.processes(r"redis-server|valkey-server|keeper"):  # they would wait a minute
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("url", "said"),
    [("nonsense://x", "name a directory or a URL"), ("s3://bucket/x", "HPQ_STORE: s3://bucket/x")],
)
def test_a_store_that_no_library_here_knows_ends_the_worker_with_one_line(lab, url, said) -> None:
    pytest.importorskip("fsspec")
    if url.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed")
    worker = lab.worker(HPQ_STORE=url)
    assert worker.wait() == 2
    assert said in lab.log() and "Traceback" not in lab.log()
