"""Checkpoints: published when written, found by the next attempt, moved by the latest one only."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpq.domain.trial import Checkpoint, TrialState
from tests.support import plain_url
from tests.support.ids import ids
from tests.support.lab import bare, files_of

# Counts to 8, one step a file `step-N` of the test's; resumes from what it finds.
COUNTS = """
    import json, os, signal, sys, time
    from pathlib import Path

    HERE = Path("USER_FOLDER")
    KEPT = Path(os.environ["HPQ_CHECKPOINT_DIR"]) / "state.json"

    def mark(name):
        draft = HERE / f".{name}.{os.getpid()}"
        draft.write_text(str(os.getpid()))
        draft.rename(HERE / name)

    def save(step):
        draft = KEPT.with_suffix(".tmp")
        draft.write_text(json.dumps(step))
        draft.replace(KEPT)

    def told(*_):
        if not (HERE / "careless").exists():
            save(step)
        sys.exit(0)

    import hpq
    step = json.loads(KEPT.read_text()) if KEPT.exists() else 0
    print("starts after", step, flush=True)
    signal.signal(signal.SIGTERM, told)
    mark(f"began-{os.environ['HPQ_ATTEMPT']}")
    while step < 8:
        while not any((HERE / name).exists() for name in (f"step-{step + 1}", "go")):
            time.sleep(0.01)
        step += 1
        hpq.report({"loss": 10 - step}, step=step)
        print(f"seen={step}", flush=True)
        if (HERE / f"save-{step}").exists():
            save(step)
    Path(os.environ["HPQ_OUT"], "model.txt").write_text(f"model {step}")
