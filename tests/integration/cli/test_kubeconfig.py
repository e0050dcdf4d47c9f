"""A kubeconfig that cannot be used, as the user meets it: one line, no cluster is asked."""

from __future__ import annotations

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

_CONTEXTS = """
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
contexts:
- {name: op, context: {cluster: here, user: me}}
- {name: view, context: {cluster: here, user: me}}
"""


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: [1,\n b: }", 3, "kubeconfig"),
        ("words", 3, "kubeconfig"),
        (_CONTEXTS, 2, "--context NAME (it has op, view)"),
        (_CONTEXTS + "current-context: ''", 2, "--context NAME (it has op, view)"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told_in_a_line(
    hpq_process, tmp_path: Path, text: str, code: int, line: str
) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    done = hpq_process("connect", KUBECONFIG=str(tmp_path / "kubeconfig"), HPQ_REDIS_URL="")
    assert line in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.returncode == code


def test_a_context_that_is_named_needs_no_current_one(hpq_process, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(_CONTEXTS)
    own = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HPQ_REDIS_URL": ""}
    done = hpq_process("connect", "--context", "op", **own)
    assert done.returncode == 3 and "context op, https://127.0.0.1:1" in done.stderr


@pytest.mark.parametrize("words", [["watch", "--once"], ["wait", "--timeout", "0"]])
def test_a_sweep_that_waits_here_beside_a_kubeconfig_may_have_been_meant_for_a_cluster(
    hpq, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "kubeconfig").write_text("")
    (tmp_path / "sweep.yaml").write_text(
        "trainer: digits\nmetric: {name: loss, goal: minimize}\nmethod: grid\n"
        "parameters: {epochs: {value: 1}}\n"
    )
    private = {"HPQ_REDIS_URL": "", "COLUMNS": "300"}
    assert hpq("enqueue", "sweep.yaml", **private).returncode == 0
    apart = "hpq connect"  # the cluster's, beside the private Redis
    beside = hpq(*words, KUBECONFIG=str(tmp_path / "kubeconfig"), **private)
    assert apart in beside.stdout + beside.stderr
    alone = hpq(*words, KUBECONFIG=str(tmp_path / "none"), **private)
    assert apart not in alone.stdout + alone.stderr


def test_without_the_kubernetes_library_the_command_names_the_extra_that_brings_it(
    hpq_process, tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text(_CONTEXTS + "current-context: op")
    missing = "raise ModuleNotFoundError('No module', name='kubernetes')"
    (tmp_path / "kubernetes.py").write_text(missing)
    own = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HPQ_REDIS_URL": ""}
    done = hpq_process("connect", PYTHONPATH=str(tmp_path), **own)
    assert "pip install kubernetes" in done.stderr and done.stderr.count("\n") == 1
    assert done.returncode == 2


SECRETS = {
    "hpq-code-key": {"key": "key of the cluster, which sweeps have"},
    "hpq-redis-users": {"users.acl": "user hpq-worker on #1\nuser hpq-user-ana on #2\n"},
}


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = SECRETS[self.path.rpartition("/")[2]]
        data = {key: base64.b64encode(text.encode()).decode() for key, text in found.items()}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"data": data}).encode())


def test_new_passwords_from_another_machine_keep_the_code_key_and_the_people(
    hpq_process, tmp_path: Path
) -> None:
    """Workers refuse all sweeps of a key that was replaced."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        Thread(target=server.serve_forever).start()
        text = _CONTEXTS.replace("https://127.0.0.1:1", f"http://127.0.0.1:{server.server_port}")
        (tmp_path / "kubeconfig").write_text(f"{text}current-context: op")
        own = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
        for new in ("", "another, of 16 letters"):
            done = hpq_process("manifests", "--secrets", HPQ_CODE_KEY=new, **own)
            made = {o["metadata"]["name"]: o for o in yaml.safe_load_all(done.stdout)}
            key = SECRETS["hpq-code-key"]["key"]
            assert made["hpq-code-key"]["stringData"]["key"] == (new or key), done.stderr
            lines = made["hpq-redis-users"]["stringData"]["users.acl"].splitlines()
            assert "user hpq-user-ana on #2" in lines and "user hpq-worker on #1" not in lines
        server.shutdown()
