"""The base of the models of files, strict types of keys, and the check of data against a model.

A type says what a key accepts, for the model and its JSON schema. What breaks a model is reported
in hpq's words: the type of pydantic's error decides them. What a value should be is read from the
JSON schema of its place, which editors use too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, TypeVar, cast

import yaml
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
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from hpq.domain.sweep import NAME_RULE
from hpq.domain.trial import Json
from hpq.error_codes import Code
from hpq.yamlfile.problems import KeyPath, Problems, is_passable, nearest, shown
from hpq.yamlfile.yaml_reader import unquoted

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


K = TypeVar("K", bound=Keys)
Schema = Mapping[str, Any]


def check(model: type[K], data: Json, path: KeyPath, out: Problems) -> K | None:
    """Return a mapping as its model; report every error and return None if there are any."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for inner, text, code in _explain(model, error):
            out.add((*path, *inner), text, code=code)
        return None


def value_of(model: type[Keys], key: str, value: Json) -> Any:
    """Return the value of one key of a file as its model holds it.

    Raises:
        ValueError: the key does not accept the value; the text says what it accepts.
    """
    try:
        return getattr(model.model_validate({key: value}), key)
    except ValidationError as error:
        raise ValueError(next(_explain(model, error))[1]) from None


def _explain(model: type[Keys], error: ValidationError) -> Iterator[tuple[KeyPath, str, Code]]:
    """Yield the place, the text and the id of each error."""
    root = model.model_json_schema(schema_generator=FileSchema)
    found = error.errors(include_url=False)
    for one in found:
        path, node, known = _place(root, one["loc"])
        if one["type"] == "missing":
            unknown = [str(o["loc"][-1]) for o in found if o["type"] == "extra_forbidden"]
            if not any(path[-1] in get_close_matches(word, known, n=1) for word in unknown):
                yield path, f"missing; write {_form(node)}", "missing-key"
        elif one["type"] == "extra_forbidden":
            yield path, *_unknown(model, path, known)
        elif one["type"] == "union_tag_not_found":
            kinds = tuple(node["discriminator"]["mapping"])
            yield path, f"needs type: {_list(kinds)}", "missing-key"
        elif one["type"] == "union_tag_invalid":
            kinds = tuple(node["discriminator"]["mapping"])
            yield (*path, "type"), _not(one["input"]["type"], {"enum": kinds}), "invalid-value"
        elif one["type"] == "too_short" and one["input"]:
            continue  # each of its items is invalid, and has an error
        elif "text" in one.get("ctx", {}):  # strict_types.problem
            key = one["ctx"]["key"]
            yield (*path, key) if key else path, one["ctx"]["text"], one["type"]  # type: ignore[misc]
        else:
            yield path, _wrong(one, node), "invalid-value"


def _place(root: Schema, loc: tuple[str | int, ...]) -> tuple[KeyPath, Schema, Schema]:
    """Return the path in the file of pydantic's location, the schema there, and the keys beside."""
    path: KeyPath = ()
    known: Schema = {}
    node = _target(root, root)
    for part in loc:
        if "discriminator" in node:  # the name of a union's member, which no file has
            node = _target({"$ref": node["discriminator"]["mapping"][part]}, root)
            continue
        if "oneOf" in node:  # the same of a mapping or another type, as for `stall`
            members = (_target(one, root) for one in node["oneOf"])
            node = next(one for one in members if ("properties" in one) == (part == "mapping"))
            continue
        if part == "[key]":  # the key itself, of a mapping whose keys the user chooses
            continue
        known = node.get("properties", {})
        path = (*path, part)
        node = _target(known.get(str(part)) or _inner(node), root)
    return path, node, known


def _inner(node: Schema) -> Schema:
    """Return the schema of a list's items, or of the values of a mapping with any keys."""
    of_any = node.get("additionalProperties") or {}
    found: Schema = node.get("items") or next(iter(node.get("patternProperties", {}).values()), {})
    return found or (of_any if isinstance(of_any, dict) else {})


def _target(node: Schema, root: Schema) -> Schema:
    """Return a schema with the one that it refers to."""
    if "$ref" not in node:
        return node
    return {**root["$defs"][node["$ref"].rpartition("/")[2]], **node}


def _unknown(model: type[Keys], path: KeyPath, known: Schema) -> tuple[str, Code]:
    key = str(path[-1])
    if len(path) == 1 and key in model.rejected:
        code, text = model.rejected[key]
        return text, code
    hint = nearest(model.aliases.get(key, key), known) or f"; allowed: {', '.join(known)}"
    return f"unknown key{hint}", "unknown-key"


def _wrong(one: ErrorDetails, node: Schema) -> str:
    """Return what is wrong with a value, and what is allowed."""
    value = one["input"]
    if one["type"] == "value_error":  # of the model's own functions
        return str(one["ctx"]["error"])
    if one["type"] == "string_unicode":
        return f"{shown(value)} contains a character that no program argument can hold"
    if one["type"] == "string_pattern_mismatch":
        return "empty; write some text or remove the key"
    return _not(value, node)


def _not(value: Json, node: Schema) -> str:
    """Return that a value is not what a schema accepts."""
    wrong = f"{shown(value)} is not"
    if words := _words(node):
        of = "one of " if words[1:] else ""
        return f"{wrong} {of}{', '.join(words)}{nearest(value, words)}"
    kind = node.get("type", "object")
    if kind == "integer":
        allowed = f"a whole number from {node['minimum']:,} to {node['maximum']:,}"
        return f"{wrong} {allowed}{unquoted(value)}"
    if kind == "number":
        allowed = "a number"
        allowed += f" above {node['exclusiveMinimum']:g}" if "exclusiveMinimum" in node else ""
        allowed += f" of at least {node['minimum']:g}" if "minimum" in node else ""
        allowed += f", at most {node['maximum']:g}" if "maximum" in node else ""
        return f"{wrong} {allowed}{unquoted(value)}"
    if kind == "boolean":
        return f"{wrong} true or false"
    if "string" in kind:
        return f"{wrong} text; write it in quotes"
    if kind == "array" and isinstance(value, str) and value.isidentifier() and _takes_one(node):
        return f"{wrong} a list; write [{value}]"
    if value == ([] if kind == "array" else {}):
        return f"empty; write {_form(node)}"
    return f"{wrong} a {'list' if kind == 'array' else 'mapping'}; write {_form(node)}"


def _words(node: Schema) -> tuple[str, ...]:
    """Return the only words that a schema accepts; () if it accepts other values."""
    words = node.get("enum", (node["const"],) if "const" in node else ())
    return tuple(dict.fromkeys(w if isinstance(w, str) else shown(w) for w in words))


def _form(node: Schema) -> str:
    """Return how to write a value: one of the words, or an example."""
    if words := _words(node):
        return _list(words)
    example = node["examples"][0]
    text = yaml.safe_dump(example, default_flow_style=True, sort_keys=False, width=200)
    return str(text).partition("\n")[0]


def _takes_one(node: Schema) -> bool:
    """Return whether a list of one word may be meant: not of lists, nor a command of many words."""
    first, *others = node["examples"][0]
    return not isinstance(first, list | dict) and not (others and isinstance(first, str))


def _list(words: tuple[str, ...]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"
