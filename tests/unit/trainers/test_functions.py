"""The trainers as the runner calls them: parameters in, reports out, nothing kept between."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from PIL import Image

from hpq.datasets import CIFAR10_CLASSES
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Json
from hpq.errors import BadParams, Diverged
from hpq_worker.trainers import cifar10, digits, mnist
from tests.support.commands import run_hpq
from tests.support.constants import DEADLINE_S
from tests.support.libraries import needs

pytestmark = [pytest.mark.torch, needs("sklearn")]

SMALL: Mapping[str, dict[str, Json]] = {
    "cifar10": {
        "width": 4, "epochs": 2, "batch_size": 8, "train_images": 20, "test_images": 20,
    },
    "mnist": {
        "width": 4, "epochs": 2, "batch_size": 8, "train_images": 20, "test_images": 20,
        "dropout": 0.5,
    },
    "digits": {"epochs": 2},
}  # fmt: skip
TRAIN: Mapping[str, Callable[..., None]] = {
    "cifar10": cifar10.train,
    "mnist": mnist.train,
    "digits": digits.train,
}
NAMES = list(TRAIN)


@dataclass(kw_only=True)
class Trial:
    """A trial that keeps its reports, without the times."""

    data: Path | None
    cache: Path
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0
    should_stop: bool = False
    reports: list[dict[str, float]] = field(default_factory=list)

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        assert step == len(self.reports) + 1
        self.reports.append({k: v for k, v in metrics.items() if not k.endswith("time")})

    def phase(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with 20 + 20 pictures of CIFAR10's form and as many digits of MNIST's."""
    root = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for split, part in (("train", "train"), ("test", "t10k")):
        for name in CIFAR10_CLASSES:
            folder = root / "cifar10" / split / name
            folder.mkdir(parents=True)
            for i in range(2):
                pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
        images = random.integers(0, 256, (20, 28, 28), np.uint8).tobytes()
        header = b"\0\0\x08\x03" + struct.pack(">3I", 20, 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images)
        labels = b"\0\0\x08\x01" + struct.pack(">I", 20) + bytes(i % 10 for i in range(20))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    return root


def trained(name: str, place: Path, **changes: Json) -> list[dict[str, float]]:
    trial = Trial(data=place, cache=place / "cache")
    TRAIN[name]({**SMALL[name], **changes}, trial)
    return trial.reports


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_reads_every_parameter_that_is_published(name: str, place: Path, monkeypatch):
    read: set[str] = set()

    class Noting(dict[str, Json]):
        def __getitem__(self, key: str) -> Json:
            read.add(key)
            return super().__getitem__(key)

    spec = type(BUILT_IN[name])
    fill = spec.fill
    monkeypatch.setattr(spec, "fill", lambda self, params: Noting(fill(self, params)))
    trained(name, place, epochs=1)
    assert read == set(BUILT_IN[name].params)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_parameters_give_the_same_numbers_whatever_ran_before(
    name: str, place: Path
) -> None:
    first = trained(name, place)
    other = trained(name, place, seed=1)
    trained("digits", place, epochs=1)
    assert len(first) == 2
    assert trained(name, place) == first != other


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_reports_the_metric_that_it_promises(name: str, place: Path) -> None:
    assert BUILT_IN[name].metric.name in trained(name, place)[0]


def test_batch_norm_off_trains_another_network(place: Path) -> None:
    assert trained("cifar10", place, batch_norm="off") != trained("cifar10", place)


def test_digits_are_learned(place: Path) -> None:
    assert trained("digits", place, epochs=20)[-1]["test/acc"] > 0.95


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_that_is_to_stop_reports_nothing(name: str, place: Path) -> None:
    trial = Trial(data=place, cache=place / "cache", should_stop=True)
    with suppress(SystemExit):  # if its data set must be decoded
        TRAIN[name](SMALL[name], trial)
    assert trial.reports == []


@pytest.mark.parametrize("name", NAMES)
def test_an_absurd_learning_rate_diverges(name: str, place: Path) -> None:
    absurd: dict[str, Json] = {"max_learning_rate": 100, "weight_decay": 1, "epochs": 1000}
    if name == "cifar10":
        absurd["batch_norm"] = "off"
    with pytest.raises(Diverged):
        trained(name, place, **absurd)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_norm": True}, "batch_norm: "),
        ({"momentun": 0.9}, "momentun: "),
        ({"data_aug_cutout_size": 33}, "data_aug_cutout_size: 33 "),
        ({"batch_size": 21}, "batch_size: 21 "),
    ],
)
def test_bad_parameters_are_named(changes: dict[str, Json], said: str, place: Path) -> None:
    with pytest.raises(BadParams) as caught:
        trained("cifar10", place, **changes)
    assert str(caught.value).startswith(said)


def test_a_trainer_runs_in_a_terminal_without_redis_or_a_warning(tmp_path: Path) -> None:
    environ = {**os.environ, "HPQ_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environ["PYTHONWARNINGS"] = "error"
    done = run_hpq(["try", "digits", "--set", "epochs=2"], tmp_path, environ, DEADLINE_S)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [words[:2] for words in lines] == [["step", "1"], ["step", "2"]]
    assert {path.name for path in tmp_path.iterdir()} <= {"work", "cache"}, "no server"