"""
PRINTS = COUNTS.replace("    import hpq\n", "").replace(
    'hpq.report({"loss": 10 - step}, step=step)', 'print(f"loss={10 - step}", flush=True)'
)
LOGS = COUNTS.replace("import hpq", "import wandb; run = wandb.init()").replace(
    'hpq.report({"loss": 10 - step}, step=step)', 'run.log({"loss": 10 - step})'
)
SWEEP = "program: counts.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"


def begin(lab, upto: int, saved: int, more: str = "", code: str = COUNTS) -> str:
    """A sweep of the counting program that has gone `upto` steps and saved at one of them."""
    lab.write("counts.py", code.replace("USER_FOLDER", str(lab.code)))
    for step in range(1, upto + 1):
        (lab.code / f"step-{step}").touch()
    if saved:
        (lab.code / f"save-{saved}").touch()
    return lab.enqueue(SWEEP + more)


def wait_step(lab, sid: str, step: int) -> None:
    lab.wait_until(lambda: lab.trial(sid).metrics.get("loss") == 10 - step, f"step {step}")


def wait_pointer(lab, sid: str) -> Checkpoint:
    lab.wait_until(lambda: lab.trial(sid).checkpoint, "a published checkpoint")
    return lab.trial(sid).checkpoint


def steps(lab, sid: str, metric: str = "loss") -> list[int]:
    return [p.step for p in lab.reader.trials.metric_history(lab.trial(sid).id, metric)]


def repeat_step_4(lab, sid: str) -> None:
    """Stop the worker a step after the checkpoint; another one goes on from the checkpoint."""
    (lab.code / "careless").touch()
    fleet = lab.worker()
    wait_pointer(lab, sid)
    (lab.code / "step-4").touch()  # after the checkpoint, so it is repeated
    wait_step(lab, sid, 4)
    fleet.terminate()
    assert fleet.wait() == 0
    lab.go()
    lab.worker()
    lab.wait_over(sid)


def kill_worker(lab) -> None:
    """The machine is gone: the worker has no time to say anything."""
    runners = lab.processes(r"-m hpq_worker\.runner")
    parent = lab.parent()
    os.kill(parent, signal.SIGSTOP)  # it must not see the end of its supervisor
    lab.workers[0].kill()  # first, or it would start another
    os.kill(parent, signal.SIGKILL)
    for runner in runners:
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner, signal.SIGCONT)  # a stopped one would not see that it is alone
    lab.wait_for_no_process()


@pytest.mark.slow
def test_a_killed_worker_s_trial_goes_on_from_its_checkpoint_without_doubled_steps(
    lab, shelf
) -> None:
    """F1: kill -9 of a worker two steps beyond its checkpoint; the next is on another machine."""
    sid = begin(lab, upto=3, saved=3)
    lab.worker()
    pointer = wait_pointer(lab, sid)
    for step in (4, 5):  # seen by everybody, and lost with the machine
        (lab.code / f"step-{step}").touch()
    wait_step(lab, sid, 5)
    assert pointer.step == 3 and pointer.store == (shelf / ".hpq-store").read_text().strip()
    assert bare(pointer.path) == f"hpq/{sid}/1/1/checkpoint-1"
    assert files_of(shelf, sid) == ["1/1/checkpoint-1/state.json"]
    kill_worker(lab)
    lab.worker(HPQ_HOME=str(lab.folder / "another-machine"))
    lab.end_lease(sid)
    lab.wait_until(lambda: "starts after 3" in lab.printed(sid), "the second attempt")
    lab.go()
    lab.wait_over(sid)
    assert steps(lab, sid) == [1, 2, 3, 4, 5, 6, 7, 8]
    trial = lab.trial(sid)
    assert trial.state is TrialState.FINISHED and trial.objective == 2 and trial.attempt == 2
    assert lab.trial(sid).checkpoint is None
    want = ["1/2/artifacts/model.txt"]
    lab.wait_until(lambda: files_of(shelf, sid) == want, "the checkpoint to go")
    assert "training-resumed" in ids(lab.ok("logs", sid))


def test_sigterm_publishes_what_the_program_saves_before_the_trial_is_given_back(
    lab, shelf
) -> None:
    """F6: SIGTERM; the program saves as it ends."""
    sid = begin(lab, upto=2, saved=1)
    fleet = lab.worker(HPQ_GRACE_S="60")
    wait_step(lab, sid, 2)
    first = wait_pointer(lab, sid)
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.events(sid) == ["claimed", "requeued"]
    pointer = lab.trial(sid).checkpoint
    assert pointer.step == 2 and pointer.path != first.path
    assert files_of(shelf, sid) == [  # the one before it is gone
        bare(f"{pointer.path}/state.json").removeprefix(f"hpq/{sid}/")
    ]
    assert "trial-returned" in ids(lab.log())
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    assert "starts after 2" in lab.printed(sid)
    assert steps(lab, sid) == list(range(1, 9))


@pytest.mark.parametrize(("status", "is_whole"), [(0, True), (143, False)])
def test_a_program_that_a_signal_ended_behind_a_shell_may_have_been_saving(
    lab, shelf, status, is_whole
) -> None:
    """SIGTERM: a shell ends with 143 if the signal has ended its command."""
    lab.env["HPQ_CHECKPOINT_QUIET_S"] = "3600"
    lab.write(
        "train.sh",
        f"""
        trap 'exit {status}' TERM
        for name in a b; do echo $name > "$HPQ_CHECKPOINT_DIR/$name"; done
        touch {lab.code}/began
        while :; do sleep 0.05; done
        """,
    )
    sid = lab.enqueue(SWEEP.replace("program: counts.py", "command: [sh, train.sh]"))
    fleet = lab.worker()
    lab.wait_for("began")
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.events(sid) == ["claimed", "requeued"]
    names = [Path(name).name for name in files_of(shelf, sid)]
    assert names == (["a", "b"] if is_whole else [])
    assert bool(lab.trial(sid).checkpoint) is is_whole


@contextlib.contextmanager
def hanging(path: Path) -> Iterator[int]:
    """A file of the store whose writer gets no further: a pipe; its end for reading."""
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield end
    finally:
        os.close(end)


def has_begun(end: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(os.read(end, 1))
    return False


def by_url(lab, shelf: Path) -> None:
    """Let the store be one behind a URL: hpq itself replaces a pipe by a file."""
    pytest.importorskip("fsspec")
    lab.env |= {**plain_url.install(lab.folder / "fsspec"), "HPQ_STORE": f"plain://{shelf}"}


LARGE = COUNTS.replace("json.dumps(step)", 'json.dumps(step) + " " * 1_000_000').replace(
    'f"model {step}"', '"m" * 1_000_000'
)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_copy_that_hangs_holds_no_worker_that_is_told_to_go(lab, shelf, signals) -> None:
    by_url(lab, shelf)
    sid = begin(lab, upto=2, saved=1, code=LARGE)
    fleet = lab.worker(HPQ_GRACE_S="10" if signals == 1 else "3600")
    first = wait_pointer(lab, sid)
    wait_step(lab, sid, 2)
    with hanging(shelf / Path(first.path).with_name("checkpoint-2") / "state.json") as end:
        fleet.terminate()
        lab.wait_until(lambda: has_begun(end), "the copy of the last checkpoint")
        if signals == 2:
            fleet.terminate()
        assert fleet.wait() == 0
    assert lab.events(sid) == ["claimed", "requeued"]
    assert lab.trial(sid).checkpoint == first  # valid, and nothing half is published
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    assert "starts after 1" in lab.printed(sid) and steps(lab, sid) == list(range(1, 9))


def test_artifacts_that_hang_hold_no_result_of_a_worker_that_is_told_to_go(lab, shelf) -> None:
    by_url(lab, shelf)
    sid = begin(lab, upto=7, saved=1, code=LARGE)
    fleet = lab.worker()
    here = shelf / Path(wait_pointer(lab, sid).path).with_name("artifacts")
    with hanging(here / "model.txt") as end:
        lab.go()
        lab.wait_until(lambda: has_begun(end), "the copy of the model")
        fleet.terminate()
        assert fleet.wait() == 0
    lab.audit(sid)
    trial = lab.trial(sid)
    assert trial.state is TrialState.FINISHED and "files-not-stored" in ids(lab.printed(sid))
    # Before it goes, the worker may have stored them beside those that hang.
    is_late = trial.artifacts is not None and trial.artifacts.path.endswith("artifacts-late")
    left = [path.stat().st_size for path in lab.home.glob(f"work/{sid}.1.1-*/out/model.txt")]
    assert is_late or left == [1_000_000]


@pytest.mark.slow
def test_a_worker_frozen_past_its_lease_publishes_no_checkpoint(lab, shelf) -> None:
    """F4: SIGSTOP past the lease, another attempt begins, SIGCONT, and the first saves."""
    sid = begin(lab, upto=2, saved=1)
    lab.worker()
    wait_step(lab, sid, 2)
    first = wait_pointer(lab, sid)
    frozen = lab.parent()
    os.kill(frozen, signal.SIGSTOP)
    try:
        lab.worker(HPQ_HOME=str(lab.folder / "another-machine"))
        lab.end_lease(sid)
        lab.wait_for("began-2")
        # The first attempt's program lives on, and saves once more.
        (lab.code / "save-3").touch()
        (lab.code / "step-3").touch()
        lab.wait_until(lambda: (lab.trial(sid).checkpoint or first).path != first.path, "a pointer")
    finally:
        os.kill(frozen, signal.SIGCONT)
    lab.wait_until(lambda: "attempt-lost" in ids(lab.log(0)), "the first worker to hear")
    assert bare(lab.trial(sid).checkpoint.path) == f"hpq/{sid}/1/2/checkpoint-1"
    lab.go()
    lab.wait_over(sid)
    assert steps(lab, sid) == list(range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("has_store", [True, False])
def test_a_worker_with_another_store_or_none_starts_again_and_says_so(
    lab, shelf, has_store
) -> None:
    """Files: the next worker has no HPQ_STORE, or another one."""
    sid = begin(lab, upto=5, saved=3)
    lab.worker()
    wait_step(lab, sid, 5)
    old = wait_pointer(lab, sid)
    kill_worker(lab)
    for step in range(3, 6):
        (lab.code / f"step-{step}").unlink()
    lab.worker(HPQ_STORE=str(lab.folder / "other") if has_store else "")
    lab.end_lease(sid)
    lab.wait_for("began-2")
    lab.wait_until(lambda: steps(lab, sid) == [1, 2], "the history to begin anew")
    assert lab.trial(sid).checkpoint == old  # until this attempt has its own
    lab.wait_until(lambda: "training-restarted" in ids(lab.printed(sid)), "its first words")
    if has_store:
        assert old.store in lab.log(1)
    assert "training-restarted" in ids(lab.log(1))
    assert old.store in lab.ok("show", f"{sid}/1")
    assert has_store or "HPQ_STORE" in lab.log(1)
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "restarted", "finished"]
    assert steps(lab, sid) == list(range(1, 9))


def test_a_checkpoint_whose_files_are_gone_starts_the_trial_again(lab, shelf) -> None:
    """Files: the files of a published checkpoint are deleted."""
    sid = begin(lab, upto=2, saved=1)
    (lab.code / "careless").touch()
    fleet = lab.worker()
    wait_pointer(lab, sid)
    fleet.terminate()
    assert fleet.wait() == 0
    for path in (shelf / "hpq" / sid).rglob("state.json"):
        path.unlink()
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).restarted
    assert steps(lab, sid) == list(range(1, 9))


def test_a_printed_metric_and_the_history_go_on_where_the_checkpoint_was_made(lab, shelf) -> None:
    sid = begin(lab, upto=3, saved=3, more="history: all\n", code=PRINTS)
    repeat_step_4(lab, sid)
    history = lab.reader.trials.metric_history(lab.trial(sid).id, "seen")
    assert [(p.step, p.value) for p in history] == [(n, n) for n in range(1, 9)]
    (kept,) = (shelf / "hpq" / sid).rglob("hpq-history.jsonl")
    lines = kept.read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "loss" in row]
    assert [(row["_step"], row["loss"]) for row in rows] == [(n, 10 - n) for n in range(1, 9)]
    assert len(lines) == 16 and all(row["_timestamp"] > 1e9 for row in rows)


def test_rows_of_wandb_that_have_no_step_go_on_where_the_checkpoint_was_made(lab, shelf) -> None:
    sid = begin(lab, upto=3, saved=3, code=LOGS)
    repeat_step_4(lab, sid)
    history = lab.reader.trials.metric_history(lab.trial(sid).id, "loss")
    assert [(p.step, p.value) for p in history] == [(n - 1, 10 - n) for n in range(1, 9)]


def test_a_store_that_cannot_be_written_fails_no_trial_and_is_tried_again(lab, shelf) -> None:
    """Files: the store cannot be written, can be, and cannot again."""
    sid = begin(lab, upto=2, saved=1)
    shelf.mkdir()
    (shelf / ".hpq-store").write_text("abcd1234\n")
    (shelf / "hpq").write_text("a file where a folder has to be")
    lab.worker()
    lab.wait_until(lambda: "checkpoint-not-kept" in ids(lab.log()), "the complaint")
    assert lab.trial(sid).checkpoint is None and lab.trial(sid).state is TrialState.RUNNING
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).unkept == 1, "the views' notice")
    (shelf / "hpq").unlink()
    assert wait_pointer(lab, sid).store == "abcd1234"
    assert lab.reader.sweeps.get(sid).unkept == 0
    (shelf / "hpq").rename(shelf / "away")
    (shelf / "hpq").write_text("again")
    lab.go()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state is TrialState.FINISHED and trial.artifacts is None
    assert "files-not-stored" in ids(lab.printed(sid))
    (kept,) = lab.home.glob("work/*/out/model.txt")
    assert kept.read_text() == "model 8"


def test_a_trial_that_came_to_its_end_but_could_not_say_so_needs_no_further_report(
    lab, shelf
) -> None:
    """F6: SIGTERM after the checkpoint of the last step; nothing is left to report."""
    waits = "while not Path('end').exists(): time.sleep(0.01)\n    "
    last = 'Path(os.environ["HPQ_OUT'
    sid = begin(lab, upto=8, saved=8, code=COUNTS.replace(last, waits + last))
    fleet = lab.worker()
    lab.wait_until(lambda: (p := lab.trial(sid).checkpoint) and p.step == 8, "the last checkpoint")
    fleet.terminate()
    assert fleet.wait() == 0
    (lab.code / "end").touch()
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, trial.objective) == (TrialState.FINISHED, 2)
    assert steps(lab, sid) == list(range(1, 9))


def test_a_checkpoint_has_the_reports_that_were_made_before_it_however_slow_the_runner(
    lab, shelf
) -> None:
    """A runner that gets no time holds back neither the report of a step nor its checkpoint."""
    sid = begin(lab, upto=0, saved=2)
    lab.worker()
    lab.wait_for("began-1")
    (runner,) = lab.processes(r"-m hpq_worker\.runner")
    os.kill(runner, signal.SIGSTOP)
    try:
        for step in (1, 2):
            (lab.code / f"step-{step}").touch()
        pointer = wait_pointer(lab, sid)
    finally:
        os.kill(runner, signal.SIGCONT)
    assert (pointer.step, pointer.last, pointer.counts) == (2, 8, {"loss": 2})
    lab.go()
    lab.wait_over(sid)


def test_a_checkpoint_that_is_replaced_all_the_time_is_published_all_the_same(lab, shelf) -> None:
    """Files: a program replaces its checkpoint without a pause."""
    lab.write(
        "train.py",
        """
        import os, time
        from pathlib import Path
        kept = Path(os.environ["HPQ_CHECKPOINT_DIR"], "state")
        n = 0
        while not Path("go").exists():
            n += 1
            kept.with_suffix(".tmp").write_text(f"{n:09}")
            kept.with_suffix(".tmp").replace(kept)
            time.sleep(0.01)
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP.replace("counts", "train"))
    lab.worker()
    pointer = wait_pointer(lab, sid)
    lab.wait_until(lambda: lab.trial(sid).checkpoint != pointer, "the next one")
    read: list[str] = []

    def reads() -> bool:
        with contextlib.suppress(FileNotFoundError):  # a newer one has come meanwhile
            read.append((shelf / lab.trial(sid).checkpoint.path / "state").read_text())
        return bool(read)

    lab.wait_until(reads, "a checkpoint that stays while it is read")
    assert len(read[0]) == 9
    lab.go()
    lab.wait_over(sid)


