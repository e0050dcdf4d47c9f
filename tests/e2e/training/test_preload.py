"""Programs with `preload:` are forks of a process that has their modules; they behave as others."""

from __future__ import annotations

import re

import pytest

from hpq.domain.trial import TrialState
from tests.support.ids import refused

HEAD = "program: train.py\nmethod: grid\nmetric: {name: loss, goal: minimize}\n"
THREE = HEAD + "parameters: {x: {values: [1, 2, 3]}}\n"
FORKED = r"preload_server\.py"


def library(lab, text: str = "") -> dict[str, str]:
    """Write the module `heavy`, which notes each import; return the workers' variables for it."""
    folder = lab.folder / "libraries"
    folder.mkdir(exist_ok=True)
    noted = f"open({str(lab.folder / 'imports')!r}, 'a').write(f'{{os.getpid()}}\\n')"
    (folder / "heavy.py").write_text(f"import os\n{noted}\n{text}\n", "utf-8")
    return {"PYTHONPATH": str(folder)}


def imports(lab) -> list[str]:
    """Return the pids of the processes that imported `heavy`."""
    return (lab.folder / "imports").read_text("utf-8").split()


def run(lab, program: str, more: str = "preload: [heavy]", sweep: str = THREE, **env: str) -> str:
    """Run a sweep of a program to its end, by one worker; return the sweep's id."""
    lab.write("train.py", program)
    env = env or library(lab)
    sid = lab.enqueue(sweep + more, **env)
    lab.worker(**env)
    lab.wait_over(sid)
    return sid


def test_the_trials_of_a_worker_share_one_import_in_processes_of_their_own(lab) -> None:
    sid = run(lab, "import heavy, os, sys\nprint(f'pid {os.getpid()}\\nloss={sys.argv[1][4:]}')")
    assert [t.objective for t in lab.reader.trials.all(sid)] == [1, 2, 3]
    pids = {re.findall(r"pid (\d+)", lab.printed(sid, n))[0] for n in (1, 2, 3)}
    assert len(pids) == 3 and len(imports(lab)) == 1 and not pids & set(imports(lab))


def test_a_module_of_the_code_is_imported_once_and_its_parts_from_each_trials_own_copy(lab) -> None:
    (lab.code / "src" / "heavy").mkdir(parents=True)
    noted = f"open({str(lab.folder / 'imports')!r}, 'a').write(f'{{os.getpid()}}\\n')"
    lab.write("src/heavy/__init__.py", f"import os\n{noted}\n")
    lab.write("src/heavy/late.py", "value = 1\n")
    program = """
        import os, sys
        from pathlib import Path
        import heavy
        if sys.argv[1] == "--x=1":
            (Path(heavy.__file__).parent / "late.py").write_text("value = 666")
        from heavy import late
        print(f"loss={late.value}")
    """
    sid = run(lab, program, PYTHONPATH=str(lab.code / "src"))
    assert [t.objective for t in lab.reader.trials.all(sid)] == [666, 1, 1]
    assert len(imports(lab)) == 1 and "without preload" not in lab.printed(sid)


DESCRIBES = """
    import atexit, heavy, json, multiprocessing, os, sys, threading, __main__

    def child(queue):
        queue.put([__name__, os.path.basename(sys.argv[0]), os.getcwd()])

    def found(method):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        said = queue.get()
        process.join()
        return said

    if __name__ == "__main__":
        import hpq
        own = {n: v for n, v in os.environ.items() if "PORT" not in n}
        facts = {
            "argv": sys.argv[1:], "orig_argv": sys.orig_argv[2:], "file": __file__[-8:],
            "main": __main__ is sys.modules["__main__"], "annotations": child.__annotations__,
            "names": sorted({n for n in globals() if n[0] == "_"} - {"__annotations__"}),
            "path": sys.path[1:], "first": sys.path[0] == os.path.dirname(__file__),
            "environ": own, "stdin": sys.stdin.read(), "leads": os.getpid() == os.getsid(0),
            "children": [found("fork"), found("spawn")], "cwd": os.getcwd(),
            "wandb": __import__("wandb").__version__, "builtins": type(__builtins__).__name__,
        }
        words = json.dumps(facts, sort_keys=True)
        print("FACTS", words.replace(os.environ["HPQ_ATTEMPT_ID"].split("/")[0], "SWEEP"))
        threading.Timer(0.1, print, ["from a thread"]).start()
        atexit.register(print, "at exit")
        hpq.report({"loss": 1})
"""


