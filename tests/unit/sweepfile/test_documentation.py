"""docs/reference/sweep-file.md: each example is accepted or rejected as it says; no word lacks."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest

from hpq.code.command import MACROS
from hpq.domain.sweep import TerminationRule, Wandb
from hpq.errors import SweepFileError
from hpq.search import wandb_distributions
from hpq.search.samplers import Sampler
from hpq_producer.sweepfile import model
from hpq_producer.sweepfile.key_types import BudgetKeys
from hpq_producer.sweepfile.spec import parameter_sets
from tests.support.constants import ROOT
from tests.support.sweep_files import spec_of, whole

PAGE = (ROOT / "docs" / "reference" / "sweep-file.md").read_text("utf-8")
YAML = re.compile(r"^```yaml( refused)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = YAML.findall(PAGE)
GUIDES = YAML.findall((ROOT / "docs" / "guides" / "change-a-sweep.md").read_text("utf-8"))


@pytest.mark.parametrize("block", [text for kind, text in [*BLOCKS, *GUIDES] if not kind])
def test_an_example_is_taken(tmp_path: Path, block: str) -> None:
    assert list(islice(parameter_sets(spec_of(tmp_path, whole(block))), 3))


@pytest.mark.parametrize("block", [text for kind, text in BLOCKS if kind])
def test_a_wrong_example_is_refused_with_its_line(tmp_path: Path, block: str) -> None:
    line = block.strip().rpartition("\n# ")[2]
    with pytest.raises(SweepFileError) as caught:
        spec_of(tmp_path, whole(block))
    place = re.escape(f"{tmp_path}/s.yaml:") + r"\d+:\d+: "
    assert re.fullmatch(place + re.escape(line), str(caught.value))


def test_every_word_of_the_language_is_on_the_page() -> None:
    words = {
        *model.SweepFile.model_fields, *model.SweepFile.rejected, *model.MetricKeys.model_fields,
        *model.Parameter.model_fields, *model.KeepKeys.model_fields, "gpu_below", "for",
        *BudgetKeys.model_fields,
        *wandb_distributions.LISTED, *wandb_distributions.NUMERIC, *TerminationRule, *Wandb,
        *(set(Sampler) - {Sampler.RANDOM}),
    }  # fmt: skip
    assert not {word for word in words if not re.search(rf"(?<![\w-]){re.escape(word)}\b", PAGE)}
    assert not [macro for macro in MACROS if f"`{macro}`" not in PAGE]
    assert len(BLOCKS) >= 18


def test_the_example_with_conditions_comes_to_what_it_should(tmp_path: Path) -> None:
    (block,) = [text for kind, text in BLOCKS if "nesterov" in text]
    found = list(parameter_sets(spec_of(tmp_path, whole(block))))
    assert found[0] == {"lr": 0.01, "optimizer": "adam"}
    # adam: 0.1 with 3 schedules, 0.01 without one; sgd: 3 of momentum and nesterov, 2 rates with
    # 3 schedules and one without.
    assert len(found) == 3 + 1 + 3 * (2 * 3 + 1)
