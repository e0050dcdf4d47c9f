"""Parse KEY=VALUE words and tags, and change the limits, the tags and the note of a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.errors import UserError
from hpq.store.wire.fields import MOST_TEXT, dumps, number
from hpq.yamlfile.strict_model import value_of
from hpq.yamlfile.yaml_reader import resolve
from hpq_producer.actions.steer import control_of
from hpq_producer.sweepfile.model import CommonKeys, SweepFile
from hpq_views.analysis.limits import FIELDS, in_words
from hpq_views.analysis.owner_limits import check_priority
from hpq_views.text.text import trials_of

_TAG = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_CLOSE = 0.75  # similarity of a typo; at difflib's 0.6, metric would match retries


def set_limits(session: Session, sweep: SweepView, fields: Mapping[str, str]) -> str:
    """Change fields of a sweep, as `limits` returns them; return a line for the user.

    Raises:
        UserError: `run_cap` would end amid the replicates of a set.
    """
    rest = dict(fields)
    done = in_words({name: text for name, text in fields.items() if name != "note"})
    if "note" in fields:
        saved = "note saved" if fields["note"] else "note removed"
        done = f"{done}; {saved}" if done else saved
    cap = rest.pop("run_cap", None)
    if cap is not None and int(cap) % sweep.replicates:
        less = int(cap) // sweep.replicates * sweep.replicates
        either = f"{less} or {less + sweep.replicates}" if less else f"{sweep.replicates}"
        text = f"run_cap={cap}: the trials come in groups of {sweep.replicates} replicates; write"
        raise UserError(f"{text} {either}", code="invalid-value")
    if sweep.budget is None and rest.keys() & {"budget_ms", "until_ms"}:
        rest = {"budget_ms": "0"} | rest
    if "priority" in rest:
        owner = session.reader.owners.of([sweep.owner]).get(sweep.owner)
        check_priority(owner, int(rest["priority"]))
    if rest:
        control_of(session).set(sweep.id, rest)
    capped = _set_run_cap(session, sweep, int(cap)) if cap is not None else ""
    now = session.reader.sweeps.get(sweep.id)
    held = f"; held: {now.why_held}; `{now.resumed_by}`" if now.is_over_budget else ""
    return f"{sweep.id}: {done}{capped}{held}"


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without repetitions.

    Raises:
        UserError: a tag is malformed.
    """
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise UserError(f"--tag {tag}: use 1 to 40 characters of A-Z a-z 0-9 _ . : -")
    return tuple(dict.fromkeys(tags))


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
    if key == "note":
        return _note(text)
    if key.startswith("budget."):
        return _budget(key.removeprefix("budget."), text)
    if (key, text) == ("run_cap", "0"):  # no limit, which a sweep file writes by leaving it out
        return text
    value = value_of(CommonKeys, key, resolve(text) if text else text)
    return number(value) if isinstance(value, float) else str(value)


def _budget(name: str, text: str) -> str:
    if text in ("0", "none"):
        return "" if name == "until" else "0"
    value = text if name == "until" else resolve(text)
    limits = value_of(CommonKeys, "budget", {name: value}).budget()
    return str(limits.until_ms if name == "until" else limits.budget_ms)


def _tags(text: str) -> str:
    words = [word for word in text.split(",") if word]
    if not all(_TAG.fullmatch(word) for word in words):
        raise ValueError("use words of A-Z a-z 0-9 _ . : - separated by commas (empty: no tags)")
    return dumps(list(dict.fromkeys(words)))


def _note(text: str) -> str:
    if len(text) > MOST_TEXT:
        raise ValueError(f"use at most {MOST_TEXT:,} characters (empty: no note)")
    return text


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


def _set_run_cap(session: Session, found: SweepView, most: int) -> str:
    """Set run_cap; return how many trials were cancelled or queued again."""
    done = session.writer().set_run_cap(found.id, most)
    if done.dropped or done.back:
        verb = "cancelled" if done.dropped else "queued again"
        what = f"{trials_of(done.dropped or done.back)} {verb}"
    else:
        what = "no trial was cancelled"
    line = f"; {what}; the sweep has {trials_of(done.trials)}"
    if found.sampler:
        line = f"; {what}; the sweep has {trials_of(done.trials)} so far"
    elif done.trials < most:
        line += f"; `hpq add {found.id} --count {most - done.trials}` adds the rest"
    if most and done.trials > most:
        line += "; trials that have started are not cancelled"
    return line
