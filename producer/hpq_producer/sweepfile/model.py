"""The model of a sweep file: each key once, with its type, its limits and its meaning.

`key_types.py` has the types. `hpq/yamlfile/strict_model.py` reports in hpq's words what breaks the
model, and `make reference` writes sweep.schema.json from it, for editors. Rules between keys are in
load.py and check_code.py; parameters.py and conditions.py check what depends on the search
space. W&B's keys have W&B's meaning; hpq adds its own. An absent key has its default; `null` in a
file is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SkipValidation,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from hpq.domain.sweep import MAX_PRIORITY, MOST_REPLICATES, Goal, Impute, ObjectiveValue, Wandb
from hpq.domain.trial import Json
from hpq.error_codes import Code
from hpq.notice import plural
from hpq.search import wandb_distributions
from hpq.search.samplers import BY_DEFAULT, Sampler
from hpq.yamlfile.problems import nearest, shown
from hpq.yamlfile.strict_model import (
    Absent,
    AnyText,
    FileSchema,
    Flag,
    Keys,
    NotEmpty,
    Number,
    Queue,
    Text,
    Whole,
    Word,
    problem,
)
from hpq_producer.sweepfile.early_terminate import Asha, Hyperband, Median
from hpq_producer.sweepfile.key_types import (
    BudgetKeys,
    Constraints,
    Count,
    Duration,
    MetricName,
    Module,
    Name,
    Owner,
    ParameterName,
    Stall,
    Variable,
)
from hpq_producer.sweepfile.unknown_keys import REJECTED

SCHEMA_FILE = Path(__file__).with_name("sweep.schema.json")  # `make reference` writes it
Method = Literal["grid", "random", "bayes"]


def _method(value: Json) -> Json:
    if value == "custom":
        what = "custom needs a scheduler inside W&B; write bayes, and its engine as sampler: tpe"
        raise ValueError(what)
    if value in [one for one in Sampler if one is not Sampler.RANDOM]:
        raise ValueError(f"{value} is a sampler; write method: bayes and sampler: {value}")
    return value


def _distribution(name: Json) -> Json:
    known = (*wandb_distributions.LISTED, *wandb_distributions.NUMERIC)
    if name in known:
        return name
    what = f"{shown(name)} is not one of {', '.join(known)}{nearest(name, known)}"
    if meant := wandb_distributions.ALIASES.get(str(name).lower()):
        what = f"unknown distribution {shown(name)}; did you mean {meant!r}?"
    raise problem("unknown-distribution", what)


def _controller(value: Json) -> Json:
    if value != {"type": "local"}:
        what = "no W&B cloud controls this sweep; write {type: local}, or remove it"
        raise ValueError(f"not supported: {what}")
    return value


class ObjectiveKeys(Keys):
    """One of the metrics that trials report."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "val_loss", "goal": "minimize"}]}
    )
    name: MetricName = Field(
        description="Name under which trials report the metric.", examples=["val_loss"]
    )
    goal: Absent[Goal] = Field(None, description="Direction in which the metric is better.")


class MetricKeys(ObjectiveKeys):
    """The metric that trials report."""

    target: Absent[Number] = Field(
        None, description="No further trial starts once a trial reports a value as good as this."
    )
    terminate_on_nan: Absent[Count] = Field(
        None, description="A trial diverged once N values in a row are NaN or infinite."
    )
    impute: Impute = Field(Impute.WORST, description="The value of a failed trial for bayes.")
    impute_while_running: Literal[Impute.LATEST, Impute.BEST, Impute.WORST, False, "false"] = Field(
        "false", description="The value of a running trial for bayes."
    )
    value: Absent[ObjectiveValue] = Field(
        None, description="Which reported value is a trial's objective; the last by default."
    )


_MOST_METRICS = 8


def _one_metric(value: Json) -> Json:
    if isinstance(value, list):
        raise ValueError(f"{shown(value)} is a list; write several metrics under metrics")
    return value


def _metrics(found: tuple[ObjectiveKeys, ...]) -> tuple[ObjectiveKeys, ...]:
    names = [one.name for one in found]
    if not 2 <= len(found) <= _MOST_METRICS:
        entries = plural(len(found), "entry", "entries")
        what = f"{len(found)} {entries}; write 2 to {_MOST_METRICS}"
        raise ValueError(f"{what}, or metric: {{name: val_loss}} for one metric")
    if len(set(names)) < len(names):
        raise ValueError(f"{shown(max(names, key=names.count))} is listed twice; remove one")
    return found


