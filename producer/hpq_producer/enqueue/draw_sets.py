"""Draw further sets for an existing sweep, from its own space or that of a sweep file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from hpq.access.session import Session
from hpq.domain.identity import ParameterSet
from hpq.errors import UserError
from hpq.search import samplers
from hpq.store.scripts import BATCH_ROWS
from hpq.store.wire.sweep import encode_appended_file
from hpq.yamlfile.problems import Problems, dotted
from hpq_producer.enqueue.sweep_space import NewSets, SweepSpace
from hpq_producer.sweepfile import parameters
from hpq_producer.sweepfile.conditions import add_unknown
from hpq_producer.sweepfile.points import Point
from hpq_producer.sweepfile.spec import SweepSpec, parameter_sets, points_first


class SetDrawer:
    """Draws sets that a sweep does not have yet."""

    def __init__(self, session: Session, space: SweepSpace) -> None:
        self._session = session
        self._space = space
        self._sweep = space.sweep

    def of_sweep(self, count: int) -> NewSets:
        """Draw the next sets of the sweep's own sequence; of bayes, random ones.

        Raises:
            UserError: the sweep is a list, or has no room for a set in `count` trials.
        """
        search = self._space.search
        if search is None:
            text = f"{self._sweep.id} is a list of parameter sets, so none can be drawn"
            raise UserError(text, code="sets-listed")
        if self._space.is_grid:
            is_shuffled = self._sweep.spec.get("order") == "shuffle"
            every = samplers.grid(search.space, shuffle=is_shuffled, seed=search.seed)
        else:
            every = samplers.random(search.space, None, search.seed)
        found = self._missing(every, count)
        drawn = self._drawn(found, count, self._sweep.varying)
        return replace(drawn, redraw=partial(self.of_sweep, count))

    def of_file(self, spec: SweepSpec, text: str, count: int | None) -> NewSets:
        """Return the sets of another sweep file: all of a grid, or N draws.

        Raises:
            UserError: the file has too many sets, or draws without `count`.
            SweepFileError: it has a parameter that the sweep lacks.
        """
        self._check_names(spec)
        if count is not None:
            found = self._missing(self._sequence(spec), count)
        elif spec.method == "grid":
            total = spec.trials or 0
            self._space.check_count(total // spec.keys.replicates)
            found = list(parameter_sets(spec))
        else:
            raise UserError(f"{spec.method} draws its sets; write how many: --count N")
        varying = tuple(dict.fromkeys((*spec.varying, *self._sweep.varying)))
        drawn = self._drawn(found, count, varying, encode_appended_file(spec.source, text))
        redraw = partial(self.of_file, spec, text, count) if count is not None else None
        return replace(drawn, redraw=redraw)

    def _sequence(self, spec: SweepSpec) -> Iterable[ParameterSet]:
        """Return the points of a sweep file, then its draws; of bayes, random ones."""
        space = spec.space
        assert space is not None
        keys = spec.keys.model_copy(update={"run_cap": None})
        if spec.method == "bayes":
            keys = keys.model_copy(update={"method": "random"})
        every = parameter_sets(replace(spec, keys=keys, points=()))
        own = self._space.search
        is_same = own is not None and space == own.space
        if spec.method != "grid" and not is_same and space.outcomes is None:
            # The quantiles of the sweep's own draws are used.
            before = self._sweep.counts.total // self._sweep.replicates
            every = islice(every, before, None)
        return points_first(spec.points, every)

    def _check_names(self, spec: SweepSpec) -> None:
        """Refuse a sweep file with a parameter that the sweep does not have."""
        assert spec.space is not None
        out = Problems(spec.source_map)
        known: dict[tuple[str, ...], None] = {(name,): None for name in self._space.names()}
        derived = [(name,) for name, _ in spec.space.derive]
        for path in [*spec.space.parameters, *derived] if known else ():
            if (".".join(path),) not in known:
                add_unknown(parameters.path_of(path), dotted(path), known, out)
        out.raise_errors()

    def _drawn(
        self,
        found: Sequence[ParameterSet],
        count: int | None,
        varying: Sequence[str],
        file: str = "",
    ) -> NewSets:
        search = self._space.search
        is_grid = self._space.is_grid
        points = [
            Point(one, search is not None and not search.space.contains(one, is_grid=is_grid))
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
        self._space.check_count(wanted)
        source = iter(every)
        new: list[ParameterSet] = []
        while len(new) < wanted and (chunk := list(islice(source, BATCH_ROWS))):
            known = self._session.reader.sweeps.known_sets(self._sweep.id, chunk)
            new += [one for one in chunk if one.identity not in known]
        return new[:wanted]
