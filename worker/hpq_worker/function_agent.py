"""`hpq.agent`: run a trainer function for the trials of a sweep, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hpq.agent_loop import Attempt, serve
from hpq.reporting import flatten, set_sink
from hpq_worker.process.protocol import read_run
from hpq_worker.runner.trial_api import Trial


def agent(sweep: Any, function: Callable[[Any, Trial], Any], count: int | None = None) -> None:
    """Call `function(params, trial)` for trials of a sweep that this machine enqueued, in turn.

    It returns when the sweep is over, or after `count` trials. Once a trial is cancelled or pruned,
    `trial.report` raises `hpq.agent_loop.Stopped`. An exception fails the trial.

    Args:
        sweep: the id of a sweep with `trainer: function`, or an object whose `id` it is.
        function: a trainer; a mapping that it returns is its last report.

    Raises:
        AgentError: the sweep cannot run here, is held, or a trial exceeded its time limit.
        KeyboardInterrupt: Ctrl-C; the trial returns to the queue.
    """

    def call(attempt: Attempt) -> int:
        def send(message: Mapping[str, Any]) -> None:
            attempt.send(message)
            attempt.raise_if_stopped()

        run = read_run(attempt.run)
        trial = Trial(run, send, attempt.is_stopped)
        set_sink(trial.report, attempt.send)
        returned = function(dict(run.params), trial)
        attempt.was_stopped = attempt.was_stopped or trial.has_seen_stop
        if isinstance(returned, Mapping):
            attempt.report(flatten(returned), None)
        return 0

    serve(str(getattr(sweep, "id", sweep)), call, count)
