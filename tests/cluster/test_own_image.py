"""The recipe of docs/guides/kubernetes.md: hpq in your own image, whose torch stays as it was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import kube
from tests.cluster.place import Namespace
from tests.support.constants import ROOT

OURS = """
FROM docker.io/library/python:3.11-slim
RUN python3 -m venv /opt/ours && cd /opt/ours/lib/python3*/site-packages \\
 && mkdir torch torch-1.13.1.dist-info && cd torch-1.13.1.dist-info \\
 && echo '__version__ = "1.13.1+ours"' >../torch/__init__.py \\
 && printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 1.13.1\\n' >METADATA
ENV PATH=/opt/ours/bin:$PATH
"""
ASKED = "hpq --version && hpq worker; python -c 'import torch; print(torch.__version__)'"


def recipe() -> str:
    """The lines that the page adds below its FROM."""
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    found = re.search(r"FROM registry.example/ours:cuda12\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def pod(image: str) -> dict[str, object]:
    """One that is as restricted as a worker's, without a Redis."""
    container = {
        "name": "ours",
        "image": image,
        "command": ["sh", "-c", ASKED],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "cache", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours"}, "spec": spec}


@pytest.fixture
def ours(cluster: kube.Cluster, tmp_path: Path) -> str:
    """The image of the recipe: a fixture, since the limit of a test leaves no time to build it."""
    wheel = ["wheel", "--quiet", "--no-deps", "-w", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *wheel], check=True)
    (tmp_path / "Dockerfile").write_text(OURS + recipe(), "utf-8")
    return kube.build(cluster, f"ours:{kube.content_tag()}", folder=tmp_path)


def test_three_lines_add_hpq_to_an_image_and_leave_its_torch_alone(
    namespace: Namespace, ours: str
) -> None:
    namespace.kubectl("apply", "-f", "-", given=json.dumps(pod(ours)))
    is_over = lambda: namespace.get("pod", "ours")["status"]["phase"] == "Succeeded"  # noqa: E731
    kube.wait_for(is_over, "the end of the pod", tell=namespace.tell)
    said = namespace.kubectl("logs", "ours")
    assert said.rstrip().endswith("1.13.1+ours"), said
    assert "HPQ_REDIS_URL: " in said, said  # it starts, and asks for what it needs
    namespace.kubectl("delete", "pod", "ours")
