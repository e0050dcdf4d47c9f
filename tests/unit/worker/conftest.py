"""hpq's wandb shim, as a program imports it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.constants import ROOT

PLACE = ROOT / "hpq" / "wandb_shim" / "stub"


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """A fresh shim, as a program imports it; its reports are in `.reports`."""
    for name in [n for n in sys.modules if n == "wandb" or n.startswith("wandb.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(PLACE))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPQ_OUT", str(tmp_path / "out"))
    for name in ("HPQ_PARAMS", "HPQ_TRIAL_ID", "WANDB_MODE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    importlib.invalidate_caches()
    module = importlib.import_module("wandb")
    assert module.__file__ == str(PLACE / "wandb" / "__init__.py")
    reports: list[tuple[int, dict[str, float]]] = []
    sender = sys.modules["wandb._transport"]
    monkeypatch.setattr(sender, "report", lambda v, step: reports.append((step, dict(v))))
    monkeypatch.setattr(sys.modules["wandb._api"].atexit, "register", lambda *a: None)
    module.reports = reports
    yield module
    for name in [n for n in sys.modules if n == "wandb" or n.startswith("wandb.")]:
        del sys.modules[name]
