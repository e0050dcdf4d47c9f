"""Unknown keys at the top of a sweep file: those that are refused, and why; any other is ignored.

W&B ignores each key that it does not know. hpq refuses one that the user means, in words of its
own, and one that is near a key of hpq.
"""

from __future__ import annotations

from collections.abc import Collection

from hpq.domain.trial import Json
from hpq.error_codes import Code
from hpq.yamlfile.problems import Problems, nearest

_NOT_SUPPORTED: dict[str, tuple[Code, str]] = {
    key: ("unsupported-key", f"not supported: {why}")
    for key, why in {
        "scheduler": "W&B's schedulers; write method: bayes, and the engine as sampler: tpe",
        "job": "hpq runs no W&B Launch jobs; write program or trainer",
        "image_uri": "the worker's deployment chooses the image; remove it",
        "tags": "tags are not part of a sweep's definition; hpq enqueue FILE --tag WORD",
        "notify": "the URL is a secret; set HPQ_NOTIFY for workers",
    }.items()
}
# Words of other tools, and hpq's own. W&B would ignore them, and the user means them.
_IN_OTHER_WORDS: dict[str, tuple[Code, str]] = {
    word: ("unknown-key", f"unknown key; {way}")
    for words, way in {
        "gpus gpu num_gpus": "the worker decides: hpq run or hpq worker with --gpus N",
        "workers num_workers": "the worker decides: hpq run or hpq worker with --workers N",
        "env environment": "trials have the worker's variables; write pass_env: [NAME] for pods",
        "time_limit max_time": "write timeout: 2h",
        "pruner early_stopping": "write early_terminate: {type: hyperband, min_iter: 3}",
        "count trial trials n_trials num_trials max_trials num_samples": "write run_cap: N",
        "n_jobs concurrency max_concurrent_trials": "write max_parallel: N",
        "max_retries max_failures": "write retries: N",
    }.items()
    for word in words.split()
}
_NOT_OF_A_LIST: dict[str, tuple[Code, str]] = dict.fromkeys(
    ("method", "parameters", "order", "when", "exclude", "derive", "require", "zip", "points"),
    ("conflicting-keys", "excludes a list of entries; remove it"),
)
REJECTED = {**_NOT_SUPPORTED, **_IN_OTHER_WORDS, **_NOT_OF_A_LIST}


def drop_unknown(data: dict[str, Json], known: Collection[str], out: Problems) -> None:
    """Drop the top-level keys that W&B ignores, with a warning each.

    A key like one of `known` stays, as does a flag's: `strict_model.check` reports them.
    """
    for key in [*data]:
        is_known = key in known or key in REJECTED
        if not (is_known or (key,) in out.source_map.flags or nearest(key, known)):
            out.warn((key,), "unknown key, ignored, as by W&B; remove it", code="key-ignored")
            del data[key]
