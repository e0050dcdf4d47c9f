"""A store behind a URL, on this disk: `plain://FOLDER`, by a kind of file system of fsspec.

hpq opens `file://` itself. This kind stands in for the clouds': hpq knows it by fsspec alone.
"""

from __future__ import annotations

from pathlib import Path

_MODULE = """
from fsspec.implementations.local import LocalFileSystem

class Plain(LocalFileSystem):
    protocol = "plain"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("plain://"))
"""


def install(folder: Path) -> dict[str, str]:
    """Write the kind into a folder; return the environment in which fsspec finds it."""
    about = folder / "plain-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "plain_url_fs.py").write_text(_MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fsspec.specs]\nplain = plain_url_fs:Plain\n")
    return {"PYTHONPATH": str(folder)}
