"""The table of a sweep file's keys: their checks, their limits, and which keys hpq rejects and why.

W&B's keys have W&B's meaning; hpq adds its own. `check` reports every unknown key, with the nearest
known one, and every invalid value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpq.domain.sweep import MAX_PRIORITY, NAME_RULE, Goal, Impute, ObjectiveValue, Wandb
from hpq.domain.trial import Json
from hpq.reporting import METRIC_NAME, METRIC_RULE
from hpq.search.search_spec import Sampler
from hpq_producer.sweepfile.errors import KeyPath, Problems
from hpq_producer.sweepfile.values import (
    Check,
    argument,
    choice,
    display_text,
    duration,
    flag,
    integer,
    list_of,
    nearest,
    number,
    text,
)

# With Hydra's: +new, ++both, ~removed, group/option, group@package.
PARAMETER_NAME = re.compile(r"(?:\+{1,2}|~)?[A-Za-z_][A-Za-z0-9_./@-]{0,99}\Z")
NOT_A_NAME = "not a parameter name; use 1 to 100 of A-Z a-z 0-9 _ . - / @, a letter or _ first"
_VARIABLE = re.compile(r"(?!HPQ_)[A-Za-z_][A-Za-z0-9_]*\Z")


def _anything(_: Json) -> None:
    """Accept a value that another module checks."""


def _method(value: Json) -> str | None:
    if value == "custom":
        return "custom needs an engine inside W&B; write grid, random or bayes"
    return choice(*METHODS)(value)


def _while_running(value: Json) -> str | None:
    return None if value is False else choice(*IMPUTES, "false")(value)


def _controller(value: Json) -> str | None:
    if value == {"type": "local"}:
        return None
    return "not supported: no W&B cloud controls this sweep; write {type: local}, or remove it"


MAX_PARALLEL = 100_000
MAX_RETRIES = 100
METHODS = ("grid", "random", "bayes")
IMPUTES = tuple(impute.value for impute in Impute)
NAME = display_text(100)
_QUEUE = text(NAME_RULE, "use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
_MODULE = text(re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII), "use names of modules")
_ENV = text(_VARIABLE, "use names of environment variables that do not begin with HPQ_")

TOP: Mapping[str, Check] = {
    "method": _method,
    "parameters": _anything,
    "program": text(),
    "command": list_of(argument, 'words, such as ["${env}", "python", "${program}", "${args}"]'),
    "metric": _anything,
    "early_terminate": _anything,
    "run_cap": integer(1, 2**31),
    "name": NAME,
    "description": text(empty=True),
    "project": text(empty=True),
    "entity": text(empty=True),
    "apiVersion": text(),
    "kind": choice("sweep"),
    "controller": _controller,
    "trainer": text(),
    "code": text(),
    "queue": _QUEUE,
    "owner": text(re.compile(r"[^\x00-\x20\x7f]{1,64}\Z"), "use 1 to 64 characters, no spaces"),
    "seed": integer(0, 2**63 - 1),
    "sampler": choice(*(sampler.value for sampler in Sampler if sampler is not Sampler.RANDOM)),
    "order": choice("grid", "shuffle"),
    "priority": integer(-MAX_PRIORITY, MAX_PRIORITY),
    "max_parallel": integer(0, MAX_PARALLEL),
    "retries": integer(0, MAX_RETRIES),
    "timeout": duration,
    "stall": duration,
    "keep": _anything,
    "pass_env": list_of(_ENV, "names of environment variables"),
    "resident": flag,
    "preload": list_of(_MODULE, "names of modules, such as [torch]"),
    "wandb": choice(*(kind.value for kind in Wandb)),
    "replicates": integer(1, 1000),
    "when": _anything,
    "exclude": _anything,
    "points": _anything,
}
METRIC: Mapping[str, Check] = {
    "name": text(METRIC_NAME, METRIC_RULE),
    "goal": choice(*(goal.value for goal in Goal)),
    "target": number(),
    "impute": choice(*IMPUTES),
    "impute_while_running": _while_running,
    "value": choice(*(take.value for take in ObjectiveValue)),
}
RANGE: Mapping[str, Check] = {"min": number(), "max": number()}
KEEP: Mapping[str, Check] = {"best": integer(0, 10_000), "last": integer(0, 10_000)}
PARAMETER: Mapping[str, Check] = {
    "distribution": _anything,
    "value": _anything,
    "values": _anything,
    "probabilities": list_of(number(minimum=0), "numbers of at least 0"),
    "min": number(),
    "max": number(),
    "mu": number(),
    "sigma": number(minimum=0),
    "q": number(0),
    "a": number(0),
    "b": number(0),
    "parameters": _anything,
}
# Other libraries' names of a parameter's keys.
_ALIASES = {"mean": "mu", "std": "sigma", "stddev": "sigma", "low": "min", "high": "max"}
REJECTED: Mapping[str, str] = {
    "scheduler": "hpq schedules the trials; remove it",
    "job": "hpq runs no W&B Launch jobs; write program or trainer",
    "image_uri": "the worker's deployment chooses the image; remove it",
    "tags": "tags are not part of a sweep's definition; hpq enqueue FILE --tag WORD",
    "notify": "the URL is a secret; set HPQ_NOTIFY for workers, or use hpq wait --notify",
    "metrics": "a sweep has one metric; write metric: {name: …, goal: …}",
}


def check(
    data: Mapping[str, Json], table: Mapping[str, Check], path: KeyPath, out: Problems
) -> None:
    """Report every key that the table lacks and every value that it does not allow."""
    for key, value in data.items():
        key_path = (*path, key)
        if key in table:
            wrong = table[key](value)
            if wrong:
                out.add(key_path, wrong)
        elif not path and key in REJECTED:
            out.add(key_path, f"not supported: {REJECTED[key]}", code="unsupported-key")
        else:
            alias = _ALIASES.get(key) if table is PARAMETER else None
            hint = nearest(alias or key, table) or f"; allowed: {', '.join(table)}"
            out.add(key_path, f"unknown key{hint}", code="unknown-key")
