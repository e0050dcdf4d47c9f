"""The notebook in examples/ runs from its first cell to its last; its kernel is this Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.constants import DEADLINE_S, ROOT
from tests.support.desk import Desk

EXAMPLE = ROOT / "examples" / "notebook"
# A process of its own, since Jupyter's packages warn of sockets that they leave open.
RUN = """
import nbclient, nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

notebook = nbformat.read("sweep.ipynb", as_version=4)
own = KernelSpecManager(kernel_dirs=[])  # no kernel of this machine but this Python
# Sockets in this directory: a free port may be taken before the kernel binds it.
kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=own, transport="ipc")
client = nbclient.NotebookClient(
    notebook, km=kernel, timeout={timeout}, startup_timeout={timeout}
)
client.execute()
nbformat.write(notebook, "done.ipynb")
"""


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_runs_and_shows_tables_and_figures(desk: Desk) -> None:
    folder = shutil.copytree(EXAMPLE, desk.folder / "notebook")
    words = [sys.executable, "-W", "ignore", "-c", RUN.format(timeout=int(DEADLINE_S))]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    shown = [cell["outputs"][-1]["data"] for cell in code_cells(folder / "done.ipynb")]
    sweep, counts, best, trials, frame, history, slices, curves, attempts = (
        {kind: "".join(text) if isinstance(text, list) else text for kind, text in data.items()}
        for data in shown
    )
    assert "<td>waiting</td>" in sweep["text/html"] and "'finished': 12" in counts["text/plain"]
    assert "'lr': 0.1" in best["text/plain"] and "'width': 256" in best["text/plain"]
    assert trials["text/html"].count("<tr>") == 6 and "loss" in trials["text/plain"]
    assert "param.width" in frame["text/html"] and "12" in history["text/html"]
    for figure in (slices, curves):
        assert figure["application/vnd.plotly.v1+json"]["data"]
    assert "Attempt(number=1" in attempts["text/plain"]


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = code_cells(EXAMPLE / "sweep.ipynb")
    assert cells and not any(cell["outputs"] or cell["execution_count"] for cell in cells)
