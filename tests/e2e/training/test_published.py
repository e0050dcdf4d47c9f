"""The trainer and the article's published code, which a checkout under .published has."""

from __future__ import annotations

import os
import sys
from subprocess import run

import pytest

from tests.support.constants import ROOT

pytest.importorskip("torch")

CODE = ROOT / ".published"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not CODE.is_dir(), reason="no code of the article; run: make published"),
]


def test_24_epochs_give_the_weights_and_figures_of_the_articles_published_code() -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "benchmarks.published", str(CODE)]
    done = run(words, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") == 3
