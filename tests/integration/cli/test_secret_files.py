"""A command is given a file that holds a secret, by mistake or by an agent: it names the file."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hpq.errors import SweepFileError
from hpq.yamlfile import yaml_reader
from hpq_producer.scaffold.script import read_script

Hpq = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "4f9c2ab7d1e85b3c60a7"  # a part of each file
SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {value: 1}}\n"
FILES = {
    "a key": f"{SECRET}\n",
    "digits": "1" + "7" * 400,
    "a number": f"1{'7' * 20}e999\n",
    "a private key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "variables": f"export A=b\nTOKEN={SECRET}\n",
    "netrc": f"machine host login me password {SECRET}\n",
    "passwords": f"me:{SECRET}\nyou:{SECRET}\n",
    "a kubeconfig": f"kind: Config\nusers: [{{name: me, user: {{token: {SECRET}}}}}]\n",
    "JSON": json.dumps({"private_key": SECRET, "name": [SECRET], "retries": SECRET}),
    "a list": json.dumps([SECRET, {SECRET: SECRET}]),
    "keys": f"{SECRET}: 1\n{SECRET}: 2\n",
    "a key alone": f"{SECRET}: 1\n",
    "an alias": f"password: *{SECRET}\n",
    "a tag": f"password: !{SECRET} x\n",
    "a float": f"password: !!float {SECRET}\n",
    "a handle": f"password: !{SECRET}!x y\n",
    "a directive": f"%{SECRET}\n---\na: 1\n",
    "a bracket": f"[{SECRET}\n",
    "a quote": f'password: "{SECRET}\n',
    "two documents": f"{SECRET}\n---\n{SECRET}\n",
    "INI": f"[default]\npassword = {SECRET}\n",
    "Latin-1": f"{SECRET}\xe9{SECRET}\n",
    "binary": f"{SECRET}\0{SECRET}\n",
    "values.yaml": f"name: [{SECRET}]\ndescription: [{SECRET}]\nqueue: {{a: {SECRET}}}\n",
}
COMMANDS = {
    "plan": ("plan", "{}"),
    "plan as JSON": ("plan", "-o", "json", "--", "{}"),
    "plan with keys": ("plan", "--set", "method=grid", "--set", "name=x", "{}"),
    "enqueue": ("enqueue", "{}"),
    "run": ("run", "{}"),
    "try": ("try", "{}"),
    "manifests": ("manifests", "-f", "{}"),
    "manifests with keys": ("manifests", "-f", "{}", "--namespace", "x", "--gpus", "0"),
    "join": ("join", "--no-worker", "{}"),
    "archive": ("archive", "--restore", "{}"),
}


def quoted(shown: str, content: str) -> list[str]:
    """Return the pieces of 6 characters of a secret that a text shows."""
    secrets = [part for part in (SECRET, "7" * 10) if part in content]
    pieces = {one[at : at + 6] for one in secrets for at in range(len(one) - 5)}
    return [piece for piece in pieces if piece in shown]


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "the.file"
    path.write_bytes(FILES[request.param].encode("latin-1"))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("file", FILES, indirect=True)
def test_a_file_of_another_kind_is_named_and_not_quoted(hpq: Hpq, file: Path) -> None:
    content = file.read_text("latin-1")
    for name, words in COMMANDS.items():
        done = hpq(*(word.format(file) for word in words))
        shown = done.stdout + done.stderr
        assert quoted(shown, content) == [], (name, shown)
        assert done.returncode == 2 and str(file) in shown, (name, shown)


@pytest.mark.parametrize("loader", ["CBaseLoader", "BaseLoader"])
def test_neither_of_yamls_parsers_quotes(monkeypatch: pytest.MonkeyPatch, loader: str) -> None:
    monkeypatch.setattr(yaml_reader, "_Loader", getattr(yaml, loader))
    for content in FILES.values():
        try:
            yaml_reader.parse(content.replace("\0", ""), "a.file")
        except SweepFileError as error:
            assert "a.file" in str(error) and quoted(str(error), content) == [], error


def test_an_archive_that_is_none_is_not_quoted(hpq: Hpq, tmp_path: Path) -> None:
    path = tmp_path / "a.archive"
    for content in (SECRET, json.dumps({"hpq-archive": 1, "password": SECRET}), f"[{SECRET}]"):
        path.write_bytes(gzip.compress(content.encode()))
        done = hpq("archive", "--restore", path)
        assert done.returncode == 2 and str(path) in done.stderr
        assert quoted(done.stderr, content) == [], done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"password: *{SECRET}",
        f"contexts: [{SECRET}]\ncurrent-context: x",
        f"contexts: [{{context: {{token: {SECRET}}}}}]\ncurrent-context: x",
    ],
)
def test_a_kubeconfig_is_not_quoted(hpq_process: Hpq, tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    done = hpq_process("connect", KUBECONFIG=str(tmp_path / "config"), HPQ_REDIS_URL="")
    assert done.returncode == 3 and quoted(done.stderr, text) == [], done.stderr


def test_a_file_that_is_no_address_of_a_redis_job_is_not_quoted(hpq: Hpq, tmp_path: Path) -> None:
    for content in (
        SECRET,
        f"me:{SECRET}",
        f"{SECRET}\n{SECRET}:6379",
        f"{SECRET}\xe9",
        f"a:{SECRET} b c",
    ):
        (tmp_path / "secret").write_bytes(content.encode("latin-1"))
        done = hpq("ls", HPQ_REDIS_URL=f"redis+file://{tmp_path}/secret")
        assert done.returncode == 3 and quoted(done.stderr, content) == [], done.stderr


def test_a_line_of_an_ignore_file_is_not_quoted(hpq: Hpq, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"# a\n{SECRET}\n!\n{SECRET}***!//[\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("")
    (tmp_path / "code" / ".hpqignore").symlink_to(tmp_path / "secret")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    done = hpq("plan", "sweep.yaml", "--code", "code")
    assert done.returncode == 2 and ".hpqignore:3:" in done.stderr, done.stderr
    assert quoted(done.stderr, SECRET) == []


@pytest.mark.parametrize("content", [f"{SECRET}\n", f"password: {SECRET}\n", f"[{SECRET}\n"])
def test_diff_prints_no_file_that_redis_names(
    hpq: Hpq, tmp_path: Path, redis, keys, content: str
) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "secret").write_text(content)
    sid = hpq("enqueue", "sweep.yaml").stdout.strip()
    origin = json.loads(redis.hget(keys.sweep(sid), "provenance"))
    origin["file"] = str(tmp_path / "secret")
    redis.hset(keys.sweep(sid), "provenance", json.dumps(origin))
    done = hpq("diff", sid)
    assert done.returncode == 0 and str(tmp_path / "secret") in done.stdout, done.stderr
    assert quoted(done.stdout, content) == []


def test_init_copies_no_file_from_elsewhere_that_a_script_loads(hpq: Hpq, tmp_path: Path) -> None:
    """Another person's script names it."""
    for place, is_copied in ((tmp_path, True), (tmp_path.parent, False)):
        (place / "a.yaml").write_text(f"password: {SECRET}\n")
        (tmp_path / "train.py").write_text(
            "import argparse, wandb, yaml\n"
            "argparse.ArgumentParser().add_argument('--lr', type=float, default=0.1)\n"
            f"with open({str(place / 'a.yaml')!r}) as file:\n    data = yaml.safe_load(file)\n"
            "sweep = {'method': 'grid', 'parameters': {'x': {'value': data}}}\n"
            "wandb.agent(wandb.sweep(sweep), function=print)\n"
        )
        done = hpq("init", "train.py", "--out", "-")
        assert done.returncode == 0, done.stderr
        assert bool(quoted(done.stdout, SECRET)) is is_copied, done.stdout


@pytest.mark.filterwarnings("error")  # as Python 3.12 prints it, with the line
def test_a_script_with_an_unknown_escape_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"x = '\\d {SECRET}'\n")
    read_script(tmp_path / "train.py")
