"""Pictures, tables and charts of a script for wandb become files of the trial, within limits."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import PIL.Image
import pytest


@pytest.fixture
def media(wandb: ModuleType, tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """Log a value at step 7 and return the files that this adds, by name without the hash."""
    run, out = wandb.init(), tmp_path / "out"

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def log(key: str, value: object) -> dict[str, bytes]:
        before = files()
        run.log({key: value, "loss": 1}, step=7)
        new = {path: data for path, data in files().items() if path not in before}
        return {
            re.sub(r"_7_[0-9a-f]{20}", "_7_#", str(path.relative_to(out))): data
            for path, data in new.items()
        }

    return log


def opened(data: bytes) -> np.ndarray:
    return np.asarray(PIL.Image.open(io.BytesIO(data)))


RGB = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
PICTURES = {
    "bytes": (RGB, RGB),
    "gray": (RGB[:, :, 0], RGB[:, :, 0]),
    "one channel": (RGB[:, :, :1], RGB[:, :, 0]),
    "alpha": (np.dstack([RGB, RGB[:, :, 0]]), np.dstack([RGB, RGB[:, :, 0]])),
    "channels first": (RGB.transpose(2, 0, 1), RGB),
    "0 to 1": (RGB[:, :, 0] / 27.0, (RGB[:, :, 0] / 27.0 * 255).astype(np.uint8)),
    "-1 to 1": (np.array([[-1.0, 0.0, 1.0]]), np.array([[0, 127, 255]])),
    "0 to 255 as floats": (RGB[:, :, 0] * 1.0, RGB[:, :, 0]),
    "too large and NaN": (np.array([[300.0, math.nan]]), np.array([[255, 0]])),
    "integers": (np.array([[-4, 300]]), np.array([[0, 255]])),
    "booleans": (np.array([[True, False]]), np.array([[255, 0]])),
    "PIL": (PIL.Image.fromarray(RGB), RGB),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_is_kept_as_png_whatever_holds_it(wandb, media, kind: str) -> None:
    given, shown = PICTURES[kind]
    name, data = media("val/a [b]", wandb.Image(given, caption="c")).popitem()
    assert name == "media/images/val/a _b__7_#.png"
    np.testing.assert_array_equal(opened(data), shown)


def test_a_tensor_has_its_channels_first(wandb, media) -> None:
    class Tensor:
        """As torch has them; numpy cannot read it before `float` if it is bfloat16."""

        shape = (3, 2, 3)

        def is_floating_point(self) -> bool:
            return True

        def detach(self) -> Tensor:
            return self

        cpu = detach

        def float(self) -> np.ndarray:
            return RGB[:, :3].transpose(2, 0, 1) / 255

    (data,) = media("tensor", wandb.Image(Tensor())).values()
    np.testing.assert_allclose(opened(data), RGB[:, :3], atol=1)


def test_other_values_become_the_files_that_wandb_makes_of_them(wandb, media, tmp_path) -> None:
    class Figure:
        def savefig(self, file, format):
            file.write(b"drawn")

    class Axes:
        figure = Figure()

    for value in (Figure(), wandb.Image(Figure()), wandb.Image(Axes())):
        assert media(f"f{type(value).__name__}{id(value)}", value).popitem()[1] == b"drawn"
    (tmp_path / "v.mp4").write_bytes(b"video")
    assert media("v", wandb.Video(tmp_path / "v.mp4")) == {"media/videos/v_7_#.mp4": b"video"}
    assert media("h", wandb.Html("<p>")) == {"media/html/h_7_#.html": b"<p>"}
    assert media("l", [wandb.Html(str(i)) for i in range(20)])
    listed = sorted((tmp_path / "out/media/html").glob("l_7_*"))
    assert [path.read_text() for path in listed] == [str(i) for i in range(20)]
    data = json.loads(media("array", np.arange(64)).popitem()[1])
    assert data["columns"] == ["from", "to", "count"] and [r[2] for r in data["data"]] == [2] * 32


def test_a_table_is_kept_as_json_and_its_pictures_beside_it(wandb, media) -> None:
    table = wandb.Table(columns=["n", "x", "image"])
    table.add_data(np.float32(0.5), math.nan, wandb.Image(RGB))
    table.add_data(np.array([1, 2]), {"a": 1}, None)
    found = media("t", table)
    assert set(found) == {"media/images/t_7_#.png", "media/table/t_7_#.table.json"}
    rows = json.loads(found["media/table/t_7_#.table.json"], parse_constant=pytest.fail)
    assert rows["columns"] == ["n", "x", "image"]
    assert rows["data"][0][:2] == [0.5, "nan"] and rows["data"][1] == [[1, 2], {"a": 1}, None]
    assert rows["data"][0][2] == {"_type": "image-file", "path": table.data[0][2].path}


CHARTS = {
    "confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0], class_names=['a', 'b'])": [
        ["a", "a", 1], ["a", "b", 0], ["b", "a", 1], ["b", "b", 1]
    ],
    "confusion_matrix(probs=[[0.9, 0.1], [0.2, 0.8]], y_true=[0, 1])": [
        ["Class_1", "Class_1", 1], ["Class_1", "Class_2", 0], ["Class_2", "Class_1", 0],
        ["Class_2", "Class_2", 1],
    ],
    "roc_curve([0, 1], None)": [],
    "line_series([0, 1], [[1, 2], [3, 4]], keys=['p', 'q'])": [
        [0, "p", 1], [1, "p", 2], [0, "q", 3], [1, "q", 4]
    ],
    "line(wandb.Table(columns=['x', 'y'], data=[[1, 2]]), 'x', 'y', title='T')": [[1, 2]],
    "roc_curve([0, 1, 1], [[0.8, 0.2], [0.3, 0.7], [0.4, 0.6]], labels=['a', 'b'])": [
        ["a", 0, 0], ["a", 0, 1], ["a", 1, 1], ["b", 0, 0], ["b", 0, 0.5], ["b", 0, 1], ["b", 1, 1]
    ],
}  # fmt: skip


@pytest.mark.parametrize("call", CHARTS)
def test_a_chart_is_kept_as_the_table_that_wandb_draws(wandb, media, call: str) -> None:
    found = media("c", eval(f"wandb.plot.{call}", {"wandb": wandb}))
    rows = [json.loads(data)["data"] for data in found.values()]
    assert rows == [some for some in [CHARTS[call]] if some], "none if the arguments are wrong"
    assert set(found) <= {"media/table/c_table_7_#.table.json"}


def test_media_never_fail_a_script_and_say_once_what_is_dropped(
    wandb, media, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def savefig(self, file, format):
            raise RuntimeError(f"no display {id(self)}")

    for _ in range(3):
        for key, value in {
            "broken": Broken(), "list": [1, 2], "shape": wandb.Image(np.zeros((2, 3, 4, 5))),
            "missing": wandb.Image("none.png"), "sound": wandb.Audio(np.zeros(8)),
            "k" * 300: wandb.Html("too long a name"),
        }.items():  # fmt: skip
            assert media(key, value) == {}
    lines = capsys.readouterr().err.splitlines()
    assert [line.count("is dropped") for line in lines] == [1] * 6
    assert "lists of numbers" in lines[1] and all(len(line) < 300 for line in lines)
    assert len(wandb.reports) == 1


def test_media_are_limited_in_number_bytes_and_time(wandb, media, monkeypatch, capsys) -> None:
    module = sys.modules["wandb._media"]
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    assert media("once", wandb.Html("once"))
    for i in range(5):
        assert media("often", wandb.Html(f"page {i}", caption=f"caption {i}"))
    kept = [path.read_text() for path in Path("out/media/html").iterdir()]
    assert sorted(kept) == ["once", "page 3", "page 4"], "the newest of the key with most files"
    captions = json.loads(Path("out/media/captions.json").read_text())
    assert {Path("out", name).read_text(): text for name, text in captions.items()} == {
        "page 3": "caption 3", "page 4": "caption 4",
    }  # fmt: skip
    monkeypatch.setattr(module, "_MOST_BYTES", 9)
    assert media("large", wandb.Html("x" * 10)) == {} and Path("out/media/html").iterdir()
    err = capsys.readouterr().err
    assert err.count("make room") == 1 and err.count("'large' is dropped") == 1
    monkeypatch.setattr(module, "_ALLOWANCE_S", 0.0)
    wandb.run._media.spent_s = 1e6
    assert media("late", wandb.Html("")) == {} and "5%" in capsys.readouterr().err
    wandb.init(reinit=True).log({"second run": wandb.Html("b")})
    assert not list(Path("out/media/html").glob("second*"))
    wandb.finish()
    del wandb._last_run  # as `wandb.agent` does after a trial
    wandb.init().log({"next": wandb.Html("trial")})
    assert list(Path("out/media/html").glob("next*"))


def test_a_picture_that_is_too_large_is_dropped_before_it_is_encoded(
    wandb, media, monkeypatch, capsys
) -> None:
    def encode(*args: object, **kwargs: object) -> bytes:
        raise AssertionError("encoded")

    monkeypatch.setattr(sys.modules["wandb._png"].zlib, "compress", encode)
    monkeypatch.setattr(PIL.Image.Image, "save", encode)
    array = np.broadcast_to(np.uint8(0), (6000, 6000))
    for key, picture in {"array": array, "PIL": PIL.Image.new("RGB", (6000, 6000))}.items():
        assert media(key, wandb.Image(picture)) == {}
    assert capsys.readouterr().err.count("more than 32 MiB") == 2


def test_a_tables_rows_have_as_many_cells_as_it_has_columns(wandb: ModuleType) -> None:
    table = wandb.Table(columns=["a"], data=[[1]])
    for wrong in (lambda: table.add_data(1, 2), lambda: wandb.Table(["a"], [[1, 2]])):
        with pytest.raises(ValueError, match="1 columns"):
            wrong()
    assert table.data == [[1]]


def test_a_histogram_has_wandbs_counts(wandb: ModuleType) -> None:
    found = wandb.Histogram([1, 2, 3, 3, math.nan], num_bins=4)
    assert (found.histogram, found.bins) == ([1, 0, 1, 2], [1.0, 1.5, 2.0, 2.5, 3.0])
    with pytest.raises(ValueError, match="len"):
        wandb.Histogram(np_histogram=([1, 2], [1, 2]))
