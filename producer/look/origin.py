"""`hpq show --provenance`: all that is known of where a sweep, or a trial's attempts, came from."""

from __future__ import annotations

from typing import Any

from hpq.trial import TrialId
from hpq.view import View

Origin = dict[str, Any]


def origin_of(view: View, found: TrialId | str) -> Origin:
    """The file as given, git's state with the diff, the code; of a trial also its attempts."""
    sid = found if isinstance(found, str) else found.sweep
    sweep = view.sweep(sid)
    manifest = view.manifest(sweep.launch.code)
    told = dict(sweep.provenance)
    git = told.get("git")
    diff = view.origin(sid, "diff")
    if isinstance(git, dict):
        kept = len(diff.encode())
        whole = git.get("diff_bytes")
        is_cut = isinstance(whole, int) and kept < whole
        told["git"] = {**git, "diff": diff, "diff_is_cut": is_cut}
    answer: Origin = {
        "sweep": sid,
        "seed": sweep.seed,
        "owner": sweep.owner,
        **told,
        "code": {
            "digest": sweep.launch.code,
            "directory": sweep.launch.code_dir,
            "kept": bool(sweep.bundle),
            "sent": sweep.launch.bundled,
            "files": dict(manifest),
        },
    }
    if isinstance(found, TrialId):
        answer |= {"trial": str(found), "params": dict(view.trial(found).params)}
        answer["attempts"] = _attempts(view, found)
    return answer


def _attempts(view: View, trial: TrialId) -> list[Origin]:
    """Each attempt with what it ran on; the last one's is in the trial itself, too."""
    row = view.trial(trial)
    found: list[Origin] = []
    for event in view.story(trial):
        if event.what not in ("claimed", "reused"):
            continue
        fields, number = event.fields, event.attempt
        digest = fields.get("provenance") or (row.provenance if number == row.attempt else "")
        told = {"attempt": number, "worker": fields.get("worker"), "host": fields.get("host")}
        if event.what == "reused":
            told = {"attempt": number, "from": fields.get("from")}
        found.append({**told, "ran_on": dict(view.provenance(digest))})
    return found
