"""Format text and numbers for a terminal: clean, short, and within a width.

Pure. Every text that comes from Redis passes `clean` (or `clean_block`) before it is shown: names,
parameters, errors and logs are written by other people's programs and may hold escape sequences.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len, chop_cells

from hpq.domain.sweep import Counts
from hpq.domain.trial import Json
from hpq.notice import plural
from hpq.sanitize import CONTROL

# A whole escape sequence (CSI, OSC, other strings, two-character ones), so that no "[31m" remains.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)

_CONTROL_BUT_LINES = re.compile(CONTROL.pattern.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f"))

_ASCII = str.maketrans(
    {"…": "~", "·": "|", "–": "-", "—": "-", "↑": "^", "↓": "v", "−": "-", "×": "x", "●": "*"}
    | {"▁": "_", "▂": ".", "▃": "-", "▄": "~", "▅": "=", "▆": "+", "▇": "*", "█": "#"}
    | dict.fromkeys("▏▎▍▌", " ")
    | dict.fromkeys("▋▊▉◆", "#")
    | {"━": "=", "─": "-", "▲": "^", "▼": "v", "▶": ">", "◀": "<", "↵": "|", "■": "#", "±": "~"}
    | {chr(0x2800 + dots): "*" for dots in range(1, 256)}
)


def clean(text: str) -> str:
    """Return the text on one line, without escape sequences or control characters."""
    if text.isprintable():  # nearly all texts: no search for what is not there
        return text
    return CONTROL.sub(" ", _ESCAPE.sub("", text))


def clean_block(text: str) -> str:
    """Clean as `clean`, but keep lines and tabs; a carriage return begins a line."""
    if text.isprintable():
        return text
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL_BUT_LINES.sub("", text)


def to_ascii(text: str) -> str:
    """Return the text in ASCII, character by character, so that bars and curves stay readable."""
    if text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def width(text: str) -> int:
    """Return the width of the text in columns of a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, columns: int) -> str:
    """Cut the text to a number of columns; … marks a cut."""
    if width(text) <= columns:
        return text
    if columns < 2:
        return "…" if columns == 1 else ""
    return chop_cells(text, columns - 1)[0] + "…"


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """Cut the text, or fill it with blanks, to exactly a number of columns."""
    text = fit(text, columns)
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_WHOLE = 10  # columns: whole numbers up to here stay as they are, as 32 bits of a seed do


def is_number(text: str) -> bool:
    """True for a cell that is a number, which may be rounded but never cut."""
    return _NUMBER.fullmatch(text) is not None


@lru_cache(maxsize=4096)  # a live table rounds the same cells in each frame
def rounded(text: str, columns: int) -> str:
    """Round a number's text to a width but keep its exponent: 1.613e-5, 1.6e-5.

    Whole numbers of a usual length stay. Where not even one digit fits, it is one digit.
    """
    if len(text) <= columns or (text.lstrip("-").isdigit() and len(text) <= _WHOLE):
        return text
    short = ""
    for digits in (4, 3, 2, 1):
        for form in (f".{digits}g", f".{digits - 1}e"):
            short = re.sub(r"e([+-])0*", r"e\1", f"{float(text):{form}}").replace("e+", "e")
            if len(short) <= columns:
                return short
    return short


def narrowest(text: str) -> int:
    """Return the columns that a number needs for two of its digits."""
    return min(len(text), len(rounded(text, 0)) + 2)


def abbreviate(name: str, columns: int) -> str:
    """Shorten a name to `columns`: max_learning_rate, m_l_rate, mlr; then cut it."""
    words, left = re.split(r"([_./-])", name), width(name)
    for i in range(0, len(words) - 1, 2):
        if left <= columns:
            break
        left -= width(words[i][1:])
        words[i] = words[i][:1]
    short = "".join(words)
    if width(short) > columns and len(words) > 1:
        short = "".join(word[:1] for word in words[::2])
    return fit(short, columns)


def measure(value: float) -> str:
    """Format a metric with four digits, so that its column aligns: 0.8360, 8621."""
    return f"{value:#.4g}".rstrip(".") if 1e-4 <= abs(value) < 9999.5 else number(value)


def deviation(sd: float, mean: float) -> str:
    """Format a standard deviation to the last digit of its mean, but with two to four digits.

    0.0013 beside a mean of 0.9421, 12 beside 8621, 0.00042 beside 0.9421.
    """
    if not 1e-4 <= sd < 1e6:
        return number(float(f"{sd:.2g}"))
    shown, power = measure(mean), math.floor(math.log10(sd))
    places = 0 if "e" in shown else len(shown.partition(".")[2])
    return f"{sd:.{max(0, min(max(places, 1 - power), 3 - power))}f}"


def number(value: float) -> str:
    """Format a number in at most eight characters: 0.9426, 12.5, 1200, 1.2e-5, 1.2e7."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def value(param: Json) -> str:
    """Format a parameter, or any JSON value, on one line."""
    if isinstance(param, bool) or param is None:
        return json.dumps(param)
    if isinstance(param, int | float):
        return number(param) if isinstance(param, float) else str(param)
    return clean(param) if isinstance(param, str) else clean(json.dumps(param, ensure_ascii=False))


WHY_THINNED = "dropped, whole or in part, as the server was full"  # a log and curves


def trials_of(count: int, what: str = "trial") -> str:
    """`1 trial`, `3,000 trials`: counts have separators, identifiers and values have none."""
    return f"{count:,} {plural(count, what)}"


def first_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return clean(", ".join(names[:most])) + more


def failure_words(kind: str) -> str:
    """Return a kind of failure in words; filters and data use the kind itself."""
    return "program failed" if kind == "user_error" else kind.replace("_", " ")


def planned(counts: Counts) -> str:
    """Return the number of trials that will have ended, cancelled ones apart; ∞ without a limit."""
    return "∞" if counts.is_open_ended else f"{int(counts.progress[1]):,}"


def progress(counts: Counts) -> str:
    """Return `3/7`: how many trials ended, of those that will (`Counts.progress`)."""
    return f"{counts.progress[0]:,}/{planned(counts)}"


def duration(ms: float) -> str:
    """Milliseconds as 0.4s, 13s, 1m23s, 2h05m or 3d04h."""
    if ms < 0:
        return "0s"
    if 0 < ms < 950:
        return f"{max(0.1, ms / 1000):.1f}s"
    s = round(ms / 1000)
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02}s"
    minutes = round(s / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    hours = round(s / 3600)
    return f"{hours // 24}d{hours % 24:02}h"


def size(count: float) -> str:
    """Bytes as 512 B, 3.4 KiB, 120 MiB or 2.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def exact_seconds(ms: float) -> str:
    """Milliseconds as 2.31s, however many."""
    return f"{ms / 1000:.2f}s"
