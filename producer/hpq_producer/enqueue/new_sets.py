"""Read and check parameter sets for an existing sweep.

The sets are words, Python mappings, a file, or draws. The space that they are checked against is in
the sweep's signed record, so that nothing unsigned in Redis becomes a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from pathlib import Path

from hpq.access.session import Session
from hpq.code.signing import RowSigner
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepView
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Json, Params, TrialView, flatten
from hpq.errors import SweepFileError, UserError
from hpq.search import samplers
from hpq.search.samplers import Search
from hpq.search.space import Space
from hpq.store.scripts import BATCH_ROWS
from hpq.store.wire.search import decode_search
from hpq.store.wire.sweep import encode_appended_file
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import check_text, known_document, read
from hpq.yamlfile.problems import KeyPath, Problems, SourceMap, dotted, shown
from hpq.yamlfile.yaml_reader import Document
from hpq_producer.enqueue.starts import read_parents, start_at
from hpq_producer.sweepfile import parameters
from hpq_producer.sweepfile.check_code import check_known
from hpq_producer.sweepfile.conditions import add_unknown
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.parameters import ENTRY, listed_sets
from hpq_producer.sweepfile.points import Point, PointRules, read_point, read_points
from hpq_producer.sweepfile.spec import LIST, SweepSpec, parameter_sets, points_first

MOST = 10_000  # trials of a call: about 0.2 s of the server
_SWEEP_KEYS = ("method", "parameters")
_FORM = "{lr: 0.1, momentum: 0.9}"
_NO_SETS = (
    "neither parameter sets of this sweep nor a sweep file; write a list such as - {lr: 0.1}, or a"
    " grid such as lr: [0.1, 0.01]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSets:
    """Checked parameter sets for a sweep; `file` is the record of the sweep file that has them.

    `redraw` draws others of those that are drawn, once the sweep has some of these.
    """

    points: tuple[Point, ...]
    varying: tuple[str, ...]
    file: str = ""
    notes: tuple[str, ...] = ()
    redraw: Callable[[], NewSets] | None = None


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
        self._session = session
        self._sweep = sweep
        self._may_be_outside = may_be_outside
        self.signer = RowSigner.required(session.settings, sweep)
        parents: Sequence[TrialView] = ()
        if start_from is not None:
            parents = read_parents(session, sweep, str(start_from))
        self._parents = parents
        self._search: Search | None = None
        if sweep.search:
            self._search = decode_search(sweep.id, sweep.search)
        elif sweep.method != LIST:
            raise UserError(f"{sweep.id} confirms trials of another sweep; add trials to that one")

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
        return self._checked([values], SourceMap(file="hpq add", flags=flags), is_one=True)

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
        keys = (*self._names(), *_SWEEP_KEYS)
        document = known_document(
            text, str(path), keys, _NO_SETS, code="sweep-file-invalid", may_be_list=True
        )
        data = document.data
        if isinstance(data, dict) and not data.keys().isdisjoint(_SWEEP_KEYS):
            return self._of_sweep_file(load(path, limit=None), text, count)
        if count is not None:
            raise UserError(f"--count draws from a sweep file; {path} lists parameter sets")
        if isinstance(data, dict):
            return self._checked([*_combinations(data, path)], SourceMap(file=str(path)))
        return self._checked(_unwrapped(data), _without_entries(document))

    def draws(self, count: int) -> NewSets:
        """Draw the next sets of the sweep's own sequence; of bayes, random ones.

        Raises:
            UserError: the sweep is a list, or has no room for a set in `count` trials.
        """
        search = self._search
        if search is None:
            text = f"{self._sweep.id} is a list of parameter sets, so none can be drawn"
            raise UserError(text, code="sets-listed")
        if self._sweep.method == "grid":
            is_shuffled = self._sweep.spec.get("order") == "shuffle"
            every = samplers.grid(search.space, shuffle=is_shuffled, seed=search.seed)
        else:
            every = samplers.random(search.space, None, search.seed)
        found = self._missing(every, count)
        drawn = self._drawn(found, count, self._sweep.varying)
        return replace(drawn, redraw=partial(self.draws, count))

    def _of_sweep_file(self, spec: SweepSpec, text: str, count: int | None) -> NewSets:
        """Read the sets of another sweep file: all of a grid, or N draws."""
        self._check_names(spec)
        if count is None and spec.method != "grid":
            raise UserError(f"{spec.method} draws its sets; write how many: --count N")
        if count is None:
            total = spec.trials or 0
            self._check_count(total // spec.keys.replicates)
            found = list(parameter_sets(spec))
        else:
            space = spec.space
            assert space is not None
            keys = spec.keys.model_copy(update={"run_cap": None})
            if spec.method == "bayes":
                keys = keys.model_copy(update={"method": "random"})
            every = parameter_sets(replace(spec, keys=keys, points=()))
            is_same = self._search is not None and space == self._search.space
            if spec.method != "grid" and not is_same and space.outcomes is None:
                # The quantiles of the sweep's own draws are used.
                before = self._sweep.counts.total // self._sweep.replicates
                every = islice(every, before, None)
            found = self._missing(points_first(spec.points, every), count)
        varying = tuple(dict.fromkeys((*spec.varying, *self._sweep.varying)))
        drawn = self._drawn(found, count, varying, encode_appended_file(spec.source, text))
        redraw = partial(self._of_sweep_file, spec, text, count) if count is not None else None
        return replace(drawn, redraw=redraw)

    def _drawn(
        self,
        found: Sequence[ParameterSet],
        count: int | None,
        varying: Sequence[str],
        file: str = "",
    ) -> NewSets:
        space = self._search.space if self._search else None
        is_grid = self._sweep.method == "grid"
        points = [
            Point(one, space is not None and not space.contains(one, is_grid=is_grid))
            for one in found
        ]
        notes: tuple[str, ...] = ()
        replicates = self._sweep.replicates
        if count is not None and len(found) < count // replicates:
            notes = (f"the space has {len(found)} further parameter sets only",)
        elif count is not None and count % replicates:
            added = len(found) * replicates
            notes = (f"each set runs {replicates} times, so {added} of {count} trials are added",)
        return NewSets(points=tuple(points), varying=tuple(varying), file=file, notes=notes)

    def _missing(self, every: Iterable[ParameterSet], count: int) -> list[ParameterSet]:
        """Return the next sets that the sweep lacks, for N trials."""
        wanted = count // self._sweep.replicates
        if wanted < 1:
            raise UserError(f"--count {count}: write at least {self._sweep.replicates}")
        self._check_count(wanted)
        source = iter(every)
        new: list[ParameterSet] = []
        while len(new) < wanted and (chunk := list(islice(source, BATCH_ROWS))):
            known = self._session.reader.sweeps.known_sets(self._sweep.id, chunk)
            new += [one for one in chunk if one.identity not in known]
        return new[:wanted]

    def _check_count(self, sets: int) -> None:
        total = sets * self._sweep.replicates
        if total > MOST:
            text = f"{total:,} trials, more than {MOST:,}; add them in several calls"
            raise UserError(text, code="too-many-sets")

    def _checked(self, data: list[Json], source_map: SourceMap, *, is_one: bool = False) -> NewSets:
        """Check given sets; `is_one`: their paths have no index."""
        self._check_count(len(data) * max(1, len(self._parents)))
        out = Problems(source_map)
        points: tuple[Point, ...] = ()
        for parent in self._parents or (None,):
            points += self._read(data, out, parent, is_one=is_one)
            out.raise_errors()  # those of the next parent would be the same
        notes = tuple(warning.text for warning in out.sorted_warnings())
        return NewSets(points=points, varying=self._varying(points), notes=notes)

    def _read(
        self, data: list[Json], out: Problems, parent: TrialView | None, *, is_one: bool
    ) -> tuple[Point, ...]:
        """Read the sets, which begin at the checkpoint of a parent if there is one."""
        inherited = parent.params if parent else None
        if self._search is None:
            if inherited:
                data = [{**inherited, **one} if isinstance(one, dict) else one for one in data]
            points = self._checked_list(data, out, is_one=is_one)
        else:
            is_grid = self._sweep.method == "grid"
            rules = PointRules(
                self._search.space,
                is_grid,
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
        trainer = BUILT_IN.get(self._sweep.launch.trainer)
        listed = list(listed_sets(self._sweep.spec.get(LIST)))
        known: dict[tuple[str, ...], None] = {(name,): None for name in self._names()}
        required = [name for (name,) in known if all(name in params for params in listed)]
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
            params = parameters.read_set(item, trainer, path, out)
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
        trainer = BUILT_IN.get(self._sweep.launch.trainer)
        for point in points if trainer is not None else ():
            for name, value in point.params.items() if point.is_outside else ():
                assert trainer is not None
                check_known(trainer, name, [((name,), value)], out)

    def _names(self) -> list[str]:
        """Return the first names of the sweep's parameters, and nested ones with dots."""
        if self._search is None:
            sets = listed_sets(self._sweep.spec.get(LIST))
            return list(dict.fromkeys(name for params in sets for name in params))
        space = self._search.space
        paths = [*space.parameters, *((name,) for name, _ in space.derive)]
        return list(dict.fromkeys([*(path[0] for path in paths), *map(".".join, paths)]))

    def _check_names(self, spec: SweepSpec) -> None:
        """Refuse a sweep file with a parameter that the sweep does not have."""
        assert spec.space is not None
        out = Problems(spec.source_map)
        known: dict[tuple[str, ...], None] = {(name,): None for name in self._names()}
        derived = [(name,) for name, _ in spec.space.derive]
        for path in [*spec.space.parameters, *derived] if known else ():
            if (".".join(path),) not in known:
                add_unknown(parameters.path_of(path), dotted(path), known, out)
        out.raise_errors()

    def _varying(self, points: Sequence[Point]) -> tuple[str, ...]:
        """Return the names that vary with these sets, which may change a constant."""
        varying = dict.fromkeys(self._sweep.varying)
        if self._search is None:
            listed = map(ParameterSet, listed_sets(self._sweep.spec.get(LIST)))
            every = (*listed, *(point.params for point in points))
            return tuple(varying | dict.fromkeys(parameters.varying(every)))
        constants = _constants(self._search.space)
        for point in points if any(point.is_outside for point in points) else ():
            for name, value in flatten(point.params).items():
                if name in constants and constants[name] != value:
                    varying[name] = None
        return tuple(varying)


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


def _constants(space: Space) -> dict[str, Json]:
    return {".".join(names): leaf.at(0) for names, leaf in space.leaves if leaf.size == 1}
