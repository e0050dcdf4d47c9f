"""What is sent of a directory, and what is never unpacked: a bundle may be anybody's bytes."""

from __future__ import annotations

import gzip
import io
import os
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hpq.code import bundle, snapshot
from hpq.domain.sweep import Launch
from hpq.errors import UserError
from hpq_worker.attempt.code import CodeBundles
from tests.support.folders import git, put
from tests.support.ids import raises


def sent(folder: Path, program: str = "train.py") -> set[str]:
    return set(snapshot.take_snapshot(folder, [program] if program else [], is_sent=True))


def test_in_git_what_is_tracked_goes_and_new_python_and_nothing_that_is_ignored(
    tmp_path: Path,
) -> None:
    put(tmp_path, "train.py", "words.txt", "deep/net.py", "old.bin", "notes.md")
    (tmp_path / ".gitignore").write_text("secret.py\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    (tmp_path / "words.txt").write_text("modified")
    (tmp_path / "old.bin").unlink()
    put(tmp_path, "new.py", "secret.py", "results.json")
    (tmp_path / ".hpqignore").write_text("# docs\n*.md\n")
    assert sent(tmp_path) == {".gitignore", "train.py", "words.txt", "deep/net.py", "new.py"}


def test_without_git_code_and_its_settings_go_but_for_what_an_ignore_file_names(
    tmp_path: Path,
) -> None:
    put(tmp_path, "train.py", "conf/a.yaml", "b.json", "data.npz", ".hidden.py", "runs/1/x.json")
    put(tmp_path, "keep/runs/y.json", "tmp/z.py", "tmp/mine.py", ".venv/lib.py")
    (tmp_path / ".gitignore").write_text("/runs/\ntmp/*\n!tmp/mine.py\n")
    assert sent(tmp_path) == {
        *("train.py", "conf/a.yaml", "b.json", "keep/runs/y.json", "tmp/mine.py"),
    }


@pytest.mark.parametrize(
    "lines",
    [
        "old\n!old/b.py\n",  # no file of an ignored directory is taken back
        "old/*\n!old/b.py\n",
        "/*.py\n!train.py\n",
        "deep/*.py\n",
        "deep/**/b.py\n",
        "**/more/\n",
        "[!t]*.py\n",
        "\\#a.py\nb.py \n",
        "# b.py\n\n",
    ],
)
def test_an_ignore_file_leaves_out_what_git_ignores(lines: str, tmp_path: Path) -> None:
    names = [
        f"{folder}{name}.py" for folder in ("", "old/", "deep/", "deep/more/") for name in "ab"
    ]
    put(tmp_path, "train.py", "#a.py", *names)
    (tmp_path / ".gitignore").write_text(lines)
    without_git = sent(tmp_path, program="")
    git(tmp_path, "init", "-q")
    known = git(tmp_path, "ls-files", "--others", "--exclude-standard", "*.py")
    assert without_git == set(known.split())


@pytest.mark.parametrize("line", ["!", "[z-a].py"])
def test_a_line_that_is_no_pattern_names_the_ignore_file(line: str, tmp_path: Path) -> None:
    put(tmp_path, "train.py")
    (tmp_path / ".hpqignore").write_text(f"{line}\n")
    with pytest.raises(UserError, match=r"\.hpqignore"):
        sent(tmp_path)


def test_code_over_ten_mebibytes_names_the_largest_files_and_what_to_do(tmp_path: Path) -> None:
    put(tmp_path, "train.py")
    with (tmp_path / "weights.json").open("wb") as file:
        file.truncate(snapshot.MOST_BYTES)
    with raises("code-too-large", "weights.json (10,240 KiB)", ".hpqignore"):
        snapshot.take_snapshot(tmp_path, ["train.py"], is_sent=True)


def tar(fill: Callable[[tarfile.TarFile], object]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        fill(file)
    return gzip.compress(out.getvalue())


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return tar(lambda file: file.addfile(info))


def sparse(size: int, form: str = "pax") -> bytes:
    """A file of a few bytes that says it has `size`, the rest of it a hole."""
    info = tarfile.TarInfo("train.py")
    if form == "old":
        info.type, info.size = tarfile.GNUTYPE_SPARSE, size
        head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        head[386:410], head[483:495] = b"0" * 24, f"{size:011o}\0".encode()
        head[148:156] = b" " * 8
        head[148:156] = f"{sum(head):06o}\0 ".encode()
        return gzip.compress(bytes(head) + bytes(2 * tarfile.BLOCKSIZE))
    told = {"major": "1", "minor": "0", "name": "train.py", "realsize": str(size)}
    info.pax_headers = {f"GNU.sparse.{name}": value for name, value in told.items()}
    info.size, data = 10, io.BytesIO(b"1\n0\n1\naaaa")
    return tar(lambda file: file.addfile(info, data))


def negative(kind: bytes) -> bytes:
    """An entry whose size is under zero, as base 256 can say it."""
    info = tarfile.TarInfo("train.py")
    info.type = kind
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = b"\xff" * 10 + b"\xfc\x00"
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return gzip.compress(bytes(head) + bytes(2 * tarfile.BLOCKSIZE))


def link_head() -> tarfile.TarInfo:
    info = tarfile.TarInfo("././@LongLink")
    info.type = tarfile.GNUTYPE_LONGNAME
    return info


ATTACKS = {
    "a hole of ten gigabytes": sparse(10**10),
    "a small hole": sparse(10),
    "a hole as old tars have it": sparse(2**32, "old"),
    "less than nothing": negative(tarfile.REGTYPE),
    "a head of less than nothing": negative(tarfile.XHDTYPE),
    "heads of heads": tar(lambda t: [t.addfile(link_head()) for _ in range(3000)]),
    "an absolute path": entry("/tmp/evil.py"),
    "a way out": entry("../evil.py"),
    "a way out below": entry("a/../../evil.py"),
    "a link out": entry("train.py", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": entry("train.py", tarfile.LNKTYPE, "/etc/passwd"),
    "a device": entry("train.py", tarfile.CHRTYPE),
    "a pipe": entry("train.py", tarfile.FIFOTYPE),
    "a directory": entry("train.py", tarfile.DIRTYPE),
    "control characters": entry("train\x1b[31m.py"),
    "a file twice": tar(lambda t: [t.addfile(tarfile.TarInfo("train.py")) for _ in range(2)]),
    "a bomb": gzip.compress(b"\0" * (3 * snapshot.MOST_BYTES)),
    "half of one": entry("train.py")[:30],
    "no archive": gzip.compress(b"import os"),
    "nothing": b"",
}


@pytest.mark.parametrize("what", ATTACKS)
def test_nothing_is_written_of_a_bundle_that_holds(what: str, tmp_path: Path) -> None:
    bundles = CodeBundles(tmp_path, lambda digest: ATTACKS[what])
    with pytest.raises(ValueError):
        bundle.unpack(ATTACKS[what], "0" * 64)
    from_redis = bundles.refusal(launch("0" * 64))
    assert from_redis and from_redis.code == "code-altered"
    with pytest.raises(OSError):
        bundles.tree(launch("0" * 64))
    assert not list(tmp_path.iterdir())


def launch(digest: str) -> Launch:
    return Launch(program="train.py", code=digest, bundled=True)


def test_a_bundle_is_fetched_and_verified_once_and_copied_as_it_was(
    tmp_path: Path,
) -> None:
    folder, asked = tmp_path / "code", []
    put(folder, "train.py", "deep/run.sh")
    os.chmod(folder / "deep" / "run.sh", 0o755)
    files = snapshot.take_snapshot(folder, ["deep/run.sh"])
    data, digest = bundle.pack(files), snapshot.digest_of(snapshot.manifest(files))

    def fetch(wanted: str) -> bytes:
        asked.append(wanted)
        return data

    bundles = CodeBundles(tmp_path / "home", fetch)
    assert bundles.refusal(launch(digest)) is None
    one = bundles.tree(launch(digest)).path
    assert asked == [digest]
    assert (one / "train.py").read_text() == "train.py"
    assert os.access(one / "deep" / "run.sh", os.X_OK)
    bundles.close()
    assert not one.exists()
    two = bundles.tree(launch(digest)).path
    assert asked == [digest] and (two / "train.py").exists()


def test_what_is_no_digest_names_no_file_of_this_disk(tmp_path: Path, monkeypatch) -> None:
    """The digest of an unsigned sweep is what any client of Redis has written."""
    read: list[Path] = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or b"")
    for digest in ("../../etc/x", "/etc/x", "", ".", "0" * 63, "A" * 64, "0" * 64 + "/x"):
        assert bundle.read_kept(tmp_path, digest) is None
    assert not read
    assert bundle.read_kept(tmp_path, "0" * 64) is None and len(read) == 1


def test_a_kept_snapshot_is_read_in_the_memory_of_its_size(tmp_path: Path) -> None:
    """Linux gives no process terabytes, unless it is set up so."""
    files = {"big.py": (b"y" * 12_000_000, 0o644)}
    digest = snapshot.digest_of(snapshot.manifest(files))
    bundle.keep(tmp_path, digest, bundle.pack(files))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**40, before[1]))
    try:
        assert bundle.read_kept(tmp_path, digest) == files
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
