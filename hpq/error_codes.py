"""Every exit code, and every id of an error, a finding or a notice.

Scripts and tests read the id, people the words: `hpq: no sweep begins with 'x' [sweep-not-found]`.
An id stays when its text changes. mypy rejects an id that is not in this table. A failed trial's id
is its `FailureKind`. Which error ends a command with which exit code is in hpq/errors.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal


class ExitCode(IntEnum):
    """The exit codes of commands (`hpq --help` prints them)."""

    DONE = 0
    SOME_FAILED = 1
    USER = 2
    OUT_OF_REACH = 3
    UNKNOWN = 4
    HELD = 5
    OVER_BUDGET = 6
    TIME_UP = 7  # of an allocation; trials are left
    INTERRUPTED = 130


Code = Literal[
    # errors, findings and notices
    "acl-default-user", "acl-unsaved", "archive-invalid", "archive-torn",
    "attempt-lost",
    "autoscaled", "behind", "budget-near", "budget-spent", "checkpoint-not-kept",
    "cluster-answers", "cluster-credentials-refused", "cluster-file-invalid", "cluster-forbidden",
    "cluster-object-missing", "cluster-refused", "cluster-unreachable", "code-altered",
    "code-edited", "code-invalid",
    "code-key", "code-key-differs", "code-key-exposed", "code-key-missing", "code-key-unreadable",
    "code-key-unwritable", "code-missing", "code-not-allowed", "code-not-kept", "code-not-signed",
    "code-too-large", "column-unknown", "command-unknown",
    "confirmation-missing", "connected-already", "connection-changing", "connection-ended",
    "connection-lost", "constraints-unmet", "context-unknown", "counter", "cuda-mismatch",
    "data-found", "data-missing", "declined", "disk-full", "disk-low", "drain-undone", "drained",
    "expression-invalid", "extra-missing", "failed", "file-encoding",
    "file-exists", "file-not-found", "file-overwritten", "file-too-large", "file-unreadable",
    "file-unwritable", "files-not-kept", "files-not-stored", "filter-name-unknown", "forbidden",
    "gpus", "gpus-missing",
    "held", "histories-dropped", "home-elsewhere", "home-locked", "home-unusable",
    "hpq-too-old", "ignore-file-invalid", "install-incomplete", "internal", "invitation-invalid",
    "kubeconfig-unusable", "limit-fixed", "metric-unreported",
    "metrics-differ", "metrics-several", "namespace", "no-checkpoint",
    "no-data",
    "no-deployment", "no-files", "no-gpu", "no-result", "no-store", "no-sweep", "no-torch",
    "no-worker", "not-found", "not-redis", "not-connected", "not-narrowed", "one-sweep-only",
    "openssl-failed", "option-rejected", "out-of-reach", "outside-root", "owner-limit",
    "parameters-altered",
    "parameters-unverified", "pod-trouble", "pods",
    "pods-refused", "pods-starting", "port-unusable", "private-redis-failed",
    "private-redis-orphaned", "private-redis-record-invalid", "program-ambiguous",
    "program-missing", "python-not-found", "python-other", "python-own", "redis-answers",
    "redis-away", "redis-back", "redis-binary-missing", "redis-binary-too-old",
    "redis-cluster-mode", "redis-disk-full", "redis-evicts", "redis-forbidden",
    "redis-loading", "redis-memory", "redis-memory-unlimited", "redis-not-durable",
    "redis-password-refused", "redis-password-unreadable", "redis-pod-missing",
    "redis-pod-not-ready", "redis-read-only", "redis-replica", "redis-tls", "redis-tls-unverified",
    "redis-too-old", "redis-unreachable", "redis-url-invalid", "restore-busy",
    "result-not-on-disk", "result-on-disk", "result-unknown",
    "rows-expired", "sampler-failed", "scaled-to-0", "script-invalid",
    "script-without-options", "secret-missing", "secrets-on-terminal",
    "server-went-back", "sets-listed",
    "setting-fixed", "setting-invalid", "setting-missing", "setting-secret", "setting-unknown",
    "store-differs", "store-unusable", "store-unwritable",
    "store-works", "supervisor-hung", "sweep-ambiguous", "sweep-changed",
    "sweep-exists", "sweep-file-empty", "sweep-file-invalid", "sweep-file-is-script", "sweep-grows",
    "sweep-held", "sweep-held-remedy",
    "sweep-missing", "sweep-not-found", "sweep-of-another", "sweep-over",
    "sweep-paused", "sweep-reused", "timed-out",
    "tls-file-unreadable", "token-exposed", "trainer-invalid", "trainer-missing",
    "trainer-not-found", "training-restarted", "training-resumed",
    "trial-not-begun", "trial-not-found", "trial-returned", "trial-unknown",
    "trials-failed", "trials-running", "usage", "value-not-for-shells", "value-to-fill-in",
    "value-unreadable",
    "versions-differ", "volume", "volume-unbound", "volume-unknown", "wandb-missing",
    "worker-ambiguous", "worker-down", "worker-ended", "worker-fault", "worker-missing",
    "worker-not-found", "worker-silent", "worker-stopping", "worker-suspect", "workers-are-pods",
    "workers-pinned", "workers-unwilling", "workers-without-store", "wrong-place",
    # of Slurm
    "home-on-network", "redis-local", "time-left-short",
    # lines of a sweep file
    "ambiguous-word", "circular-condition", "condition-unmet", "conditions-costly",
    "conflicting-keys", "duplicate-name", "duplicate-set", "duplicate-value", "exponents",
    "fewer-sets", "fractional", "invalid-value", "key-ignored", "metric-renamed", "missing-key",
    "missing-parameter", "more-problems", "no-set-left", "not-a-grid", "not-computed",
    "outside-space", "replicates-cut", "set-too-large",
    "sets-left-out", "too-many-sets", "unknown-distribution", "unknown-key", "unknown-macro",
    "unknown-parameter", "unknown-trainer", "unsupported-key",
]  # fmt: skip
