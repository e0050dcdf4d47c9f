"""Carry out the action that a key of `hpq watch` or a button of the dashboard names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.errors import UserError
from hpq_producer.actions import steer
from hpq_views.targets import check_owner, parse_targets

_Act = Callable[[Session, SweepView, Sequence[str], steer.Ask], str]


def carry_out(
    session: Session,
    sweep: SweepView,
    verb: str,
    words: Sequence[str] = (),
    *,
    ask: steer.Ask = steer.agree,
    force: bool = False,
) -> str:
    """Do what a command of this name does to a sweep; return a line for the user.

    `words` are the numbers of trials, or KEY=VALUE for `set`. Raises as the command does.

    Raises:
        UserError: no action has this name.
        Forbidden: another user owns the sweep, and `force` is false.
    """
    act = _ACTIONS.get(verb)
    if act is None:
        raise UserError(f"no such action; use one of {', '.join(_ACTIONS)}")
    check_owner(session, sweep, force)
    return act(session, sweep, words, ask)


def _on_trials(
    act: Callable[[Session, SweepView, Sequence[int], steer.Ask], tuple[int, str]],
) -> _Act:
    return lambda session, sweep, words, ask: act(
        session, sweep, parse_targets([sweep.id, *words])[1], ask
    )[1]


def _set(session: Session, sweep: SweepView, words: Sequence[str], _: steer.Ask) -> str:
    # Here, since the keys of `hpq watch` set nothing, and the rules of sweep files load slowly.
    from hpq_producer.actions.set_limits import limits, set_limits  # noqa: PLC0415

    return set_limits(session, sweep, limits(words))


_ACTIONS: Mapping[str, _Act] = {
    "pause": lambda session, sweep, _, ask: steer.pause(session, sweep),
    "resume": lambda session, sweep, _, ask: steer.resume(session, sweep),
    "stop": lambda session, sweep, _, ask: steer.stop(session, sweep, ask),
    "cancel": _on_trials(steer.cancel),
    "retry": _on_trials(steer.retry),
    "set": _set,
}
