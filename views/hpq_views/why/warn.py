"""Print warnings after a command queued trials: no worker runs them, or no store keeps files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hpq.access.session import Session
from hpq.code.signing import own_directory
from hpq.code.snapshot import changed
from hpq.domain.status import SweepStatus, Worker
from hpq.domain.sweep import SweepView
from hpq.notice import Notice, print_message
from hpq_views.why.waiting import explain_no_start

_SHORT_S = 600.0  # no notice for trials of a shorter timeout: they lose little
_LOSES = "a trial that loses its worker restarts from the beginning"
_REMEDY = "set HPQ_STORE to a directory that all workers share, or a URL"
POD_STORE = (  # for pods
    "write `store: {}` in cluster.yaml and apply `hpq manifests cluster.yaml`,"
    " or set HPQ_STORE to a URL"
)


def explain_missing_store(
    sweep: SweepView, workers: Sequence[Worker], *, is_set_here: bool, in_cluster: bool = False
) -> Notice | None:
    """Return a notice if trials could lose hours because workers have no file store.

    Live workers report whether they have a store; without live workers, `is_set_here` (HPQ_STORE)
    decides. `in_cluster`: `hpq connect` reaches Redis, so workers are pods.
    """
    if not sweep.keep and 0 < sweep.timeout_s <= _SHORT_S:
        return None
    answers = [w.store for w in workers if w.is_for(sweep.id) and w.store]
    without = answers.count("no")
    if not without and (answers or is_set_here):
        return None
    if not answers and not sweep.keep and not sweep.timeout_s:
        return None  # trials may be short, and workers may have a store
    if not answers:
        what = "HPQ_STORE is not set here; if workers have none,"
    elif without == len(answers):
        what = "no live worker has HPQ_STORE:"
    else:
        have = "has" if without == 1 else "have"
        what = f"{without} of {len(answers)} live workers {have} no HPQ_STORE:"
    kept = ", and `keep` keeps no files" if sweep.keep else ""
    in_pods = in_cluster or any(w.pod for w in workers if w.store == "no")
    return Notice("no-store", f"{what} {_LOSES}{kept}; {POD_STORE if in_pods else _REMEDY}")


def print_if_no_store(session: Session, status: SweepStatus) -> None:
    """Print the notice of `explain_missing_store`."""
    sweep = status.sweep
    if session.is_private and not sweep.keep:
        return  # the next command is usually `hpq run`, which has a store
    is_set = bool(session.settings.store) or session.is_private
    reason = explain_missing_store(
        sweep,
        status.workers,
        is_set_here=is_set,
        in_cluster=session.connection is not None,
    )
    if reason:
        print_message(f"note: {reason}")


def print_if_not_running(session: Session, sid: str) -> None:
    """Print why no live worker claims a sweep's trials soon, with the remedy."""
    status = session.reader.status(sid, rows=0, top=0, recent=0)
    if reason := explain_no_start(status, session):
        print_message(reason)


def edited_since(session: Session, sweep: SweepView, folder: str) -> str:
    """Return which files of a working copy differ from the code of a sweep; "" if none does.

    `folder` is the working directory of that copy, as `code_dir` is the one of the enqueue.
    """
    launch = sweep.launch
    below = os.path.relpath(launch.root, launch.code_dir) if launch.root else ""
    root = Path(os.path.normpath(os.path.join(folder, below)))
    edited = changed(root, session.reader.sweeps.manifest(launch.code))
    more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
    return f"{root / edited[0]}{more}" if edited else ""


def print_if_edited(session: Session, sweep: SweepView) -> None:
    """Say which code a sweep runs, if the code here was edited since the enqueue."""
    folder = own_directory(session.settings, sweep)
    edited = edited_since(session, sweep, str(folder)) if folder else ""
    if edited and not sweep.launch.bundled:
        text = f"{edited} changed since the enqueue; {sweep.id} runs it as it is now (--live)"
        print_message(Notice("code-edited", text))
    elif edited:
        text = (
            f"{edited} changed since the enqueue; {sweep.id} runs the code that was enqueued."
            " To run the new code: hpq enqueue FILE"
        )
        print_message(Notice("code-edited", text))
