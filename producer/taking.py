"""Says why nobody takes a sweep, or keeps what it saves; what made trials wait calls it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from hpq import code
from hpq.codes import Notice
from hpq.hyperparams import SHIPPED
from hpq.sweep import Sweep
from producer.cluster.api import has_kubeconfig
from producer.look.stores import why_not_kept
from producer.look.takers import OF_A_CLUSTER, why_full, why_not_taken
from producer.look.turns import why_behind
from producer.session import Session


def say_if_not_kept(session: Session, sweep: Sweep) -> None:
    """Say that trials may lose hours where there is no store."""
    if session.is_private and not sweep.keep:
        return  # `hpq run` comes next, most often, and has a store
    is_set = bool(session.settings.store) or session.is_private
    reason = why_not_kept(
        sweep,
        session.view.workers(sweep.worker_class),
        is_set_here=is_set,
        in_cluster=session.tunnel is not None,
    )
    if reason:
        print(f"note: {reason}", file=sys.stderr)


def say_if_not_taken(session: Session, sid: str, *, code_is_read: bool = False) -> None:
    """Say why no live worker can or will soon take a sweep that waits for one, with the remedy.

    `code_is_read`: the sweep's code was compared just now, and is not read again.
    """
    sweep = session.view.sweep(sid)
    if sweep.state.is_over:
        return
    reason = why_full(session.view.room())
    if not reason and not code_is_read:
        reason = _edited(session, sweep)
    if not reason:
        workers = session.view.workers(sweep.worker_class)
        reason = why_not_taken(sweep, workers, SHIPPED, in_cluster=session.tunnel is not None)
        if reason and not workers:
            reason = replace(reason, text=reason.text + of_a_cluster(session))
        elif not reason and not sweep.counts.running:
            reason = why_behind(sweep, session.view.ahead_of([sweep])[sid], workers, SHIPPED)
    if reason:
        print(reason, file=sys.stderr)


def of_a_cluster(session: Session) -> str:
    """What to add where a cluster's Redis may have been meant; nothing where it was reached."""
    return OF_A_CLUSTER if session.is_private and has_kubeconfig(os.environ) else ""


def _edited(session: Session, sweep: Sweep) -> Notice | None:
    """Why workers that see this directory will leave it, where they had no time yet to say so."""
    folder = Path(sweep.launch.code_dir)
    if not sweep.launch.code_dir or not folder.is_dir():
        return None
    path = code.changed(folder, dict(session.view.manifest(sweep.launch.code)))
    if path is None:
        return None
    return Notice(
        "code-edited",
        f"{folder / path} was edited after enqueue, and workers here leave the trials of"
        f" {sweep.id}; enqueue again to run the new code, or take the edit back",
    )
