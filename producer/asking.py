"""Whose a sweep is, and whether they mean it: what is asked before something is changed."""

from __future__ import annotations

import sys

import typer

from hpq.errors import Forbidden, UserError
from hpq.sweep import Sweep
from producer.session import Session


def mine(session: Session, ref: str | None, force: bool) -> Sweep:
    """The sweep that is meant, if I may touch it.

    Raises:
        Forbidden: it is another owner's, and `force` was not said.
    """
    sweep = session.view.sweep(session.view.resolve(ref, session.settings.user))
    if sweep.owner != session.settings.user and not force:
        raise Forbidden(
            f"sweep {sweep.id} is {sweep.owner}'s; --force does it all the same",
            code="sweep-of-another",
        )
    return sweep


def ask(question: str, yes: bool) -> None:
    """Ask for a yes, unless it was said.

    Raises:
        UserError: there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(
            f"{question} There is no terminal to answer at; say --yes", code="confirmation-missing"
        )
    if not typer.confirm(question):
        raise typer.Abort