def test_a_preloaded_program_finds_what_it_finds_without_preload(lab) -> None:
    one = HEAD + "parameters: {x: {values: [1]}}\n"
    lab.write("train.py", DESCRIBES)
    changes = "os.environ |= {'BY_HEAVY': '1', 'OMP_NUM_THREADS': '3'}; os.environ.pop('TERM', 0)"
    env = library(lab, f"import sys\n{changes}\nsys.path.append('/by-heavy')") | {"TERM": "dumb"}
    plain, preloaded = lab.enqueue(one, **env), lab.enqueue(one + "preload: [heavy]", **env)
    lab.worker(**env)
    said = []
    for sid in (plain, preloaded):
        lab.wait_over(sid)
        log = re.sub(r"\.1\.[a-z0-9-]+|hpq-[a-z0-9_]{8}|code-\w+\.\d+\.\w+", "", lab.printed(sid))
        said.append(log)
    assert said[1].count("FACTS") == 1 and said[1].splitlines()[-2:] == ["from a thread", "at exit"]
    assert said[0] == said[1] and "/by-heavy" in said[0]


FAILS = """
    import asyncio, os, signal, sys

    def fails(how):
        if how == 1:
            raise KeyError("nothing")
        if how == 2:
            raise asyncio.CancelledError("no Exception")
        os.kill(os.getpid(), signal.SIGSEGV)

    fails(int(sys.argv[1][4:]))
"""


def test_a_preloaded_program_fails_as_it_does_without_preload(lab) -> None:
    lab.write("train.py", FAILS)
    env = library(lab)
    plain, preloaded = lab.enqueue(THREE, **env), lab.enqueue(THREE + "preload: [heavy]", **env)
    lab.worker(**env)
    failures = []
    for sid in (plain, preloaded):
        lab.wait_over(sid)
        failures.append([t.failure for t in lab.reader.trials.all(sid)])
    assert failures[0] == failures[1] and None not in failures[0]
    first, second = lab.printed(preloaded), lab.printed(preloaded, 2)
    assert "KeyError: 'nothing'" in first and "no Exception" in second
    assert "preload_server" not in first + second
    assert len(imports(lab)) == 1


def test_a_cancelled_trial_gets_its_signal_and_nothing_below_it_stays(lab) -> None:
    env = library(lab)
    lab.write(
        "train.py",
        """
        import os, signal, subprocess, sys, time
        from pathlib import Path

        if sys.argv[1] == "--x=1":
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("saved")))
            Path("waits").touch()
            while True:  # a signal just before one long sleep would wait for its end
                time.sleep(0.01)
        print("loss=1")
        """,
    )
    sid = lab.enqueue(THREE + "preload: [heavy]", **env)
    lab.worker(**env, HPQ_GRACE_S="60")  # the lab's leaves a program one second
    lab.wait_for("waits")
    lab.ok("cancel", f"{sid}/1", "--yes")
    lab.wait_over(sid)
    states = [t.state for t in lab.reader.trials.all(sid)]
    assert states == [TrialState.CANCELLED, TrialState.FINISHED, TrialState.FINISHED]
    assert "saved" in lab.printed(sid) and not lab.processes("sleep")
    assert len(imports(lab)) == 1  # the server has outlived the cancelled trial


def test_a_stalled_program_writes_its_stacks_and_the_next_trial_runs(lab) -> None:
    program = """
        import sys, time

        def waits_for_ever():
            time.sleep(1000)

        print("loss=1", flush=True)
        if sys.argv[1] == "--x=2":
            waits_for_ever()
    """
    # The runner and the server start in the first trial: that must not take as long.
    sid = run(lab, program, "stall: 10\npreload: [heavy]")
    assert lab.trial(sid, 2).failure.kind.value == "stalled"
    assert "in waits_for_ever" in lab.printed(sid, 2)
    assert [lab.trial(sid, n).state for n in (1, 3)] == [TrialState.FINISHED] * 2


WAITS = """
import time
if not os.path.exists("imported"):
    open("importing", "w").close()
    def waits_for_ever(): time.sleep(1000)
    waits_for_ever()
"""


@pytest.mark.parametrize("why", ["cancelled", "stalled"])
def test_a_trial_that_ends_while_its_modules_are_imported_starts_no_program(lab, why) -> None:
    env = library(lab, WAITS.replace('"import', f'"{lab.folder}/import'))
    lab.write("train.py", "import sys\nopen('ran', 'a').write(sys.argv[1])\nprint('loss=1')")
    sid = lab.enqueue(THREE + "preload: [heavy]\nstall: 10\nretries: 0", **env)
    lab.worker(**env)
    lab.wait_until((lab.folder / "importing").exists, "the import")
    (lab.folder / "imported").touch()
    if why == "cancelled":
        lab.ok("cancel", f"{sid}/1", "--yes")
    lab.wait_over(sid)
    ended = lab.events(sid)
    assert (why == "cancelled") == ("cancelled" in ended) and ended.count("claimed") <= 2
    assert ("in waits_for_ever" in lab.printed(sid)) == (why == "stalled")
    first = lab.trial(sid).state is TrialState.FINISHED  # a stall is tried again
    assert (lab.code / "ran").read_text() == "--x=1" * first + "--x=2--x=3"
    assert len(imports(lab)) == 2 and "without preload" not in lab.printed(sid)


