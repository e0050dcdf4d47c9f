"""What of a checkpoint directory is published: nothing half-written. Looked at without a thread."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import IO

import pytest

import hpq
from hpq.domain.attempt import Outcome
from hpq.domain.trial import Checkpoint, Claim, Start, TrialId, TrialState
from hpq.errors import BadParams
from hpq.filestore.base import Files
from hpq.filestore.stores import open_files
from hpq_worker.attempt.execution import Signals
from hpq_worker.attempt.report_socket import ReportSocket
from hpq_worker.files import artifacts
from hpq_worker.files.checkpoints import CheckpointPublisher
from hpq_worker.files.save_watch import SaveWatch
from hpq_worker.files.workdir import AttemptPaths
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.watchdog import CallThread
from tests.support.constants import DEADLINE_S
from tests.support.store_calls import forged_paths

# Opens a file as it is told, says so, and closes it when its standard input ends.
HOLDS = "import sys; f = open(sys.argv[1], sys.argv[2]); print(flush=True); sys.stdin.read()"
SIGNALS = Signals()


@pytest.fixture
def kept(tmp_path) -> Iterator[CheckpointPublisher]:
    claim = Claim(trial=TrialId(sweep="s-00000", number=1), attempt=1, nonce="n")
    place = AttemptPaths.create(tmp_path / "home", claim)
    files = open_files(str(tmp_path / "store"))
    reports, thread = ReportBuffer(None), CallThread("files")
    yield CheckpointPublisher(
        files, "hpq", claim, place, reports, lambda: None, SIGNALS, thread, quiet_s=0.0
    )
    place.remove(keep_out=False)


def looks(keeper: CheckpointPublisher, times: int = 4) -> bool:
    """True where something was published within so many looks."""
    for _ in range(times):
        keeper._scan()
    return keeper._reports.is_publishing


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says who writes")
@pytest.mark.parametrize("mode", ["a", "r+", "r"])
def test_a_file_that_is_open_for_writing_is_not_published(kept, mode) -> None:
    path = kept._paths.checkpoint / "state"
    path.write_text("half")
    command = [sys.executable, "-c", HOLDS, str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert looks(kept) is (mode == "r")
        process.communicate()
    assert looks(kept)


def test_names_of_drafts_are_left_out_of_files_and_of_folders(kept) -> None:
    whole = [
        "step-3/a.bin",
        "step-3/.metadata",
        "a.tmp.bin",
    ]  # PyTorch's sharded ones need .metadata
    drafts = ["step-4.tmp/a.bin", ".step-4/a.bin", "step-3/b.tmp/c", "step-3/.b.bin", "c.bin.tmp"]
    for name in (*whole, *drafts):
        path = kept._paths.checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert looks(kept)
    assert kept._files.names(kept._copies[-1].path) == sorted(whole)
    kept._reports.acknowledge(kept._reports.batch())
    (kept._paths.checkpoint / "step-4.tmp").rename(kept._paths.checkpoint / "step-4")
    assert looks(kept) and "step-4/a.bin" in kept._files.names(kept._copies[-1].path)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says who writes")
def test_files_beside_a_draft_that_is_open_are_no_checkpoint_yet(kept) -> None:
    """As safetensors writes a model, under a hidden name beside its config.json."""
    (kept._paths.checkpoint / "config.json").write_text("{}")
    draft = kept._paths.checkpoint / ".tmp1"
    draft.write_text("half")
    command = [sys.executable, "-c", HOLDS, str(draft), "a"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert not looks(kept)
        process.communicate()
    draft.rename(kept._paths.checkpoint / "model.safetensors")
    assert looks(kept)


def test_a_directory_that_is_never_quiet_is_named_once(kept, monkeypatch) -> None:
    codes, clock = list[str](), SimpleNamespace(now=0.0)
    clock.monotonic = clock.time = lambda: clock.now
    monkeypatch.setattr("hpq_worker.files.checkpoints.time", clock)
    monkeypatch.setattr(kept, "_log_line", lambda _line, code: codes.append(code))
    kept._watch = SaveWatch(quiet_s=10)
    for n in range(60):
        for name in ("a", "b"):
            (kept._paths.checkpoint / name).write_text(str(n))
        assert not looks(kept)
        clock.now += 5
    assert codes == ["checkpoint-not-kept"]


def test_views_hear_of_a_checkpoint_that_is_not_stored_until_one_is(kept) -> None:
    reports = kept._reports

    def told() -> str | None:
        batch = reports.batch()
        reports.acknowledge(batch)
        return batch.unkept

    store, kept._files = kept._files, Full(kept._files)
    (kept._paths.checkpoint / "state").write_text("first")
    for _ in range(4):
        kept._attempt(kept._scan)
    why = told() or ""
    assert why.startswith("checkpoint-not-kept ") and "No space left" in why
    kept._attempt(kept._scan)
    assert told() is None, "each retry would send it"
    kept._files = store
    assert looks(kept) and told() == ""


def test_views_hear_of_files_without_a_store_and_nothing_of_an_earlier_attempt(kept) -> None:
    kept._claim = replace(kept._claim, attempt=2, checkpoint=None)
    kept._files = None
    assert kept.restore() and kept._reports._unkept == ""
    kept._paths.out.mkdir(exist_ok=True)
    (kept._paths.out / "model.pt").write_text("x")
    kept.publish_artifacts(Outcome(state=TrialState.FINISHED))
    assert "HPQ_STORE is not set" in (kept._reports.batch().unkept or "")


class Full:
    """A store on a full disk."""

    def __init__(self, files: Files) -> None:
        self._files, self.id = files, files.id

    def __getattr__(self, name: str) -> object:
        if name == "write":
            raise OSError(errno.ENOSPC, "No space left on device")
        return getattr(self._files, name)


def test_a_checkpoint_has_the_reports_that_still_wait_in_the_pipe_when_it_is_seen(kept) -> None:
    (kept._paths.checkpoint / "state").write_text("of step 8")
    kept._read_arrived = lambda: kept._reports.report({"loss": 0.5}, 8)
    assert looks(kept)
    assert (kept._copies[-1].step, kept._copies[-1].counts) == (8, {"loss": 1})


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("is_copy", [False, True])
def test_a_checkpoint_is_of_the_step_at_which_it_was_written(kept, ends, is_copy) -> None:
    """However many steps follow before the look that sees it, or before the end of the trial."""
    state = kept._paths.checkpoint / "state"
    reports = kept._reports
    assert not looks(kept)
    for step in range(1, 526):
        reports.report({"loss": 1 / step, "acc": step}, step, time.time())
    state.write_text("of step 525")
    if is_copy:  # with the time of another file, as shutil.copy2 keeps it
        os.utime(state, (1, 1))
    written_s = state.stat().st_ctime
    for step in range(526, 541):
        reports.report({"loss": 1 / step, "late": 1.0}, step, written_s + 1)
    if ends:
        kept.publish_last()
    else:
        assert looks(kept)
    found = kept._copies[-1]
    assert (found.step, found.counts) == (525, {"loss": 525, "acc": 525})
    assert (reports.step, reports.position().counts["loss"]) == (540, 540)
    reports.acknowledge(reports.batch())
    reports.report({"loss": 0.1}, 600)
    state.with_name("newer").write_text("of step 600")
    assert looks(kept) and kept._copies[-1].step == 600
    reports.acknowledge(reports.batch())
    reports.report({"loss": 0.1}, 700)
    state.unlink()
    assert looks(kept) and kept._copies[-1].step == 600, "no file is of step 700"


def test_a_report_of_a_trial_says_when_it_was_made(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HPQ_REPORT", str(tmp_path / "s"))
    socket = ReportSocket(str(tmp_path / "s"))
    before = time.time()
    hpq.report({"loss": 1}, step=525)
    (message,) = socket.read()
    socket.close()
    assert before <= message["at"] <= time.time()


class Broken:
    """A store on a disk that cannot read one file any more."""

    def __init__(self, files: Files) -> None:
        self._files, self.id = files, files.id

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def read(self, name: str) -> IO[bytes]:
        if name.endswith("/state"):
            raise OSError(errno.EIO, "Input/output error")
        return self._files.read(name)


def test_a_checkpoint_that_nobody_can_read_does_not_hold_up_its_sweep(kept, monkeypatch) -> None:
    monkeypatch.setattr("hpq_worker.files.copy_back._TRIES_S", (0.0, 0.0))
    (kept._paths.checkpoint / "state").write_text("whole")
    assert looks(kept) and kept._fetch(kept._copies[-1], lambda: True) == ""
    kept._files = Broken(kept._files)
    assert "[Errno 5]" in kept._fetch(kept._copies[-1], lambda: True)
    assert not list(kept._paths.checkpoint.iterdir())


def test_a_store_that_is_away_is_waited_for_and_not_taken_for_an_empty_one(kept, tmp_path) -> None:
    (kept._paths.checkpoint / "state").write_text("whole")
    assert looks(kept)
    kept._reports.acknowledge(kept._reports.batch())
    (tmp_path / "store").rename(tmp_path / "mounted")
    (tmp_path / "store").mkdir()
    with pytest.raises(OSError, match="is away"):
        kept._fetch(kept._copies[-1], lambda: True)
    (kept._paths.checkpoint / "state").write_text("newer")
    with pytest.raises(OSError, match="is away"):
        looks(kept)
    assert not list((tmp_path / "store").iterdir())


@pytest.mark.parametrize("own", ["hpq/s-00000/1/1-n/checkpoint-1", "hpq/s-00000/1/7/checkpoint-12"])
def test_a_pointer_is_followed_to_the_checkpoints_of_its_trial_alone(kept, own) -> None:
    """Any client of Redis can write a pointer, and most training code unpickles what it finds."""
    assert kept._files is not None
    for path in [own, *forged_paths(kept._claim.trial, own)]:
        with suppress(OSError), kept._files.write(f"{path}/state") as file:
            file.write(b"evil")
    pointer, state = Checkpoint(store=kept._files.id, path=own), kept._paths.checkpoint / "state"
    for path in forged_paths(kept._claim.trial, own):
        why = kept._fetch(replace(pointer, path=path), lambda: True)
        assert why and not state.exists(), path
    assert kept._fetch(pointer, lambda: True) == "" and state.exists()


PARENT = TrialId(sweep="s-00000", number=7)


def begun_at(kept: CheckpointPublisher, path: str, name: str = "state") -> Checkpoint:
    """Let the trial begin at a checkpoint in the store; return it."""
    assert kept._files is not None
    with kept._files.write(f"{path}/{name}") as file:
        file.write(b"7")
    pointer = Checkpoint(store=kept._files.id, path=path, step=30, counts={"loss": 30})
    start = Start(trial=PARENT.number, checkpoint=pointer)
    kept._claim = replace(kept._claim, start=start, checkpoint=pointer)
    return pointer


def test_a_trial_begins_at_the_signed_parent_s_checkpoint_and_leaves_it_there(kept) -> None:
    pointer = begun_at(kept, f"hpq/{PARENT}/1-n/checkpoint-2")
    assert kept.restore() and (kept._paths.checkpoint / "state").read_bytes() == b"7"
    assert kept._reports.step == 30
    (kept._paths.checkpoint / "state").write_bytes(b"own")
    assert looks(kept)
    kept._reports.acknowledge(kept._reports.batch())
    kept.remove_older()
    assert kept._files.names(pointer.path) == ["state"]


@pytest.mark.parametrize("own", [f"hpq/{PARENT}/1-n/checkpoint-2"])
def test_no_other_folder_is_a_start_and_the_trial_then_fails(kept, own) -> None:
    for path in forged_paths(PARENT, own):
        with suppress(OSError):
            begun_at(kept, path)
            with pytest.raises(BadParams, match="#7"):
                kept.restore()
            assert not list(kept._paths.checkpoint.iterdir()), path


def test_a_start_that_is_gone_or_in_another_store_fails_the_trial(kept) -> None:
    pointer = begun_at(kept, f"hpq/{PARENT}/1-n/checkpoint-2")
    kept._files.remove(pointer.path)
    with pytest.raises(BadParams, match="gone from the store"):
        kept.restore()
    files, kept._files = kept._files, None
    with pytest.raises(BadParams, match="has no HPQ_STORE"):
        kept.restore()
    kept._files = files
    kept._files.id = "another"
    with pytest.raises(BadParams, match="uses another"):
        kept.restore()


def test_a_trial_whose_own_checkpoint_is_gone_begins_at_its_start_again(kept) -> None:
    begun_at(kept, f"hpq/{PARENT}/1-n/checkpoint-2")
    gone = Checkpoint(store=kept._files.id, path="hpq/s-00000/1/1-n/checkpoint-9", step=40)
    kept._claim = replace(kept._claim, checkpoint=gone, attempt=2)
    assert kept.restore() and (kept._paths.checkpoint / "state").read_bytes() == b"7"
    batch = kept._reports.batch()
    assert "gone" in batch.restarted and (batch.step, batch.kept_step) == (30, 30)


def test_a_checkpoint_that_a_writer_of_the_store_replaced_ends_no_worker(
    kept, tmp_path, monkeypatch
) -> None:
    """Links, another user's folder, a history that is none: the trial begins anew, or goes on."""
    monkeypatch.setattr("hpq_worker.files.copy_back._TRIES_S", (0.0, 0.0))
    assert kept._files is not None
    path = "hpq/s-00000/1/1-n/checkpoint-1"
    pointer = Checkpoint(store=kept._files.id, path=path, counts={"loss": 1})
    kept._claim = replace(kept._claim, checkpoint=pointer)
    folder, private = tmp_path / "store" / path, tmp_path / "private"
    private.mkdir()
    (private / "state").write_text("private")
    folder.parent.mkdir(parents=True)
    folder.symlink_to(private)
    assert kept.restore() and not list(kept._paths.checkpoint.iterdir())
    folder.unlink()
    folder.mkdir()
    (folder / "state").write_text("own")
    rows = b'{"loss": 1, "_step": 1, "_timestamp": 1}\n'
    for odd in (
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        b"[]\n",
        b"7\n",
        b"{\n",
        b"\n",
        rows + b"null\n",
    ):
        (folder / ".hpq-history.jsonl").write_bytes(odd + rows)
        assert kept.restore()
        history = (kept._paths.out / "hpq-history.jsonl").read_bytes()
        assert history == (rows if odd.startswith(rows) else b"")
        assert [path.name for path in kept._paths.checkpoint.iterdir()] == ["state"]


