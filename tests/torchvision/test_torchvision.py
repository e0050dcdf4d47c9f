"""torchvision beside hpq: the same archives, the same arrays, a plain script that is swept.

`make torchvision` runs this in an environment of its own; without torchvision all of it is skipped.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from subprocess import run
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torchvision")

from PIL import Image
from torchvision import datasets

from hpq.datasets import CIFAR10_CLASSES, find
from hpq_producer.commands.admin.data import FILES
from hpq_worker.trainers import data
from hpq_worker.trainers.dataset_formats import decode
from tests.support.constants import ROOT
from tests.support.data_files import mnist_files

CIFAR = datasets.CIFAR10


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that an HTTP server serves, where torchvision looks for its archives."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    url = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(CIFAR, "url", f"{url}{CIFAR.filename}")
    monkeypatch.setattr(datasets.MNIST, "mirrors", [url])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def arrays(name: str, where: Path) -> dict[str, np.ndarray]:
    source = find(name, where)
    return decode(source.layout, source.files())


def test_both_downloads_take_the_same_archives() -> None:
    base, files = FILES["cifar10"]
    assert files == {CIFAR.url.removeprefix(base): CIFAR.tgz_md5}
    base, files = FILES["mnist"]
    ours = [(Path(place).name, sum_) for place, sum_ in files.items()]
    assert ours == datasets.MNIST.resources and base in datasets.MNIST.mirrors


def test_cifar10_that_torchvision_downloaded_is_read_to_the_same_arrays(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, sums = np.random.default_rng(0), {}
    with tarfile.open(served / CIFAR.filename, "w:gz") as tar:

        def add(name: str, content: object) -> None:
            packed = pickle.dumps(content, protocol=3)
            sums[name] = md5(packed)
            member = tarfile.TarInfo(f"{CIFAR.base_folder}/{name}")
            member.size = len(packed)
            tar.addfile(member, io.BytesIO(packed))

        for name, _ in CIFAR.train_list + CIFAR.test_list:
            pixels = random.integers(0, 256, (10, 3072), np.uint8)
            add(name, {"data": pixels, "labels": list(range(10))})
        add(CIFAR.meta["filename"], {CIFAR.meta["key"]: list(CIFAR10_CLASSES)})
    monkeypatch.setattr(CIFAR, "tgz_md5", md5((served / CIFAR.filename).read_bytes()))
    for part in ("train_list", "test_list"):
        listed = [[name, sums[name]] for name, _ in getattr(CIFAR, part)]
        monkeypatch.setattr(CIFAR, part, listed)
    monkeypatch.setitem(CIFAR.meta, "md5", sums[CIFAR.meta["filename"]])
    CIFAR(tmp_path / "there", download=True)
    ours = arrays("cifar10", tmp_path / "there")
    for part in ("train", "test"):
        theirs = CIFAR(tmp_path / "there", train=part == "train")
        assert np.array_equal(ours[f"{part}_images"], theirs.data)
        assert ours[f"{part}_labels"].tolist() == theirs.targets
        assert theirs.classes == list(CIFAR10_CLASSES)


def test_mnist_that_torchvision_downloaded_is_read_to_the_same_arrays(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = mnist_files()
    for name, content in files.items():
        (served / name).write_bytes(content)
    listed = [(name, md5(files[name])) for name, _ in datasets.MNIST.resources]
    monkeypatch.setattr(datasets.MNIST, "resources", listed)
    datasets.MNIST(tmp_path / "there", download=True)
    ours = arrays("mnist", tmp_path / "there")
    for part in ("train", "test"):
        theirs = datasets.MNIST(tmp_path / "there", train=part == "train")
        assert np.array_equal(ours[f"{part}_images"], theirs.data.numpy())
        assert np.array_equal(ours[f"{part}_labels"], theirs.targets.numpy())


def pictures(folder: Path, per_class: int) -> Path:
    """Folders of CIFAR10's images by class: real ones if HPQ_DATA has them, else noise."""
    where = os.environ.get("HPQ_DATA")
    count = 10 * per_class
    if where:
        trial = SimpleNamespace(data=Path(where), cache=folder / "cache", phase=print)
        found = data.load_data("cifar10", trial, count, count)
    for part in ("train", "test"):
        pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)
        labels = np.arange(count) % 10
        if where:
            split = getattr(found, part)
            pixels, labels = split.images.numpy(), split.labels.numpy()
        for i, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            place = folder / part / CIFAR10_CLASSES[label] / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place)
    return folder


def test_a_plain_script_with_resnet18_is_swept_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(ROOT / "examples" / "torchvision_resnet18", folder)
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")} | {
        "HPQ_HOME": str(tmp_path / "home"),
        "HPQ_DATA": str(pictures(tmp_path / "pictures", 4)),
        "HPQ_PYTHON": sys.executable,
        "CUDA_VISIBLE_DEVICES": "",
        "TERM": "dumb",
    }
    hpq = [sys.executable, "-m", "hpq_producer"]
    small = ["--set", "parameters.epochs.value=1", "--set", "parameters.images.value=32"]
    small += ["--set", "parameters.batch-size.value=16", "--set", "parameters.lr.values=[0.5]"]
    small += ["--workers", "1"]
    words = [*hpq, "run", "sweep.yaml", *small]
    done = run(words, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = run(
        [*hpq, "results", "--json"], cwd=folder, env=environ, capture_output=True, text=True
    )
    trials = json.loads(listed.stdout)
    assert len(trials) == 2 and all(0 <= trial["objective"] <= 1 for trial in trials), listed
    assert len({trial["last"]["loss"] for trial in trials}) == 2  # the momentum matters
