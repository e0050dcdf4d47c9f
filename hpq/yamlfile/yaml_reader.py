"""Parse a file's YAML strictly into plain data and the position of each value.

The reader builds the data from PyYAML's events, which have positions. It limits the depth, the
number of values and the expansion of aliases. It rejects duplicate keys, and tags other than
`!!float`, which W&B's pages recommend. Unquoted words follow YAML 1.2's core schema (`1e-3` is a
number, dates are text), except that on, off, yes and no are booleans, and `1_000`, `012` and `1:30`
are the numbers 1000, 10 and 90, as in W&B's loader.

An error names a place and quotes nothing: the file may be another one than was meant, with secrets
(`document.known_document`).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from hpq.domain.trial import Json, JsonScalar
from hpq.errors import SweepFileError
from hpq.yamlfile.problems import KeyPath, Position, SourceMap, printable

MAX_DEPTH = 20
MAX_NODES = 150_000  # values in a file; a megabyte of hyperparam_set entries has about 70,000
MAX_ALIASED = 10_000  # values that aliases expand to
MAX_DIGITS = 300

_FLOAT_TAG = "tag:yaml.org,2002:float"
_MACRO = re.compile(r"""(?<!["'])\$\{""")
_TAB = re.compile(r" *\t")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_Loader: type = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset("true True TRUE on On ON yes Yes YES".split())
_FALSE = frozenset("false False FALSE off Off OFF no No NO".split())
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_INTEGER = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")

_OLD_BOOLEANS = re.compile(r"(?:on|off|yes|no)\Z", re.IGNORECASE)
# Numbers that YAML 1.1 alone knows: 1_000, 012, 0b11, 1:30. PyYAML, W&B's loader, reads them.
_OLD_NUMBERS = re.compile(r"[-+]?(?:0[0-7_]+|0b[01_]+|\.?[0-9]+[_:][0-9_:]*(?:\.[0-9_]*)?)\Z")
# The first part of a tuple: `[(3, 5)]` is a list of the texts `(3` and `5)`.
TORN_TUPLE = re.compile(r"\([^)]*\Z")
# Words that a person, or YAML 1.2, reads as another value.
AMBIGUOUS = re.compile(
    rf"(?:{_OLD_BOOLEANS.pattern})|[-+]?0[0-9]+\Z|[-+]?[1-9][0-9]*(?::[0-5]?[0-9])+\Z"
    rf"|{TORN_TUPLE.pattern}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data, its source map, and its `AMBIGUOUS` words as written."""

    data: Json
    source_map: SourceMap
    words: dict[KeyPath, str]


def parse(text: str, file: str) -> Document:
    """Parse a text of one YAML document.

    Raises:
        SweepFileError: the text is not YAML, or breaks a rule above (names the position).
    """
    try:
        return _Reader(text, file).document()
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, file, text.splitlines()) from None


def resolve(text: str) -> JsonScalar:
    """Return the value of an unquoted scalar.

    Raises:
        ValueError: the text is a number that is too large for a float or has too many digits.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    is_old, is_whole = _OLD_NUMBERS.match(text), _INTEGER.match(text)
    if (is_old or is_whole) and len(text) > MAX_DIGITS:
        raise ValueError(f"the number has {len(text)} digits; write at most {MAX_DIGITS}")
    if is_old and isinstance(number := yaml.safe_load(text), int | float):
        return number
    if is_whole:
        return int(text, 0 if text[1:2] in ("o", "x") else 10)
    if _FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError("the number is too large; write a number up to 1.8e308")
        return value
    return float(text.replace(".", "")) if _NOT_FINITE.match(text) else text


def reading(text: str) -> str:
    """Explain the value of an `AMBIGUOUS` word, and what to write instead."""
    if _OLD_BOOLEANS.match(text):
        value = "true" if text.lower() in ("on", "yes") else "false"
        return f"{text} without quotes is the boolean {value}; write '{text}' for text"
    if TORN_TUPLE.match(text):
        return f"YAML has no tuples, and this is the text '{text}'; write [3, 5] for (3, 5)"
    return f"{text} is the number {resolve(text)}; write {resolve(text)}, or '{text}' for text"


class _Reader:
    """Builds data and positions from PyYAML's events; recurses at most MAX_DEPTH deep."""

    def __init__(self, text: str, file: str) -> None:
        self.file, self.lines = file, text.splitlines()
        self.events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self.nodes = self.aliased = 0
        self.anchors: dict[str, tuple[Json, int]] = {}  # value, number of values in it
        self.positions: dict[KeyPath, Position] = {}
        self.words: dict[KeyPath, str] = {}

    def document(self) -> Document:
        next(self.events)  # the stream's start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise SweepFileError(f"{self.file}:1:1: the file is empty; write its keys")
        data = self.node(next(self.events), ())
        next(self.events)  # the document's end
        event = next(self.events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self.error(event, "a second document begins here; write one document")
        source_map = SourceMap(file=self.file, positions=self.positions)
        return Document(data=data, source_map=source_map, words=self.words)

    def node(self, event: yaml.Event, path: KeyPath, position: Position | None = None) -> Json:
        """Build the value that begins with an event; `position` is its key's, if it has a key."""
        self.positions[path] = position or _position(event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(event, f"more than {MAX_NODES:,} values; make the file smaller")
        if len(path) >= MAX_DEPTH:
            raise self.error(event, f"nested deeper than {MAX_DEPTH} levels; nest less")
        if event.tag and not (isinstance(event, yaml.ScalarEvent) and event.tag == _FLOAT_TAG):
            raise self.error(event, "the tag is not supported; remove it")
        first = self.nodes
        value: Json
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event, path)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self.mapping(path)
        else:
            value = []
            while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
                value.append(self.node(item, (*path, len(value))))
        if event.anchor:
            self.anchors[event.anchor] = value, self.nodes - first + 1
        return value

    def alias(self, event: yaml.AliasEvent) -> Json:
        """Copy the value of an anchor."""
        if event.anchor not in self.anchors:
            raise self.error(event, "the alias has no anchor above it")
        value, nodes = self.anchors[event.anchor]
        self.aliased += nodes
        self.nodes += nodes
        if self.aliased > MAX_ALIASED:
            raise self.error(event, f"aliases expand to more than {MAX_ALIASED:,} values")
        return copy.deepcopy(value)

    def mapping(self, path: KeyPath) -> dict[str, Json]:
        out: dict[str, Json] = {}
        merged: list[tuple[Position, dict[str, Json]]] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag:
                raise self.error(event, "a key must be a plain word")
            key, key_path = event.value, (*path, event.value)  # `on:` is 'on'
            if key == "<<" and not event.style:
                merged += [(_position(event), one) for one in self.merged(event, key_path)]
                continue
            if not key:
                raise self.error(event, "a key is empty; write a word before the colon")
            if key in out:
                what = f"duplicate key, first in line {self.positions[key_path][0]}"
                raise self.error(event, f"{what}; remove one")
            out[key] = self.node(next(self.events), key_path, _position(event))
        for position, more in merged:  # the mapping's own keys win, then those of earlier merges
            for key in more.keys() - out.keys():
                self.positions[(*path, key)] = position
            out = more | out
        return out

    def merged(self, key: yaml.Event, path: KeyPath) -> Iterator[dict[str, Json]]:
        """Yield the mappings of a merge key: one, or a list of them."""
        value = self.node(next(self.events), path)
        for mapping in value if isinstance(value, list) else [value]:
            if not isinstance(mapping, dict):
                raise self.error(key, "<< merges mappings; write an alias of one, such as *name")
            yield mapping

    def scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> JsonScalar:
        text = event.value
        if event.style and not event.tag:
            return text
        assert event.start_mark is not None and event.end_mark is not None
        for number in range(event.start_mark.line + 1, event.end_mark.line + 1):
            if number < len(self.lines) and _TAB.match(self.lines[number]):
                raise _tab(self.file, self.lines, number)
        try:
            value = resolve(text)
        except ValueError as error:
            raise self.error(event, str(error)) from None
        if event.tag:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.error(event, "not a number, as its tag requires")
            return float(value)
        if AMBIGUOUS.match(text):
            self.words[path] = text
        return value

    def error(self, event: yaml.Event, text: str) -> SweepFileError:
        line, col = _position(event)
        return SweepFileError(printable(f"{self.file}:{line}:{col}: {text}"))


def _position(event: yaml.Event) -> Position:
    assert event.start_mark is not None
    return event.start_mark.line + 1, event.start_mark.column + 1


def _tab(file: str, lines: list[str], number: int) -> SweepFileError:
    """Make the error of a line (from 0) that is indented with a tab."""
    col = lines[number].index("\t") + 1
    return SweepFileError(f"{file}:{number + 1}:{col}: the line is indented with a tab; use spaces")


def _not_yaml(error: yaml.MarkedYAMLError, file: str, lines: list[str]) -> SweepFileError:
    """Make one line with a hint from the parser's error."""
    mark, above = error.problem_mark or error.context_mark, error.context_mark
    if mark is None:
        return SweepFileError(f"{file}:1:1: not YAML")
    for number in range(max(0, mark.line - 1), min(mark.line + 1, len(lines))):
        if _TAB.match(lines[number]):
            return _tab(file, lines, number)
    # PyYAML's own parser quotes a character or a handle; libyaml quotes nothing.
    what = "not YAML: " + _QUOTED.sub("…", error.problem or "")
    if error.context and above is not None:
        what += f" {error.context} of line {above.line + 1}"
    near = "\n".join(lines[(above or mark).line : mark.line + 1])
    hint = "check the indentation, brackets and quotes"
    if _MACRO.search(near):
        hint = 'inside [ ] write "${…}" with quotes'
    where = f"{file}:{mark.line + 1}:{mark.column + 1}"
    return SweepFileError(printable(f"{where}: {what}; {hint}"))


def unquoted(value: Json) -> str:
    """Return how to write a text that looks like a number as one; "" for any other value."""
    if not isinstance(value, str):
        return ""
    bare = value.replace("_", "")
    try:
        number = resolve(bare)
    except ValueError:
        return ""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return ""
    return "; write it without quotes" if bare == value else f"; write {bare}"
