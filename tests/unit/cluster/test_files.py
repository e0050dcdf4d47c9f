"""`hpq get` out of a pod by `kubectl exec`, and the command told instead.

The kubectl here runs the command on this machine, as in a pod of the name that it is told.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpq.domain.trial import Artifacts
from hpq.errors import NotFound
from hpq.filestore.base import ID_FILE, Gone, UnreadableFile
from hpq_producer.cluster.files import PodVolume, copy_command, find_volume
from tests.support.ids import raises

DATA = bytes(range(256)) * 3000
KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$ASKED"
while [ "$1" != -- ]; do shift; done
shift
"$@" || { echo "command terminated with exit code $?" >&2; exit 1; }
"""
REFUSES = """#!/bin/sh
echo 'Error from server (Forbidden): pods "a1" is forbidden: cannot create pods/exec' >&2
exit 1
"""


class Server:
    """An API server with these pods."""

    context, namespace, flags = "lab", "ml", " --namespace ml"

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = pods

    def of(self, path: str) -> str:
        return path

    def get(self, path: str, **query: str) -> Any:
        return {"items": list(self._pods)}


class Kubectl:
    """The kubectl on PATH, and what was asked of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path, self._log, self._env = folder / "kubectl", folder / "asked", monkeypatch
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("ASKED", str(self._log))
        self.does(KUBECTL)

    def does(self, text: str) -> None:
        self._path.write_text(text)
        self._path.chmod(0o755)

    def store(self, folder: str) -> None:
        """What pods have as HPQ_STORE."""
        self._env.setenv("HPQ_STORE", folder)

    @property
    def asked(self) -> list[str]:
        return [line.partition(" sh ")[0] for line in self._log.read_text().splitlines()]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    (tmp_path / "bin").mkdir()
    return Kubectl(tmp_path / "bin", monkeypatch)


def store_at(folder: Path, name: str) -> Path:
    """A store with an id."""
    folder.mkdir()
    (folder / ID_FILE).write_text(name)
    return folder


def pod(name: str, owner: str, *, ready: bool = True, runs: bool = True) -> dict[str, Any]:
    """A worker's pod as the API has it."""
    container = {"name": "worker", "state": {"running" if runs else "waiting": {}}}
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"name": name, "ownerReferences": [{"name": owner}]},
        "spec": {"containers": [{"name": "worker"}]},
        "status": {"containerStatuses": [container], "conditions": [condition]},
    }


LEFT = Artifacts(store="abcd1234", path="hpq/s-1/1/1-a/artifacts", files={"model.txt": 7})


def test_the_store_is_looked_for_in_one_pod_of_each_template_ready_ones_first(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    pods = [pod("a1", "a", ready=False), pod("a2", "a"), pod("b1", "b"), pod("c1", "c", runs=False)]
    kubectl.store(str(store_at(tmp_path / "kept", "abcd1234")))
    found = find_volume(Server(*pods), LEFT)  # type: ignore[arg-type]
    assert (found.pod, found.folder, found.container) == ("a2", str(tmp_path / "kept"), "worker")
    assert kubectl.asked == ["--context lab -n ml exec a2 -c worker --"]
    kubectl.store(str(store_at(tmp_path / "other", "another1")))
    with pytest.raises(NotFound, match=f"have store another1 at {tmp_path}/other$"):
        find_volume(Server(*pods), LEFT)  # type: ignore[arg-type]
    assert [words.split()[5] for words in kubectl.asked] == ["a2", "a2", "b1"]


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("", "namespace ml"),
        ("s3://me:secret@b/x", "HPQ_STORE=s3://me:***@b/x"),
        ("/kept", "at /kept"),
    ],
)
def test_what_pods_have_in_place_of_the_store_is_told(
    store: str, told: str, kubectl: Kubectl
) -> None:
    kubectl.store(store)
    with pytest.raises(NotFound) as error:
        find_volume(Server(pod("a1", "a")), LEFT)  # type: ignore[arg-type]
    assert told in str(error.value) and "secret" not in str(error.value)


def test_a_missing_pod_kubectl_or_right_to_exec_is_named(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = "hpq scale 1 --namespace ml"
    with raises("no-worker", "namespace ml", scale):
        find_volume(Server(pod("a1", "a", runs=False)), LEFT)  # type: ignore[arg-type]
    kubectl.does(REFUSES)
    with raises("rights-missing", "pods/exec", "namespace ml"):
        find_volume(Server(pod("a1", "a")), LEFT)  # type: ignore[arg-type]
    kubectl.does("#!/bin/sh\necho warning >&2\necho no route to host >&2\nexit 1\n")
    with raises("pod-trouble", "a1", "no route to host"):
        find_volume(Server(pod("a1", "a")), LEFT)  # type: ignore[arg-type]
    monkeypatch.setenv("PATH", "/nowhere")
    with raises("program-missing", "kubectl"):
        find_volume(Server(pod("a1", "a")), LEFT)  # type: ignore[arg-type]


def test_a_file_comes_whole_or_not_at_all(kubectl: Kubectl, tmp_path: Path) -> None:
    store, out = store_at(tmp_path / "kept", "abcd1234"), tmp_path / "a folder" / "out.bin"
    kubectl.store(str(store))
    volume = find_volume(Server(pod("a1", "a")), LEFT)  # type: ignore[arg-type]
    assert isinstance(volume, PodVolume)
    (store / "my model").write_bytes(DATA)
    volume.copy("my model", len(DATA), out)
    assert out.read_bytes() == DATA

    with pytest.raises(UnreadableFile, match=rf"{len(DATA)}\b.*{len(DATA) + 1}\b"):
        volume.copy("my model", len(DATA) + 1, out)
    (store / "folder").mkdir()
    with pytest.raises(UnreadableFile, match=r"cat: .*: Is a directory$"):
        volume.copy("folder", 0, out)
    with pytest.raises(Gone):
        volume.copy("nothing", 7, out)
    kubectl.does("#!/bin/sh\nhead -c 10 /dev/zero\nkill -9 $$\n")  # cut, without a word
    with pytest.raises(UnreadableFile, match="kubectl exec failed"):
        volume.copy("my model", len(DATA), out)
    assert out.read_bytes() == DATA and list(out.parent.iterdir()) == [out]


def test_the_command_for_somebody_who_may_copies_the_file(kubectl: Kubectl, tmp_path: Path) -> None:
    store = store_at(tmp_path / "the store", "abcd1234")
    (store / "my model's").write_bytes(DATA)
    kubectl.store(str(store))
    line = copy_command(Server(), "my model's", str(tmp_path / "a copy"))  # type: ignore[arg-type]
    assert line.startswith("kubectl --context lab -n ml exec deploy/hpq-worker -- ")
    subprocess.run(["sh", "-c", line], check=True)
    assert (tmp_path / "a copy").read_bytes() == DATA
