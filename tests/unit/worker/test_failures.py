"""The kind and the message of a failure, from an exception or an exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpq.domain.trial import FailureKind
from hpq.errors import DataMissing
from hpq_worker.runner.failures import of_exception, of_exit


def test_the_same_mistake_has_the_same_fingerprint(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\ndef f(d):\n    return d[sys.argv[1]]\nf({})\n")
    marks = set()
    for key in ("a", "b"):
        done = subprocess.run(
            [sys.executable, str(script), key], capture_output=True, text=True, check=False
        )
        failure = of_exit(done.returncode, done.stderr)
        assert failure.kind is FailureKind.USER_ERROR and f"'{key}'" in failure.message
        marks.add(failure.fingerprint)
    assert marks == {"KeyError train.py:3"}


def test_a_signal_is_named() -> None:
    failure = of_exit(-9, "")
    assert failure.kind is FailureKind.KILLED and failure.message == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError("x"), FailureKind.OUT_OF_MEMORY),
        (DataMissing("no images"), FailureKind.DATA_MISSING),
        (RuntimeError("boom"), FailureKind.USER_ERROR),
        (RuntimeError("CUDA error: out of memory\nCompile with …"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("CPUAllocator: can't allocate memory: you"), FailureKind.OUT_OF_MEMORY),
    ],
)
def test_exceptions_have_kinds(error: Exception, kind: FailureKind) -> None:
    assert of_exception(error).kind is kind


def test_a_module_that_an_image_lacks_is_mended_in_the_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    failure = of_exit(1, "ModuleNotFoundError: No module named 'x'", ["python", "t.py"])
    assert "FROM hpq-worker" in failure.message and "HPQ_PYTHON" not in failure.message
