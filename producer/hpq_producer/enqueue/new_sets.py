"""Read and check given parameter sets for an existing sweep: words, Python mappings, or a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from hpq.access.session import Session
from hpq.code.signing import RowSigner
from hpq.domain.sweep import SweepView
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Json, Params, TrialView
from hpq.errors import SweepFileError, UserError
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import check_text, known_document, read
from hpq.yamlfile.problems import KeyPath, Problems, SourceMap, shown
from hpq.yamlfile.yaml_reader import Document
from hpq_producer.enqueue.draw_sets import SetDrawer
from hpq_producer.enqueue.starts import read_parents, start_at
from hpq_producer.enqueue.sweep_space import MOST, NewSets, SweepSpace
from hpq_producer.sweepfile import parameters
from hpq_producer.sweepfile.check_code import check_known
from hpq_producer.sweepfile.conditions import add_unknown
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.parameters import ENTRY
from hpq_producer.sweepfile.points import Point, PointRules, read_point, read_points

_SWEEP_KEYS = ("method", "parameters")
_FORM = "{lr: 0.1, momentum: 0.9}"
_NO_SETS = (
    "neither parameter sets of this sweep nor a sweep file; write a list such as - {lr: 0.1}, or a"
    " grid such as lr: [0.1, 0.01]"
)


class SetReader:
    """Reads parameter sets for one sweep, by the rules of its sweep file.

    With `start_from` (`starts.read_parents`), each set is read once for each of these trials: it
    begins at the checkpoint of that trial, and has its value of every parameter that the set lacks.

    Raises:
        UserError: this machine's key did not sign the sweep, or it only repeats trials of another;
            or as `read_parents`.
        NotFound: as `read_parents`.
    """

    def __init__(
        self,
        session: Session,
        sweep: SweepView,
        *,
        may_be_outside: bool = False,
        start_from: int | str | None = None,
    ) -> None:
        self._may_be_outside = may_be_outside
        self.signer = RowSigner.required(session.settings, sweep)
        parents: Sequence[TrialView] = ()
        if start_from is not None:
            parents = read_parents(session, sweep, str(start_from))
        self._parents = parents
        self._space = SweepSpace.of(sweep)
        self._trainer = BUILT_IN.get(sweep.launch.trainer)
        self._drawer = SetDrawer(session, self._space)

    def words(self, words: Sequence[str]) -> NewSets:
        """Read one set from NAME=VALUE words.

        Raises:
            UserError: a word has no '=', or a name comes twice.
            SweepFileError: the set is not of the sweep's space.
        """
        values: dict[str, Json] = {}
        flags: dict[tuple[str | int, ...], str] = {}
        for text in words:
            name, equals, value = text.partition("=")
            if not (equals and name):
                raise UserError(f"{text}: write NAME=VALUE, e.g. lr=0.01")
            if name in values:
                raise UserError(f"{text}: {name} has two values; remove one")
            check_text(value, text)
            values[name] = yaml_reader.parse(value or "''", text).data
            flags[(name,)] = text
        return self._checked([values], SourceMap(file="add", flags=flags), is_one=True)

    def mappings(self, sets: Sequence[Params]) -> NewSets:
        """Read sets of Python.

        Raises:
            SweepFileError: a set is not of the sweep's space.
        """
        data: list[Json] = [dict(one) if isinstance(one, Mapping) else one for one in sets]
        return self._checked(data, SourceMap(file="add"))

    def file(self, path: Path, count: int | None = None) -> NewSets:
        """Read a file: a list of sets, a grid of values, or a sweep file, of which N are drawn.

        Raises:
            SweepFileError: the file is invalid, or a set is not of the sweep's space.
        """
        text = read(path)
        keys = (*self._space.names(), *_SWEEP_KEYS)
        document = known_document(
            text, str(path), keys, _NO_SETS, code="sweep-file-invalid", may_be_list=True
        )
        data = document.data
        if isinstance(data, dict) and not data.keys().isdisjoint(_SWEEP_KEYS):
            return self._drawer.of_file(load(path, limit=None), text, count)
        if count is not None:
            raise UserError(f"--count draws from a sweep file; {path} lists parameter sets")
        if isinstance(data, dict):
            return self._checked([*_combinations(data, path)], SourceMap(file=str(path)))
        return self._checked(_unwrapped(data), _without_entries(document))

    def draws(self, count: int) -> NewSets:
        """Draw sets, as `SetDrawer.of_sweep`."""
        return self._drawer.of_sweep(count)

    def _checked(self, data: list[Json], source_map: SourceMap, *, is_one: bool = False) -> NewSets:
        """Check given sets; `is_one`: their paths have no index."""
        self._space.check_count(len(data) * max(1, len(self._parents)))
        out = Problems(source_map)
        points: tuple[Point, ...] = ()
        for parent in self._parents or (None,):
            points += self._read(data, out, parent, is_one=is_one)
            out.raise_errors()  # those of the next parent would be the same
        notes = tuple(warning.text for warning in out.sorted_warnings())
        return NewSets(points=points, varying=self._space.varying(points), notes=notes)

    def _read(
        self, data: list[Json], out: Problems, parent: TrialView | None, *, is_one: bool
    ) -> tuple[Point, ...]:
        """Read the sets, which begin at the checkpoint of a parent if there is one."""
        inherited = parent.params if parent else None
        search = self._space.search
        if search is None:
            if inherited:
                data = [{**inherited, **one} if isinstance(one, dict) else one for one in data]
            points = self._checked_list(data, out, is_one=is_one)
        else:
            rules = PointRules(
                search.space,
                self._space.is_grid,
                self._may_be_outside,
                parent=inherited,
                remedy="; `hpq add --outside` allows it",
            )
            if is_one:
                points = tuple(filter(None, [read_point(data[0], (), rules, out)]))
            else:
                points = read_points(data, rules, out, ())
            self._check_trainer(points, out)
        if parent is None:
            return points
        start = start_at(parent)
        return tuple(one._replace(params=one.params.started_at(start)) for one in points)

    def _checked_list(self, data: list[Json], out: Problems, *, is_one: bool) -> tuple[Point, ...]:
        """Check sets for a sweep that lists its own: any value, but no unknown name.

        They have each name that all sets of the list have, unless they may be outside.
        """
        known: dict[tuple[str, ...], None] = {(name,): None for name in self._space.names()}
        required = [
            name for (name,) in known if all(name in params for params in self._space.listed)
        ]
        found: dict[bytes, Point] = {}
        for index, item in enumerate(data):
            path: KeyPath = () if is_one else (index,)
            if not isinstance(item, dict) or not item:
                out.add(path, f"{shown(item)} is not a mapping; write {_FORM}")
                continue
            unknown = [name for name in item if known and (name,) not in known]
            for name in unknown:
                add_unknown((*path, name), name, known, out)
            if unknown:
                continue
            lacking = [name for name in required if name not in item]
            for name in lacking if not self._may_be_outside else ():
                what = f"lacks {name}, which every set of the sweep has"
                out.add(path, f"{what}; `hpq add --outside` allows it", code="missing-parameter")
            params = parameters.read_set(item, self._trainer, path, out)
            if params is None:
                continue
            point = Point(params, is_outside=bool(lacking))
            if found.setdefault(params.identity, point) is not point:
                out.warn(path, "duplicate set; hpq runs it once", code="duplicate-set")
        if not data:
            out.add((), f"an empty list; write - {_FORM}")
        return tuple(found.values())

    def _check_trainer(self, points: Iterable[Point], out: Problems) -> None:
        """Report values that a built-in trainer rejects; those of the space were checked."""
        if self._trainer is None:
            return
        for point in points:
            for name, value in point.params.items() if point.is_outside else ():
                check_known(self._trainer, name, [((name,), value)], out)


def _combinations(data: Mapping[str, Json], path: Path) -> Iterator[Json]:
    """Yield the sets of a grid of values; the last name varies fastest.

    Raises:
        UserError: there are too many.
    """
    lists = [value if isinstance(value, list) else [value] for value in data.values()]
    if (total := math.prod(map(len, lists))) > MOST:
        text = f"{path}: {total:,} parameter sets, more than {MOST:,}; add them in several calls"
        raise UserError(text, code="too-many-sets")
    if not total:
        raise SweepFileError(f"{path}: a parameter without values; write at least one")
    for values in product(*lists):
        yield dict(zip(data, values, strict=True))


def _unwrapped(data: Json) -> list[Json]:
    """Return the sets of a list, which may be entries of a sweep file that lists its sets."""
    assert isinstance(data, list)
    return [item[ENTRY] if isinstance(item, dict) and [*item] == [ENTRY] else item for item in data]


def _without_entries(document: Document) -> SourceMap:
    """Return the positions of a list's sets without the key of an entry."""
    positions = {
        tuple(part for part in path if part != ENTRY): place
        for path, place in document.source_map.positions.items()
    }
    return replace(document.source_map, positions=positions)
