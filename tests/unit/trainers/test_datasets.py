"""Finding, decoding and caching data sets: every form that is taken, and every way to be wrong."""

from __future__ import annotations

import bz2
import gzip
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from PIL import Image

from hpq.datasets import CIFAR10_CLASSES, find
from hpq.errors import DataMissing
from hpq_worker.trainers import data
from hpq_worker.trainers.dataset_formats import Arrays, decode

pytestmark = pytest.mark.torch


def pictures(root: Path, *, per_class: int = 2, kind: str = "png", side: int = 32) -> Path:
    """train/CLASS/N.png and test/CLASS/N.png of random pixels."""
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in CIFAR10_CLASSES:
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(per_class):
                pixels = random.integers(0, 256, (side, side, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:04d}.{kind}")
    return root


def packed(folder: Path, to: Path, *, reverse: bool = False) -> Path:
    """A tar of a folder, with the folder's name in front of each member."""

    def of_1970(member: tarfile.TarInfo) -> tarfile.TarInfo:
        # Else one in 512 cut archives would end like a whole one, by its times.
        member.mtime = 0
        return member

    mode = {".gz": "w:gz", ".xz": "w:xz"}.get(to.suffix, "w")
    with tarfile.open(to, mode) as tar:  # type: ignore[call-overload]
        for path in sorted(folder.rglob("*"), reverse=reverse):
            name = path.relative_to(folder.parent)
            tar.add(path, name, recursive=False, filter=of_1970)
    return to


def idx(values: np.ndarray) -> bytes:
    return (
        b"\0\0\x08" + struct.pack(f">B{values.ndim}I", values.ndim, *values.shape) + bytes(values)
    )


def mnist(folder: Path, *, suffix: str = "", n: int = 20) -> Path:
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for split in ("train", "t10k"):
        images = random.integers(0, 256, (n, 28, 28), np.uint8)
        labels = np.arange(n, dtype=np.uint8) % 10
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = gzip.compress(idx(values)) if suffix else idx(values)
            (folder / f"{split}-{kind}-ubyte{suffix}").write_bytes(content)
    return folder


def python2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch of CIFAR10 as Python 2 wrote it: protocol 2, byte strings, numpy's old names."""

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def whole(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    kind = b"cnumpy\ndtype\n" + string(b"u1") + whole(0) + whole(1) + b"\x87R"
    kind += b"(" + whole(3) + string(b"|") + b"NNN" + whole(-1) + whole(-1) + whole(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    array += whole(0) + b"\x85" + string(b"b") + b"\x87R("
    shape = whole(pixels.shape[0]) + whole(pixels.shape[1]) + b"\x86"
    array += whole(1) + shape + kind + b"\x89" + string(pixels.tobytes()) + b"tb"
    listed = b"](" + b"".join(whole(label) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + listed + b"u."


def batches(folder: Path) -> Path:
    folder.mkdir(parents=True)
    random = np.random.default_rng(2)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        pixels = random.integers(0, 256, (10, 3072), np.uint8)
        (folder / name).write_bytes(python2_pickle(pixels, list(range(10))))
    return folder


def arrays(name: str, where: Path) -> Arrays:
    source = find(name, where)
    return decode(source.layout, source.files())


def same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[part], b[part]) for part in a)


def load(name: str, where: Path, cache: Path, *counts: int) -> data.DataSet:
    trial = SimpleNamespace(data=where, cache=cache, phase=print, should_stop=False)
    return data.load_data(name, trial, *counts)


def test_a_folder_of_pictures_and_tars_of_it_are_the_same_data(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "cifar10")
    expected = arrays("cifar10", folder)
    assert expected["train_images"].shape == (20, 32, 32, 3)
    assert expected["train_labels"].tolist() == [label for label in range(10) for _ in range(2)]
    first = np.asarray(Image.open(folder / "train" / "airplane" / "0000.png"))
    assert np.array_equal(expected["train_images"][0], first)
    for i, ending in enumerate((".tar", ".tar.gz", ".tar.xz")):
        holder = tmp_path / str(i)
        holder.mkdir()
        packed(folder, holder / f"my-cifar{ending}", reverse=True)
        assert same(arrays("cifar10", holder), expected)


def test_jpegs_are_taken_too(tmp_path: Path) -> None:
    found = arrays("cifar10", pictures(tmp_path / "x", kind="jpg"))
    assert found["test_images"].shape == (20, 32, 32, 3)


def test_the_original_batches_are_read_from_a_directory_and_from_the_tar(tmp_path: Path) -> None:
    folder = batches(tmp_path / "a" / "cifar-10-batches-py")
    expected = arrays("cifar10", tmp_path / "a")
    raw = pickle.loads((folder / "data_batch_2").read_bytes(), encoding="latin1")["data"]
    assert expected["train_images"].shape == (50, 32, 32, 3)
    assert np.array_equal(expected["train_images"][10, :, :, 1].ravel(), raw[0, 1024:2048])
    tar = packed(folder, tmp_path / "cifar-10-python.tar.gz", reverse=True)
    assert same(arrays("cifar10", tar), expected)


def test_a_pickle_that_names_anything_but_arrays_is_refused(tmp_path: Path) -> None:
    folder = batches(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_3").write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path) + b"/x'\ntR.")
    with pytest.raises(DataMissing, match=r"data_batch_3 .* os.system"):
        load("cifar10", tmp_path, tmp_path / "cache", 50, 10)
    assert not (tmp_path / "x").exists()


def test_mnist_is_read_plain_packed_and_from_a_tar(tmp_path: Path) -> None:
    folder = mnist(tmp_path / "plain" / "MNIST" / "raw")
    expected = arrays("mnist", tmp_path / "plain")
    assert expected["train_images"].shape == (20, 28, 28)
    assert expected["test_labels"][:11].tolist() == [*range(10), 0]
    assert same(arrays("mnist", mnist(tmp_path / "gz", suffix=".gz")), expected)
    assert same(arrays("mnist", packed(folder, tmp_path / "mnist-raw.tar.xz")), expected)


def test_other_sets_of_the_same_form_are_not_taken_for_mnist(tmp_path: Path) -> None:
    mnist(tmp_path / "FashionMNIST" / "raw")
    mnist(tmp_path / "KMNIST" / "raw")
    with pytest.raises(DataMissing):
        find("mnist", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_missing_data_is_one_line_with_place_and_remedy(name: str, tmp_path: Path) -> None:
    (tmp_path / "cifar-notes.txt").write_text("no tar")
    places = {
        tmp_path: f"not found in {tmp_path}; ",
        tmp_path / "nowhere": f"{tmp_path / 'nowhere'} does not exist; ",
        tmp_path / "cifar-notes.txt": "cifar-notes.txt: ",
    }
    for where, said in places.items():
        with pytest.raises(DataMissing) as caught:
            load(name, where, tmp_path / "cache", 10, 10)
        text = str(caught.value)
        assert text.startswith(f"data set {name}: ") and said in text
        assert "HPQ_DATA" in text and "\n" not in text


def test_every_thousandth_picture_is_shown(tmp_path: Path) -> None:
    phases: list[str] = []
    trial = SimpleNamespace(
        data=pictures(tmp_path / "cifar10", per_class=101),
        cache=tmp_path / "cache",
        phase=phases.append,
        should_stop=False,
    )
    data.load_data("cifar10", trial, 20, 20)
    shown = [f"loading cifar10: file {n}" for n in ("1,000", "2,000")]
    assert phases == ["loading cifar10", *shown]


def test_damaged_data_is_one_line_with_the_file(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "cifar10")
    torn = folder / "train" / "cat" / "0001.png"
    torn.write_bytes(torn.read_bytes()[:200])
    with pytest.raises(DataMissing, match=r"train/cat/0001.png "):
        load("cifar10", folder, tmp_path / "cache", 20, 20)

    half = packed(mnist(tmp_path / "m" / "raw"), tmp_path / "mnist.tar.gz")
    half.write_bytes(half.read_bytes()[:9000])
    with pytest.raises(DataMissing, match=r"mnist.tar.gz "):
        load("mnist", half, tmp_path / "cache", 20, 20)


@pytest.mark.parametrize("more", [0, 200, 512])
def test_a_tar_that_was_cut_between_two_pictures_is_damaged(tmp_path: Path, more: int) -> None:
    tar = packed(pictures(tmp_path / "cifar10"), tmp_path / "my-cifar.tar")
    with tarfile.open(tar) as opened:
        last = opened.getmembers()[-1].offset
    bz2_of_it = tmp_path / "my-cifar.tar.bz2"  # its end shows no cut
    bz2_of_it.write_bytes(bz2.compress(tar.read_bytes()[: last + more]))
    with pytest.raises(DataMissing, match=r"my-cifar.tar.*hpq data cifar10"):
        load("cifar10", bz2_of_it, tmp_path / "cache", 10, 10)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(folder: Path) -> Path:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return folder


@pytest.mark.parametrize(
    ("name", "make", "hurt", "said"),
    [
        ("cifar10", lambda at: pictures(at / "cifar"), "", ""),
        ("cifar10", lambda at: pictures(at / "cifar"), "test/ship", "test/ship is missing"),
        ("cifar10", lambda at: batches(at / "cifar"), "", ""),
        ("cifar10", lambda at: batches(at / "cifar"), "data_batch_2", "data_batch_2 is cut"),
        ("cifar10", lambda at: batches(at / "cifar"), "-test_batch", "test_batch is missing"),
        ("mnist", lambda at: mnist(at / "mnist"), "", ""),
        ("mnist", lambda at: mnist(at / "mnist", suffix=".gz"), "", ""),
        ("mnist", lambda at: mnist(at / "mnist"), "-t10k-labels-idx1-ubyte", "is missing"),
        ("mnist", lambda at: mnist(at / "mnist"), "t10k-images-idx3-ubyte", "ubyte is cut"),
        ("mnist", lambda at: mnist(at / "m", suffix=".gz"), "t10k-images-idx3-ubyte.gz", "is cut"),
        ("mnist", lambda at: packed(mnist(at / "x"), at / "mnist.tar"), "mnist.tar", "is cut"),
        (
            "mnist",
            lambda at: packed(mnist(at / "x"), at / "mnist.tar.gz"),
            "mnist.tar.gz",
            "is cut",
        ),
        (
            "mnist",
            lambda at: packed(mnist(at / "x"), at / "mnist.tar.xz"),
            "mnist.tar.xz",
            "is cut",
        ),
    ],
)
def test_damage_that_sizes_headers_and_ends_show_is_found_without_reading_all(
    name: str, make: Callable[[Path], Path], hurt: str, said: str, tmp_path: Path
) -> None:
    made = make(tmp_path)
    where = made.parent if made.is_file() else made
    if not hurt:
        assert find(name, where).path == where
        return
    target = where / hurt.removeprefix("-")
    if made.is_file():
        assert find(name, made).path == made
    if target.is_dir():
        emptied(target)
    elif hurt.startswith("-"):
        target.unlink()
    else:
        cut(target)
    with pytest.raises(DataMissing, match=f"{said}.*hpq data {name} DIR"):
        find(name, made)


def test_a_whole_archive_beside_a_cut_one_is_found(tmp_path: Path) -> None:
    whole = packed(mnist(tmp_path / "x"), tmp_path / "mnist-b.tar.xz")
    torn = tmp_path / "mnist-a.tar.xz"
    torn.write_bytes(whole.read_bytes()[:-8])
    assert find("mnist", tmp_path).path == whole


def test_wrongly_shaped_data_is_one_line_that_says_the_shape(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"airplane/0000.png .*28x28.*32x32"):
        load("cifar10", pictures(tmp_path / "a", side=28), tmp_path / "cache", 20, 20)

    folder = mnist(tmp_path / "b")
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(7, np.uint8)))
    with pytest.raises(DataMissing, match=r"\(20, 28, 28\) images and \(7,\) labels"):
        load("mnist", folder, tmp_path / "cache", 20, 20)

    (folder / "t10k-labels-idx1-ubyte").unlink()
    tar = packed(folder, tmp_path / "mnist.tar")
    with pytest.raises(DataMissing, match=r"'t10k-labels-idx1' is missing"):
        load("mnist", tar, tmp_path / "cache", 20, 20)


def test_asking_for_more_images_than_there_are_says_how_many(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"train_images is 50000.*\b20\b"):
        load("cifar10", pictures(tmp_path / "a"), tmp_path / "cache", 50_000, 20)


def test_some_images_are_as_many_of_each_class_as_can_be(tmp_path: Path) -> None:
    found = load("cifar10", pictures(tmp_path / "a", per_class=3), tmp_path / "cache", 20, 7)
    assert np.bincount(found.train.labels).tolist() == [2] * 10
    assert found.test.labels.tolist() == list(range(7))


def test_data_is_loaded_once_and_decoded_once_a_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = packed(pictures(tmp_path / "cifar10"), tmp_path / "cifar.tar")
    first = load("cifar10", tar, tmp_path / "cache", 20, 20)
    assert load("cifar10", tar, tmp_path / "cache", 20, 20) is first
    assert capsys.readouterr().out == "loading cifar10\n"

    monkeypatch.setattr(data, "decode", pytest.fail)
    data._cache.clear()  # as in another process
    again = load("cifar10", tar, tmp_path / "cache", 20, 20)
    assert np.array_equal(again.train.images, first.train.images)


def test_a_stop_ends_a_trial_that_decodes(tmp_path: Path) -> None:
    folder, cache = pictures(tmp_path / "cifar10"), tmp_path / "cache"
    trial = SimpleNamespace(data=folder, cache=cache, phase=print, should_stop=True)
    with pytest.raises(SystemExit) as ended:
        data.load_data("cifar10", trial, 20, 20)
    assert not ended.value.code and not cache.exists()


def test_changed_data_is_decoded_anew(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "cifar10", per_class=1)
    before = find("cifar10", folder).stamp()
    extra = folder / "test" / "ship" / "0001.png"
    extra.write_bytes((folder / "test" / "ship" / "0000.png").read_bytes())
    assert find("cifar10", folder).stamp() != before


def test_digits_are_split_the_same_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found = load("digits", None, tmp_path)
    assert (len(found.train), len(found.test)) == (1442, 355)
    assert found.train.images.shape[1:] == (8, 8)
    assert int(found.train.images.max()) == 16
    assert np.bincount(found.test.labels).min() >= 34


@pytest.mark.parametrize("left", [7, 12, 100])
def test_an_idx_file_that_is_short_is_named(tmp_path: Path, left: int) -> None:
    folder = mnist(tmp_path / "MNIST" / "raw")
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:left])
    for place in (tmp_path, packed(folder, tmp_path / "mnist.tar")):
        with pytest.raises(DataMissing, match="train-images-idx3-ubyte "):
            load("mnist", place, tmp_path / "cache", 20, 20)


def test_what_idx_files_decode_to_can_be_written_to(tmp_path: Path) -> None:
    folder = mnist(tmp_path / "raw")
    source = find("mnist", folder)
    assert decode(source.layout, source.files())["train_images"].flags.writeable
