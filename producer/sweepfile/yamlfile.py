"""Strict YAML with positions: text -> data, and where each part of it stands.

Imported by overrides and spec. It reads events, not Python objects: nothing is constructed, no tag
is obeyed (but `!!float`, which W&B's pages tell people to write), no key is taken twice, and depth,
the number of values and what aliases unfold to are bounded before they cost anything.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from hpq.errors import SweepFileError
from hpq.trial import Json
from producer.sweepfile.problems import Path, Places, Position, printable
from producer.sweepfile.scalars import DOUBTFUL, resolve

MAX_DEPTH = 20
MAX_NODES = 150_000  # values in a file; a megabyte of the article's sets has about 70,000
MAX_ALIASED = 10_000  # values that aliases may unfold to

_FLOAT_TAG = "tag:yaml.org,2002:float"
_MACRO = re.compile(r"""(?<!["'])\$\{""")
_TAB = re.compile(r" *\t")
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data, where its parts stand, and words as written that others read otherwise."""

    data: Json
    places: Places
    words: dict[Path, str]


def parse(text: str, file: str) -> Document:
    """The one document in a text.

    Raises:
        SweepFileError: it is not YAML, or not of the kind that a sweep file may be (says where).
    """
    builder = _Builder(file=file, lines=text.splitlines(), events=_events(text))
    try:
        data = builder.document()
    except yaml.MarkedYAMLError as error:
        raise builder.not_yaml(error) from None
    places = Places(file=file, positions=builder.positions)
    return Document(data=data, places=places, words=builder.words)


def _events(text: str) -> Iterator[yaml.Event]:
    return iter(yaml.parse(text, Loader=_Loader))


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Turns events into data; the recursion is as deep as the file, which is at most 20."""

    file: str
    lines: list[str]
    events: Iterator[yaml.Event]
    positions: dict[Path, Position] = field(default_factory=dict)
    words: dict[Path, str] = field(default_factory=dict)
    anchors: dict[str, tuple[Json, int]] = field(default_factory=dict)
    nodes: int = 0
    aliased: int = 0

    def document(self) -> Json:
        """The file's only document."""
        next(self.events)  # the stream's start
        event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            raise SweepFileError(f"{self.file}:1:1: empty; write a method and parameters")
        event = next(self.events)
        self.positions[()] = _position(event)
        data = self.node(event, (), 1)
        next(self.events)  # the document's end
        event = next(self.events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self.error(event, "a second document begins here; a sweep file holds one")
        return data

    def node(self, event: yaml.Event, path: Path, depth: int) -> Json:
        """The value that begins with an event."""
        assert isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(event, f"more than {MAX_NODES:,} values; make the file smaller")
        if depth > MAX_DEPTH:
            raise self.error(event, f"nested deeper than {MAX_DEPTH} levels")
        first = self.nodes
        value: Json
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event, path)
        else:
            assert isinstance(event, yaml.CollectionStartEvent)
            if event.tag:
                raise self.error(event, f"tag {event.tag} is not taken; remove it")
            inside = self.mapping if isinstance(event, yaml.MappingStartEvent) else self.sequence
            value = inside(path, depth)
        if event.anchor:
            self.anchors[event.anchor] = value, self.nodes - first + 1
        return value

    def alias(self, event: yaml.AliasEvent) -> Json:
        """A copy of what an anchor named, within the budget."""
        if event.anchor not in self.anchors:
            raise self.error(event, f"alias *{event.anchor} names nothing that ended above it")
        value, nodes = self.anchors[event.anchor]
        self.aliased += nodes
        self.nodes += nodes
        if self.aliased > MAX_ALIASED:
            raise self.error(event, f"aliases unfold to more than {MAX_ALIASED:,} values")
        return copy.deepcopy(value)

    def mapping(self, path: Path, depth: int) -> Json:
        """The mapping whose first key comes next."""
        out: dict[str, Json] = {}
        merged: list[tuple[Position, dict[str, Json]]] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event)
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and not event.style:
                merged += self.merge(event, path, depth)
                continue
            if key in out:
                line = self.positions[(*path, key)][0]
                raise self.error(
                    event, f"key {key!r} is there twice, first in line {line}; remove one"
                )
            self.positions[(*path, key)] = _position(event)
            out[key] = self.node(next(self.events), (*path, key), depth + 1)
        for position, more in merged:  # what stands there itself goes before what is merged
            for key in more.keys() - out.keys():
                self.positions[(*path, key)] = position
            out = {**more, **out}
        return out

    def merge(
        self, event: yaml.Event, path: Path, depth: int
    ) -> Iterator[tuple[Position, dict[str, Json]]]:
        """The mappings that a merge key names: one, or a list of them, the first of which wins."""
        value = self.node(next(self.events), (*path, "<<"), depth + 1)
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise self.error(event, "<< merges mappings; write an alias of one, such as *name")
            yield _position(event), one

    def key(self, event: yaml.Event) -> str:
        """A key as the text that stands there (so `on:` is 'on')."""
        if not isinstance(event, yaml.ScalarEvent) or event.tag:
            raise self.error(event, "a key has to be a plain word")
        if not event.value:
            raise self.error(event, "a key is empty; write a word before the colon")
        return str(event.value)

    def sequence(self, path: Path, depth: int) -> Json:
        """The list whose first item comes next."""
        out: list[Json] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            here = (*path, len(out))
            self.positions[here] = _position(event)
            out.append(self.node(event, here, depth + 1))
        return out

    def scalar(self, event: yaml.ScalarEvent, path: Path) -> Json:
        """The value of a scalar; what is quoted is text."""
        text = str(event.value)
        if event.tag and event.tag != _FLOAT_TAG:
            raise self.error(event, f"tag {event.tag} is not taken; remove it")
        if event.style and not event.tag:
            return text
        start, end = _position(event)[0] - 1, self.last_line(event)
        for number in range(start + 1, end + 1):
            if _TAB.match(self.lines[number]):
                raise self.tab(number)
        try:
            value = resolve(text)
        except ValueError as error:
            raise self.error(event, str(error)) from None
        if event.tag:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.error(event, f"{text!r} is not a number, as its tag says")
            return float(value)
        if DOUBTFUL.match(text):
            self.words[path] = text
        return value

    def last_line(self, event: yaml.Event) -> int:
        """The line, counted from 0, that an event ends in."""
        assert event.end_mark is not None
        return min(event.end_mark.line, len(self.lines) - 1)

    def error(self, event: yaml.Event, text: str) -> SweepFileError:
        """An error where an event begins."""
        line, col = _position(event)
        return SweepFileError(printable(f"{self.file}:{line}:{col}: {text}"))

    def tab(self, number: int) -> SweepFileError:
        """The error of a line (counted from 0) that is indented with a tab."""
        col = self.lines[number].index("\t") + 1
        what = "indented with a tab; YAML wants spaces"
        return SweepFileError(f"{self.file}:{number + 1}:{col}: {what}")

    def not_yaml(self, error: yaml.MarkedYAMLError) -> SweepFileError:
        """The parser's complaint as a line of ours."""
        mark = error.problem_mark or error.context_mark
        if mark is None:
            return SweepFileError(f"{self.file}:1:1: not YAML: {error.problem}")
        for number in range(max(0, mark.line - 1), mark.line + 1):
            if number < len(self.lines) and _TAB.match(self.lines[number]):
                return self.tab(number)
        what = f"not YAML: {error.problem}"
        if error.context and error.context_mark is not None:
            what += f" {error.context} of line {error.context_mark.line + 1}"
        first = error.context_mark.line if error.context_mark is not None else mark.line
        near = "\n".join(self.lines[first : mark.line + 1])
        what += (
            '; inside [ ] write "${…}" with quotes'
            if _MACRO.search(near)
            else ("; look at the indentation, brackets and quotes")
        )
        return SweepFileError(printable(f"{self.file}:{mark.line + 1}:{mark.column + 1}: {what}"))


def _position(event: yaml.Event) -> Position:
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1
