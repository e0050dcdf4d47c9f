"""HPQ_HOME stays bounded, and what an unfinished sweep or a person needs stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hpq.access.home_files import UNUSED_S
from tests.support.ids import ids


def test_an_enqueue_removes_what_no_sweep_needed_for_a_month_and_no_results(
    hpq, environ, tmp_path
) -> None:
    home = tmp_path / "gc-home"
    environ["HPQ_HOME"] = str(home)
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    (tmp_path / "sweep.yaml").write_text(
        "program: train.py\nmethod: grid\nparameters: {x: {value: 1}}\n"
    )
    sid = hpq("enqueue", "sweep.yaml").stdout.strip()
    names = ["snapshots/old.tar.gz", "logs/gone-1.log", f"logs/{sid}.log", "logs/new-1.log",
             "cache/bytecode/old/a.pyc", "cache/inductor/x/y", "work/s.1.1/out/model"]  # fmt: skip
    long_ago = time.time() - UNUSED_S - 60
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 1000)
        if name != "logs/new-1.log":
            os.utime(path, (long_ago, long_ago))
            os.utime(path.parent, (long_ago, long_ago))
    assert hpq("doctor").returncode == 0 and all((home / name).exists() for name in names)
    assert hpq("enqueue", "sweep.yaml", "--new").returncode == 0
    left = {name for name in names if (home / name).exists()}
    assert left == {f"logs/{sid}.log", "logs/new-1.log", "work/s.1.1/out/model"}


def test_a_file_store_that_no_trial_has_used_needs_no_word_when_a_sweep_goes(
    hpq, sweep_of, environ: dict[str, str]
) -> None:
    sid = sweep_of(1).id
    (Path(environ["HPQ_HOME"]) / "store").mkdir(parents=True)
    done = hpq("rm", "--yes", sid)
    assert done.returncode == 0 and ids(done.stderr) == []
