"""What differs between two sweeps, two trials, or a sweep and the files as they are now."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hpq.code import bundle
from hpq.domain.trial import Claim
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from tests.support.desk import run_here
from tests.support.ids import refused
from tests.support.store_calls import end

Hpq = Callable[..., subprocess.CompletedProcess[str]]
SWEEP = "# mine\nprogram: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"


@pytest.fixture
def enqueue(hpq: Hpq, tmp_path: Path) -> Callable[..., str]:
    """Return a function that enqueues sweep.yaml, for a script that prints a metric."""
    (tmp_path / "train.py").write_text("width = 1\nprint('acc=1')\n")
    (tmp_path / "gone.py").write_text("old = 1\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)

    def run(*words: str) -> str:
        done = hpq("enqueue", "sweep.yaml", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def two(enqueue: Callable[..., str], tmp_path: Path) -> tuple[str, str]:
    """Two sweeps: of the second, both the file and the code were edited."""
    first = enqueue()
    (tmp_path / "train.py").write_text("width = 2\nprint('acc=1')\n")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("\tnew = '\x1b[31m'\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("[1, 2]", "[1, 3]"))
    return first, enqueue()


def test_two_sweeps_differ_in_file_and_code_as_git_shows_it(hpq: Hpq, two: tuple[str, str]) -> None:
    done = hpq("diff", *two)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for line in (
        "diff --git a/train.py b/train.py",
        "--- a/train.py", "+++ b/train.py", "-width = 1", "+width = 2", " print('acc=1')",
        "-old = 1", "+\tnew = ''", "-parameters: {x: {values: [1, 2]}}",
        "+parameters: {x: {values: [1, 3]}}",
    ):  # fmt: skip
        assert line in lines, line
    assert "\x1b" not in done.stdout, "no color in a pipe"
    record = json.loads(hpq("diff", *two, "--json").stdout)
    assert (record["a"], record["b"]) == two
    assert record["code"]["equal"] is False and "+width = 2\n" in record["code"]["diff"]
    same = json.loads(hpq("diff", two[0], two[0], "--json").stdout)
    assert same["code"]["equal"] and same["sweep_file"]["equal"] and not same["code"]["diff"]


def test_keys_are_compared_if_an_option_changed_those_of_the_file(
    hpq: Hpq, enqueue: Callable[..., str], tmp_path: Path
) -> None:
    first, second = enqueue(), enqueue("--set", "parameters.x.values=[1, 5]")
    record = json.loads(hpq("diff", first, second, "--json").stdout)["sweep_file"]
    assert "-    - 2\n+    - 5\n" in record["diff"] and record["note"]
    assert "+++ b/sweep.yaml" in record["diff"]
    (tmp_path / "mine.yaml").write_text("program: train.py\nmethod: grid\n" + SWEEP.split("\n")[3])
    assert hpq("enqueue", "mine.yaml", "--set", "method=random", "--count", "1").returncode == 0
    (tmp_path / "mine.yaml").write_text(
        SWEEP.split("\n")[3] + "\nmethod: grid\nprogram: train.py\n"
    )
    lines = json.loads(hpq("diff", "--json").stdout)["sweep_file"]["diff"].splitlines()
    assert "+++ b/mine.yaml" in lines and "-method: random" in lines, lines
    assert not any("program" in line for line in lines if line[0] in "-+"), "its place is no change"


def test_a_sweep_alone_is_compared_with_the_files_as_they_are_now(
    enqueue: Callable[..., str],
    tmp_path: Path,
    environ: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    other, elsewhere = (tmp_path_factory.mktemp(name) for name in ("other", "elsewhere"))
    for folder in (tmp_path, other):
        (folder / ".gitignore").write_text("home\nlocal.py\n")
        for name in ("train.py", "gone.py", "sweep.yaml"):
            (folder / name).write_text((tmp_path / name).read_text())
        for words in (("init", "-q"), ("add", ".")):
            subprocess.run(["git", *words], cwd=folder, check=True)
    (tmp_path / "local.py").write_text("")
    sid = enqueue()

    def diff(folder: Path, what: str = sid) -> dict:
        return json.loads(run_here(("diff", what, "--json"), folder, environ).stdout)

    record = diff(tmp_path)
    assert record["code"]["equal"] and record["sweep_file"]["equal"] and "results" not in record
    assert "local.py" in record["code"]["note"], "it may have changed"
    (inner := tmp_path / "inner").mkdir()
    (inner / "train.py").write_text("")
    (inner / "sweep.yaml").write_text(SWEEP + "run_cap: 1\n")
    live = run_here(("enqueue", "sweep.yaml", "--live"), inner, environ).stdout.strip()
    for folder in (inner, elsewhere):
        assert diff(folder, live)["sweep_file"]["equal"], "below the root of the checkout"
    (outer := elsewhere / "outer").mkdir()
    (outer / "sweep.json").write_text(json.dumps(yaml.safe_load(SWEEP) | {"run_cap": 1}))
    made = run_here(("enqueue", str(outer / "sweep.json")), tmp_path, environ).stdout.strip()
    shutil.rmtree(inner)
    shutil.rmtree(outer)  # as wandb.sweep does
    record = diff(tmp_path, made)["sweep_file"]
    assert str(outer) in record["note"] and "sweep.json" not in record["note"]
    (other / "train.py").write_text("width = 7\n")
    (other / "sweep.yaml").write_text(SWEEP.replace("[1, 2]", "[7]"))
    assert "+width = 7\n" in diff(other)["code"]["diff"], "another checkout, entered"
    assert "+parameters: {x: {values: [7]}}" in diff(other)["sweep_file"]["diff"]
    (other / "sweep.yaml").write_text("method: [")
    record = diff(other)["sweep_file"]
    assert not record["diff"] and f"{other}/sweep.yaml:" in record["note"], "it may be any file"
    assert diff(elsewhere, f"{sid}/1")["code"]["equal"], "the directory of the enqueue"
    (tmp_path / "sweep.yaml").unlink()
    record = diff(tmp_path)["sweep_file"]
    assert not record["equal"] and "sweep.yaml" in record["note"]
    for name in ("train.py", "gone.py"):
        (tmp_path / name).unlink()
    record = diff(elsewhere)["code"]
    assert not record["equal"] and record["note"], "there is no code to compare with"


def test_of_the_files_that_redis_names_only_sweep_files_are_shown(
    hpq: Hpq, enqueue: Callable[..., str], tmp_path_factory: pytest.TempPathFactory, redis, keys
) -> None:
    sid, other = enqueue(), tmp_path_factory.mktemp("other")
    origin = json.loads(redis.hget(keys.sweep(sid), "provenance"))
    folder = Path(origin["file"]).parent
    for name, text in (("code.key", "5ec3e7"), ("key.yaml", "5ec3e7"), ("s.yaml", SWEEP)):
        (other / name).write_text(text)
        for file in (other / name, folder / ".." / other.name / name):
            redis.hset(keys.sweep(sid), "provenance", dumps({**origin, "file": str(file)}))
            done = hpq("diff", sid, "--json")
            assert done.returncode == 0 and "5ec3e7" not in done.stdout
            record = json.loads(done.stdout)["sweep_file"]
            assert record["equal"] == (name == "s.yaml") and name in record["note"] + "s.yaml"


def test_code_that_is_not_kept_is_compared_by_the_digests_of_its_files(
    hpq: Hpq, two: tuple[str, str], redis, keys, sweep_of
) -> None:
    digest = redis.hget(keys.sweep(two[0]), "bundle").decode()
    redis.set(keys.bundle(digest), bundle.pack({"train.py": (b"evil\n", 0o644)}))
    refused(hpq("diff", *two), "code-altered", two[0])
    redis.delete(keys.bundle(digest))
    record = json.loads(hpq("diff", two[0], sweep_of(1).id, "--json").stdout)["code"]
    assert list(record["differ"]) == ["code"], "a built-in trainer has no files"
    done = hpq("diff", *two)
    assert done.returncode == 0 and f"{two[0]}: Redis does not have its code" in done.stdout
    record = json.loads(hpq("diff", *two, "--json").stdout)["code"]
    assert set(record["differ"]) == {"train.py", "gone.py", "new.py"} and not record["equal"]


def test_two_trials_differ_in_parameters_metrics_packages_and_machine(
    hpq: Hpq, store: TrialStore, who, sweep_of
) -> None:
    sweep = sweep_of(3)
    for name, torch, value in (("d1", "2.4", 0.5), ("d2", "2.5", 0.25)):
        packages = {"numpy": "2.0", "torch": torch}
        own = {"python": f"3.1{name[1]}.0", "packages": packages}
        store.keep_provenance(name, dumps({"host": "h", "python": "3.9.0", "programs": own}))
        got = store.claim(who, nonce=name, lease_ms=30_000, provenance=name)
        assert isinstance(got, Claim)
        end(store, got, value)
    record = json.loads(hpq("diff", "1", "2", "--json").stdout)
    assert record["a"] == f"{sweep.id}/1" and record["sweep_file"]["equal"]
    assert record["parameters"]["differ"] == {"x": [1, 2]}
    assert record["results"]["differ"]["objective"] == [0.5, 0.25]
    assert record["packages"]["differ"] == {"torch": ["2.4", "2.5"]}
    assert record["machine"]["differ"] == {"Python": ["3.11.0", "3.12.0"]}
    shown = hpq("diff", "1", "2").stdout.splitlines()
    assert ["torch", "2.4", "2.5"] in [line.split() for line in shown]
    narrow = hpq("diff", "1", "2", COLUMNS="12").stdout
    assert "torch\n  a  2.4\n  b  2.5\n" in narrow, "what is too wide for a table is not cut"
    other = sweep_of(1, "other-00000")
    record = json.loads(hpq("diff", sweep.id, other.id, "--json").stdout)
    assert other.id in record["packages"]["note"] and not record["packages"]["equal"]
    assert record["results"]["differ"]["best trial"] == ["1", None]
    refused(hpq("diff", sweep.id, f"{other.id}/1"), "usage", other.id)
