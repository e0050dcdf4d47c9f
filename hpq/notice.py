"""A notice: a line of text for the user, with an id that scripts and tests read."""

from __future__ import annotations

from dataclasses import dataclass

from hpq.error_ids import Code


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the user: its id, and a line of text with the remedy."""

    code: Code
    text: str

    def __str__(self) -> str:
        return tagged(self.text, self.code)

    def record(self) -> dict[str, str]:
        """Return the notice as `--json` shows it."""
        return {"code": self.code, "message": self.text}


def plural(count: float, noun: str, many: str = "") -> str:
    """Return a noun as it follows a count: `trial` after 1, else `trials`, or `many`."""
    return noun if count == 1 else many or f"{noun}s"


def tagged(text: str, code: Code) -> str:
    """Return a line as it is printed: the text, then the id in brackets."""
    return f"{text} [{code}]"