def idx(path: Path, shape: tuple[int, ...], data: bytes) -> None:
    head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    path.write_bytes(head + data)


CNN = """
    trainer: mnist
    method: grid
    metric: {name: train/loss, goal: minimize}
    parameters:
      epochs: {value: 40}
      batch_size: {value: 64}
      width: {value: 2}
      dropout: {value: 0.3}
      train_images: {value: 256}
      test_images: {value: 64}
"""


def has_unread_command(lab, runner: int) -> bool:
    """Return whether a stopped runner's worker has sent it a command."""
    (line,) = lab.processes(r"-m hpq_worker\.runner").values()
    pipe = Path(f"/proc/{runner}/fd", line.split()[-2])
    with pipe.open("rb", buffering=0) as commands:
        return bool(select.select([commands], [], [], 0)[0])


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_real_network_goes_on_elsewhere_to_the_figures_of_one_that_never_stopped(
    lab, shelf, how
) -> None:
    """F1, F6: SIGKILL or SIGTERM in the midst of a real training; another machine goes on."""
    pytest.importorskip("torch")
    data = lab.folder / "data" / "MNIST" / "raw"
    data.mkdir(parents=True)
    noise = random.Random(1)
    for name, count in (("train", 256), ("t10k", 64)):
        idx(data / f"{name}-images-idx3-ubyte", (count, 28, 28), noise.randbytes(count * 784))
        idx(data / f"{name}-labels-idx1-ubyte", (count,), bytes(i % 10 for i in range(count)))
    lab.env |= {"HPQ_DATA": str(lab.folder / "data"), "HPQ_CHECKPOINT_S": "0.001"}
    lab.env["OMP_NUM_THREADS"] = "1"  # so small a network only waits for further threads
    sid = lab.enqueue(CNN)
    fleet = lab.worker(HPQ_GRACE_S="60")
    lab.wait_until(lambda: list(lab.home.glob("work/*/checkpoint/*.pt")), "the first epoch")
    (runner,) = lab.processes(r"-m hpq_worker\.runner")
    os.kill(runner, signal.SIGSTOP)  # so that it is mid-way, however fast the machine
    pointer = wait_pointer(lab, sid)
    if how == signal.SIGKILL:
        kill_worker(lab)
    else:
        fleet.terminate()
        lab.wait_until(lambda: has_unread_command(lab, runner), "the stop of the runner")
        os.kill(runner, signal.SIGCONT)
        assert fleet.wait() == 0
        assert lab.trial(sid).checkpoint != pointer
    assert not lab.trial(sid).state.is_terminal
    whole = lab.enqueue(CNN, "--new")
    lab.worker(HPQ_HOME=str(lab.folder / "another-machine"))
    if how == signal.SIGKILL:
        lab.end_lease(sid)
    lab.wait_over(sid)
    lab.wait_over(whole)
    assert "training-resumed" in ids(lab.printed(sid))
    trial, straight = lab.trial(sid), lab.trial(whole)
    assert (trial.attempt, straight.attempt) == (2, 1)
    for metric in ("train/loss", "test/acc"):
        one, other = (lab.reader.trials.metric_history(t.id, metric) for t in (trial, straight))
        assert [p.step for p in one] == list(range(1, 41))
        assert [p.value for p in one] == [p.value for p in other]


