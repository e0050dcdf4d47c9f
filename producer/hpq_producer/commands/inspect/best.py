"""`hpq best`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hpq.code.command import arguments
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Params, TrialId, TrialView, flatten
from hpq.errors import UserError
from hpq.shell import shell_line
from hpq_producer.analysis.records import trial_record
from hpq_producer.analysis.trial_row import TrialRow
from hpq_producer.analysis.winner import judge_winner
from hpq_producer.commands.common_flags import Output, WhereExpr
from hpq_producer.diagnosis.notices import print_if_not_running
from hpq_producer.query.filter import Filter
from hpq_producer.query.selection import best_trials, refuse_altered, refuse_unsigned
from hpq_producer.reports.ranking import show_ranking, write_trials
from hpq_producer.reports.summary_page import winner_lines
from hpq_producer.session import Session, open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import print_message, show_lines
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.style import Span
from hpq_producer.terminal.text import clean, trials_of, value


def best(
    sweep: SweepRef = None,
    n: Annotated[int, Option("-n", "--top", min=1, help="Number of best trials.")] = 1,
    where: WhereExpr = None,
    as_yaml: Annotated[bool, Option("--yaml", help="Print the parameters as YAML.")] = False,
    output: Output = Format.TABLE,
    as_args: Annotated[bool, Option("--args", help="Print command-line arguments.")] = False,
    unsigned: Annotated[
        bool, Option("--unsigned", help="Print --args that your key did not sign.")
    ] = False,
    confirm: Annotated[
        int | None,
        Option(
            min=2,
            metavar="SEEDS",
            help="Queue a new sweep that repeats the best N trials, each with SEEDS new seeds.",
        ),
    ] = None,
) -> None:
    """Print the best trial's parameters, and whether its lead is larger than the noise.

    Examples:
      hpq best --yaml > best.yaml
      hpq best -n 5 --where 'width <= 64'
      hpq best -n 2 --confirm 5
    """
    only = Filter.of(where) if where is not None else None
    if as_yaml and as_args:
        raise UserError("--yaml and --args exclude each other; remove one")
    if confirm and (as_yaml or as_args):
        raise UserError("--confirm queues a sweep and prints its id; remove --yaml and --args")
    with open_session() as session:
        found = session.verifiable(sweep)
        if as_args and not unsigned:
            refuse_unsigned(session.settings, found, "prints its parameters")
        # One trial alone has no rival to compare with.
        trials = best_trials(session.reader, found, max(n, 2) if confirm else n, only)
        if confirm or as_args or as_yaml or n == 1:
            refuse_altered(trials)  # a ranking marks them
        if confirm:
            return _confirm(session, found, trials, confirm, output)
        is_text = not (as_yaml or output.is_data or as_args or only)
        winner = judge_winner(session.reader, found) if is_text else None
    _show(found, trials, n > 1, as_yaml, output, as_args)
    show_lines(winner_lines(winner, found.id), whole=True)


def _confirm(
    session: Session, sweep: SweepView, trials: list[TrialView], seeds: int, output: Format
) -> None:
    """Queue the best trials again with other seeds, and print how to follow them."""
    # Here, since it imports the model of sweep files.
    from hpq_producer.enqueue.confirm import enqueue_confirmation  # noqa: PLC0415

    done = enqueue_confirmation(session, sweep, trials, seeds)
    if output.is_data:
        show_data({"sweep": done.sid, "new": done.is_new, "trials": done.trials}, output)
    else:
        print(done.sid)
    best = trials_of(len(trials))
    what = f"{best} of {sweep.id} with {seeds} seeds each" if done.is_new else "already queued"
    many = f" -n {len(trials)}" if trials[1:] else ""
    trains = f"hpq run {done.sid} trains them here, or hpq worker"
    if sweep.launch.is_function:
        trains = f"to train them: wandb.agent({done.sid!r}, function=…) in the script"
    print_message(f"{done.sid}: {what}; {trains}")
    if not sweep.launch.trainer:
        print_message("the script must read its seed from HPQ_SEED; else all runs give one value")
    print_message(f"then compare them: hpq best {done.sid}{many}")
    print_if_not_running(session, done.sid)


def _show(
    sweep: SweepView,
    trials: list[TrialView],
    several: bool,
    as_yaml: bool,
    output: Format,
    as_args: bool,
) -> None:
    if as_yaml:
        sets = [dict(t.params) for t in trials]
        show_data(sets if several else sets[0], Format.YAML)
    elif output is Format.CSV:  # the columns of `hpq results -o csv`
        write_trials(sweep, lambda: trials)
    elif output.is_data:
        records = [trial_record(t, sweep) for t in trials]
        show_data(records if several else records[0], output)
    elif as_args:
        for trial in trials:
            print(to_args(trial.params, sweep.launch.command, trial.id))
    elif several:
        show_ranking(sweep, trials)
    else:
        _show_one(sweep, trials[0])


def to_args(params: Params, command: tuple[str, ...] = (), of: TrialId | str = "") -> str:
    """Return `--lr=0.1 --opt=adam`, or the form of the sweep's command, quoted for a shell.

    Raises:
        UserError: a value has control characters; the message names the JSON of the trial `of`.
    """
    return shell_line(arguments(command, params), f"hpq show {of} -o json")


def _show_one(sweep: SweepView, trial: TrialView) -> None:
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    row = TrialRow(trial=trial, sweep=sweep)
    rows = {name: row.objective}
    if row.source:
        rows["result of"] = row.source
    rows |= {clean(k): value(v) for k, v in flatten(trial.params).items()}
    wide = max(len(key) for key in ("trial", *rows))
    show_lines([Span(f"{k:{wide}}  {v}")] for k, v in {"trial": str(trial.id), **rows}.items())
