"""`hpq drain`: workers end what runs and take nothing more; then their pods go."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Annotated

import typer

from hpq.errors import UserError
from hpq.snapshot import Worker
from producer.cluster.leaving import Leaving, chosen, let_go
from producer.cluster.opening import Opened, open_cluster
from producer.commands.options import Context, Namespace
from producer.here import settings_here
from producer.look.out import talk
from producer.look.text import clean, trials_of
from producer.session import Session, open_session
from producer.writing import store_of

app = typer.Typer()
_POLL_S = 1.0


@app.command("drain")
def drain(
    names: Annotated[
        list[str] | None, typer.Argument(help="Workers or pods, or beginnings of their names.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let them take trials again.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Let drained pods stay.")] = False,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Let workers end what they run and take nothing more; pods go once they have."""
    if bool(names) == all_:
        raise UserError("name workers or pods, or say --all; `hpq workers` lists them")
    with ExitStack() as stack:
        opened = _open(stack, context, namespace)
        session = opened if isinstance(opened, Session) else opened.session
        assert session is not None
        live = session.view.workers()
        them = live if all_ else chosen(live, names or ())
        for worker in them:
            at = store_of(session).drain(worker.name, undo=undo)
            talk(f"{clean(worker.name)}: {_words(at, undo)}")
        pods = {w.pod for w in them if w.pod}
        if not them:
            talk("no worker is alive")
        if undo or not them:
            return
        if pods and not stay:
            _see_off(opened, session, them, pods)
        elif not pods:
            talk("they stay, drained: stop them where they run, or `hpq drain --undo`")


def _open(stack: ExitStack, context: str | None, namespace: str | None) -> Opened | Session:
    """The cluster where one is meant; without, whatever Redis there is."""
    settings = settings_here()
    if context is None and namespace is None and not settings.redis_url:
        return stack.enter_context(open_session(settings))
    return stack.enter_context(open_cluster(context, namespace))


def _words(at: str | None, undo: bool) -> str:
    if at is None:
        return "gone"
    if undo:
        return "takes trials again"
    return f"ends {clean(at)}, and takes nothing more" if at else "idle, and takes nothing more"


def _see_off(
    opened: Opened | Session, session: Session, them: list[Worker], pods: set[str]
) -> None:
    leaving, gone = Leaving(session.view, store_of(session), [w.name for w in them]), set[str]()
    while True:
        busy, _ = leaving.look()
        done = pods - {w.pod for w in busy} - gone
        if done and isinstance(opened, Opened):
            for line in let_go(opened.api, done):
                talk(clean(line))
        gone |= done
        if not busy:
            return
        try:
            time.sleep(_POLL_S)
        except KeyboardInterrupt:
            talk(f"{trials_of(len(busy), 'worker')} still at work and draining; --undo ends that")
            raise
