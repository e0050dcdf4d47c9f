"""The tools of `hpq mcp`: what commands print with `-o json`, in answers of at most 4 kB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from hpq.access.session import Session, api_session
from hpq.code.signing import unverified
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId, TrialView
from hpq.errors import Forbidden, UserError
from hpq_producer.actions.by_name import carry_out
from hpq_producer.commands.change.steer import changed_record
from hpq_producer.commands.inspect.best import chosen_trials
from hpq_producer.commands.inspect.ls import read_list
from hpq_producer.commands.inspect.show import sweep_in_full, trial_in_full
from hpq_producer.commands.inspect.wait import end_record, judged_trials
from hpq_producer.commands.make_sweep.add import added_record
from hpq_producer.commands.make_sweep.enqueue import enqueued_record
from hpq_producer.commands.make_sweep.plan import plan_record
from hpq_producer.commands.mcp import answer
from hpq_producer.commands.mcp.root import Root
from hpq_producer.enqueue.add import add_sets
from hpq_producer.enqueue.enqueue_sweep import enqueue_sweep
from hpq_producer.enqueue.new_sets import SetReader
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.output_records import trial_record
from hpq_views.analysis.selection import Selection, refuse_altered
from hpq_views.analysis.winner_evidence import MOST_JUDGED, judge_winner
from hpq_views.command_output.logs import log_text
from hpq_views.follow import wait_until_over
from hpq_views.targets import find_target, find_trial, owned_sweep
from hpq_views.watch.event_log import lines_since
from hpq_views.why.waiting import explain_no_start

_SETS = 5  # parameter sets of a plan
_EVENTS = 100  # that one answer may have
_OF_SWEEP = ("sweep", "name", "state", "created", "metric", "best", "total", "failed", "not_taken")
_OF_TRIAL = (
    "trial", "state", "param", "objective", "rank", "is_front", "feasible", "step", "alerts",
    "failure", "start",
)  # fmt: skip

File = Annotated[str, Field(description="Path of a sweep file (*.yaml) below the server's root.")]
Count = Annotated[int | None, Field(description="Run at most N trials.", ge=1)]
Sweep = Annotated[str, Field(description="Id of a sweep.", min_length=1)]
Target = Annotated[str, Field(description="SWEEP, or SWEEP/7 for its trial 7.", min_length=1)]
Start = Annotated[
    int, Field(description="Place of the first record; `next` of the last answer.", ge=0)
]
Top = Annotated[int, Field(description="Number of trials.", ge=1, le=50)]
Character = Annotated[
    int, Field(description="First character to read; negative: from the end. `next` continues.")
]
Name = Annotated[
    str, Field(description="One value alone, by its dotted name: failure.message. It may be long.")
]
Where = Annotated[str, Field(description="Only trials that match: 'lr > 0.1', 'state == failed'.")]
Cursor = Annotated[
    str,
    Field(
        description="`cursor` of the last answer: also return the events since then.",
        pattern=r"^([0-9]{1,20}-[0-9]{1,20})?$",
    ),
]


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions that an agent calls; each opens a session of its own."""

    root: Root
    may_write: bool

    def reading(self) -> tuple[Callable[..., str], ...]:
        """Return the tools that change nothing."""
        return (
            self.list_sweeps, self.plan, self.status, self.results, self.best, self.show, self.logs
        )  # fmt: skip

    def list_sweeps(self, start: Start = 0) -> str:
        """List sweeps, newest first."""
        with api_session() as session:
            records = read_list(session, None).records()
        short = [_brief(record, _OF_SWEEP) for record in records]
        about = {"total": len(short)}
        return answer.page("sweeps", short, start, about, "show has all facts of one sweep")

    def plan(self, file: File, count: Count = None, name: Name = "", start: Character = 0) -> str:
        """Check a sweep file: its number of trials, the first parameters, and warnings."""
        record = plan_record(self.root.prepare(file, count), _SETS)
        return _record(record, name, start, "plan with name='files' has one value whole")

    def status(
        self,
        sweep: Sweep,
        since: Cursor = "",
        wait_s: Annotated[
            float, Field(description="Wait at most N seconds for the sweep's end.", ge=0, le=50)
        ] = 0,
    ) -> str:
        """Return a sweep's state, counts and verdict, and the events since the last call.

        `needs_you` is what the user must do, `next` has useful commands, `verdict` says whether the
        best trial's lead is more than noise.
        """
        with api_session() as session:
            done = wait_until_over(session, session.find(sweep), wait_s)
            record = end_record(session, done, judged_trials(session, done))
            record.pop("error", None)  # the time is up: no error of a call that looks
            view = done.status.sweep
            found = lines_since(session.reader, view, since, _EVENTS) if since else []
        cursor = since or done.status.last_event
        return answer.status(record, found, cursor, is_whole=len(found) < _EVENTS)

    def results(self, sweep: Sweep, where: Where = "", sort: str = "", start: Start = 0) -> str:
        """Return trials in short, by number.

        `sort` is objective, duration, a metric or a parameter; -NAME reverses the order.
        """
        only = Filter.of(where) if where else None
        with api_session() as session:
            view = session.sweep(sweep)
            begun = only is None or not only.asks_for("state")
            chosen = Selection(
                reader=session.reader, sweep=view, sort=sort, where=only, begun=begun
            )
            about = {"sweep": view.id, "total": view.counts.total, "queued": view.counts.queued}
            about |= _unverified(session, view)
            records = (_short(one, view) for one in chosen.trials())
            more = f"show {view.id}/7 has all facts of trial 7, logs its output"
            return answer.page("trials", records, start, about, more)

    def best(self, sweep: Sweep, where: Where = "", top: Top = 3, start: Start = 0) -> str:
        """Return the best trials, best first, and whether the lead is more than noise.

        Of several metrics: the trials that no other trial dominates, and no verdict.
        """
        only = Filter.of(where) if where else None
        with api_session() as session:
            view = session.sweep(sweep)
            last = start + top
            ranked, _ = chosen_trials(session, [view], max(last, MOST_JUDGED), only)
            found = ranked[:last]
            refuse_altered(session.settings, [view], found)
            winner = None if only else judge_winner(session.reader, view, ranked)
            verdict = dict(winner.lines(view.id)) if winner else {}
            records = [_short(one, view) for one in found]
            about = {
                "sweep": view.id,
                "metric": view.metric.name if view.metric else None,
                **{name: verdict.get(name) for name in ("verdict", "edge", "curve")},
                **_unverified(session, view),
            }
            more = f"show {found[0].id} has all facts of the first"
            return answer.page("trials", records, start, about, more)

    def show(self, what: Target, name: Name = "", start: Character = 0) -> str:
        """Return all facts of a sweep or a trial, or one of its values whole, in pieces."""
        with api_session() as session:
            found = find_target(session.reader, what, session.settings.user)
            if isinstance(found, TrialId):
                sweep = session.reader.sweeps.get(found.sweep)
                record = trial_in_full(session.reader, found, sweep)
                record |= _unverified(session, sweep)
            else:
                record = sweep_in_full(session, found)
        return _record(record, name, start, "show with name='failure.message' has one value whole")

    def logs(self, what: Target, start: Character = -2_000) -> str:
        """Return a part of what a trial printed, by default its end.

        Of a sweep, hpq chooses a running trial, else the trial that failed or ended last.
        """
        with api_session() as session:
            found = find_trial(session.reader, what, session.settings.user)
            text = log_text(session.reader, session.reader.trials.get(found).trained)
        return answer.encoded({"trial": str(found), **answer.piece(text, start)})

    def enqueue(self, file: File, count: Count = None) -> str:
        """Queue the trials of a sweep file; return the sweep's id.

        If the same file, seed and code are queued already, return that sweep (`new` is false).
        """
        self._refuse_reader()
        prepared = self.root.prepare(file, count)
        warnings: list[object] = [warning.record() for warning in prepared.warnings]
        with api_session() as session:
            done = enqueue_sweep(
                session, prepared, warn=lambda line: warnings.append({"message": line})
            )
            status = session.reader.status(done.sid, rows=0, top=0, recent=0)
            record = enqueued_record(done, status.sweep, explain_no_start(status, session))
        record["warnings"] = warnings
        return answer.fitted(record, "plan has all warnings")

    def add(
        self,
        sweep: Sweep,
        sets: Annotated[
            list[dict[str, Any]] | None,
            Field(
                description="Parameters of each trial, inside the space of the sweep: all of them,"
                " or with start_from those that change."
            ),
        ] = None,
        count: Annotated[
            int | None, Field(description="Draw N further trials of the sweep instead.", ge=1)
        ] = None,
        start_from: Annotated[
            int | str | None,
            Field(
                description="7 or 'best:3': begin each set at the checkpoint of trial 7, or of each"
                " of the 3 best."
            ),
        ] = None,
        again: Annotated[
            bool, Field(description="Also add a copy of the sets that the sweep has.")
        ] = False,
    ) -> str:
        """Add trials to a sweep, which runs its own code; an ended one opens again.

        `exists` are trials of these sets that the sweep has; they are not added again.
        """
        self._refuse_reader()
        if (sets is None) == (count is None):
            raise UserError("give either sets or count")
        if sets is None and start_from is not None:
            raise UserError("start_from needs sets: write what changes, e.g. {epochs: 90}")
        with api_session() as session:
            found = owned_sweep(session, sweep, False)
            if not found.search:
                text = (
                    f"{found.id} has no ranges or choices that bound what an agent adds; ask the"
                    f" user to run `hpq add {found.id}`"
                )
                raise Forbidden(text, code="forbidden")
            reader = SetReader(session, found, start_from=start_from)
            new = reader.mappings(sets or []) if count is None else reader.draws(count)
            warnings: list[object] = []
            done = add_sets(
                session,
                found,
                new,
                reader.signer,
                again=again,
                warn=lambda line: warnings.append({"message": line}),
            )
            record = added_record(session, session.reader.sweeps.get(found.id), done)
            record["warnings"] = warnings
        return answer.fitted(record, "results has the trials")

    def stop(self, sweep: Sweep) -> str:
        """Cancel the queued trials of a sweep; the running ones finish.

        Only the user can open a stopped sweep again: add refuses it.
        """
        self._refuse_reader()
        with api_session() as session:
            found = session.sweep(sweep)
            line = carry_out(session, found, "stop")
            return answer.fitted(changed_record(session, found.id, line))

    def _refuse_reader(self) -> None:
        if not self.may_write:
            text = (
                "this server only reads; ask the user to start it with --allow-writes, or to run"
                " the command"
            )
            raise Forbidden(text, code="forbidden")


def _unverified(session: Session, sweep: SweepView) -> dict[str, Any]:
    """Return a warning, as data, if this machine's key cannot verify a sweep's parameters."""
    notice = unverified(session.settings, sweep)
    return {"warning": notice.record()} if notice else {}


def _short(trial: TrialView, sweep: SweepView) -> dict[str, Any]:
    names = (*_OF_TRIAL, "last") if sweep.objectives else _OF_TRIAL
    return _brief(trial_record(trial, sweep), names)


def _brief(record: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: record[name] for name in names if record.get(name) is not None}


def _record(record: Mapping[str, Any], name: str, start: int, more: str) -> str:
    if name:
        return answer.part(record, name, start)
    return answer.fitted(record, f"{more}, in pieces")
