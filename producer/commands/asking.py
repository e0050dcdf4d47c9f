"""Whose sweep it is, and whether they mean it: what a command asks that ends something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from hpq.errors import Forbidden, UserError
from hpq.sweep import Sweep
from producer.completion import sweep_ids
from producer.session import Session, open_session

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Other = Annotated[bool, typer.Option("--force", help="Also a sweep of somebody else.")]
Targets = Annotated[
    list[str] | None,
    typer.Argument(
        help="A sweep, or trials of it: SWEEP/7, or 7 of my last.", autocompletion=sweep_ids
    ),
]


def mine(session: Session, ref: str | None, force: bool) -> Sweep:
    """The sweep that is meant, if I may touch it."""
    sweep = session.view.sweep(session.view.resolve(ref, session.settings.user))
    if sweep.owner != session.settings.user and not force:
        raise Forbidden(f"sweep {sweep.id} is {sweep.owner}'s; --force does it all the same")
    return sweep


@contextmanager
def ending(
    ref: str | None, verb: str, force: bool, *, some: bool = False
) -> Iterator[tuple[Session, Sweep]]:
    """A session and the sweep to end: named where nobody is asked, and on a server of others.

    There, `some` trials of my last sweep may be meant by their numbers.

    Raises:
        UserError: it has to be named.
    """
    if ref is None and not sys.stdin.isatty():
        raise _unnamed(verb)
    with open_session() as session:
        if ref is None and not session.is_private and not some:
            raise _unnamed(verb)
        yield session, mine(session, ref, force)


def _unnamed(verb: str) -> UserError:
    return UserError(f"say which sweep to {verb}: `hpq ls` lists them")


def ask(question: str, yes: bool) -> None:
    """Ask for a yes, unless it was said.

    Raises:
        UserError: there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{question} There is no terminal to answer at; say --yes")
    if not typer.confirm(question):
        raise typer.Abort
