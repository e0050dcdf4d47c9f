"""Print the narrowed `parameters:` of `hpq summary --narrow`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Json, Params, TrialState, TrialView, flatten
from hpq.errors import HpqError, UserError
from hpq.notice import print_message
from hpq.search.replicates import first_of_set
from hpq_views.analysis.narrow import Narrowed, Settings, narrow, settings_of, why_not
from hpq_views.analysis.rank_results import standings_of
from hpq_views.analysis.summary import SweepSummary
from hpq_views.text.output import Format, show_data
from hpq_views.text.text import clean, trials_of


def print_narrowed(session: Session, sweep: SweepView, output: Format) -> None:
    """Print the block for a sweep file, with the reason of each parameter as a comment.

    Raises:
        UserError: the sweep has several metrics, or its file lists parameter sets.
        HpqError: its results are too few, or it is unclear which parameter matters.
    """
    if sweep.objectives:
        text = f"{sweep.id} has several metrics, so no setting is the best; hpq best {sweep.id}"
        raise UserError(f"{text} prints the front", code="metrics-several")
    if not isinstance(sweep.spec.get("parameters"), dict):
        text = f"{sweep.id}: its file lists parameter sets, so there is no range to narrow"
        raise UserError(f"{text}; hpq summary {sweep.id} ranks them", code="not-narrowed")
    settings, summary = _read(session, sweep)
    importance = summary.importance
    if why := why_not(sweep, settings, importance):
        text = f"{sweep.id} {why}; hpq summary {sweep.id} shows what is known so far"
        raise HpqError(text, code="not-narrowed")
    found = narrow(sweep, settings, importance)
    if output.is_data:
        show_data(_record(sweep, settings, found), output)
    else:
        print("\n".join(block(found)))
    print_message(_advice(sweep, settings, found))


def _read(session: Session, sweep: SweepView) -> tuple[Settings, SweepSummary]:
    """Read every trial once; keep the parameters of each setting."""
    summary = SweepSummary(sweep, session.settings.cache)
    known = dict[int, Params]()
    failed = dict[int, None]()

    def added() -> Iterator[TrialView]:
        for trial in session.reader.trials.begun(sweep.id):
            summary.add([trial])
            first = first_of_set(sweep, trial.id.number)
            known.setdefault(first, {**flatten(trial.params), **trial.params})
            if trial.state is TrialState.FAILED:
                failed[first] = None
            yield trial

    standings = standings_of(sweep, added())
    order, infeasible = standings.order, standings.infeasible
    ranked = [(known[first], standings.groups[first].mean) for first in order]
    rest = dict.fromkeys([*infeasible, *failed])
    others = [known[first] for first in rest if first not in {*order}]
    return settings_of(ranked, others), summary


def block(found: Sequence[Narrowed]) -> Iterator[str]:
    """Yield the lines of `parameters:`."""
    yield "parameters:"
    yield from _lines(_tree(found), "  ")


def _tree(found: Sequence[Narrowed]) -> dict[str, Any]:
    """Return the parameters by name, nested ones together."""
    tree: dict[str, Any] = {}
    for one in found:
        inside = tree
        for parent in one.names[:-1]:
            inside = inside.setdefault(parent, {})
        inside[one.names[-1]] = one
    return tree


def _lines(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    from hpq_views.text.yaml_text import to_yaml  # noqa: PLC0415  only --narrow writes YAML

    for name, one in tree.items():
        if isinstance(one, Narrowed):
            if one.reason:
                yield f"{indent}# {clean(one.reason)}"
            text = to_yaml({name: dict(one.entry)}, is_short=True)
            yield from (indent + line for line in text.splitlines())
            continue
        yield f"{indent}{to_yaml(name, is_short=True).splitlines()[0]}:"
        yield f"{indent}  parameters:"
        yield from _lines(one, f"{indent}    ")


def _data(tree: Mapping[str, Any]) -> dict[str, Json]:
    return {
        name: dict(one.entry) if isinstance(one, Narrowed) else {"parameters": _data(one)}
        for name, one in tree.items()
    }


def _record(sweep: SweepView, settings: Settings, found: Sequence[Narrowed]) -> dict[str, Any]:
    return {
        "sweep": sweep.id,
        "settings": len(settings.every),
        "best": len(settings.best),
        "parameters": _data(_tree(found)),
        "reasons": [
            {"param": one.param, "narrowed": one.is_narrower, "reason": one.reason or None}
            for one in found
        ],
    }


def _advice(sweep: SweepView, settings: Settings, found: Sequence[Narrowed]) -> str:
    """Return what to do with the block."""
    count = sum(one.is_narrower for one in found)
    text = f"{sweep.id}: no parameter is narrowed; the comments say why"
    if count:
        text = f"{sweep.id}: {count} of {trials_of(len(found), 'parameter')} narrowed to where"
        text += f" {settings} lie; paste the block over `parameters:` of the sweep file, then"
        text += " hpq enqueue FILE"
        points: Json | Mapping[str, Json] = sweep.spec.get("points")
        text += ", without its `points:`, which have run" if points else ""
    open_trials = 0 if sweep.state.is_over else sweep.counts.queued + sweep.counts.running
    return text + (f"; {trials_of(open_trials)} not ended yet" if open_trials else "")
