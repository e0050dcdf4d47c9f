"""`hpq data`: archives from an HTTP server, checked; `hpq run` without data."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from hpq.datasets import find
from hpq.errors import DataMissing
from hpq_producer.commands.admin import data as command
from hpq_producer.enqueue import prepare
from tests.support.constants import ROOT
from tests.support.data_files import mnist_files
from tests.support.ids import ids

Hpq = Callable[..., CompletedProcess[str]]


class Archives(HTTPServer):
    """Serves files by name; `breaks_at` ends an answer after so many bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked = 0
        self.breaks_at: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Archives

    def do_GET(self) -> None:
        content = self.server.files.get(self.path[1:])
        self.server.asked += 1
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.breaks_at])

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch) -> Iterator[Archives]:
    """A server with MNIST's four files, where downloads look for them."""
    server = Archives()
    server.files = mnist_files()
    sums = {f"MNIST/raw/{name}": hashlib.md5(x).hexdigest() for name, x in server.files.items()}
    monkeypatch.setitem(command.FILES, "mnist", (server.url, sums))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def raw(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "MNIST" / "raw").iterdir()}


def test_archives_are_fetched_once_and_found(archives: Archives, tmp_path: Path) -> None:
    command.download("mnist", tmp_path)
    assert raw(tmp_path) == archives.files
    assert find("mnist", tmp_path).is_there()
    asked = archives.asked
    command.download("mnist", tmp_path)
    assert archives.asked == asked == 4


def test_what_broke_off_leaves_nothing_and_is_fetched_anew(
    archives: Archives, tmp_path: Path
) -> None:
    archives.breaks_at = 50
    with pytest.raises(DataMissing, match="run it again"):
        command.download("mnist", tmp_path)
    assert raw(tmp_path) == {}
    archives.breaks_at = None
    command.download("mnist", tmp_path)
    assert raw(tmp_path) == archives.files


def test_another_checksum_is_refused(archives: Archives, tmp_path: Path) -> None:
    right = dict(archives.files)
    archives.files = {name: b"other" + content for name, content in right.items()}
    with pytest.raises(DataMissing, match=r"has the MD5 \w+, not \w+"):
        command.download("mnist", tmp_path)
    assert raw(tmp_path) == {}
    archives.files = right
    command.download("mnist", tmp_path)


def test_a_file_that_is_not_served_is_named_with_what_to_bring(archives, tmp_path) -> None:
    archives.files.clear()
    with pytest.raises(DataMissing, match="404 Not Found") as caught:
        command.download("mnist", tmp_path)
    said = str(caught.value)
    assert "\n" not in said and f"bring to {tmp_path}: MNIST/raw/train-images-idx3-ubyte.gz" in said


UNREACHABLE = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


def test_without_network_the_command_names_the_file_to_bring(hpq: Hpq, tmp_path: Path) -> None:
    done = hpq("data", "cifar10", tmp_path, **UNREACHABLE)
    assert done.returncode == 2 and "[data-missing]" in done.stderr
    assert "cifar-10-python.tar.gz (MD5 c58f30108f718f92721af3b95e74349a)" in done.stderr


def test_data_that_is_there_is_not_fetched_again(hpq: Hpq, tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    for name, content in mnist_files().items():
        (tmp_path / "MNIST" / "raw" / name).write_bytes(content)
    done = hpq("data", "mnist", tmp_path, **UNREACHABLE)
    expected = [f"mnist is in {tmp_path}", f"export HPQ_DATA={tmp_path}"]
    assert (done.returncode, done.stdout.splitlines()) == (0, expected)
    again = hpq("data", "mnist", HPQ_DATA=str(tmp_path), **UNREACHABLE)
    assert again.stdout.splitlines() == expected[:1]


def test_without_hpq_data_the_data_is_put_where_hpq_run_looks_for_it(
    hpq: Hpq, tmp_path: Path
) -> None:
    place = tmp_path / "home" / "data"
    words = hpq("run", ROOT / "configs" / "mnist.yaml").stderr
    assert f"{place} does not exist; run `hpq data mnist`" in words
    (place / "MNIST" / "raw").mkdir(parents=True)
    for name, content in mnist_files().items():
        (place / "MNIST" / "raw" / name).write_bytes(content)
    done = hpq("data", "mnist", **UNREACHABLE)
    assert (done.returncode, done.stdout.splitlines()) == (0, [f"mnist is in {place}"])
    words = hpq(
        "run", ROOT / "configs" / "mnist.yaml", HPQ_REDIS_URL="redis://127.0.0.1:1/0"
    ).stderr
    assert ids(words) == ["redis-unreachable"]


def test_another_name_is_refused(hpq: Hpq) -> None:
    done = hpq("data", "imagenet")
    assert done.returncode == 2 and "cifar10, mnist" in done.stderr


@pytest.mark.parametrize("data", [None, "empty"])
def test_run_without_data_stops_before_anything_is_enqueued(hpq: Hpq, tmp_path, data) -> None:
    (tmp_path / "empty").mkdir()
    environ = {"HPQ_DATA": str(tmp_path / data)} if data else {}
    done = hpq("run", ROOT / "configs" / "cifar10-16.yaml", **environ)
    assert done.returncode == 2 and "[data-missing]" in done.stderr
    assert "hpq data cifar10" in done.stderr
    assert hpq("ls", "--json").stdout.strip() in ("", "[]")


@pytest.mark.parametrize(
    ("trainer", "parameters", "gpus", "warned"),
    [
        ("cifar10", {}, (), True),
        ("cifar10", {}, ("H100",), False),
        ("cifar10", {"width": {"value": 8}}, (), False),
        ("mnist", {}, (), False),
        ("", {}, (), False),
    ],
)
def test_the_full_sweep_without_a_gpu_names_the_small_one(
    monkeypatch, trainer, parameters, gpus, warned
) -> None:
    monkeypatch.setattr(prepare, "gpu_names", lambda: gpus)
    spec = SimpleNamespace(keys=SimpleNamespace(trainer=trainer), source={"parameters": parameters})
    said = prepare.without_gpu(SimpleNamespace(spec=spec)) or ""
    assert ("configs/cifar10-16-small.yaml" in said) is warned
