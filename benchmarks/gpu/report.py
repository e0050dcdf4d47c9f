"""What a run on a GPU has found so far: on the terminal as it comes, and in two files."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.table import as_json, text


@dataclass(slots=True, kw_only=True)
class _Section:
    what: str
    rows: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    took_s: float | None = None  # until it ends


class Report:
    """Sections, one after another; each row is in the files once it is said."""

    def __init__(
        self, *, about: dict[str, str | int], parity: dict[str, list[float]], out: Path
    ) -> None:
        self._about, self._parity, self._out = about, parity, out
        self._sections: dict[str, _Section] = {}
        self._name = ""
        print(self._head(), flush=True)

    def begin(self, name: str, what: str) -> None:
        """The rows and notes that follow are of this section."""
        self._name = name
        self._sections[name] = _Section(what=what)
        print(f"{name} …", file=sys.stderr, flush=True)

    def row(self, figure: Figure) -> None:
        """A figure; it is said at once."""
        self._sections[self._name].rows.append(figure)
        self._write()
        print(f"  {figure.what}: {figure.median:.4g} {figure.unit}", file=sys.stderr, flush=True)

    def note(self, line: str) -> None:
        """What is to be said beside the figures: what failed, or was skipped."""
        self._sections[self._name].notes.append(line)
        self._write()
        print(f"  {line}", file=sys.stderr, flush=True)

    def end(self, took_s: float) -> None:
        """Print the section, and write all there is."""
        self._sections[self._name].took_s = took_s
        print(self._table(self._name), flush=True)
        self._write()

    def _write(self) -> None:
        tables = "\n".join(self._table(name) for name in self._sections)
        _replace(self._out / "gpu.md", f"{self._head()}\n{tables}")
        _replace(self._out / "gpu.json", self.as_json() + "\n")

    def as_json(self) -> str:
        """Everything so far, with each value, the notes, and the seeds that parity goes on from."""
        rows = {name: section.rows for name, section in self._sections.items()}
        notes = {name: s.notes for name, s in self._sections.items() if s.notes}
        whole = json.loads(as_json(self._about, rows))
        return json.dumps({**whole, "notes": notes, "parity": self._parity}, indent=2)

    def _head(self) -> str:
        return "".join(f"- {key}: {value}\n" for key, value in self._about.items())

    def _table(self, name: str) -> str:
        section = self._sections[name]
        took = "not ended" if section.took_s is None else f"{section.took_s:.0f} s"
        line = f"{section.what} ({took})"
        table = text(name, line, section.rows) if section.rows else f"**{name}**: {line}\n"
        return table + "".join(f"\n- {note}\n" for note in section.notes)


def _replace(path: Path, content: str) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(content, "utf-8")
    draft.replace(path)
