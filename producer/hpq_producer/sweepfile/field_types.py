"""The types of a file's keys: what each accepts, for the model and its JSON schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Strict,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hpq.domain.budget import Budget
from hpq.domain.constraint import CONSTRAINT_RULE
from hpq.domain.sweep import NAME_RULE
from hpq.domain.trial import Json
from hpq.error_ids import Code
from hpq.reporting import metric_name
from hpq_producer import durations
from hpq_producer.sweepfile.errors import is_passable, shown

# With Hydra's: +new, ++both, ~removed, group/option, group@package.
PARAMETER_NAME = re.compile(r"(?:\+{1,2}|~)?[A-Za-z_][A-Za-z0-9_./@-]{0,99}\Z")
_NAME_RULE = "use 1 to 100 printable characters, no '-' first"
_MOST_CONSTRAINTS = 20

T = TypeVar("T")


class _NotNull:
    """Accept what T accepts: None is for an absent key only."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return cast(core_schema.NullableSchema, handler(source))["schema"]


Absent = Annotated[T | None, _NotNull()]


def problem(code: Code, text: str, key: str = "") -> PydanticCustomError:
    """Return an error in hpq's words; `key` is the key of the mapping that it is about."""
    return PydanticCustomError(code, "{text}", {"text": text, "key": key})


@dataclass(frozen=True)
class Matching:
    """Accept a text that the rule matches whole; `allowed` says in a message what does."""

    rule: re.Pattern[str]
    allowed: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        pattern = _pattern(self.rule)
        return {**handler(schema), "pattern": pattern, "patternErrorMessage": self.allowed}

    def _check(self, text: str) -> str:
        if not self.rule.match(text):
            raise ValueError(f"{shown(text)} is invalid; {self.allowed}")
        return text


def _pattern(rule: re.Pattern[str]) -> str:
    """Return a rule for whole texts as JSON schemas write it."""
    return "^(?:" + rule.pattern.removesuffix(r"\Z") + ")$"


def _passable(text: str) -> str:
    if not is_passable(json.dumps(text, ensure_ascii=False)):
        what = "contains a character that no program argument can hold"
        raise ValueError(f"{shown(text)} {what}")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{shown(text)} is invalid; {_NAME_RULE}")
    return text


def _constraints(found: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(found) <= _MOST_CONSTRAINTS:
        raise ValueError(f"{len(found)} entries; write 1 to {_MOST_CONSTRAINTS}, or remove the key")
    return found


def number_as_text(value: Json) -> Json:
    """Write a number as text, as W&B does in a command."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number and math.isfinite(value) else value  # type: ignore[arg-type]


NotEmpty = Annotated[T, Field(min_length=1)]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Count = Annotated[Whole, Field(ge=1, le=2**31)]
Number = Annotated[float, Strict(), AllowInfNan(False)]
AnyText = Annotated[str, Strict(), AfterValidator(_passable)]
Text = Annotated[str, Strict(), Field(pattern=r"\S"), AfterValidator(_passable)]
Word = Annotated[
    Text, BeforeValidator(number_as_text), WithJsonSchema({"type": ["string", "number"]})
]
Name = Annotated[
    AnyText,
    Matching(re.compile(r"(?![ -])[^\x00-\x1f\x7f]{1,100}\Z"), _NAME_RULE),
    AfterValidator(_printable),
]
Queue = Annotated[
    AnyText,
    Matching(NAME_RULE, "use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends"),
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
            "pattern": _pattern(re.compile(durations.PATTERN)),
        }
    ),
]
Until = Annotated[
    int,
    PlainValidator(durations.until_ms),
    WithJsonSchema({"type": "string", "examples": ["08:00", "2027-01-31T08:00+01:00"]}),
]
ParameterName = Annotated[str, Field(pattern=_pattern(PARAMETER_NAME))]


class Keys(BaseModel):
    """A mapping of a sweep file or a cluster file: every other key is an error.

    `rejected` are keys that are refused in words of their own, `aliases` other libraries' names.
    """

    # Built when it is first used: a file needs two or three of them.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    rejected: ClassVar[Mapping[str, tuple[Code, str]]] = {}
    aliases: ClassVar[Mapping[str, str]] = {}


class FileSchema(GenerateJsonSchema):
    """Writes the order of the model, no title, which repeats a name, and no default of no value."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") in (None, "", (), [], {}):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


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
            "examples": [{"gpu_hours": 40, "until": "08:00"}],
        }
    )
    gpu_hours: Absent[Annotated[Number, Field(ge=0.001, le=10_000_000)]] = Field(
        None, description="Hours of all attempts times the GPUs of a trial."
    )
    until: Absent[Until] = Field(None, description="When the trials must have ended.")

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError('empty; write {gpu_hours: 40, until: "08:00"} or remove it')
        return self

    def budget(self) -> Budget:
        """Return the budget of a sweep that has spent nothing."""
        return Budget.of_hours(self.gpu_hours or 0, self.until or 0)
