"""Print records as JSON, YAML or CSV: the option `-o` of every command that prints data.

JSON and YAML are ASCII, so that no text in them can act on a terminal. In CSV, text that a
spreadsheet would run as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, TextIO

from hpq.domain.trial import Json
from hpq_views.text.text import clean_block

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # a spreadsheet runs a text that begins with one
_NUMBERS = (bool, int, float)  # a union in the call itself would be made anew for each cell


class Format(StrEnum):
    """The formats of -o; a table is a command's usual text."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"
    PARQUET = "parquet"  # of `hpq results`

    @property
    def is_data(self) -> bool:
        """True unless the command prints its usual text."""
        return self is not Format.TABLE


def show_data(value: Any, output: Format) -> None:
    """Print a record or a list of records; CSV and JSON Lines have a line for each."""
    if output in (Format.CSV, Format.JSONL):
        show_rows(value if isinstance(value, list) else [value], output)
    elif output is Format.YAML:
        # Here, since PyYAML is slow to import, and few commands print YAML.
        from hpq_views.text.yaml_text import to_yaml  # noqa: PLC0415

        print(to_yaml(json.loads(json.dumps(value))), end="")  # enumerations become texts
    else:
        print(json.dumps(value, indent=2, allow_nan=False))


def show_rows(rows: Iterable[Any], output: Format) -> None:
    """Print records; JSON has one record a line, printed as the iterator yields it."""
    if output is Format.CSV:
        cells = [dict(_cells(row)) for row in rows]
        return write_csv(sys.stdout, dict.fromkeys(name for row in cells for name in row), cells)
    if output is Format.JSONL:
        for row in rows:
            print(json.dumps(row, allow_nan=False))
        return None
    if output is not Format.JSON:
        return show_data(list(rows), output)
    ends = "["
    for row in rows:
        print(ends + "\n" + json.dumps(row, allow_nan=False), end="")
        ends = ","
    print("[]" if ends == "[" else "\n]")


def write_csv(file: TextIO, names: Collection[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV (RFC 4180) as the iterator yields them; a missing value is empty."""
    writer = csv.writer(file, lineterminator="\r\n")
    if names:
        writer.writerow(map(guard_formula, names))
    writer.writerows([cell(row.get(name)) for name in names] for row in rows)


def _cells(record: Mapping[str, Any], below: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a record by dotted name; a list is one cell of JSON."""
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _cells(value, f"{below}{name}.")
        else:
            yield f"{below}{name}", value


def cell(param: Json) -> Any:
    """Return a value as a cell: numbers and booleans unchanged, text guarded, the rest as JSON."""
    if param is None or isinstance(param, _NUMBERS):
        return param
    return guard_formula(param if isinstance(param, str) else json.dumps(param, ensure_ascii=False))


def guard_formula(text: str) -> str:
    """Return the text without control characters; an apostrophe precedes a formula."""
    text = clean_block(text)
    return f"'{text}" if text.startswith(_FORMULA) else text
