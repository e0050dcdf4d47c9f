"""Local code runs from a snapshot, over the user's own directory; people go on editing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hpq.domain.trial import FailureKind, TrialState
from tests.support.folders import git
from tests.support.ids import ids
from tests.support.lab import Lab

SWEEP = """
    program: train.py
    method: grid
    metric: {name: loss}
    parameters: {x: {values: [1, 2]}}
"""
PROGRAM = """
    import os, sys, time
    from pathlib import Path
    import model
    data = (Path(__file__).parent / "data" / "x.txt").read_text().strip()
    print(f"cwd={os.getcwd()} file={__file__} data={data}")
    Path("mine.txt").write_text("by the working directory")
    (Path(__file__).parent / "beside.txt").write_text("by the file")
    Path(f"began-{sys.argv[1][-1]}").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    print(f"loss={model.width}")
"""


def project(lab: Lab, width: int = 1) -> None:
    lab.write("train.py", PROGRAM)
    lab.write("model.py", f"width = {width}\n")
    (lab.code / "data").mkdir(exist_ok=True)
    (lab.code / "data" / "x.txt").write_text("seven")


def test_a_file_saved_while_a_sweep_runs_neither_stops_it_nor_gets_into_it(lab) -> None:
    project(lab)
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_until((lab.code / "began-1").exists, "the first trial")
    lab.write("model.py", "width = 2\n")
    lab.write("unrelated.py", "new = True\n")
    lab.write("go", "")
    lab.wait_over(sid)
    assert [lab.trial(sid, n).objective for n in (1, 2)] == [1.0, 1.0]
    printed = lab.printed(sid)
    # An interpreter starts the program: the directory is the user's, and the code is a copy's.
    assert f"cwd={lab.code} file={lab.home}/work/code-" in printed and "data=seven" in printed
    assert (lab.code / "mine.txt").exists() and not (lab.code / "beside.txt").exists()
    assert [path.read_text() for path in lab.home.glob(f"work/{sid}.1.*/out/beside.txt")] == [
        "by the file"
    ]


def test_a_rerun_after_an_edit_is_a_new_sweep_and_the_old_one_goes_on_with_its_code(
    lab,
) -> None:
    project(lab)
    file = lab.write("sweep.yaml", SWEEP)
    old = lab.ok("enqueue", file).strip()
    lab.write("model.py", "width = 2\n")
    said = lab.hpq("enqueue", file)
    new = said.stdout.strip()
    assert new != old
    lab.write("go", "")
    done = lab.hpq("run", old, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert lab.trial(old, 2).objective == 1.0

    taken = lab.ok("enqueue", file, "--reuse", "--any-code", "--new").strip()
    commands = (("results", taken), ("best", taken), ("show", f"{taken}/1"), ("summary", taken))
    for view in map(lambda words: lab.ok(*words), commands):
        assert "other code" in view


def test_a_retry_after_an_edit_says_that_it_runs_the_old_code_and_how_to_run_the_new(lab) -> None:
    project(lab)
    sid = lab.enqueue(SWEEP)
    lab.ok("cancel", sid, "--yes")
    lab.write("model.py", "width = 2\n")
    said = lab.hpq("retry", "--cancelled", sid).stderr
    assert "code-edited" in ids(said) and "model.py" in said and "hpq enqueue" in said


def test_a_module_a_shell_and_a_console_script_run_in_the_tree(lab) -> None:
    lab.write("model.py", "import os\nprint(f'cwd={os.getcwd()}')\nopen('new', 'w').close()\n")
    lab.write("run.sh", "python -c 'import model'; echo loss=1\n")
    module = '["${interpreter}", -m, model]'
    for command in (module, "[bash, run.sh]", "[python, -c, import model]"):
        sid = lab.enqueue(f"""
            command: {command}
            method: grid
            parameters: {{x: {{value: 1}}}}
        """)
        lab.worker(1, "--sweep", sid, "--count", "1")
        lab.wait_over(sid)
        printed = lab.printed(sid)
        assert f"cwd={lab.home}/work/code-" in printed, (command, printed)
        assert not (lab.code / "new").exists()


def test_the_entries_of_pythonpath_inside_the_code_lead_into_the_copy(lab) -> None:
    (lab.code / "src").mkdir()
    lab.write("src/lib.py", "width = 1\n")
    lab.write("train.py", "import lib\nprint(lib.__file__)\nprint(f'loss={lib.width}')\n")
    sid = lab.enqueue(SWEEP)
    lab.write("src/lib.py", "width = 2\n")
    lab.worker(PYTHONPATH=str(lab.code / "src"))
    lab.wait_over(sid)
    printed = lab.printed(sid)
    assert lab.trial(sid).objective == 1.0
    assert f"{lab.home}/work/code-" in printed and "/src/lib.py" in printed


def test_an_editable_install_of_the_code_is_frozen_and_one_beside_it_is_named(lab) -> None:
    """Both ways in which setuptools installs: a path, and a finder with a mapping."""
    other = lab.folder / "other"
    site, python = environment(lab)
    for folder in (lab.code / "src", lab.code / "flat", other):
        folder.mkdir()
    lab.write("src/lib.py", "width = 1\n")
    lab.write("flat/__init__.py", "height = 1\n")
    (site / "a.pth").write_text(f"{lab.code / 'src'}\n{other}\nimport mapping_finder\n")
    (site / "mapping_finder.py").write_text(f"""
