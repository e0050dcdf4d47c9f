"""`hpq.Sweep` and `hpq.sweeps`: read, wait for and cancel sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hpq.access.session import Session, api_session
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import Claim, Json, TrialId, TrialState
from hpq.errors import Held, OverBudget, UserError
from hpq.notice import plural
from hpq_producer.actions import steer
from hpq_producer.python_api.ask_tell import claim_for_caller, commit_of_caller, fail_of_caller
from hpq_producer.python_api.frames import Metrics, history_frame, trials_frame
from hpq_producer.python_api.plain_data import plain_data
from hpq_producer.python_api.selecting import filter_of, front_of, state_of
from hpq_producer.python_api.trial import SHOWN, Listing, SweepTrial, trial_listing
from hpq_views.analysis.importance import Importance
from hpq_views.analysis.output_records import budget_record
from hpq_views.analysis.rank_results import read_standing
from hpq_views.analysis.selection import (
    Selection,
    best_trials,
    read_front,
    refuse_altered,
    refuse_unknown_metric,
)
from hpq_views.analysis.summary import summaries_of
from hpq_views.command_output.sweep_table import COLUMNS, read_rows, read_state_word
from hpq_views.follow import wait_until_over
from hpq_views.targets import owned_sweep
from hpq_views.text.text import clean, progress

if TYPE_CHECKING:
    from pandas import DataFrame

State = Literal["queued", "running", "finished", "failed", "pruned", "cancelled"]


class Sweep:
    """A sweep on the server that the commands use; every method reads its present state.

    `id` is the whole id.
    """

    def __init__(self, id: str | None = None) -> None:
        """Find a sweep by its id, its name, or the beginning of them; None: your last sweep.

        Raises:
            NotFound: no sweep matches, or several do.
            OutOfReach: Redis does not answer.
        """
        with api_session() as session:
            self._read = session.sweep(id)
        self.id = self._read.id
        self._asked: dict[str, Claim] = {}  # by the id of the trial

    @classmethod
    def _of(cls, view: SweepView) -> Sweep:
        sweep = cls.__new__(cls)
        sweep._read, sweep.id, sweep._asked = view, view.id, {}
        return sweep

    def _now(self) -> SweepView:
        with api_session(self.id) as session:
            self._read = session.reader.sweeps.get(self.id)
        return self._read

    @property
    def name(self) -> str:
        """The name, by default that of the sweep file."""
        return self._read.name

    @property
    def metric(self) -> str | None:
        """The metric that ranks the trials; None if the sweep has none."""
        return self._read.metric.name if self._read.metric else None

    @property
    def goal(self) -> str | None:
        """`minimize` or `maximize`; None without a metric."""
        return self._read.metric.goal.value if self._read.metric else None

    @property
    def varying(self) -> tuple[str, ...]:
        """The names of the parameters that differ between trials; nested ones with dots."""
        return self._read.varying

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The ranges and choices of the sweep file, as written."""
        written = self._read.spec.get("parameters")
        return dict(written) if isinstance(written, dict) else {}

    @property
    def state(self) -> str:
        """`running`, `waiting`, `paused`, `held`, `stopping`, `finished` or `cancelled`.

        `waiting`, as in `hpq ls`: trials are queued, none runs, and no worker can claim one.
        """
        sweep = self._now()
        with api_session(self.id) as session:
            return read_state_word(session, sweep)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of trials in each state."""
        counts = self._now().counts
        return {state.value: counts.of(state) for state in TrialState}

    @property
    def budget(self) -> Mapping[str, Any] | None:
        """`gpu_hours`, `used_hours`, `wasted_hours` and `until` (ISO 8601); None without one."""
        return budget_record(self._now().budget).get("budget")

    def trial(self, number: int) -> SweepTrial:
        """Return one trial.

        Raises:
            NotFound: the sweep has no trial with this number.
        """
        with api_session(self.id) as session:
            reader, sweep = session.reader, session.reader.sweeps.get(self.id)
            found = reader.trials.get(TrialId(sweep=self.id, number=number))
            return SweepTrial(replace(found, standing=read_standing(reader, sweep, number)), sweep)

    __getitem__ = trial

    def __iter__(self) -> Iterator[SweepTrial]:
        return iter(self.trials())

    def trials(
        self,
        where: str | None = None,
        *,
        state: State | TrialState | None = None,
        sort: str = "",
        top: int | None = None,
    ) -> Listing[SweepTrial]:
        """Return the trials as a list, in order of number; the options are those of `hpq results`.

        The list is indexed by place, from 0: trial 30 is `sweep[30]`, not `sweep.trials()[30]`.
        `where` is an expression such as `'lr > 0.1 and state == finished'`. `sort` is the name of
        a parameter, a metric or a column, `-NAME` in the other order; `top` limits the number.

        Raises:
            UserError: the expression is invalid, or no trial has a name that it uses.
            NotFound: the sweep was removed.
        """
        only = filter_of(where)
        wanted = None if state is None else state_of(state)
        with api_session(self.id) as session:
            sweep = session.reader.sweeps.get(self.id)
            chosen = Selection(
                reader=session.reader, sweep=sweep, where=only, state=wanted, sort=sort, top=top
            )
            return trial_listing(list(chosen.trials()), sweep)

    def best(self, where: str | None = None, *, by: str | None = None) -> SweepTrial:
        """Return the best trial that matches an expression such as `'lr > 0.1'`; None: of all.

        With replicates, return the first of the best set, with their mean. Of several metrics, `by`
        names the one by which a trial of the front is the best.

        Raises:
            UserError: as `trials`; the sweep has no metric `by` (`column-unknown`), or several and
                `by` is None (`metrics-several`).
            HpqError: no trial has a result yet, or the sweep has no metric (`no-result`); none
                meets the constraints (`constraints-unmet`).
        """
        only = filter_of(where)
        with api_session(self.id) as session:
            sweep = session.reader.sweeps.get(self.id)
            refuse_unknown_metric(sweep, by)
            if not sweep.objectives:
                found = best_trials(session.reader, sweep, 1, only)
            elif by is not None:
                found = front_of(session, sweep, only).best_by(by)
            else:
                text = (
                    f"{self.id} has several metrics, so no trial is best; use front(), or by=NAME"
                )
                raise UserError(text, code="metrics-several")
            refuse_altered(session.settings, [sweep], found[:1])
            return SweepTrial(found[0], sweep)

    def front(self, where: str | None = None) -> Listing[SweepTrial]:
        """Return the trials that no other trial dominates, best by the first metric first.

        Replicates count as one trial, the first, with the mean of each metric in `last`.

        Raises:
            UserError: as `trials`.
            HpqError: no trial has a finite value of every metric (`no-result`), or none meets the
                constraints (`constraints-unmet`).
        """
        only = filter_of(where)
        with api_session(self.id) as session:
            sweep = session.reader.sweeps.get(self.id)
            return trial_listing(front_of(session, sweep, only).trials, sweep)

    def hypervolumes(self) -> list[tuple[int, float]]:
        """Return the share of the space that the first N trials dominate, at 40 N at most.

        The space lies between the best and the worst value of each metric. Empty for one metric or
        more than 4, if a metric does not vary, and for a front of thousands.
        """
        with api_session(self.id) as session:
            sweep = session.reader.sweeps.get(self.id)
            return read_front(session.reader, [sweep]).hypervolumes()

    def history(self, metric: Metrics = None) -> DataFrame:
        """Return every stored value of every trial, or of one or more metrics, one value a row.

        The columns are trial, attempt, step, metric, value and received, which is when Redis
        received the value, in UTC; values that a worker sent together have one time. hpq stores
        about 1,000 values a metric and trial.

        Raises:
            UserError: pandas is not installed, or no trial has reported one of these metrics.
            NotFound: the sweep was removed.
        """
        with api_session(self.id) as session:
            sweep = session.reader.sweeps.get(self.id)
            trials = list(session.reader.trials.begun(self.id))
            return history_frame(session.reader, sweep, trials, metric)

    def to_pandas(self) -> DataFrame:
        """Return a row a trial: `param.*`, `last.*`, `best.*` and the columns of `hpq results`.

        Raises:
            UserError: pandas is not installed.
            NotFound: the sweep was removed.
        """
        return trials_frame([trial.to_dict() for trial in self.trials()])

    def importance(self, metric: str | None = None) -> Importance:
        """Compute the share of each parameter in the variance; `why_none` if none is known.

        `metric` is one of several; the first by default.
        """
        with api_session(self.id) as session:
            sweep = session.reader.sweeps.get(self.id)
            best_trials(session.reader, sweep)  # raises if there is none
            refuse_unknown_metric(sweep, metric)
            found = summaries_of(sweep, session.settings.cache)
            summary = next((s for s in found if metric == s.metric_name), found[0])
            return summary.add(session.reader.trials.begun(self.id)).importance

    def wait(self, timeout: float | None = None) -> Sweep:
        """Wait until the sweep has ended; return it. `timeout` is in seconds.

        Prints on stderr, once, why no worker claims its trials.

        Raises:
            Held: the sweep is held until you act (OverBudget: by its budget).
            TimedOut: the time is up; a `TimeoutError`, too.
        """
        with api_session(self.id) as session:
            done = wait_until_over(session, self.id, timeout)
        if done.late is not None:
            raise done.late
        now = done.status.sweep
        if now.is_over_budget:
            raise OverBudget(f"{self.id} is held: {now.why_held}; `{now.resumed_by}`")
        if now.state is SweepState.HELD:
            text = f"{self.id} is held: {clean(now.why_held)}; `hpq show {self.id}`"
            raise Held(text, code="sweep-held")
        self._read = now
        return self

    def add(
        self,
        sets: Mapping[str, Json] | Sequence[Mapping[str, Json]],
        *,
        outside: bool = False,
        again: bool = False,
        start_from: int | str | None = None,
        force: bool = False,
    ) -> Listing[SweepTrial]:
        """Add trials of one or more parameter sets; return the trial of each set, in their order.

        That of a set that the sweep has is the older one, unless `again`. At most 10,000 trials are
        added, in one step. `outside` allows values outside the sweep's space. An ended sweep opens
        again. `start_from`, a number or `best:N`: trials begin at the checkpoints of these ended
        trials, with their parameters except those given.

        Raises:
            UserError: a set is not of the space, no checkpoint is kept, this machine's key did not
                sign the sweep, or that was stopped or has no budget left; nothing is added.
            Forbidden: another user owns the sweep, and `force` is false.
            NotFound: the sweep was removed.
        """
        # What reads sweep files takes 0.1 s to import.
        from hpq_producer.enqueue.add import add_sets  # noqa: PLC0415
        from hpq_producer.enqueue.new_sets import SetReader  # noqa: PLC0415

        given = plain_data([sets] if isinstance(sets, Mapping) else list(sets), "set")
        with api_session(self.id) as session:
            sweep = owned_sweep(session, self.id, force)
            reader = SetReader(session, sweep, may_be_outside=outside, start_from=start_from)
            new = reader.mappings(given)
            done = add_sets(session, sweep, new, reader.signer, again=again)
            numbers = [done.by_set[point.params.identity] for point in new.points]
            found = session.reader.trials.get_many(self.id, numbers)
            return trial_listing(found, session.reader.sweeps.get(self.id))

    def ask(self, *, lease_s: float = 3_600.0) -> SweepTrial | None:
        """Claim a trial that this process runs, and return it; None if none can start now.

        If `tell` does not follow within `lease_s` seconds, the trial runs again elsewhere. Trials
        that begin at a checkpoint (`start_from`) are left to workers.

        Raises:
            UserError: this machine's key did not sign the sweep, or its parameters were altered; no
                worker is live, which suggests the trials of the sweep (`no-worker`).
            NotFound: the sweep was removed.
        """
        with api_session(self.id) as session:
            claim = claim_for_caller(session, session.reader.sweeps.get(self.id), lease_s)
        if claim is None:
            return None
        trial = self.trial(claim.trial.number)
        self._asked[trial.id] = claim
        return trial

    def tell(
        self,
        trial: SweepTrial,
        result: float | Mapping[str, object] = math.nan,
        *,
        failed: str = "",
    ) -> None:
        """Commit the result of a trial of `ask`, by name if there are several; or why it `failed`.

        Raises:
            UserError: a metric is missing, not finite or not one that `hpq.report` takes
                (`invalid-value`); `ask` of this object did not return the trial; its lease has
                ended, and it was claimed, cancelled or removed since (`attempt-lost`).
        """
        claim = self._asked.get(trial.id)
        if claim is None:
            raise UserError(f"{trial.id}: ask() of this object did not return it")
        with api_session() as session:
            if failed:
                fail_of_caller(session, claim, failed)
            else:
                commit_of_caller(session, self._read, claim, result)
        del self._asked[trial.id]

    def cancel(self, *numbers: int, force: bool = False) -> int:
        """Stop the sweep, or the trials with these numbers, now; return how many were stopped.

        Raises:
            Forbidden: another user owns the sweep, and `force` is false.
            NotFound: the sweep, or one of the trials, does not exist; none was stopped.
        """
        with api_session(self.id) as session:
            sweep = owned_sweep(session, self.id, force)
            stopped, _ = steer.cancel(session, sweep, numbers, steer.agree)
            return stopped

    def __repr__(self) -> str:
        counts = self._read.counts
        return f"<sweep {self.id}: {progress(counts)} {plural(counts.progress[1], 'trial')} ended>"

    def _repr_html_(self) -> str:
        with api_session(self.id) as session:
            return _listing(session, [session.reader.sweeps.get(self.id)])._repr_html_()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sweep) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def sweeps(newest: int | None = None) -> Listing[Sweep]:
    """Return all sweeps in Redis, or the N newest, newest first; omit those that cannot be decoded.

    Raises:
        OutOfReach: Redis does not answer.
    """
    with api_session() as session:
        found = session.reader.sweeps.get_each(session.reader.sweeps.ids(newest))
        return _listing(session, [one for one in found if isinstance(one, SweepView)])


def _listing(session: Session, found: Sequence[SweepView]) -> Listing[Sweep]:
    return Listing(map(Sweep._of, found), COLUMNS, read_rows(session, found[:SHOWN]))
