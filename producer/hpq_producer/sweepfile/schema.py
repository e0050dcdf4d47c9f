"""The one table of what a sweep file may hold: keys, kinds, limits, and what is refused and why.

W&B's keys mean what they mean there; hpq's own say what W&B cannot. `check` reports every unknown
key (with the nearest known one) and every wrong value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpq.domain.sweep import MOST_PRIORITY, NAME_RULE, Goal, Impute, ObjectiveValue, Wandb
from hpq.domain.trial import Json
from hpq.report import METRIC_NAME, METRIC_RULE
from hpq.search.search_spec import Sampler
from hpq_producer.sweepfile.errors import KeyPath, Problems
from hpq_producer.sweepfile.values import (
    ARGUMENT,
    DURATION,
    FLAG,
    Check,
    listing,
    nearest,
    number,
    text,
    title,
    whole,
    word,
)

PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z")
NOT_A_NAME = "not a parameter name; use 1 to 100 of A-Z a-z 0-9 _ . -, a letter or _ first"
_VARIABLE = re.compile(r"(?!HPQ_)[A-Za-z_][A-Za-z0-9_]*\Z")


def _method(value: Json) -> str | None:
    if value == "custom":
        return "custom is for engines inside W&B; write grid, random or bayes"
    return word(*METHODS)(value)


def _while_running(value: Json) -> str | None:
    return None if value is False else word(*IMPUTES, "false")(value)


def _controller(value: Json) -> str | None:
    if value == {"type": "local"}:
        return None
    return "not taken: no W&B cloud chooses sets here; write {type: local}, or remove it"


# Of a file, and of `hpq set`.
MOST_PARALLEL = 100_000
MOST_RETRIES = 100
METHODS = ("grid", "random", "bayes")
IMPUTES = tuple(impute.value for impute in Impute)
ANYTHING = Check(lambda _: None, {})  # checked elsewhere
NAME = title(100)
_QUEUE = text(NAME_RULE, "use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
_ENV = text(_VARIABLE, "use names of environment variables, but not hpq's own (HPQ_…)")

TOP: Mapping[str, Check] = {
    "method": Check(_method, {"enum": list(METHODS)}),
    "parameters": ANYTHING,
    "program": text(),
    "command": listing(ARGUMENT, 'words, such as ["${env}", "python", "${program}", "${args}"]'),
    "metric": ANYTHING,
    "early_terminate": ANYTHING,
    "run_cap": whole(1, 2**31),
    "name": NAME,
    "description": text(empty=True),
    "project": text(empty=True),
    "entity": text(empty=True),
    "apiVersion": text(),
    "kind": word("sweep"),
    "controller": Check(_controller, {"const": {"type": "local"}}),
    "trainer": text(),
    "code": text(),
    "queue": _QUEUE,
    "owner": text(re.compile(r"[^\x00-\x20\x7f]{1,64}\Z"), "use 1 to 64 characters, no spaces"),
    "seed": whole(0, 2**63 - 1),
    "sampler": word(*(sampler.value for sampler in Sampler if sampler is not Sampler.RANDOM)),
    "order": word("grid", "shuffle"),
    "priority": whole(-MOST_PRIORITY, MOST_PRIORITY),
    "max_parallel": whole(0, MOST_PARALLEL),
    "retries": whole(0, MOST_RETRIES),
    "timeout": DURATION,
    "stall": DURATION,
    "keep": ANYTHING,
    "pass_env": listing(_ENV, "names of environment variables"),
    "resident": FLAG,
    "wandb": word(*(kind.value for kind in Wandb)),
    "replicates": whole(1, 1000),
    "when": ANYTHING,
    "exclude": ANYTHING,
    "points": ANYTHING,
}
METRIC: Mapping[str, Check] = {
    "name": text(METRIC_NAME, METRIC_RULE),
    "goal": word(*(goal.value for goal in Goal)),
    "target": number(),
    "impute": word(*IMPUTES),
    "impute_while_running": Check(_while_running, {"enum": [*IMPUTES, "false", False]}),
    "value": word(*(take.value for take in ObjectiveValue)),
}
RANGE: Mapping[str, Check] = {"min": number(), "max": number()}
KEEP: Mapping[str, Check] = {"best": whole(0, 10_000), "last": whole(0, 10_000)}
PARAMETER: Mapping[str, Check] = {
    "distribution": ANYTHING,
    "value": ANYTHING,
    "values": ANYTHING,
    "probabilities": listing(number(least=0), "numbers of at least 0"),
    "min": number(),
    "max": number(),
    "mu": number(),
    "sigma": number(least=0),
    "q": number(0),
    "a": number(0),
    "b": number(0),
    "parameters": ANYTHING,
}
# Other libraries' words for a parameter's keys.
_MEANT = {"mean": "mu", "std": "sigma", "stddev": "sigma", "low": "min", "high": "max"}
REFUSED: Mapping[str, str] = {
    "scheduler": "hpq is the scheduler; remove it",
    "job": "W&B Launch jobs are not run; name a program or a trainer",
    "image_uri": "a worker's image is chosen where the worker is deployed; remove it",
    "tags": "they are no part of what a sweep is; hpq enqueue FILE --tag WORD",
    "metrics": "a sweep has one metric; write metric: {name: …, goal: …}",
}


def check(
    data: Mapping[str, Json], table: Mapping[str, Check], path: KeyPath, out: Problems
) -> None:
    """Note every key that the table lacks and every value that it does not allow."""
    for key, value in data.items():
        here = (*path, key)
        if key in table:
            wrong = table[key](value)
            if wrong:
                out.add(here, wrong)
        elif not path and key in REFUSED:
            out.add(here, f"not taken: {REFUSED[key]}", code="unsupported-key")
        else:
            meant = _MEANT.get(key) if table is PARAMETER else None
            hint = nearest(meant or key, table) or f"; allowed: {', '.join(table)}"
            out.add(here, f"unknown key{hint}", code="unknown-key")