def test_a_full_store_fails_no_trial(lab, shelf) -> None:
    """Files: the store's disk is full."""
    shelf.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(shelf)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        lab.write(
            "train.py",
            """
            import os, time
            from pathlib import Path
            Path(os.environ["HPQ_CHECKPOINT_DIR"], "state").write_bytes(bytes(300_000))
            Path(os.environ["HPQ_OUT"], "model").write_bytes(bytes(300_000))
            while not Path("go").exists():
                time.sleep(0.01)
            print("loss=1")
            """,
        )
        sid = lab.enqueue(SWEEP.replace("counts", "train"))
        fleet = lab.worker()
        lab.wait_until(lambda: "No space left" in lab.log(), "the complaint")
        assert lab.trial(sid).state is TrialState.RUNNING
        lab.wait_until(lambda: files_of(shelf, sid) == [], "no part of it to stay")
        lab.go()
        lab.wait_over(sid)
        trial = lab.trial(sid)
        assert (trial.state, trial.objective) == (TrialState.FINISHED, 1)
        assert trial.artifacts is None and files_of(shelf, sid) == []
        assert "files-not-stored" in ids(lab.ok("logs", sid))
        fleet.terminate()
        assert fleet.wait() == 0
    finally:
        subprocess.run(["umount", "-l", str(shelf)], check=False)


