"""`hpq schema`: it takes what hpq takes, and refuses what can be seen without reading further."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from hpq.errors import SweepFileError
from hpq_producer.cli import app
from hpq_producer.sweepfile import json_schema as published_schema
from hpq_producer.sweepfile import schema, yaml_reader
from hpq_producer.sweepfile.json_schema import json_schema
from hpq_producer.sweepfile.load import load
from tests.constants import ROOT
from tests.oracle.files import read

VALIDATOR = Draft202012Validator(json_schema())
BASE = "program: t.py\nmethod: random\nparameters: {a: {value: 1}, b: {values: [1, 2]}}\n"
# What only a whole file shows, or a rule that JSON Schema has no word for.
BEYOND = re.compile(
    r"is not less than max|the sum is|\d+ for \d+ values|unknown macro|a grid needs"
    r"|bayes needs|5\.0 is not a whole number|4\.0 is not a whole number|1\.0 is not a whole number"
    r"|is not greater than 0, as|is not an exponent"
)


def test_the_command_prints_a_schema_of_the_dialect_that_it_names() -> None:
    printed = json.loads(CliRunner().invoke(app, ["schema"]).stdout)
    assert printed == json_schema()
    assert printed["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_the_files_of_configs_are_valid(path: Path) -> None:
    VALIDATOR.validate(yaml_reader.parse(path.read_text("utf-8"), path.name).data)


def test_what_hpq_takes_of_the_oracles_files_is_valid_and_what_it_refuses_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.yaml"
    taken = 0
    for case in read("configs")["cases"]:
        file.write_text(json.dumps(case["config"]))
        try:
            load(file)
        except SweepFileError as error:
            is_beyond = all(map(BEYOND.search, str(error).split("\n")))
            assert is_beyond or not VALIDATOR.is_valid(case["config"]), (case["config"], str(error))
        else:
            taken += 1
            VALIDATOR.validate(case["config"])
    assert taken > 250


GOOD = [
    "seed: 3\norder: shuffle\npriority: -5\nmax_parallel: 2\nretries: 1\nreplicates: 3",
    "timeout: 90s\nstall: 900\nkeep: {best: 2}\nmetric: {name: loss, goal: maximize, target: 0.5}",
    "metric: {name: loss, impute: best, impute_while_running: no, value: best}",
    "when: {a: {b: [1, 2]}}\nexclude: [{b: 2, a: 1}]\npoints: [{b: 1}]",
    "when: {a: {b: {min: 2}}}",
    "early_terminate: {type: hyperband, min_iter: 3, eta: 2, strict: true}\nmetric: {name: loss}",
    "early_terminate: {type: asha, min_iter: 3}\nmetric: {name: loss}",
    "early_terminate: {type: median}\nmetric: {name: loss}",
    "wandb: tee\npass_env: [HOME]\nqueue: a100\nowner: me\nname: 'é: x (2)'\ndescription: ''",
    "command: [python, '${program}', -n, 2, '${args}']\ncode: .\ncontroller: {type: local}",
]
BAD = [
    "sede: 3", "order: shufle", "priority: high", "timeout: 5 m", "keep: {}", "keep: {first: 1}",
    "when: {}", "when: {a: 1}", "exclude: {b: 1}", "exclude: [{b: {mn: 1}}]", "points: []",
    "metric: {goal: minimize}", "early_terminate: {type: hyperbend}", "replicates: 0",
    "early_terminate: {type: asha, s: 3}", "trainer: digits", "name: ''",
    "controller: {type: cloud}",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_hpqs_own_keys_are_valid(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"{BASE}{text}\n")
    load(file)
    VALIDATOR.validate(yaml_reader.parse(file.read_text(), "s.yaml").data)


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_with_them_is_not(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"{BASE}{text}\n")
    with pytest.raises(SweepFileError):
        load(file)
    assert not VALIDATOR.is_valid(yaml_reader.parse(file.read_text(), "s.yaml").data)


def test_every_key_has_its_meaning() -> None:
    assert published_schema.TOP.keys() == schema.TOP.keys()
    assert published_schema.METRIC.keys() == schema.METRIC.keys()
    assert published_schema.PARAMETER.keys() == schema.PARAMETER.keys()
