"""`hpq add`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.notice import print_message, warn
from hpq.shell import shell_hint
from hpq_producer.commands.common_flags import Other, Output
from hpq_producer.commands.make_sweep.set_text import describe_set
from hpq_producer.enqueue.add import Added, add_sets
from hpq_producer.enqueue.new_sets import SetReader
from hpq_producer.enqueue.sweep_space import NewSets
from hpq_views.command_output.sweep_table import read_state_word
from hpq_views.targets import complete_sweep_ids, owned_sweep
from hpq_views.text.output import Format, show_data
from hpq_views.text.text import clean, first_of, trials_of, value
from hpq_views.why.warn import print_if_not_running

_SHOWN = 10  # existing trials


def add(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="SWEEP|NAME=VALUE",
            help="The sweep, by default your last one, and the parameters of one trial.",
            show_default=False,
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Add the sets of a YAML file: a list of sets, a grid such as lr: [0.1, 0.01], or"
            " another sweep file.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Draw N further trials, from the ranges of --file, or else of the sweep.",
        ),
    ] = None,
    outside: Annotated[
        bool, Option("--outside", help="Allow values outside the space of the sweep.")
    ] = False,
    again: Annotated[
        bool, Option("--again", help="Run a set again although the sweep has a trial of it.")
    ] = False,
    start: Annotated[
        str | None,
        Option(
            "--from",
            metavar="TRIAL|best:N",
            help="Begin at the checkpoint of this trial, or of each of the N best, with its"
            " parameters except those given here.",
        ),
    ] = None,
    force: Other = False,
    output: Output = Format.TABLE,
) -> None:
    """Add trials to a sweep that runs, is paused, or has ended; it then opens again.

    The trials run the sweep's own code. bayes learns from those inside the space, and still
    suggests as many as without them. Prints the new trials. A trial that exists is not added, but
    printed with its result.

    Examples:
      hpq add digits-3f2a1 lr=0.01 optimizer=adam
      hpq add digits-3f2a1 --file points.yaml
      hpq add resnet-8b1c2 --from 7 epochs=90 --outside
      hpq add --count 20
    """
    given = list(words or ())
    ref = given.pop(0) if given and "=" not in given[0] else None
    if start is not None and not given:
        line = shell_hint(["hpq", "add", *([ref] if ref else []), "--from", start])
        raise UserError(f"--from {start}: write what changes, e.g. {line} epochs=90")
    sources = [bool(given), file is not None, count is not None and file is None]
    if sources.count(True) != 1:
        raise UserError("write NAME=VALUE for each parameter, or --file FILE, or --count N")
    with open_session() as session:
        sweep = owned_sweep(session, ref, force)
        reader = SetReader(session, sweep, may_be_outside=outside, start_from=start)
        sets = _read(reader, given, file, count)
        done = add_sets(session, sweep, sets, reader.signer, again=again, warn=warn)
        _report(session, sweep, done, output)


def _read(reader: SetReader, words: list[str], file: Path | None, count: int | None) -> NewSets:
    if file is not None:
        return reader.file(file, count)
    return reader.words(words) if count is None else reader.draws(count)


def _report(session: Session, sweep: SweepView, done: Added, output: Format) -> None:
    """Print the new trials on stdout; the rest on stderr, or all as data."""
    sweep = session.reader.sweeps.get(sweep.id)
    if output.is_data:
        show_data(added_record(session, sweep, done), output)
        return
    for note in done.notes:
        print_message(clean(note))
    for trial in done.existing[:_SHOWN]:
        print_message(f"exists: {_described(sweep, trial)}")
    if len(done.existing) > _SHOWN:
        print_message(f"exists: {trials_of(len(done.existing) - _SHOWN, 'more trial')}")
    if done.existing:
        print_message("--again adds a copy of each")
    if done.outside:
        numbers = first_of([f"#{number}" for number in done.outside])
        print_message(f"outside the space of the sweep: {numbers}")
    counts = f"{trials_of(len(done.numbers))} added; {trials_of(sweep.counts.total)} in total"
    print_message(f"{sweep.id}: {counts} ({read_state_word(session, sweep)})")
    for number in done.numbers:
        print(f"{sweep.id}/{number}")
    if done.numbers and sweep.state is SweepState.RUNNING:
        print_if_not_running(session, sweep.id)


def _described(sweep: SweepView, trial: TrialView) -> str:
    """Describe a trial: #7 lr=0.1, finished, loss=0.25."""
    result = ""
    if trial.objective is not None and sweep.metric is not None:
        result = f", {clean(sweep.metric.name)}={value(trial.objective)}"
    return f"#{trial.id.number} {describe_set(trial.params)}, {trial.state}{result}"


def added_record(session: Session, sweep: SweepView, done: Added) -> dict[str, object]:
    """Return the new trials, and those that the sweep had, as data."""
    existing = [
        {
            "trial": trial.id.number,
            "state": str(trial.state),
            "objective": trial.objective,
            "params": dict(trial.params),
        }
        for trial in done.existing
    ]
    return {
        "sweep": sweep.id,
        "added": list(done.numbers),
        "outside": list(done.outside),
        "exists": existing,
        "trials": sweep.counts.total,
        "state": read_state_word(session, sweep),
        "notes": list(done.notes),
    }
