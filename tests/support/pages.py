"""Read the fenced blocks of a page, and run them in a shell as a reader would.

The words after a block's language select how it is run:

    ```sh                 typed into the reader's shell
    ```sh NAME            typed on another machine, with a home and a user of its own
    ```sh NAME stays      the same; its last command does not end
    ```sh cluster         typed by tests/cluster, without the page's other commands
    ```sh image           not typed: builds and pushes an image
    ```python FILE        written to FILE, like yaml FILE
    ```text               output: not typed
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.constants import ROOT

FENCE = re.compile(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    ROOT / "producer" / "hpq_producer" / "commands" / "mcp" / "SKILL.md",
]
FIRST = ROOT / "docs" / "tutorial" / "first-sweep.md"
OUTPUT = "text"


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    words: tuple[str, ...]
    text: str

    @property
    def is_file(self) -> bool:
        """Return whether the reader saves the block as a file."""
        return self.language not in ("sh", OUTPUT)

    @property
    def machine(self) -> str:
        """Return where a block of commands is typed; empty for the reader's own shell."""
        return self.words[0] if self.words else ""

    @property
    def stays(self) -> bool:
        """Return whether the last command of the block keeps running until the page ends."""
        return self.words[1:] == ("stays",)


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order, after the files that it borrows."""
    found = FENCE.findall(page.read_text("utf-8"))
    here = [Block(language, tuple(words.split()), text) for language, words, text in found]
    return [*(block for block in blocks(FIRST) if block.is_file), *here] if borrows(page) else here


def borrows(page: Path) -> bool:
    """Return whether a page uses the files of First sweep."""
    return "those of [First sweep](first-sweep.md)" in page.read_text("utf-8")


def script(page: list[Block], folder: Path, *, cluster: bool, changed: Mapping[str, str]) -> str:
    """Return the commands of a page as one bash script.

    Each other machine has a home under `folder`. `changed` maps text that a reader replaces, such
    as a host name.
    """
    out = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for block in page:
        text = block.text
        for old, new in changed.items():
            text = text.replace(old, new)
        if block.language != "sh":
            if block.words:
                name = shlex.quote(block.words[0])
                out.append(f"cat >{name} <<'END-OF-BLOCK'\n{text}END-OF-BLOCK")
        elif block.machine == "image" or cluster != (block.machine == "cluster"):
            continue
        elif block.machine in ("", "cluster"):
            out.append(text)
        else:
            home = shlex.quote(str(folder / block.machine))
            user = shlex.quote(block.machine)
            own = f"HOME={home} USER={user} LOGNAME={user}"
            there = f"mkdir -p {home} && cd {home} && unset ${{!HPQ_*}} && {own}"
            line = f"({there} exec bash -euo pipefail -c {shlex.quote(text)})"
            out.append(f"{line} &" if block.stays else line)
    return "\n".join(out)


def typed(text: str, folder: Path, env: Mapping[str, str], deadline_s: float) -> str:
    """Run a script in an empty home and return its output; every command must succeed."""
    home = folder / "home"
    (home / "work").mkdir(parents=True, exist_ok=True)
    path, log = folder / "page.sh", folder / "page.log"
    path.write_text(text)
    late = ""
    with log.open("wb") as file:  # a pipe would stay open while any process of the page runs
        try:
            done = subprocess.run(
                ["bash", "-x", path], cwd=home / "work", env={**env, "HOME": str(home)},
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                timeout=deadline_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            late = f"\nnot done after {deadline_s:.0f} s"
    output = log.read_text("utf-8", "replace")
    assert not late and done.returncode == 0, output[-6000:] + late
    return output
