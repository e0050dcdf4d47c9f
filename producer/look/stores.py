"""Whether what a sweep's trials save outlives their workers, and what to do where not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hpq.codes import Notice
from hpq.snapshot import Worker
from hpq.sweep import Sweep

_SHORT_S = 600.0  # of a timeout: what is lost of such a trial is not worth a line
_LOSES = "a trial that loses its worker starts again from its beginning"
_REMEDY = "set it to a directory that all of them see, or a URL"
OF_PODS = "`hpq manifests … --with store`, or a URL as their HPQ_STORE"  # how pods get one


def why_not_kept(
    sweep: Sweep, workers: Sequence[Worker], *, is_set_here: bool, in_cluster: bool = False
) -> Notice | None:
    """One line where trials could lose hours for want of a store; None where nothing is to say.

    Live workers say whether they have one; where there are none yet, HPQ_STORE here is the sign.
    `in_cluster` where Redis is reached by `hpq connect`, so that workers are pods.
    """
    if not sweep.keep and 0 < sweep.timeout_s <= _SHORT_S:
        return None
    told = [w.store for w in workers if w.is_for(sweep.id) and w.store]
    without = told.count("no")
    if not without and (told or is_set_here):
        return None
    if not told and not sweep.keep and not sweep.timeout_s:
        return None  # nobody knows, neither whether there is one nor whether trials are long
    if not told:
        who = "HPQ_STORE is not set here; where workers have none,"
    elif without == len(told):
        who = "no live worker has HPQ_STORE:"
    else:
        have = "has" if without == 1 else "have"
        who = f"{without} of {len(told)} live workers {have} no HPQ_STORE:"
    kept = ", and `keep` keeps nothing" if sweep.keep else ""
    in_pods = in_cluster or any(w.pod for w in workers if w.store == "no")
    remedy = f"give them one: {OF_PODS}" if in_pods else _REMEDY
    return Notice("no-store", f"{who} {_LOSES}{kept}; {remedy}")
