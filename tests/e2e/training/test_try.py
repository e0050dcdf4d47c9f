"""`hpq try`: one trial in the terminal, as a worker runs it, with nothing in Redis."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from hpq.access.session import reader_of
from hpq.code import bundle
from hpq.settings import read
from hpq_views.page.sweep_reads import read_sweep
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids, refused
from tests.support.terminal import Pty

NO_SERVER = "redis://127.0.0.1:1/0"
SWEEP = """
    program: train.py
    method: grid
    metric: {name: val_loss}
    parameters:
      net: {parameters: {layers: {values: [2, 3]}}}
      lr: {values: [0.5, 0.1]}
"""
SHOWS = """
    import json, os, sys
    from pathlib import Path

    names = sorted(n for n in os.environ if n.startswith(("HPQ_", "WANDB", "PYTHON", "PET")))
    params = json.loads(Path(os.environ["HPQ_PARAMS"]).read_text())
    wandb = __import__("wandb")  # unused: printed lines are the metrics
    print(json.dumps([sys.argv[1:], names, params, os.getcwd(), wandb.__file__]))
    for step in (1, 2):
        print(f"Epoch {step}/2 - loss: 3 - val_loss: {0.5 / step}")
"""


def stored(lab, sid: str) -> dict[bytes, object]:
    """Return all keys of a sweep and its trials."""
    return {key: lab.redis.dump(key) for key in lab.redis.scan_iter() if sid.encode() in key}


def test_a_file_runs_as_under_a_worker_and_needs_no_server(lab) -> None:
    lab.write("train.py", SHOWS)
    sid = lab.enqueue(SWEEP + "      which: {value: last}\n")
    lab.worker()
    lab.wait_over(sid)
    under_worker = json.loads(lab.ok("logs", f"{sid}/1").splitlines()[0])
    of_worker = set((lab.home / "work").iterdir())
    done = lab.hpq("try", "sweep-1.yaml", HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == under_worker
    assert "Epoch 2/2" in done.stdout and "val_loss=0.25 at step 2" in done.stderr
    assert "\nval_loss=" not in done.stdout, "what a program prints is shown once"
    assert set((lab.home / "work").iterdir()) <= of_worker, "it leaves no files"


def test_parameters_are_set_and_the_exit_code_is_the_programs(lab) -> None:
    lab.write("train.py", SHOWS + "    sys.exit(3)\n")
    lab.write("s.yaml", SWEEP)
    words = ("--set", "lr=2", "--set", "net.layers=7")
    done = lab.hpq("try", "s.yaml", *words, HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout.splitlines()[0])[2] == {"lr": 2, "net": {"layers": 7}}
    lab.write("train.py", SHOWS)
    lab.write("s.yaml", SWEEP.replace("val_loss", "accuracy"))
    done = lab.hpq("try", "s.yaml", HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 0 and "warning" in done.stderr and "'accuracy'" in done.stderr
    lab.write("train.py", "import wandb\nprint('val_loss=1')")  # as with --wandb left out
    lab.write("s.yaml", SWEEP)
    done = lab.hpq("try", "s.yaml", HPQ_REDIS_URL=NO_SERVER)
    assert "hpq: val_loss=1 at step 1" in done.stderr, done.stderr
    lab.write("train.py", "import wandb\nwandb.init()\nprint('val_loss=1')")
    done = lab.hpq("try", "s.yaml", HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 0 and "wandb.log" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("s.yaml", "--set", "rl=1"), "unknown-parameter"),
        (("s.yaml", "--set", "lr"), "usage"),
        (("s.yaml", "--set", "net.layers.x.y=1"), None),
        (("s.yaml", "--set", "method=grid"), "unknown-parameter"),
        (("nope.yaml",), None),
        (("train.py",), "sweep-file-is-script"),
        (("gone.yaml",), "code-invalid"),
        (("empty.yaml",), "value-to-fill-in"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_runs(lab, words, code) -> None:
    lab.write("train.py", "print('ran')")
    lab.write("s.yaml", SWEEP)
    lab.write("gone.yaml", SWEEP.replace("train.py", "gone.py"))
    lab.write("empty.yaml", SWEEP.replace("[0.5, 0.1]", "[<fill in>]"))
    done = lab.hpq("try", *words, HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 2 and "ran" not in done.stdout, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and (code is None or code in ids(done.stderr))


def test_a_program_finds_the_data_sets_of_the_home_in_hpq_data(lab) -> None:
    lab.write(
        "train.py", "import os\nprint('data', os.environ.get('HPQ_DATA'))\nprint('val_loss=1')\n"
    )
    lab.write("s.yaml", SWEEP)
    environ = {"HPQ_REDIS_URL": NO_SERVER, "HPQ_DATA": ""}
    assert "data \n" in lab.hpq("try", "s.yaml", **environ).stdout
    (lab.home / "data").mkdir(parents=True)
    assert f"data {lab.home / 'data'}" in lab.hpq("try", "s.yaml", **environ).stdout


def test_images_that_are_missing_are_one_line_as_for_hpq_run(lab) -> None:
    lab.write("cifar.yaml", "trainer: cifar10\nmethod: grid\nparameters: {epochs: {value: 1}}\n")
    done = lab.hpq("try", "cifar.yaml", HPQ_DATA=str(lab.home))
    assert (done.returncode, ids(done.stderr)) == (2, ["data-missing"]), done.stderr
    assert "Traceback" not in done.stderr


def test_a_trial_of_a_sweep_runs_with_its_parameters_and_the_code_as_it_is_now(lab) -> None:
    lab.write("train.py", "raise SystemExit('old code')")
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    before = stored(lab, sid)
    assert before
    lab.write("train.py", SHOWS)
    done = lab.hpq("try", f"{sid}/3")
    assert done.returncode == 0, done.stderr
    argv, _, params, folder, _ = json.loads(done.stdout.splitlines()[0])
    assert params == {"lr": 0.1, "net": {"layers": 2}} and folder == str(lab.code)
    assert argv == ["--net={'layers': 2}", "--lr=0.1"] and "val_loss=0.25" in done.stderr
    assert stored(lab, sid) == before, "nothing is written"
    assert ids(lab.hpq("try", f"{sid}/9").stderr) == ["trial-not-found"]
    lab.code.joinpath("train.py").rename(lab.folder / "train.py")
    assert lab.hpq("try", f"{sid}/3").returncode == 2, "Python finds no file"
    refused(lab.hpq("try", sid), "file-not-found", f"{sid}/1")
    lab.redis.hset(lab.keys.sweep(sid), "signature", "0" * 64)
    assert ids(lab.hpq("try", f"{sid}/3").stderr)[-1:] == ["code-not-signed"]


EXACT = """
    import json, os, sys
    from pathlib import Path

    from helper import version
    about = [version, sys.argv[1:], os.environ["HPQ_SEED"], Path("data.txt").read_text()]
    print(json.dumps(about))
    print("val_loss=1")
