"""A kubeconfig that cannot be used, as the user meets it: one line, no cluster is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    hpq_process, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "kubeconfig").write_text("")
    (tmp_path / "sweep.yaml").write_text(
        "trainer: digits\nmetric: {name: loss, goal: minimize}\nmethod: grid\n"
        "parameters: {epochs: {value: 1}}\n"
    )
    private = {"HPQ_REDIS_URL": "", "COLUMNS": "300"}
    assert hpq_process("enqueue", "sweep.yaml", **private).returncode == 0
    apart = "hpq connect"  # the cluster's, beside the private Redis
    beside = hpq_process(*words, KUBECONFIG=str(tmp_path / "kubeconfig"), **private)
    assert apart in beside.stdout + beside.stderr
    alone = hpq_process(*words, KUBECONFIG=str(tmp_path / "none"), **private)
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
