"""`hpq run`: its workers serve its own sweep; what it says, and what it asks on a terminal."""

from __future__ import annotations

import contextlib
import os
import pty

import pytest

from tests.support.commands import HPQ
from tests.support.ids import ids, refused
from tests.support.lab import Lab

SWEEP = (
    "trainer: steered:train\nmethod: grid\nmetric: {{name: loss}}\n"
    "name: {name}\nparameters: {{x: {{values: [1, 2, 3]}}}}\n"
)


def enqueue_abandoned(lab: Lab) -> str:
    """A sweep that is older and that nobody works on."""
    sid = lab.steered(2)
    assert lab.reader.sweeps.get(sid).counts.queued == 2
    return sid


def test_a_number_of_workers_that_cannot_be_is_refused_before_the_sweep_exists(lab: Lab) -> None:
    lab.write("steered.py", "def train(params, trial): pass\n")
    path = lab.write("sweep.yaml", SWEEP.format(name="s"))
    for count in ("0", "-1", "1001", "x"):
        refused(lab.here("run", path, "--workers", count), "usage", "--workers")
    assert not lab.reader.sweeps.ids(9)


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


def test_a_run_leaves_older_sweeps_alone_and_says_that_it_trains_a_file_again(lab: Lab) -> None:
    older = enqueue_abandoned(lab)
    lab.go()
    path = lab.write("twice.yaml", SWEEP.format(name="twice"))
    first = Terminal(lab, str(path), "--workers", "1")
    assert first.ended() == 0, "on a terminal, too, it ends with its sweep"
    assert first.reads("3 finished")
    first.hang_up()
    again = lab.here("run", path, "--workers", "1")
    assert again.returncode == 0 and "3 finished" in again.stdout, again
    assert lab.reader.sweeps.get(older).counts.queued == 2
    second, sid = (one for one in lab.reader.sweeps.ids() if one != older)
    assert f"`hpq best {sid}`" not in first.shown.decode("utf-8", "replace")
    assert again.stderr.startswith(f"{sid}: ") and f"`hpq best {sid}`" in again.stderr
    assert lab.reader.sweeps.get(second).counts.finished == 3


def test_workers_that_are_left_survive_a_hang_up_and_a_second_run_comes_back_to_them(
    lab: Lab,
) -> None:
    enqueue_abandoned(lab)  # writes the trainer
    file = str(lab.write("mine.yaml", SWEEP.format(name="mine")))
    run = Terminal(lab, file, "--workers", "1")
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: run.reads("asks about"), "the frame")
    run.answer("\x03", "l")
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
    lab.go()
    lab.wait_over(sid)
    lab.wait_for_no_process(r"-m hpq_worker")
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
    lab.wait_for_no_process(r"-m hpq_worker")
    assert lab.reader.sweeps.get(mine(lab)).counts.running == 0


def test_a_run_names_a_metric_that_no_trial_reports_and_a_file_that_trials_overwrite(
    lab: Lab,
) -> None:
    lab.write("same.py", "open('model.pt', 'w').write('x')\nprint('accuracy=1')\n")
    text = SWEEP.format(name="s").replace("trainer: steered:train", "program: same.py")
    done = lab.here("run", lab.write("sweep.yaml", text), "--workers", "1")
    told = [line for line in done.stdout.splitlines() if "metric-unreported" in ids(line)]
    assert sum(line.startswith("! ") for line in told) == 1
    ends = [line for line in done.stdout.splitlines() if " finished (unreported)" in line]
    assert ends and not any("was never reported" in line for line in ends)
    assert done.returncode == 1, "a script must not take this for a success"
    (sid,) = lab.reader.sweeps.ids(1)
    assert lab.hpq("wait", sid).returncode == lab.hpq("watch", sid).returncode == 1

    told = [line for line in done.stderr.splitlines() if "file-overwritten" in ids(line)]
    assert len(told) == 1 and "model.pt" in told[0] and "$HPQ_OUT" in told[0], done.stderr
    assert "file-overwritten" not in ids(lab.printed(sid, 1))
    assert "file-overwritten" in ids(lab.printed(sid, 2))