"""


def edited_since_its_trials(lab) -> tuple[str, list]:
    """A sweep whose code was edited since; its id, and what its third trial printed."""
    lab.write("train.py", EXACT)
    lab.write("helper.py", "version = 'old'\n")
    lab.write("data.txt", "beside the code")
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    lab.write("helper.py", "version = 'new'\n")
    return sid, json.loads(lab.printed(sid, 3).splitlines()[0])


def printed(done: subprocess.CompletedProcess[str]) -> list:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])


def test_a_trial_runs_again_as_enqueued_after_its_code_was_edited(lab) -> None:
    sid, was = edited_since_its_trials(lab)
    assert was == ["old", ["--net={'layers': 2}", "--lr=0.1"], "0", "beside the code"]
    before = stored(lab, sid)
    of_worker = set((lab.home / "work").iterdir())
    done = lab.hpq("try", f"{sid}/3", "--as-enqueued")
    assert printed(done) == was and ids(done.stderr) == ["code-edited"]
    assert stored(lab, sid) == before and set((lab.home / "work").iterdir()) <= of_worker
    done = lab.hpq("try", f"{sid}/3")
    assert printed(done) == ["new", *was[1:]] and ids(done.stderr) == ["code-edited"]
    assert f"hpq try {sid}/3 --as-enqueued" in done.stderr
    lab.write("helper.py", "version = 'old'\n")
    for words in ((), ("--as-enqueued",)):
        done = lab.hpq("try", f"{sid}/3", *words)
        assert printed(done) == was and not ids(done.stderr)


def test_the_line_of_the_page_runs_the_winner_as_enqueued_from_any_directory(lab) -> None:
    sid, was = edited_since_its_trials(lab)
    best = lab.reader.status(sid, rows=0).best[0].id
    line = read_sweep(reader_of(lab.redis, read(lab.env)), sid, read(lab.env)).command
    assert line == f"hpq try {best} --as-enqueued"
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    ran = subprocess.run(
        ["sh", "-c", line], cwd=elsewhere, env=lab.env, capture_output=True, text=True, check=False
    )
    assert printed(ran)[0] == was[0] == "old"


def test_a_try_has_the_seed_that_is_set(lab) -> None:
    lab.write("train.py", "import os\nprint(os.environ['HPQ_SEED'])\n")
    lab.write("s.yaml", SWEEP)
    sid = lab.enqueue(SWEEP + "    replicates: 2\n", "--set", "seed=5")
    for words in (("s.yaml",), (f"{sid}/2",), (f"{sid}/2", "--as-enqueued")):
        assert lab.ok("try", *words, "--seed", "41") == "41\n"
    assert lab.hpq("try", f"{sid}/2", "--as-enqueued").stdout == "6\n"
    refused(lab.hpq("try", "s.yaml", "--seed", "-1"), "usage", "--seed")


def test_a_reused_result_runs_again_with_the_seed_that_it_ran_with(lab) -> None:
    lab.write("train.py", "import os\nprint('seed', os.environ['HPQ_SEED'])\nprint('val_loss=1')\n")
    grid = "program: train.py\nmethod: grid\nmetric: {name: val_loss}\n"
    grid += "parameters: {x: {values: [1]}}\n"
    old = lab.enqueue(grid, "--set", "seed=5")
    lab.worker()
    lab.wait_over(old)
    bayes = grid.replace("grid", "bayes").replace("values: [1]", "min: 0, max: 9") + "run_cap: 1\n"
    new = lab.enqueue(bayes, "--reuse")
    assert lab.trial(new, 1).reused and lab.reader.sweeps.get(new).seed == 0
    assert "seed 5\n" in lab.ok("try", f"{new}/1", "--as-enqueued")


def test_only_a_trial_whose_code_was_copied_runs_as_enqueued(lab) -> None:
    lab.write("train.py", "print('ran')\n")
    lab.write("s.yaml", SWEEP)
    refused(lab.hpq("try", "s.yaml", "--as-enqueued", HPQ_REDIS_URL=NO_SERVER), "usage")
    live = lab.enqueue(SWEEP, "--live")
    refused(lab.hpq("try", f"{live}/1", "--as-enqueued"), "code-not-kept")
    sid = lab.enqueue(SWEEP)
    digest = lab.reader.sweeps.get(sid).launch.code
    lab.redis.delete(lab.keys.bundle(digest))
    done = lab.hpq("try", f"{sid}/1", "--as-enqueued")
    refused(done, "code-not-kept")
    assert "ran" not in done.stdout


def test_nothing_unsigned_runs_as_enqueued(lab) -> None:
    lab.write("train.py", "print('ran')\n")
    sid = lab.enqueue(SWEEP)
    digest = lab.reader.sweeps.get(sid).launch.code
    key, record = lab.keys.bundle(digest), lab.redis.hgetall(lab.keys.sweep(sid))
    evil = bundle.pack({"train.py": (b"print('evil')\n", 0o644)})
    whole = lab.redis.get(key)
    for forged in (evil, whole[:-9], b"x"):
        lab.redis.set(key, forged)
        done = lab.hpq("try", f"{sid}/1", "--as-enqueued")
        refused(done, "code-altered", exit=4)
        assert not done.stdout
    lab.redis.set(key, whole)
    launch = json.loads(record[b"launch"])
    for changed in ({"program": "other.py"}, {"code": digest[::-1]}, {"code_dir": "/"}):
        lab.redis.hset(lab.keys.sweep(sid), "launch", json.dumps(launch | changed))
        done = lab.hpq("try", f"{sid}/1", "--as-enqueued")
        refused(done, "code-not-signed", exit=4)
        assert not done.stdout
    lab.redis.hset(lab.keys.sweep(sid), mapping=record)
    other = {"HPQ_CODE_KEY": "another, of 16 letters"}
    refused(lab.hpq("try", f"{sid}/1", "--as-enqueued", **other), "code-not-signed", exit=4)
    assert "ran" in lab.ok("try", f"{sid}/1", "--as-enqueued")


def test_a_function_is_tried_too_and_its_exception_is_exit_code_1(lab) -> None:
    lab.write(
        "mine.py",
        """
        def train(params, trial):
            trial.phase("loading")
            trial.report({"loss": params["x"]})
            if params["x"] > 1:
                raise KeyError("x")
            trial.report({"acc": 0.5}, step=1)
        """,
    )
    lab.write("s.yaml", "trainer: mine:train\nmethod: grid\nmetric: {name: loss}\n"
              "parameters: {x: {values: [1, 2]}}\n")  # fmt: skip
    done = lab.hpq("try", "s.yaml", HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 0 and "loss=1 at step 1" in done.stderr
    assert done.stdout.splitlines() == ["loss=1", "step 1 acc=0.5"], "reports are shown"
    assert "loading\n" in done.stderr
    done = lab.hpq("try", "s.yaml", "--set", "x=2", HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 1 and "KeyError: 'x'" in done.stdout + done.stderr


@pytest.mark.parametrize("launch", ["program: train.py", "trainer: mine:train"])
def test_a_debugger_reads_the_terminal(lab, launch: str) -> None:
    lab.write("train.py", "x = 41\nbreakpoint()\nprint(f'val_loss={x}')\n")
    lab.write("mine.py", """
        def train(params, trial):
            x = 41
            breakpoint()
            return {"val_loss": x}
        """)  # fmt: skip
    lab.write("s.yaml", f"{launch}\nmethod: grid\nmetric: {{name: val_loss}}\n"
              "parameters: {lr: {value: 1}}\n")  # fmt: skip
    terminal = Pty(["try", "s.yaml"], lab.code, lab.env | {"HPQ_REDIS_URL": NO_SERVER})
    terminal.read_until("(Pdb) ")
    terminal.type("p 'answer', x + 1\n")
    terminal.read_until("('answer', 42)")
    terminal.type("c\n")
    assert terminal.end() == 0 and "val_loss=41 at step 1" in terminal.seen, terminal.seen


def test_ctrl_c_is_the_programs_own(lab) -> None:
    lab.write("train.py", """
        import time
        try:
            print("began")
            while True:
                time.sleep(0.1)
        except KeyboardInterrupt:
            print("val_loss=0.5")
            raise SystemExit(9)
        """)  # fmt: skip
    lab.write("s.yaml", SWEEP)
    terminal = Pty(["try", "s.yaml"], lab.code, lab.env | {"HPQ_REDIS_URL": NO_SERVER})
    terminal.read_until("began\r\n")
    terminal.type("\x03")
    assert terminal.end() == 9 and "val_loss=0.5 at step 1" in terminal.seen, terminal.seen
    lab.write("train.py", "import time\nprint('began')\nwhile True: time.sleep(0.1)\n")
    terminal = Pty(["try", "s.yaml"], lab.code, lab.env | {"HPQ_REDIS_URL": NO_SERVER})
    terminal.read_until("began\r\n")
    terminal.type("\x03")
    assert terminal.end() == 130 and "KeyboardInterrupt" in terminal.seen, terminal.seen
    assert "interrupted" in terminal.seen and "failed" not in terminal.seen, terminal.seen


def test_a_reader_that_leaves_ends_the_trial_without_a_word(lab) -> None:
    lab.write("train.py", "while True: print('more', flush=True)\n")
    lab.write("s.yaml", SWEEP)
    with subprocess.Popen(
        [HPQ, "try", "s.yaml"], cwd=lab.code, env=lab.env | {"HPQ_REDIS_URL": NO_SERVER},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as tried:  # fmt: skip
        assert tried.stdout and tried.stderr and tried.stdout.readline() == "more\n"
        tried.stdout.close()
        assert "pipe" not in tried.stderr.read().lower()
        assert tried.wait(DEADLINE_S) == 128 + signal.SIGPIPE
    assert lab.processes(r"train\.py") == {}


def test_files_of_the_trial_stay_and_no_store_is_asked_for(lab) -> None:
    lab.write(
        "train.py",
        """
        import os, pathlib
        pathlib.Path(os.environ["HPQ_OUT"], "model").write_text("m")
        """,
    )
    lab.write("s.yaml", SWEEP)
    done = lab.hpq("try", "s.yaml", HPQ_REDIS_URL=NO_SERVER)
    assert done.returncode == 0 and not ids(done.stdout + done.stderr), done.stderr
    (work,) = (path for path in (lab.home / "work").iterdir() if path.is_dir())
    assert f"{work / 'out'}" in done.stderr and (work / "out" / "model").read_text() == "m"
