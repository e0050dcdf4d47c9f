"""`hpq run`: its workers serve its own sweep, and end with it however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable

import pytest

from hpq.domain.trial import TrialState
from tests.support.commands import HPQ
from tests.support.disk import small_disk
from tests.support.ids import ids, refused
from tests.support.lab import Lab

SWEEP = (
    "trainer: steered:train\nmethod: grid\nmetric: {{name: loss}}\n"
    "name: {name}\nparameters: {{x: {{values: [1, 2, 3]}}}}\n"
)
STUBBORN = """
    import signal, time
    from pathlib import Path
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("began").write_text("")
    while True:
        time.sleep(0.05)
"""

StartRun = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_run(lab: Lab) -> StartRun:
    """Starts `hpq run` of a sweep file's text; the lab's end sees to what is left of it."""

    def start(text: str, *flags: str, private: bool = False) -> subprocess.Popen[bytes]:
        path = lab.write(f"run-{len(lab.workers)}.yaml", text)
        env = lab.env | ({"HPQ_REDIS_URL": ""} if private else {})
        with (lab.folder / "said").open("wb") as out:
            process = subprocess.Popen(
                [HPQ, "run", str(path), *flags],
                cwd=lab.code,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        lab.workers.append(process)
        return process

    return start


def enqueue_abandoned(lab: Lab) -> str:
    """A sweep that is older and that nobody works on."""
    sid = lab.steered(2)
    assert lab.reader.sweeps.get(sid).counts.queued == 2
    return sid


@pytest.mark.parametrize("count", ["0", "-1", "1001", "x"])
def test_a_number_of_workers_that_cannot_be_is_refused_before_the_sweep_exists(
    lab: Lab, count: str
) -> None:
    lab.write("steered.py", "def train(params, trial): pass\n")
    path = lab.write("sweep.yaml", SWEEP.format(name="s"))
    refused(lab.hpq("run", path, "--workers", count), "usage", "--workers")
    assert not lab.reader.sweeps.ids(9)


def test_the_workers_of_a_run_leave_an_older_sweep_alone(lab: Lab, start_run: StartRun) -> None:
    older = enqueue_abandoned(lab)
    lab.write("go", "")
    run = start_run(SWEEP.format(name="mine"), "--workers", "1")
    assert run.wait() == 0, said(lab)
    assert "3 finished" in said(lab)
    assert lab.reader.sweeps.get(older).counts.queued == 2


def test_a_second_run_of_a_file_that_is_done_says_that_it_trains_it_again(
    lab: Lab, start_run: StartRun
) -> None:
    older = enqueue_abandoned(lab)
    lab.write("go", "")
    assert start_run(SWEEP.format(name="twice"), "--workers", "1").wait() == 0, said(lab)
    (first,) = {*lab.reader.sweeps.ids()} - {older}
    assert f"`hpq best {first}`" not in said(lab)
    run = start_run(SWEEP.format(name="twice"), "--workers", "1")
    assert run.wait() == 0, said(lab)
    assert said(lab).startswith(f"{first}: ") and f"`hpq best {first}`" in said(lab)
    assert len(lab.reader.sweeps.ids()) == 3


def test_a_worker_may_be_told_to_serve_one_sweep(lab: Lab) -> None:
    older = enqueue_abandoned(lab)
    sid = lab.steered(3, "name: mine\n")
    lab.write("go", "")
    lab.worker(HPQ_SWEEP=sid)
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(older).counts.queued == 2
    answer = lab.hpq("worker", "--sweep", "nope")
    assert (answer.returncode, len(answer.stderr.splitlines())) == (4, 1)


def test_a_run_that_is_told_to_end_takes_its_private_server_with_it(
    lab: Lab, start_run: StartRun
) -> None:
    enqueue_abandoned(lab)
    run = start_run(SWEEP.format(name="mine"), "--workers", "1", private=True)
    lab.wait_for("began-1-1")
    run.send_signal(signal.SIGTERM)
    run.wait()
    lab.wait_until(lambda: not lab.processes(), "the end of worker, keeper and server")


def test_ctrl_c_twice_gives_the_trials_back_at_once(lab: Lab, start_run: StartRun) -> None:
    lab.write("stubborn.py", STUBBORN)
    lab.env["HPQ_GRACE_S"] = "3600"
    run = start_run("program: stubborn.py\nmethod: grid\nname: mine\n"
                    "parameters: {x: {values: [1, 2]}}\n", "--workers", "1")  # fmt: skip
    lab.wait_for("began")
    (sid,) = lab.reader.sweeps.ids()
    run.send_signal(signal.SIGINT)
    lab.wait_until(lambda: "Ctrl-C again" in said(lab), "the offer to end at once")
    run.send_signal(signal.SIGINT)
    assert run.wait() == 130
    lab.wait_until(lambda: not lab.processes(), "the end of the workers")
    assert lab.trial(sid).state is TrialState.QUEUED


def said(lab: Lab) -> str:
    """What the run has printed."""
    return (lab.folder / "said").read_text("utf-8")


@pytest.mark.parametrize("killed", [("server_pid",), ("keeper_pid", "server_pid")])
def test_a_run_goes_on_when_its_private_server_is_killed(
    lab: Lab, start_run: StartRun, killed: tuple[str, ...]
) -> None:
    """F9: kill -9 of the private server of `hpq run`, and of the process that restarts it."""
    enqueue_abandoned(lab)
    run = start_run(SWEEP.format(name="mine"), "--workers", "1", private=True)
    lab.wait_for("began-1-1")
    record = json.loads((lab.home / "server.json").read_text("utf-8"))
    for pid in killed:
        os.kill(record[pid], signal.SIGKILL)
    lab.write("go", "")
    assert run.wait() == 0, said(lab)
    assert "3 finished" in said(lab)


@pytest.mark.slow
def test_a_run_goes_on_when_the_full_disk_of_its_workers_has_space(
    lab: Lab, start_run: StartRun
) -> None:
    enqueue_abandoned(lab)  # writes the trainer
    lab.write("go", "")
    lab.env["HPQ_SCRATCH"] = str(lab.folder / "scratch")
    with small_disk(lab.folder / "scratch", "1m") as disk:
        disk.fill()
        run = start_run(SWEEP.format(name="mine"), "--workers", "1", private=True)
        lab.wait_until(lambda: "disk-full" in ids(said(lab)), "a trial that cannot start")
        disk.free()
        assert run.wait() == 0, said(lab)
        assert "3 finished" in said(lab)


class Terminal:
    """`hpq run` on a terminal of its own, which can be hung up."""

    def __init__(self, lab: Lab, *words: str) -> None:
        self._lab, self.shown = lab, b""
        pid, self._master = pty.fork()
        if pid == 0:
            os.chdir(lab.code)
            os.execve(HPQ, [HPQ, "run", *words], lab.env | {"TERM": "xterm"})
        self.pid, self._status = pid, 0
        os.set_blocking(self._master, False)

    def reads(self, words: str) -> bool:
        """True once the terminal has shown these words."""
        with contextlib.suppress(OSError):
            self.shown += os.read(self._master, 65536)
        return words in self.shown.decode("utf-8", "replace")

    def answer(self, key: str, answer: str) -> None:
        """Press a key, and answer the question that follows."""
        os.write(self._master, key.encode())
        self._lab.wait_until(lambda: self.reads("[l]eave them running?"), "the question")
        self.shown = b""
        os.write(self._master, answer.encode())  # one key, without Enter

    def ended(self) -> int:
        """Wait for the end; answers the exit code."""
        self._lab.wait_until(self._has_ended, "the end of the run")
        return os.waitstatus_to_exitcode(self._status)

    def _has_ended(self) -> bool:
        self.reads("")  # a full terminal would keep it
        pid, self._status = os.waitpid(self.pid, os.WNOHANG)
        return pid != 0

    def hang_up(self) -> None:
        """Close the terminal: the kernel sends SIGHUP to its session."""
        os.close(self._master)


def mine(lab: Lab) -> str:
    (sid,) = [sid for sid in lab.reader.sweeps.ids() if sid.startswith("mine")]
    return sid


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_workers_that_are_left_survive_a_hang_up_and_a_second_run_comes_back_to_them(
    lab: Lab, key: str
) -> None:
    enqueue_abandoned(lab)  # writes the trainer
    file = str(lab.write("mine.yaml", SWEEP.format(name="mine")))
    run = Terminal(lab, file, "--workers", "1")
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: run.reads("asks about"), "the frame")
    run.answer(key, "l")
    assert run.ended() == 0
    run.hang_up()
    sid = mine(lab)
    supervisors = lab.processes(r"-m hpq_worker ")
    assert len(supervisors) == 1 and lab.reader.sweeps.get(sid).counts.running == 1

    again = Terminal(lab, sid)
    lab.wait_until(lambda: again.reads("already running"), "the workers found again")
    assert lab.processes(r"-m hpq_worker ") == supervisors
    lab.wait_until(lambda: again.reads("asks about"), "the frame")
    again.answer("q", "l")
    assert again.ended() == 0
    again.hang_up()
    lab.write("go", "")
    lab.wait_over(sid)
    lab.wait_until(lambda: not lab.processes(r"-m hpq_worker"), "the end of the workers by itself")
    assert [lab.trial(sid, n).attempt for n in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize(("key", "answer"), [("q", "\x03"), ("\x03", "s")])
def test_workers_that_are_stopped_give_their_trials_back(lab: Lab, key: str, answer: str) -> None:
    enqueue_abandoned(lab)
    file = str(lab.write("mine.yaml", SWEEP.format(name="mine")))
    run = Terminal(lab, file, "--workers", "1")
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: run.reads("asks about"), "the frame")
    run.answer(key, answer)
    assert run.ended() == 130
    run.hang_up()
    lab.wait_until(lambda: not lab.processes(r"-m hpq_worker"), "the end of the workers")
    assert lab.reader.sweeps.get(mine(lab)).counts.running == 0


def test_a_metric_that_no_trial_reports_is_named_once_while_the_sweep_runs(lab: Lab) -> None:
    lab.write("named.py", "def train(params, trial):\n    return {'accuracy': params['x']}\n")
    text = SWEEP.format(name="s").replace("steered:train", "named:train")
    done = lab.hpq("run", lab.write("sweep.yaml", text), "--workers", "1")
    told = [line for line in done.stdout.splitlines() if "metric-unreported" in ids(line)]
    assert sum(line.startswith("! ") for line in told) == 1
    ends = [line for line in done.stdout.splitlines() if " finished (unreported)" in line]
    assert ends and not any("was never reported" in line for line in ends)
    assert done.returncode == 1, "a script must not take this for a success"
    sid = lab.reader.sweeps.ids(1)[0]
    assert lab.hpq("wait", sid).returncode == lab.hpq("watch", sid).returncode == 1


def test_trials_that_overwrite_one_file_are_named_at_the_end_and_in_their_log(lab: Lab) -> None:
    lab.write("same.py", "open('model.pt', 'w').write('x')\nprint('loss=1')\n")
    text = SWEEP.format(name="s").replace("trainer: steered:train", "program: same.py")
    done = lab.hpq("run", lab.write("sweep.yaml", text), "--workers", "1")
    told = [line for line in done.stderr.splitlines() if "file-overwritten" in ids(line)]
    assert len(told) == 1 and "model.pt" in told[0] and "$HPQ_OUT" in told[0], done.stderr
    (sid,) = lab.reader.sweeps.ids(1)
    assert "file-overwritten" not in ids(lab.printed(sid, 1))
    assert "file-overwritten" in ids(lab.printed(sid, 2))
