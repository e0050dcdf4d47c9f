"""What a worker records of the Python that it runs on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpq.settings import Settings
from hpq_worker.consumer.presence import provenance_of

INSTALLED = {
    "one-1.0.dist-info/METADATA": "Name: one\nVersion: 1.0\n\nName: two\nVersion: 9\n",
    "old-2.0.egg-info/PKG-INFO": "Name: old\nVersion: 2.0\n\nText\n",
    "file-3.0.egg-info": "Name: file\nVersion: 3.0\n",
    "broken-4.0.dist-info/RECORD": "",
}


def test_packages_have_the_names_and_versions_of_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in INSTALLED.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    _, text = provenance_of(Settings(), "host", "cpu", {})
    packages = json.loads(text)["packages"]
    assert {"one": "1.0", "old": "2.0", "file": "3.0"}.items() <= packages.items()
    assert "two" not in packages and "broken" not in packages
    assert "pytest" in packages
