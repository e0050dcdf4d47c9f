"""`hpq best`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated

from typer import Option

from hpq.access.session import Session, open_session
from hpq.code.command import arguments
from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import Params, TrialId, TrialView, flatten
from hpq.errors import HpqError, UserError
from hpq.notice import print_message
from hpq.search.replicates import seed_param
from hpq.shell import shell_line
from hpq_producer.commands.common_flags import Output, WhereExpr
from hpq_producer.scaffold.script import goal_of
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.output_records import trial_record
from hpq_views.analysis.pareto_front import Front, metrics_of
from hpq_views.analysis.rank_results import Standings, merge_ranked, read_standing
from hpq_views.analysis.selection import (
    best_trials,
    by_other_metric,
    no_best,
    read_front,
    refuse_altered,
    refuse_incomparable,
    refuse_unknown_metric,
    refuse_unreported,
    refuse_unsigned,
)
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.analysis.winner_evidence import MOST_JUDGED, judge_winner, unrepeatable
from hpq_views.command_output.results_table import show_ranking, standing_lines, write_trials
from hpq_views.command_output.summary_page import winner_lines
from hpq_views.targets import SweepRefs, find_target
from hpq_views.text.console import show_lines
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span
from hpq_views.text.text import clean, first_of, trials_of, value
from hpq_views.why.warn import print_if_not_running

_FRONT = 20  # trials of a front that are shown


def best(
    sweep: SweepRefs = None,
    n: Annotated[
        int | None,
        Option("-n", "--top", min=1, help="Number of best trials. Default: 1, or 20 of a front."),
    ] = None,
    by: Annotated[
        str | None,
        Option(
            metavar="METRIC",
            help="Rank by this metric: one of several, or any that the trials reported. Its name"
            " tells hpq if higher is better.",
        ),
    ] = None,
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
            help="Queue a new sweep that repeats the best N trials (at least 2), or the front, each"
            " with SEEDS new seeds; with several sweeps, one for each that has a chosen trial.",
        ),
    ] = None,
) -> None:
    """Print the best trial's parameters, and whether its lead is larger than the noise.

    Several sweeps are ranked together; their metric, its goal and its value must be the same. With
    several metrics, print the front: the trials that no other trial dominates.

    Examples:
      hpq best --yaml > best.yaml
      hpq best --by latency_ms
      hpq best digits-3f2a1/7 --args
      hpq best -n 5 --where 'width <= 64'
      hpq best -n 2 --confirm 5
      hpq best digits-3f2a1 digits-9c0de -n 3 --confirm 5
    """
    only = Filter.of(where) if where is not None else None
    if as_yaml and as_args:
        raise UserError("--yaml and --args exclude each other; remove one")
    if confirm and (as_yaml or as_args):
        raise UserError("--confirm queues a sweep and prints its id; remove --yaml and --args")
    with open_session() as session:
        named = _named(session, sweep, by or where)
        sweeps = session.several([trial.id.sweep for trial in named] or sweep)
        refuse_incomparable(sweeps)
        other = by if by and by not in {metric.name for metric in metrics_of(sweeps[0])} else ""
        if other and not sweeps[0].objectives:
            goal = _goal(session, sweeps[0], other)
            sweeps = [by_other_metric(one, other, goal) for one in sweeps]
        if as_args and not unsigned:
            for one in sweeps:
                refuse_unsigned(session.settings, one, "prints its parameters")
        named = _placed(session, sweeps, named)
        is_front = bool(sweeps[0].objectives) and not (named or by)
        count = n or len(named) or (_FRONT if is_front else 1)
        is_list = is_front or count > 1
        most = count if sweeps[0].objectives else max(count, 2)  # one alone has no rival
        is_judged = not (as_yaml or output.is_data or as_args or only or named or other)
        is_judged = is_judged and not (sweeps[1:] or confirm or sweeps[0].objectives)
        read = max(most, MOST_JUDGED) if is_judged else most
        every, front = (
            (named, None) if named else chosen_trials(session, sweeps, read, only, by, other)
        )
        if other and not sweeps[0].objectives:
            better = "higher" if goal is Goal.MAXIMIZE else "lower"
            print_message(f"ranked by the last {clean(other)}, {better} is better")
        if (as_args or as_yaml) and is_front and not n:
            _refuse_several(every)
        if confirm:
            of_each = [(s, [t for t in every[:most] if t.id.sweep == s.id]) for s in sweeps]
            return _confirm(session, [pair for pair in of_each if pair[1]], confirm, output)
        if as_args or as_yaml or not is_list:
            refuse_altered(session.settings, sweeps, every[:count])  # a ranking names them
        winner = judge_winner(session.reader, sweeps[0], every) if is_judged else None
    _show(sweeps, every[:count], is_list, as_yaml, output, as_args, front)
    show_lines(winner_lines(winner, sweeps[0].id), whole=True)


def _named(session: Session, refs: list[str] | None, options: str | None) -> list[TrialView]:
    """Return the trials that the command line names, as SWEEP/7."""
    named = [ref for ref in refs or () if "/" in ref]
    if named and (options or len(named) < len(refs or ())):
        text = f"{clean(named[0])} names a trial; remove --by, --where and sweeps without a number"
        raise UserError(text, code="usage")
    reader, user = session.reader, session.settings.user
    found = [find_target(reader, ref, user) for ref in named]
    return [reader.trials.get(one) for one in found if isinstance(one, TrialId)]


def _goal(session: Session, sweep: SweepView, metric: str) -> Goal:
    """Return the goal of a metric that is not the sweep's.

    Raises:
        UserError: its name says no goal.
    """
    goal = goal_of(metric)
    if goal is not None:
        return goal
    begun = session.reader.trials.begun(sweep.id)
    known = dict.fromkeys(name for trial in begun for name in trial.metrics)
    if metric not in known:
        refuse_unreported(sweep, metric, known)
    name = clean(metric)
    text = f"--by {name}: its name does not say if higher is better; hpq results {sweep.id}"
    raise UserError(f"{text} --sort=-{name} sorts by it, the highest first", code="usage")


def _placed(
    session: Session, sweeps: Sequence[SweepView], named: Sequence[TrialView]
) -> list[TrialView]:
    """Return trials with where they stand."""
    by_id, reader = {sweep.id: sweep for sweep in sweeps}, session.reader
    return [
        replace(one, standing=read_standing(reader, by_id[one.id.sweep], one.id.number))
        for one in named
    ]


def _refuse_several(members: Sequence[TrialView]) -> None:
    if members[1:]:
        text = f"the front has {len(members)} trials; choose one with --by METRIC, or name it:"
        raise UserError(f"{text} hpq best {members[0].id}", code="usage")


def chosen_trials(
    session: Session,
    sweeps: list[SweepView],
    most: int,
    only: Filter | None,
    by: str | None = None,
    other: str = "",
) -> tuple[list[TrialView], Front | None]:
    """Return the best trials of all sweeps, best first; of several metrics, with the front.

    `other` is a metric that is not the sweep's, to rank by.

    Raises:
        HpqError: none of them has a result, or one that matches.
        UserError: no trial of any has a name of the filter, or there is no such metric.
    """
    refuse_unknown_metric(sweeps[0], by)
    if not sweeps[0].objectives:
        return _ranking(session, sweeps, most, only, other), None
    front = read_front(session.reader, sweeps, only)
    if not front.trials:
        raise no_best(session.reader, sweeps, only, front)
    return front.best_by(by) if by else list(front.trials), front


def _ranking(
    session: Session, sweeps: list[SweepView], most: int, only: Filter | None, by: str
) -> list[TrialView]:
    """Return the best trials of all sweeps, at most N of each, in one ranking.

    Raises:
        HpqError: none of them has a result, or one that matches.
        UserError: no trial of any has a name of the filter.
    """
    ranked, why = list[list[TrialView]](), list[HpqError]()
    for one in sweeps:
        try:
            ranked.append(best_trials(session.reader, one, most, only, by=by, checks_names=False))
        except HpqError as error:
            if error.code != "no-result" and not (by and error.code == "column-unknown"):
                raise
            why.append(error)
    if only:
        only.check_names()
    if not ranked:
        raise type(why[0])("; ".join(map(str, why)), code=why[0].code)
    merged = merge_ranked(sweeps, ranked)
    kept = {trial.id for trial in merged}
    if copies := [str(one.id) for one in chain(*ranked) if one.id not in kept]:
        print_message(f"copies by --reuse of results that are ranked: {first_of(copies)}")
    return merged


def _confirm(
    session: Session,
    ranked: list[tuple[SweepView, list[TrialView]]],
    seeds: int,
    output: Format,
) -> None:
    """Queue the best trials of each sweep again with other seeds; print how to follow them."""
    # Here, since it imports the model of sweep files.
    from hpq_producer.enqueue.confirm import (  # noqa: PLC0415
        enqueue_confirmation,
        refuse_unconfirmable,
    )

    for sweep, trials in ranked:
        refuse_unconfirmable(session, sweep, trials, seeds)
    done = [enqueue_confirmation(session, sweep, trials, seeds) for sweep, trials in ranked]
    if output.is_data:
        records = [{"sweep": one.sid, "new": one.is_new, "trials": one.trials} for one in done]
        show_data(records if records[1:] else records[0], output)
    else:
        print(*(one.sid for one in done), sep="\n")
    ended = [not one.is_new and session.reader.sweeps.get(one.sid).state.is_over for one in done]
    for one, is_over, (sweep, trials) in zip(done, ended, ranked, strict=True):
        if is_over:
            print_message(f"{one.sid}: done; all its trials have ended")
            continue
        best = f"the best {trials_of(len(trials))} of {sweep.id} with {seeds} seeds each"
        what = f"{trials_of(one.trials)} queued, {best}" if one.is_new else "already queued"
        if sweep.launch.is_function:
            what += f"; to train them, in the script: wandb.agent({one.sid!r}, function=train)"
        print_message(f"{one.sid}: {what}")
        print_if_not_running(session, one.sid)
    is_seeded = all(
        sweep.launch.trainer or all(seed_param(trial.params) is not None for trial in trials)
        for sweep, trials in ranked
    )
    if not (all(ended) or is_seeded):
        print_message("the script must read its seed from HPQ_SEED; else all runs give one value")
    many = sum(len(trials) for _, trials in ranked)
    compare = "to compare them" if all(ended) else "then compare them"
    print_message(f"{compare}: hpq best {' '.join(one.sid for one in done)} -n {many}")


def _show(
    sweeps: list[SweepView],
    trials: list[TrialView],
    several: bool,
    as_yaml: bool,
    output: Format,
    as_args: bool,
    front: Front | None,
) -> None:
    by_id = {sweep.id: sweep for sweep in sweeps}
    if as_yaml:
        _print_unrepeatable(trials)
        sets = [dict(t.params) for t in trials]
        show_data(sets if several else sets[0], Format.YAML)
    elif output is Format.CSV:  # the columns of `hpq results -o csv`
        write_trials(sweeps, trials)
    elif output.is_data:
        records = [trial_record(t, by_id[t.id.sweep]) for t in trials]
        show_data(records if several else records[0], output)
    elif as_args:
        _print_unrepeatable(trials)
        for trial in trials:
            print(to_args(trial.params, by_id[trial.id.sweep].launch.command, trial.id))
    elif several:
        show_ranking(sweeps, trials)
        if front:
            standings = Standings(sweep=sweeps[0], order=(), front=front)
            show_lines(standing_lines(standings, len(trials)), whole=True)
    else:
        _show_one(by_id[trials[0].id.sweep], trials[0])


def _print_unrepeatable(trials: list[TrialView]) -> None:
    for why in filter(None, map(unrepeatable, trials)):
        print_message(why)


def to_args(params: Params, command: tuple[str, ...] = (), of: TrialId | str = "") -> str:
    """Return `--lr=0.1 --opt=adam`, or the form of the sweep's command, quoted for a shell.

    Raises:
        UserError: a value has control characters; the message names the JSON of the trial `of`.
    """
    return shell_line(arguments(command, params), f"hpq show {of} -o json")


def _show_one(sweep: SweepView, trial: TrialView) -> None:
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    row = TrialRow(trial=trial, sweep=sweep)
    rows = {clean(metric.name): row.metric(metric.name) for metric in sweep.objectives}
    rows = rows or {name: row.objective}
    if row.unmet:
        rows["infeasible"] = row.unmet
    if row.source:
        rows["result of"] = row.source
    if row.start:
        rows["begins at"] = row.start
    rows |= {clean(k): value(v) for k, v in flatten(trial.params).items()}
    wide = max(len(key) for key in ("trial", *rows))
    show_lines([Span(f"{k:{wide}}  {v}")] for k, v in {"trial": str(trial.id), **rows}.items())