# Trains up to `epochs`, one epoch at a time as the test allows it.
EPOCHS = """
    import json, os, sys, time
    from pathlib import Path

    HERE, EPOCHS = Path("USER_FOLDER"), int(sys.argv[1].partition("=")[2])
    KEPT = Path(os.environ["HPQ_CHECKPOINT_DIR"]) / "state.json"
    epoch = json.loads(KEPT.read_text()) if KEPT.exists() else 0
    print("starts after", epoch, flush=True)
    import hpq
    while epoch < EPOCHS:
        while not any((HERE / name).exists() for name in (f"step-{epoch + 1}", "go")):
            time.sleep(0.01)
        epoch += 1
        hpq.report({"loss": 10 - epoch}, step=epoch)
        draft = KEPT.with_suffix(".tmp")
        draft.write_text(json.dumps(epoch))
        draft.replace(KEPT)
"""
LONGER = (
    "program: epochs.py\nmethod: grid\nmetric: {name: loss}\nkeep: {best: 1}\n"
    "parameters: {epochs: {values: [3]}}\n"
)


@pytest.mark.slow
def test_a_trial_goes_on_from_another_one_s_checkpoint_and_a_killed_one_from_its_own(
    lab, shelf
) -> None:
    """F1: a trial goes on from epoch 3 of another one; kill -9 of its worker at epoch 5."""
    lab.write("epochs.py", EPOCHS.replace("USER_FOLDER", str(lab.code)))
    for step in (1, 2, 3, 4, 5):
        (lab.code / f"step-{step}").touch()
    sid = lab.enqueue(LONGER)
    lab.worker()
    lab.wait_over(sid)
    kept = lab.trial(sid).checkpoint
    assert kept.step == 3
    assert lab.ok("add", sid, "--from", "1", "epochs=7", "--outside") == f"{sid}/2\n"

    def own() -> Checkpoint | None:
        found = lab.trial(sid, 2).checkpoint
        return found if found and found.path != kept.path and found.step == 5 else None

    lab.wait_until(own, "a checkpoint of its own")
    assert "starts after 3" in lab.printed(sid, 2)
    kill_worker(lab)
    lab.worker(HPQ_HOME=str(lab.folder / "another-machine"))
    lab.end_lease(sid, 2)
    lab.wait_until(lambda: "starts after 5" in lab.printed(sid, 2), "the second attempt")
    lab.go()
    lab.wait_over(sid)
    trial = lab.trial(sid, 2)
    history = lab.reader.trials.metric_history(trial.id, "loss")
    assert [(p.step, p.value) for p in history] == [(4, 6.0), (5, 5.0), (6, 4.0), (7, 3.0)]
    assert (trial.objective, trial.attempt, trial.params) == (3.0, 2, {"epochs": 7})
    assert lab.trial(sid).checkpoint is None, "the longer one is the best"
    assert bare(f"{kept.path}/state.json").removeprefix(f"hpq/{sid}/") in files_of(shelf, sid)
    lab.audit(sid)


@pytest.mark.slow
def test_a_continued_trial_whose_checkpoint_is_complete_is_unreported(lab, shelf) -> None:
    lab.write("epochs.py", EPOCHS.replace("USER_FOLDER", str(lab.code)))
    lab.go()
    sid = lab.enqueue(LONGER)
    lab.worker()
    lab.wait_over(sid)
    assert lab.ok("add", sid, "--from", "1", "epochs=2", "--outside") == f"{sid}/2\n"
    lab.wait_over(sid)
    trial = lab.trial(sid, 2)
    assert trial.failure is not None
    assert (trial.state, trial.failure.kind) == ("finished", "unreported")
    assert "after step 3" in trial.failure.message
