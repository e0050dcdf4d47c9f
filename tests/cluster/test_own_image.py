"""The recipe of docs/images.md: hpq in somebody's own image, whose torch stays as it was."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cluster import kube
from tests.cluster.conftest import MakeNamespace
from tests.cluster.kube import ROOT, Cluster

OURS = """
FROM docker.io/library/python:3.11-slim
RUN python3 -m venv /opt/ours && cd /opt/ours/lib/python3*/site-packages \\
 && mkdir torch torch-1.13.1.dist-info && cd torch-1.13.1.dist-info \\
 && echo '__version__ = "1.13.1+ours"' >../torch/__init__.py \\
 && printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 1.13.1\\n' >METADATA
ENV PATH=/opt/ours/bin:$PATH
"""


def recipe() -> str:
    """The lines that the page adds below its FROM."""
    page = (ROOT / "docs" / "images.md").read_text("utf-8")
    found = re.search(r"FROM registry.example/ours:cuda12\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def test_three_lines_add_hpq_to_an_image_and_leave_its_torch_alone(
    cluster: Cluster, make_namespace: MakeNamespace, tmp_path: Path
) -> None:
    wheel = ["wheel", "--quiet", "--no-deps", "-w", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *wheel], check=True)
    (tmp_path / "Dockerfile").write_text(OURS + recipe(), "utf-8")
    image = kube.build(cluster, f"ours:{kube.content_tag()}", folder=tmp_path)
    namespace = make_namespace()
    namespace.deploy(image)
    (pod,) = namespace.wait_ready(1)
    said = namespace.kubectl(
        "exec", pod, "--", "python", "-c", "import torch; print(torch.__version__)"
    )
    assert said.strip() == "1.13.1+ours"
    assert "torch is not installed" not in namespace.kubectl("logs", pod)