class KeepKeys(Keys):
    """Whose checkpoints and artifacts stay."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    best: Whole = Field(0, ge=0, le=10_000, description="The N best trials.")
    last: Whole = Field(0, ge=0, le=10_000, description="The N trials that ended last.")

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("empty; write {best: 3, last: 1} or remove it")
        return self


class Range(Keys):
    """Values from min to max, both included; either end may be missing."""

    min: Absent[Number] = None
    max: Absent[Number] = None


class Parameter(Keys):
    """A parameter: its distribution, or parameters that are nested in it."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "dependencies": {"min": ["max"], "max": ["min"], "probabilities": ["values"]},
        }
    )
    aliases: ClassVar[Mapping[str, str]] = {
        "mean": "mu", "std": "sigma", "stddev": "sigma", "low": "min", "high": "max",
    }  # fmt: skip
    rejected: ClassVar[Mapping[str, tuple[Code, str]]] = dict.fromkeys(
        ("derive", "derived"),
        ("unknown-key", "unknown key; write derive: {NAME: EXPRESSION} beside parameters"),
    )
    distribution: Annotated[
        Any,
        PlainValidator(_distribution),
        WithJsonSchema({"enum": [*wandb_distributions.LISTED, *wandb_distributions.NUMERIC]}),
    ] = Field(None, description="W&B's name; inferred for value, values, and min with max.")
    value: Any = Field(None, description="The value of every trial.")
    values: Absent[NotEmpty[list[Any]]] = Field(
        None, description="The values, each equally likely.", examples=[[0.1, 0.01]]
    )
    probabilities: Absent[NotEmpty[list[Annotated[Number, Field(ge=0)]]]] = Field(
        None, description="One for each value; the sum is 1.", examples=[[0.7, 0.3]]
    )
    min: Absent[Number] = Field(None, description="Lower end, included.")
    max: Absent[Number] = Field(None, description="Upper end, included.")
    mu: Absent[Number] = Field(None, description="Mean of a normal distribution (0).")
    sigma: Absent[Annotated[Number, Field(ge=0)]] = Field(
        None, description="Standard deviation of a normal distribution (1)."
    )
    q: Absent[Annotated[Number, Field(gt=0)]] = Field(
        None, description="Values are rounded to multiples of this (1)."
    )
    a: Absent[Annotated[Number, Field(gt=0)]] = Field(
        None, description="First shape of a beta distribution (1)."
    )
    b: Absent[Annotated[Number, Field(gt=0)]] = Field(
        None, description="Second shape of a beta distribution (1)."
    )
    parameters: Absent[Parameters] = Field(None, description="Nested parameters.")


# Checked one by one by the modules that know the search space.
Parameters = Annotated[
    SkipValidation[NotEmpty[dict[ParameterName, Parameter]]],
    Field(json_schema_extra={"additionalProperties": False}),
]
PartialSet = NotEmpty[dict[str, Range | NotEmpty[list[Any]] | str | Number | bool | None]]


