"""Print warnings after queueing trials: no worker runs them, or no store keeps their files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpq.code.manifest import changed
from hpq.code.signing import home_id
from hpq.codes import Notice
from hpq.domain.snapshot import Worker
from hpq.domain.sweep import Sweep
from hpq.domain.trainer_specs import SHIPPED
from hpq_producer.cluster.api import has_kubeconfig
from hpq_producer.diagnosis.waiting import (
    CLUSTER_HINT,
    explain_full_server,
    explain_no_worker,
    explain_queue_position,
)
from hpq_producer.session import Session
from hpq_producer.terminal.text import shell_line

_SHORT_S = 600.0  # of a timeout: what is lost of such a trial is not worth a line
_LOSES = "a trial that loses its worker starts again from its beginning"
_REMEDY = "set it to a directory that all of them see, or a URL"
POD_STORE = "`hpq manifests … --with store`, or a URL as their HPQ_STORE"  # how pods get one


def explain_missing_store(
    sweep: Sweep, workers: Sequence[Worker], *, is_set_here: bool, in_cluster: bool = False
) -> Notice | None:
    """One line where trials could lose hours for want of a store; None where nothing is to say.

    Live workers say whether they have one; where there are none yet, HPQ_STORE here is the sign.
    `in_cluster` where Redis is reached by `hpq connect`, so that workers are pods.
    """
    if not sweep.keep and 0 < sweep.timeout_s <= _SHORT_S:
        return None
    answers = [w.store for w in workers if w.is_for(sweep.id) and w.store]
    without = answers.count("no")
    if not without and (answers or is_set_here):
        return None
    if not answers and not sweep.keep and not sweep.timeout_s:
        return None  # nobody knows, neither whether there is one nor whether trials are long
    if not answers:
        who = "HPQ_STORE is not set here; where workers have none,"
    elif without == len(answers):
        who = "no live worker has HPQ_STORE:"
    else:
        have = "has" if without == 1 else "have"
        who = f"{without} of {len(answers)} live workers {have} no HPQ_STORE:"
    kept = ", and `keep` keeps nothing" if sweep.keep else ""
    in_pods = in_cluster or any(w.pod for w in workers if w.store == "no")
    remedy = f"give them one: {POD_STORE}" if in_pods else _REMEDY
    return Notice("no-store", f"{who} {_LOSES}{kept}; {remedy}")


def print_if_no_store(session: Session, sweep: Sweep) -> None:
    """Say that trials may lose hours where there is no store."""
    if session.is_private and not sweep.keep:
        return  # `hpq run` comes next, most often, and has a store
    is_set = bool(session.settings.store) or session.is_private
    reason = explain_missing_store(
        sweep,
        session.reader.workers.live(sweep.worker_class),
        is_set_here=is_set,
        in_cluster=session.connection is not None,
    )
    if reason:
        print(f"note: {reason}", file=sys.stderr)


def print_if_not_running(session: Session, sid: str) -> None:
    """Say why no live worker can or will soon take a sweep that waits for one, with the remedy."""
    sweep = session.reader.sweeps.get(sid)
    if sweep.state.is_over:
        return
    reason = explain_full_server(session.reader.server_memory())
    if not reason:
        workers = session.reader.workers.live(sweep.worker_class)
        reason = explain_no_worker(
            sweep, workers, SHIPPED, in_cluster=session.connection is not None
        )
        if reason and not workers:
            reason = replace(reason, text=reason.text + cluster_hint(session))
        elif not reason and not sweep.counts.running:
            reason = explain_queue_position(
                sweep, session.reader.sweeps.ahead_of([sweep])[sid], workers, SHIPPED
            )
    if reason:
        print(reason, file=sys.stderr)


def cluster_hint(session: Session) -> str:
    """What to add where a cluster's Redis may have been meant; nothing where it was reached."""
    return CLUSTER_HINT if session.is_private and has_kubeconfig(os.environ) else ""


def print_if_edited(session: Session, sweep: Sweep) -> None:
    """Say that a sweep runs the code that was enqueued, if the code was edited since."""
    launch = sweep.launch
    root = Path(launch.root)
    if not launch.is_frozen or launch.home != home_id(session.settings.home) or not root.is_dir():
        return
    edited = changed(root, session.reader.sweeps.manifest(launch.code))
    if edited:
        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        command = shell_line(["hpq", "enqueue", str(sweep.provenance.get("file") or "FILE")])
        text = (
            f"{root / edited[0]}{more} changed since; {sweep.id} runs the code that was enqueued."
            f" To run the new code: {command}"
        )
        print(Notice("code-edited", text), file=sys.stderr)
