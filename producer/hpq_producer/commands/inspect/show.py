"""`hpq show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.code.signing import is_signed, key_of, keys_apart
from hpq.domain.durations import iso
from hpq.domain.metric_spelling import metric_warning
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Params, Point, TrialId, TrialView
from hpq.errors import UserError
from hpq.notice import print_message
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq_producer.commands.common_flags import Output
from hpq_views.analysis.history import Attempt, attempts_of
from hpq_views.analysis.output_records import attempt_record, finite, sweep_record, trial_record
from hpq_views.analysis.pareto_front import Front, place_of
from hpq_views.analysis.rank_results import Standings
from hpq_views.analysis.selection import read_front
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.analysis.winner_evidence import confirmations
from hpq_views.command_output.logs import last_lines
from hpq_views.command_output.provenance import provenance_record, write_code
from hpq_views.command_output.show import shown_metrics, sweep_lines, trial_lines
from hpq_views.stored_files import holder_of
from hpq_views.targets import complete_sweep_ids, find_target
from hpq_views.text.console import show_lines, stdout_info
from hpq_views.text.output import Format, show_data
from hpq_views.why.waiting import explain_waits

_TAIL = 10  # lines of the log


def show(
    what: Annotated[
        str | None,
        Argument(
            metavar="SWEEP",
            help="Sweep or trial: SWEEP/7, or 7 of your last sweep. Default: your last sweep.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    output: Output = Format.TABLE,
    as_origin: Annotated[
        bool,
        Option("--provenance", help="Print file, git commit and environment as JSON, or -o yaml."),
    ] = False,
    code: Annotated[
        Path | None, Option(metavar="DIR", help="Write the code, as enqueued, to DIR.")
    ] = None,
    unsigned: Annotated[
        bool, Option("--unsigned", help="Write code that your key did not sign.")
    ] = False,
) -> None:
    """Show a sweep or a trial in full.

    Examples:
      hpq show digits-3f2a1/7
      hpq show digits-3f2a1 --code DIR
    """
    with open_session() as session:
        found = find_target(session.reader, what, session.settings.user)
        sweep = session.reader.sweeps.get(found.sweep) if isinstance(found, TrialId) else None
        if sweep is not None:
            session.warn_if_unverified(sweep)
        if code is not None:
            sid = found if isinstance(found, str) else found.sweep
            key_of_mine = None if unsigned else session.settings
            count = write_code(session.reader, sid, code, key_of_mine)
            print_message(f"{code}: {count} {'file' if count == 1 else 'files'}")
        elif as_origin:
            show_data(provenance_record(session.reader, found), output)
        elif isinstance(found, TrialId) and sweep is not None:
            _show_trial(session.reader, found, sweep, output)
        elif isinstance(found, str):
            _show_sweep(session, found, output)


def _show_sweep(session: Session, sid: str, output: Format) -> None:
    if output.is_data:
        return show_data(sweep_in_full(session, sid), output)
    reader = session.reader
    sweep = reader.sweeps.get(sid)
    why = explain_waits(reader, [sweep], session).get(sid)
    signed = _signed(session.settings, sweep)
    eldest = reader.trials.longest_running([sid]).values()
    unmet = metric_warning(sweep, [*eldest], reader.ranking.best(sweep, 1))
    repeated_by = [*confirmations(reader, sweep)]
    lines = sweep_lines(sweep, signed, why=why, unmet=unmet, repeated_by=repeated_by)
    show_lines(lines, whole=True)


def sweep_in_full(session: Session, sid: str) -> dict[str, Any]:
    """Return all facts of a sweep except its trials, as data."""
    reader = session.reader
    sweep = reader.sweeps.get(sid)
    why = explain_waits(reader, [sweep], session).get(sid)
    launch = sweep.launch
    more: dict[str, Any] = {
        "launch": {name: getattr(launch, name) for name in launch.__slots__},
        "signed": _signed(session.settings, sweep),
        "varying": list(sweep.varying),
        "method": sweep.method,
        "seed": sweep.seed,
        "digest": sweep.digest,
        "spec": dict(sweep.spec),
        "provenance": dict(sweep.provenance),
        "files": [
            {
                "at": iso(file.at_ms),
                "added": file.added,
                "spec": dict(file.spec),
                "text": file.text,
            }
            for file in sweep.files
        ],
    }
    best = reader.sweeps.best_objective(sweep)
    return sweep_record(sweep, best, why) | more


def _signed(settings: Settings, sweep: SweepView) -> str:
    """Return whether this machine's key signed the launch record: yes, no, or why not."""
    if not sweep.signature:
        return "no"
    try:
        key = key_of(settings, make=False)
    except UserError as error:
        return f"unknown: {error}"
    if key is None:
        return f"unknown: this machine has no key{keys_apart(None, sweep)}"
    if is_signed(key, settings.prefix, sweep):
        return "yes"
    which = keys_apart(key, sweep)
    return f"not by your key{which}: signed with another key, or changed after signing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialInFull:
    """A trial with what `hpq show` prints of it."""

    trial: TrialView
    front: Front | None  # of several metrics
    curves: Mapping[str, Sequence[Point]]
    attempts: Sequence[Attempt]
    ran_on: Params
    log: bytes


def _read_trial(reader: StoreReader, found: TrialId, sweep: SweepView) -> _TrialInFull:
    trial = reader.trials.get(found)
    curves, ran_on, standing, events, (log, _) = reader.ask(
        reader.trials.histories_question(trial.trained, shown_metrics(trial, sweep)),
        reader.sweeps.provenance_question(trial.provenance),
        reader.ranking.standing_question(sweep, found.number),
        reader.events.of_trials_question([found]),
        reader.trials.log_question(trial.trained),
    )
    front = read_front(reader, [sweep]) if sweep.objectives else None
    if front:
        standing = Standings(sweep=sweep, order=(), front=front).of(found.number)
    trial = replace(trial, standing=standing)
    return _TrialInFull(
        trial=trial,
        front=front,
        curves=curves,
        attempts=attempts_of(events, trial),
        ran_on=ran_on,
        log=log,
    )


def _show_trial(reader: StoreReader, found: TrialId, sweep: SweepView, output: Format) -> None:
    if output.is_data:
        return show_data(trial_in_full(reader, found, sweep), output)
    read = _read_trial(reader, found, sweep)
    trial = read.trial
    lines = trial_lines(
        TrialRow(trial=trial, sweep=sweep),
        read.curves,
        read.ran_on,
        last_lines(read.log, _TAIL).decode("utf-8", "replace"),
        attempts=read.attempts,
        place=place_of(sweep, read.front, trial) if read.front else "",
        holder=holder_of(reader, trial),
        columns=stdout_info().columns,
    )
    show_lines(lines, whole=True)


def trial_in_full(reader: StoreReader, found: TrialId, sweep: SweepView) -> dict[str, Any]:
    """Return all facts of a trial except its log, as data."""
    read = _read_trial(reader, found, sweep)
    curves = {n: [[p.step, finite(p.value)] for p in points] for n, points in read.curves.items()}
    return {
        **trial_record(read.trial, sweep),
        "attempts": [attempt_record(one) for one in read.attempts],
        "history": curves,
        "provenance": dict(read.ran_on),
        "files_gone": read.trial.gone or None,
        "log_dropped": read.trial.thinned,
    }
