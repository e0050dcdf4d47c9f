"""Explain edited code of an unfinished sweep of the same file: that sweep keeps its own code."""

from __future__ import annotations

from itertools import islice

from hpq.domain.identity import slug
from hpq.domain.sweep import SweepView
from hpq.shell import shell_hint
from hpq.store.reader import StoreReader
from hpq_producer.enqueue.submission import Submission
from hpq_producer.terminal.text import clean

_NEWEST = 1_000  # ids that are read, in one call
_MOST = 4  # sweeps that are read: the new one, and the newest others of its name


def explain_predecessor(reader: StoreReader, submission: Submission, new: SweepView) -> str:
    """Return the older sweep's progress and the command to continue it; "" if there is none."""
    launch, spec = submission.code.launch, submission.spec
    ids = (sid for sid in reader.sweeps.ids(_NEWEST) if sid.rpartition("-")[0] == slug(spec.name))
    for sweep in reader.sweeps.get_each([*islice(ids, _MOST)]):
        if not isinstance(sweep, SweepView) or sweep.state.is_over or sweep.id == new.id:
            continue
        is_same_file = (sweep.spec, sweep.seed) == (spec.source, spec.keys.seed)
        if is_same_file and _is_edited(sweep, new) and sweep.launch.code_dir == launch.code_dir:
            return _explain(reader, submission, sweep, new)
    return ""


def _is_edited(sweep: SweepView, new: SweepView) -> bool:
    names = [(s.launch.trainer, s.launch.program, s.launch.command) for s in (sweep, new)]
    is_same = sweep.owner == new.owner and sweep.launch.is_frozen and names[0] == names[1]
    return is_same and sweep.launch.code != new.launch.code


def _explain(reader: StoreReader, submission: Submission, sweep: SweepView, new: SweepView) -> str:
    was, now = reader.sweeps.manifest(sweep.launch.code), submission.code.manifest
    edited = sorted(p for p in {*was, *now} if was.get(p) != now.get(p)) if was else []
    more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
    what = f"{clean(edited[0])}{more}" if edited else "the code"
    finished = f"{sweep.counts.finished} of {sweep.counts.planned:g} finished"
    again = shell_hint(["hpq", "run", str(submission.file), "--reuse", "--any-code"])
    return (
        f"{what} changed since {sweep.id} ({finished}). Starting sweep {new.id} with the new code."
        f"\nTo continue the old one:\n  hpq run {sweep.id}\nTo import its results:\n  {again}"
    )