import sys
from importlib.machinery import PathFinder
MAPPING = {{"flat": "{lab.code / "flat"}"}}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return PathFinder.find_spec(name, ["{lab.code}"]) if name in MAPPING else None
sys.meta_path.append(Finder)
""")
    lab.write("exp.py", "import flat, lib\nprint(f'loss={lib.width + 10 * flat.height}')\n")
    lab.env["HPQ_PYTHON"] = python
    said = lab.hpq("enqueue", lab.write("sweep.yaml", SWEEP.replace("train.py", "exp.py")))
    assert (
        f"not in the snapshot: {other}" in said.stderr and str(lab.code / "src") not in said.stderr
    )
    lab.write("src/lib.py", "width = 2\n")
    lab.write("flat/__init__.py", "height = 2\n")
    lab.worker()
    sid = said.stdout.strip()
    lab.wait_over(sid)
    assert lab.trial(sid).objective == 11.0


def environment(lab: Lab) -> tuple[Path, str]:
    """A virtual environment: its site-packages and its Python."""
    folder = lab.folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    return site, str(folder / "bin" / "python")


def test_live_code_is_run_as_it_is_and_each_attempt_says_which_it_was(lab) -> None:
    project(lab)
    lab.write("go", "")
    sid = lab.enqueue(SWEEP, "--live")
    lab.write("model.py", "width = 2\n")
    assert lab.enqueue(SWEEP, "--live") == sid  # the same, whatever was edited
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).objective == 2.0
    assert f"file={lab.code}/train.py" in lab.printed(sid) and "digest" in lab.printed(sid)


def test_settings_that_were_edited_while_a_trial_could_read_them_are_named_in_its_log(lab) -> None:
    lab.write("train.py", "print('loss=' + open('conf.ini').read())\n")
    lab.write("conf.ini", "1")
    git(lab.code, "init", "-q")
    git(lab.code, "add", "train.py", "conf.ini")
    sid = lab.enqueue(SWEEP)
    lab.write("conf.ini", "2")
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).objective == 2.0 and "conf.ini: edited since" in lab.printed(sid)


def test_elsewhere_a_file_that_only_the_user_has_is_not_charged_and_the_host_leaves_the_sweep(
    lab,
) -> None:
    project(lab)
    lab.write("go", "")
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_HOME=str(lab.folder / "other-home"), HPQ_CODE_KEY=key(lab))
    why = lab.refusal(sid)
    assert why.code == "data-missing" and "train.py needs data/x.txt" in why.text
    returned = lambda: lab.trial(sid, 1).state is TrialState.QUEUED  # noqa: E731
    lab.wait_until(returned, "its trial to return")
    assert lab.trial(sid, 1).failure is None
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED


def test_elsewhere_a_missing_file_is_the_trials_once_another_has_finished_there(lab) -> None:
    lab.write(
        "train.py",
        """
        import sys
        open(sys.argv[1][-1]) if sys.argv[1][-1] == "2" else None
        print("loss=1")
    """,
    )
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_HOME=str(lab.folder / "other-home"), HPQ_CODE_KEY=key(lab))
    lab.wait_over(sid)
    assert lab.trial(sid, 2).failure.kind is FailureKind.USER_ERROR


def key(lab: Lab) -> str:
    return (lab.home / "code.key").read_text()


def test_code_over_ten_mebibytes_runs_from_a_copy_on_this_disk_that_is_not_sent(lab) -> None:
    lab.write("train.py", "import big.a0\nprint('loss=1')\n")
    (lab.code / "big").mkdir()
    for n in range(12):
        lab.write(f"big/a{n}.py", f"x = '{'y' * 1_000_000}'\n")
    file = lab.write("sweep.yaml", SWEEP)
    done = lab.hpq("enqueue", file)
    sid = done.stdout.strip()
    assert done.returncode == 0 and "stays on this machine" in done.stderr
    assert not lab.reader.sweeps.get(sid).bundle
    lab.write("big/a0.py", "raise ValueError\n")
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid, 2).objective == 1.0


def test_plan_lists_the_files_of_the_snapshot_and_enqueue_counts_them(lab) -> None:
    project(lab)
    file = lab.write("sweep.yaml", SWEEP)
    lines = lab.ok("plan", file, "--files").splitlines()
    assert {"  model.py", "  train.py"} <= {*lines}
    assert set(json.loads(lab.ok("plan", file, "--json"))["files"]) == {"model.py", "train.py"}
    assert "snapshot: 2 files" in lab.hpq("enqueue", file).stderr


def test_a_script_finds_code_and_data_by_its_file_and_each_trial_finds_the_script_as_it_was(
    lab,
) -> None:
    """Outside git: the root of the code is the working directory."""
    for name in ("exp/data/x.txt", "exp/runs/old", "data/x.txt", "lib/__init__.py"):
        (lab.code / name).parent.mkdir(parents=True, exist_ok=True)
        (lab.code / name).write_text(name if "data" in name else "")
    lab.write("lib/net.py", "width = 1\n")
    script = lab.write(
        "exp/train.py",
        """
        import sys
        from pathlib import Path
        here, root = Path(__file__).parent, Path(__file__).resolve().parents[1]
        sys.path.insert(0, str(root))
        from lib.net import width
        found = [(folder / "data" / "x.txt").read_text() for folder in (here, root)]
        (here / "runs" / f"{sys.argv[1]}.txt").write_text("kept")
        (here / "beside.txt").write_text("new")
        lines = Path(__file__).read_text().count("\\n")
        with open(__file__, "a") as itself:
            itself.write("# one more\\n")
        print(f"found={found} lines={lines}")
        print(f"loss={width}")
    """,
    )
    text = script.read_text()
    sid = lab.enqueue(SWEEP.replace("train.py", "exp/train.py"))
    lab.write("lib/net.py", "width = 2\n")
    lab.worker()
    lab.wait_over(sid)
    found = f"found=['exp/data/x.txt', 'data/x.txt'] lines={len(text.splitlines())}"
    for number in (1, 2):
        assert lab.trial(sid, number).objective == 1.0 and found in lab.printed(sid, number)
        (out,) = lab.home.glob(f"work/{sid}.{number}.*/out")
        assert (out / "exp" / "beside.txt").read_text() == "new"
        assert (out / "exp" / "train.py").read_text() == f"{text}# one more\n"
    assert script.read_text() == text and not (lab.code / "exp" / "beside.txt").exists()
    runs = {path.name for path in (lab.code / "exp" / "runs").iterdir()}
    assert runs == {"old", "--x=1.txt", "--x=2.txt"}
