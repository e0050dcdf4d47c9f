"""Ask sweep.schema.json, as an editor does, whether a sweep file is right."""

from __future__ import annotations

import json

import jsonschema

from hpq.domain.trial import Json
from hpq.notice import Notice
from hpq_producer.sweepfile.model import SCHEMA_FILE

_VALIDATOR = jsonschema.Draft7Validator(json.loads(SCHEMA_FILE.read_text("utf-8")))
# What a JSON schema cannot say: ids of errors, and below which keys they have them.
_BEYOND_A_SCHEMA = {
    **dict.fromkeys(
        (
            "ambiguous-word", "circular-condition", "condition-unmet", "conditions-costly",
            "duplicate-name", "expression-invalid", "fractional", "missing-parameter",
            "no-set-left", "not-a-grid", "outside-space", "replicates-cut", "set-too-large",
            "too-many-sets", "unknown-macro", "unknown-parameter", "unknown-trainer",
        ),
        ("",),
    ),
    # min < max, sums, sizes, NaN, what a built-in trainer accepts
    "invalid-value": (
        "parameters.", "[0].", "when.", "metric.target", "early_terminate.m", "metrics",
        "derive.", "require[", "zip[",
        "budget.until",  # in the past, without a zone
    ),
    # keys of a distribution, and whether the code is a trainer or a program
    "conflicting-keys": (
        "parameters.", "resident", "metric", "keep.best", "sampler", "derive.", "points[", "zip[",
    ),
    "missing-key": ("parameters.", "early_terminate", "metric", "command[", "constraints"),
}  # fmt: skip


def accepts(data: Json) -> bool:
    """Return whether the schema accepts a file's data."""
    return bool(_VALIDATOR.is_valid(data))


def is_beyond(notice: Notice) -> bool:
    """Return whether a JSON schema cannot express the rule of an error `FILE:1:1: path: …`."""
    path = notice.text.split(": ")[1]
    return path.startswith(_BEYOND_A_SCHEMA.get(notice.code, "-"))
