"""The base of the models of files, and strict types of their keys.

A type says what a key accepts, for the model and its JSON schema.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    WithJsonSchema,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hpq.domain.sweep import NAME_RULE
from hpq.domain.trial import Json
from hpq.error_ids import Code
from hpq.yamlfile.problems import is_passable, shown

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
        pattern = json_pattern(self.rule)
        return {**handler(schema), "pattern": pattern, "patternErrorMessage": self.allowed}

    def _check(self, text: str) -> str:
        if not self.rule.match(text):
            raise ValueError(f"{shown(text)} is invalid; {self.allowed}")
        return text


def json_pattern(rule: re.Pattern[str]) -> str:
    """Return a rule for whole texts as JSON schemas write it."""
    return "^(?:" + rule.pattern.removesuffix(r"\Z") + ")$"


def _passable(text: str) -> str:
    if not is_passable(json.dumps(text, ensure_ascii=False)):
        what = "contains a character that no program argument can hold"
        raise ValueError(f"{shown(text)} {what}")
    return text


def number_as_text(value: Json) -> Json:
    """Write a number as text, as W&B does in a command."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number and math.isfinite(value) else value  # type: ignore[arg-type]


NotEmpty = Annotated[T, Field(min_length=1)]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), AllowInfNan(False)]
AnyText = Annotated[str, Strict(), AfterValidator(_passable)]
Text = Annotated[str, Strict(), Field(pattern=r"\S"), AfterValidator(_passable)]
Word = Annotated[
    Text, BeforeValidator(number_as_text), WithJsonSchema({"type": ["string", "number"]})
]
Queue = Annotated[
    AnyText,
    Matching(NAME_RULE, "use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends"),
]


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