class CommonKeys(Keys):
    """The keys of every sweep file; a list of trials, its own search space, has no others."""

    rejected: ClassVar[Mapping[str, tuple[Code, str]]] = REJECTED
    aliases: ClassVar[Mapping[str, str]] = {"direction": "goal", "mode": "goal"}
    program: Text = Field("", description="Script that a trial runs, e.g. train.py.")
    command: tuple[Word, ...] = Field(
        (),
        min_length=1,
        description="Command line in place of W&B's; ${program} and ${args} are replaced.",
        examples=[["${env}", "python", "${program}", "${args}"]],
    )
    metric: Annotated[Absent[MetricKeys], BeforeValidator(_one_metric)] = Field(
        None, description="The metric of trials, and its goal."
    )
    metrics: Annotated[tuple[ObjectiveKeys, ...], AfterValidator(_metrics)] = Field(
        (),
        description="Several metrics, in place of metric.",
        examples=[[{"name": "val_acc", "goal": "maximize"}, {"name": "latency_ms"}]],
        json_schema_extra={"minItems": 2, "maxItems": _MOST_METRICS},
    )
    constraints: Constraints = Field(
        (),
        description="Bounds on reported metrics, which the trials of a result meet.",
        examples=[["peak_memory_gb <= 24"]],
    )
    early_terminate: Absent[Annotated[Hyperband | Asha | Median, Field(discriminator="type")]] = (
        Field(
            None,
            description="Stops trials that are worse than others. Needs a metric.",
            examples=[{"type": "hyperband", "min_iter": 3}],
        )
    )
    run_cap: Absent[Count] = Field(None, description="Maximum number of trials.")
    name: Name = Field("", description="Shown in tables; the file's name by default.")
    description: AnyText = Field("", description="A text for people.")
    project: AnyText = Field("", description="W&B's; stored and shown.")
    entity: AnyText = Field("", description="W&B's; stored and shown.")
    apiVersion: Text = Field("", description="W&B's; stored.")
    kind: Literal["sweep"] = Field("sweep", description="W&B's; stored.")
    controller: Annotated[
        Any,
        AfterValidator(_controller),
        WithJsonSchema({"const": {"type": "local"}}),
    ] = Field(None, description="W&B's; stored.")
    trainer: Text = Field(
        "", description="digits, cifar10 or mnist, function, or package.module:function."
    )
    code: Text = Field("", description="Directory whose files are sent in place of a snapshot.")
    queue: Absent[Queue] = Field(None, description="The queue whose workers run the sweep.")
    owner: Owner = Field(
        "", description="Owner of the sweep; HPQ_USER or the login name by default."
    )
    seed: Whole = Field(0, ge=0, le=2**63 - 1, description="Determines samples and shuffles.")
    sampler: Literal[
        Sampler.AUTO, Sampler.TPE, Sampler.GP, Sampler.CMAES, Sampler.QMC, Sampler.NSGA2
    ] = Field(BY_DEFAULT, description="What suggests the trials of bayes.")
    priority: Whole = Field(
        0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Sweeps with a higher priority are claimed first.",
    )
    max_parallel: Whole = Field(
        0, ge=0, le=100_000, description="Maximum number of running trials; 0 for no limit."
    )
    retries: Whole = Field(
        0, ge=0, le=100, description="Failures per trial to retry, beyond those retried anyway."
    )
    timeout: Duration = Field(0.0, description="Maximum run time; 0 for no limit.")
    stall: Stall = Field(
        0.0,
        description="Maximum time without output; 0 for the default. Or with little GPU use.",
        examples=[{"gpu_below": 10, "for": "30m"}],
    )
    budget: Absent[BudgetKeys] = Field(None, description="What ends the start of trials.")
    keep: Absent[KeepKeys] = Field(
        None,
        description="The trials whose checkpoints and artifacts stay.",
        examples=[{"best": 3, "last": 1}],
    )
    history: Absent[Literal["all"]] = Field(
        None, description="all: a file of each trial keeps every reported value."
    )
    pass_env: tuple[Variable, ...] = Field(
        (),
        min_length=1,
        description="Environment variables that a program in a pod gets.",
        examples=[["HF_HOME"]],
    )
    resident: Flag = Field(False, description="A trainer's process stays from trial to trial.")
    preload: tuple[Module, ...] = Field(
        (),
        min_length=1,
        description="Modules that a worker imports once for all its trials.",
        examples=[["torch"]],
    )
    wandb: Wandb = Field(Wandb.STAND_IN, description="What `import wandb` gives a program.")
    replicates: Whole = Field(
        1,
        ge=1,
        le=MOST_REPLICATES,
        description="Trials of the same parameters, each with its own seed.",
    )


class SweepFile(CommonKeys):
    """A sweep file that names its search space."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [key]} for key in ("program", "trainer", "command")],
            "not": {"required": ["program", "trainer"]},
        }
    )
    method: Annotated[Method, BeforeValidator(_method)] = Field(
        description="How trials are chosen from the parameters."
    )
    parameters: Parameters = Field(
        description="The search space.", examples=[{"lr": {"values": [0.1, 0.01]}}]
    )
    order: Literal["grid", "shuffle"] = Field("grid", description="Order of a grid.")
    when: SkipValidation[NotEmpty[dict[str, PartialSet]]] = Field(
        {},
        description="Parameters that exist only if others have certain values.",
        examples=[{"momentum": {"optimizer": "sgd"}}],
    )
    exclude: SkipValidation[NotEmpty[list[PartialSet]]] = Field(
        [],
        description="Partial parameters of trials that do not run.",
        examples=[[{"optimizer": "sgd", "lr": 0.3}]],
    )
    derive: SkipValidation[NotEmpty[dict[ParameterName, str]]] = Field(
        {},
        description="Parameters that are computed from others.",
        examples=[{"head": "backbone / 2"}],
        json_schema_extra={"additionalProperties": False},
    )
    require: SkipValidation[NotEmpty[list[str]]] = Field(
        [],
        description="Expressions that hold for every trial.",
        examples=[["layers * width <= 4096"]],
    )
    zip: tuple[Annotated[tuple[Text, ...], Field(examples=[["loss", "epochs"]])], ...] = Field(
        (),
        min_length=1,
        description="Parameters whose values go together, the first with the first.",
        examples=[[["loss", "epochs"]]],
    )
    points: SkipValidation[NotEmpty[list[dict[str, Any]]]] = Field(
        [],
        description="Whole trials of the space that run first.",
        examples=[[{"lr": 0.1, "momentum": 0.9}]],
    )


class ListEntry(Keys):
    """A trial of a list: its parameters."""

    hyperparam_set: NotEmpty[dict[ParameterName, Any]] = Field(
        json_schema_extra={"additionalProperties": False}
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a sweep file."""
    file: TypeAdapter[Any] = TypeAdapter(SweepFile | NotEmpty[list[ListEntry]])
    schema = file.json_schema(schema_generator=FileSchema)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "hpq sweep file",
        **schema,
    }
