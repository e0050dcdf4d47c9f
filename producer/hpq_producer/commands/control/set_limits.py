"""`hpq set`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

from typer import Argument

from hpq.domain.sweep import SweepView
from hpq.errors import UserError
from hpq.store.wire.fields import dumps, number
from hpq_producer.commands.control.control import Other
from hpq_producer.session import Session, open_session
from hpq_producer.sweep_limits import FIELDS, TAG, in_words
from hpq_producer.sweepfile.check import value_of
from hpq_producer.sweepfile.model import SweepFile
from hpq_producer.sweepfile.yaml_reader import resolve
from hpq_producer.targets import owned_sweep
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import trials_of

_HELP = (
    f"KEY is {', '.join(tuple(FIELDS)[:-1])} or {tuple(FIELDS)[-1]}; times are in s, m, h or d;"
    " run_cap=0 and max_parallel=0 remove the limit."
)
_CLOSE = 0.75  # similarity of a typo; at difflib's 0.6, metric would match retries


def set_limits(
    changes: Annotated[list[str], Argument(metavar="[SWEEP] KEY=VALUE", help=_HELP)],
    force: Other = False,
) -> None:
    """Change a sweep's limits and tags; running trials keep the old values.

    Examples:
      hpq set digits-3f2a1 run_cap=200 max_parallel=4
      hpq set priority=10
    """
    ref = None if "=" in changes[0] else changes[0]
    fields = limits(changes if ref is None else changes[1:])
    with open_session() as session:
        found = owned_sweep(session, ref, force)
        done = in_words(fields)
        cap = fields.pop("run_cap", None)
        if fields:
            session.control().set(found.id, fields)
        capped = _set_run_cap(session, found, int(cap)) if cap is not None else ""
        print_message(f"{found.id}: {done}{capped}")


def _set_run_cap(session: Session, found: SweepView, most: int) -> str:
    """Set run_cap; return how many trials were cancelled or queued again."""
    done = session.writer().set_run_cap(found.id, most)
    if done.dropped or done.back:
        verb = "cancelled" if done.dropped else "queued again"
        what = f"{trials_of(done.dropped or done.back)} {verb}"
    else:
        what = "none cancelled"
    line = f"; {what}, {done.trials} in total"
    if found.sampler:
        line = f"; {what}, {done.trials} so far"
    elif done.trials < most:
        more = most - done.trials
        line += f"; `hpq enqueue FILE --count {most} --into {found.id}` adds up to {more} more"
    if most and done.trials > most:
        line += "; trials that have started are not cancelled"
    return line


def limits(changes: Sequence[str]) -> dict[str, str]:
    """Return the fields of a sweep that KEY=VALUE words set.

    Raises:
        UserError: a key is unknown or a value is not allowed; the text names the allowed ones.
    """
    fields: dict[str, str] = {}
    for text in changes:
        key, equals, value = text.partition("=")
        if not equals or key not in FIELDS:
            raise _no_limit(text, key)
        try:
            fields[FIELDS[key]] = _stored(key, value)
        except ValueError as error:
            raise UserError(f"{text}: {error}", code="invalid-value") from None
    if not fields:
        raise UserError(f"no KEY=VALUE: write at least one, KEY one of {', '.join(FIELDS)}")
    return fields


def _stored(key: str, text: str) -> str:
    """Return a value as the store holds it.

    Raises:
        ValueError: a sweep file does not accept the value.
    """
    if key == "tags":
        return _tags(text)
    if (key, text) == ("run_cap", "0"):  # no limit, which a sweep file writes by leaving it out
        return text
    value = value_of(key, resolve(text) if text else text)
    return number(value) if isinstance(value, float) else str(value)


def _tags(text: str) -> str:
    words = [word for word in text.split(",") if word]
    if not all(TAG.fullmatch(word) for word in words):
        raise ValueError("use words of A-Z a-z 0-9 _ . : - separated by commas (empty: no tags)")
    return dumps(list(dict.fromkeys(words)))


def _no_limit(text: str, key: str) -> UserError:
    if key.partition(".")[0] in ("metric", "goal"):
        return UserError(
            f"{text}: a sweep's metric is fixed; change it in the file and run: hpq enqueue FILE"
            " --reuse (which copies the finished trials instead of training them again)",
            code="limit-fixed",
        )
    if key in SweepFile.model_fields and key != "name":
        message = f"{text}: {key} is fixed; edit the file and enqueue it: hpq enqueue FILE"
        return UserError(message, code="limit-fixed")
    close = get_close_matches(key, FIELDS, n=1, cutoff=_CLOSE)
    hint = f"; did you mean {close[0]}?" if close else ""
    line = f"{text}: write KEY=VALUE, KEY one of {', '.join(FIELDS)}{hint}"
    return UserError(line, code="unknown-key")
