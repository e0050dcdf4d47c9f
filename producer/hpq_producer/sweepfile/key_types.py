"""Types of keys that only sweep files have: what each accepts, and its JSON schema."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from hpq.domain import durations
from hpq.domain.budget import Budget
from hpq.domain.constraint import CONSTRAINT_RULE
from hpq.domain.trial import Json
from hpq.reporting import metric_name
from hpq.yamlfile.problems import shown
from hpq.yamlfile.strict_model import (
    Absent,
    AnyText,
    Keys,
    Matching,
    Number,
    Text,
    Whole,
    json_pattern,
)

# With Hydra's: +new, ++both, ~removed, group/option, group@package.
PARAMETER_NAME = re.compile(r"(?:\+{1,2}|~)?[A-Za-z_][A-Za-z0-9_./@-]{0,99}\Z")
_NAME_RULE = "use 1 to 100 printable characters, no '-' first"
_MOST_CONSTRAINTS = 20


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{shown(text)} is invalid; {_NAME_RULE}")
    return text


def _constraints(found: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(found) <= _MOST_CONSTRAINTS:
        raise ValueError(f"{len(found)} entries; write 1 to {_MOST_CONSTRAINTS}, or remove the key")
    return found


Count = Annotated[Whole, Field(ge=1, le=2**31)]
Name = Annotated[
    AnyText,
    Matching(re.compile(r"(?![ -])[^\x00-\x1f\x7f]{1,100}\Z"), _NAME_RULE),
    AfterValidator(_printable),
]
Owner = Annotated[
    AnyText, Matching(re.compile(r"[^\x00-\x20\x7f]{1,64}\Z"), "use 1 to 64 characters, no spaces")
]
Variable = Annotated[
    AnyText,
    Matching(
        re.compile(r"(?!HPQ_)[A-Za-z_][A-Za-z0-9_]*\Z"),
        "use names of environment variables that do not begin with HPQ_",
    ),
]
MetricName = Annotated[Text, AfterValidator(metric_name)]
ConstraintText = Annotated[
    AnyText, Matching(CONSTRAINT_RULE, "write NAME <= NUMBER or NAME >= NUMBER")
]
Constraints = Annotated[
    tuple[ConstraintText, ...],
    AfterValidator(_constraints),
    Field(json_schema_extra={"minItems": 1, "maxItems": _MOST_CONSTRAINTS}),
]
Module = Annotated[
    AnyText,
    Matching(
        re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z"), "use names of modules"
    ),
]
Duration = Annotated[
    float,
    PlainValidator(durations.seconds),
    WithJsonSchema(
        {
            "type": ["number", "string"],
            "minimum": 0,
            "maximum": durations.MAX_SECONDS,
            "pattern": json_pattern(re.compile(durations.PATTERN)),
        }
    ),
]
Until = Annotated[
    int,
    PlainValidator(durations.until_ms),
    WithJsonSchema({"type": "string", "examples": ["+8h", "08:00", "2027-01-31T08:00+01:00"]}),
]
ParameterName = Annotated[str, Field(pattern=json_pattern(PARAMETER_NAME))]


def _lasting(seconds: float) -> float:
    if not seconds:
        raise ValueError("0 is not a time; write 30m, or remove stall")
    return seconds


class IdleKeys(Keys):
    """How little of its GPUs a trial may use, and for how long."""

    gpu_below: Annotated[Number, Field(gt=0, le=100)] = Field(
        description="Percent of GPU use.", examples=[10]
    )
    lasting: Annotated[Duration, AfterValidator(_lasting)] = Field(
        alias="for",
        description="How long use is below that.",
        examples=["30m"],
        json_schema_extra={"exclusiveMinimum": 0},
    )


Stall = Annotated[
    Annotated[Duration, Tag("duration")] | Annotated[IdleKeys, Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, dict) else "duration"),
]


class BudgetKeys(Keys):
    """What the sweep may spend; no trial starts that is not expected to fit."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [{"gpu_hours": 40, "until": "+8h"}],
        }
    )
    gpu_hours: Absent[Annotated[Number, Field(ge=0.001, le=10_000_000)]] = Field(
        None, description="Hours of all attempts times the GPUs of a trial."
    )
    until: Absent[Until] = Field(None, description="When the trials must have ended.")

    @model_validator(mode="before")
    @classmethod
    def _names_its_keys(cls, value: Json) -> Json:
        """Name the key of one number, or of one time."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(f"{shown(value)} is not a mapping; write {{gpu_hours: {value}}}")
        if isinstance(value, str):
            time = f"+{value}" if re.fullmatch(durations.PATTERN, value) else value
            try:
                durations.until_ms(time)
            except ValueError:
                return value
            raise ValueError(f"{shown(value)} is not a mapping; write {{until: {time}}}")
        return value

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("empty; write {gpu_hours: 40, until: +8h} or remove it")
        return self

    def budget(self) -> Budget:
        """Return the budget of a sweep that has spent nothing."""
        return Budget.of_hours(self.gpu_hours or 0, self.until or 0)