class Meddled:
    """A store beside which training goes on to write, in place, while its file is copied."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self._path, self.id = files, path, files.id

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def write(self, name: str) -> IO[bytes]:
        with self._path.open("ab") as file:
            file.write(b" and more")
        return self._files.write(name)


def test_a_file_that_was_written_in_place_while_it_was_copied_is_not_published(kept) -> None:
    path, files = kept._paths.checkpoint / "state", kept._files
    path.write_text("whole")
    kept._files = Meddled(files, path)
    assert not looks(kept) and files.names("hpq") == []
    kept._files = files
    assert looks(kept)


class Hung:
    """A store that removes nothing until it is told to."""

    def __init__(self, files: Files) -> None:
        self._files, self.id, self.goes_on = files, files.id, Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def remove(self, _folder: str) -> None:
        self.goes_on.wait()


def test_a_store_that_hangs_at_a_removal_does_not_hold_up_the_end_of_a_trial(
    kept, monkeypatch
) -> None:
    monkeypatch.setattr("hpq_worker.process.watchdog.HUNG_S", 0.1)
    for text in ("older", "newest"):
        (kept._paths.checkpoint / "state").write_text(text)
        kept.publish_last()
    kept._reports.published = kept._copies[-1]
    kept._files = store = Hung(kept._files)
    end = Thread(target=kept.remove_older, daemon=True)
    end.start()
    end.join(DEADLINE_S)
    assert not end.is_alive()
    store.goes_on.set()


def test_the_log_says_where_files_without_a_store_stay_and_that_a_pod_takes_them_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.txt").write_text("7")
    said: list[str] = []
    for host in ("", "10.0.0.1"):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        assert artifacts.publish(tmp_path, None, "to", lambda: True, said.append) is None
    assert str(tmp_path) in said[0] and "store: {}" not in said[0]
    assert str(tmp_path) in said[1] and "`store: {}`" in said[1]


@pytest.mark.parametrize("host", ["", "10.0.0.1"])
def test_an_attempt_that_begins_anew_for_want_of_a_store_is_told_where_a_pod_gets_one(
    kept, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    said: list[str] = []
    kept._files, kept._claim = None, replace(kept._claim, attempt=2)
    monkeypatch.setattr(kept, "_log_line", lambda line, _code: said.append(line))
    assert kept.restore()
    (line,) = said
    assert "attempt 2 " in line and "HPQ_STORE" in line
    assert ("`store: {}` in cluster.yaml" in line) == bool(host)