def test_modules_are_shared_if_python_puts_no_directory_first(lab) -> None:
    sid = run(lab, "print('loss=1')", **library(lab), PYTHONSAFEPATH="1")
    assert [t.objective for t in lab.reader.trials.all(sid)] == [1, 1, 1]
    assert len(imports(lab)) == 1 and "Traceback" not in lab.printed(sid)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import threading\nthreading.Timer(1000, print).start()", "threads"),
        ("raise OSError('no such library')", "no such library"),
        ("import sys\nsys.modules['wandb'] = sys", "wandb"),
        ("os._exit(1)", "ended"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_shared_cost_one_line_and_the_trials_run(lab, text, why) -> None:
    sid = run(lab, "print('loss=1')", **library(lab, text))
    assert [t.objective for t in lab.reader.trials.all(sid)] == [1, 1, 1]
    logs = [lab.printed(sid, n) for n in (1, 2, 3)]
    (line,) = [line for line in "".join(logs).splitlines() if "preload" in line]
    assert why in line and line in logs[0]


def test_a_running_trial_says_that_a_module_cannot_be_imported(lab) -> None:
    gate = lab.folder / "gate"
    lab.write(
        "train.py", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    )
    sid = lab.enqueue(HEAD + "parameters: {x: {values: [1]}}\npreload: [havy]")
    lab.worker()
    lab.wait_until(lambda: lab.trial(sid).phase, "a phase")
    assert lab.trial(sid).phase.startswith("without preload: import havy: ModuleNotFoundError")
    gate.touch()
    lab.wait_over(sid)


def test_a_program_survives_its_server_and_the_next_trial_gets_a_new_one(lab) -> None:
    env = library(lab)
    lab.write(
        "train.py",
        """
        import os, signal, sys

        print("loss=1", flush=True)
        if sys.argv[1] == "--x=1":
            for pid in (os.getppid(), 0):  # on one core: the server ends after the program
                os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(3)
        """,
    )
    sid = lab.enqueue(THREE + "preload: [heavy]", **env)
    lab.worker(**env)
    lab.wait_over(sid)
    assert lab.trial(sid).failure.message.startswith("exit status 3")
    assert [lab.trial(sid, n).state for n in (2, 3)] == [TrialState.FINISHED] * 2
    assert len(imports(lab)) == 2 and "preload" not in lab.printed(sid)


def test_no_server_outlives_its_worker(lab) -> None:
    env = library(lab)
    lab.write("train.py", "import time\nprint('loss=1', flush=True)\ntime.sleep(1000)")
    lab.enqueue(THREE + "preload: [heavy]", **env)
    worker = lab.worker(**env)
    lab.wait_until(lambda: len(lab.processes(FORKED)) == 2, "a server and its program")
    worker.terminate()
    worker.wait()
    assert lab.processes() == {}


@pytest.mark.parametrize(
    "text",
    [
        'program: train.py\ncommand: ["${interpreter}", -u, "${program}"]',
        'program: train.py\ncommand: [torchrun, "${program}"]',
        'command: ["${interpreter}", -m, train, "${args}"]',
        "trainer: digits",
    ],
)
def test_preload_is_refused_for_what_is_not_a_plain_program(lab, text) -> None:
    lab.write("train.py", "print('loss=1')")
    text += "\nmethod: grid\npreload: [heavy]\nparameters: {seed: {value: 1}}\n"
    lab.write("s.yaml", text)
    refused(lab.hpq("enqueue", "s.yaml"), "conflicting-keys", "preload")


UNSEEDED = """
    import multiprocessing, sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    if __name__ == "__main__":
        key = multiprocessing.current_process().authkey.hex()
        print("DRAWN", torch.rand(1).item(), sys.modules["numpy.random"].rand(), key)
        total = 0.0
        for method in ("fork", "spawn"):
            data = TensorDataset(torch.arange(8.0))
            for (batch,) in DataLoader(data, 4, num_workers=2, multiprocessing_context=method):
                total += batch.sum().item()
        print(f"loss={total}")
"""


@pytest.mark.torch
def test_torch_is_imported_once_and_draws_other_numbers_in_each_trial(lab) -> None:
    pytest.importorskip("torch")
    two = HEAD + "parameters: {x: {values: [1, 2]}}\n"
    sid = run(lab, UNSEEDED, "preload: [torch, numpy.random]", two, OMP_NUM_THREADS="1")
    assert [t.objective for t in lab.reader.trials.all(sid)] == [56, 56]
    drawn = [re.findall(r"DRAWN (\S+) (\S+) (\S+)", lab.printed(sid, n))[0] for n in (1, 2)]
    assert all(first != second for first, second in zip(*drawn, strict=True))
    assert "without preload" not in lab.printed(sid)
