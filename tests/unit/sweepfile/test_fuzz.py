"""Whatever a file holds, it is either a sweep whose sets can be made, or lines that say why not."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from hpq.domain.identity import digest
from hpq.errors import SweepFileError
from hpq.search.wandb_distributions import LISTED, NUMERIC
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.model import SweepFile
from hpq_producer.sweepfile.spec import SweepSpec, parameter_sets

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "grid", "random", "bayes", "cifar10", "a.b:c", "t.py", "90s", "off"])
    | st.text(max_size=8)
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "distribution": st.sampled_from([*NUMERIC, *LISTED]),
        **dict.fromkeys(("min", "max", "mu", "sigma", "q", "a", "b"), SCALARS),
        "values": st.lists(ANY, max_size=4),
        "value": ANY,
        "probabilities": st.lists(st.sampled_from([0, 0.5, 1]), max_size=3),
    },
)
NUMBERS = [
    {"distribution": name, **({"min": 1, "max": 3} if rule.required else {})}
    for name, rule in NUMERIC.items()
]
LEAF = st.sampled_from([{"values": ["a", "b"]}, {"min": 0.1, "max": 1}, {"value": 1}, *NUMBERS])
REQUIRED = {"method", "parameters"}
PARAMETERS = st.dictionaries(
    st.sampled_from(["lr", "batch_size", "batch_norm", "x y"]), ENTRY | LEAF | ANY, max_size=3
)
KEYS = st.fixed_dictionaries(
    {"method": st.sampled_from(["grid", "random", "bayes"]), "parameters": PARAMETERS | ANY},
    optional={
        **dict.fromkeys({*SweepFile.model_fields, *SweepFile.rejected, "odd"} - REQUIRED, ANY),
        "program": st.just("t.py") | ANY,
        "trainer": st.just("cifar10") | ANY,
        "metric": st.just({"name": "loss"}) | ANY,
    },
)
VALUES = st.sampled_from(["a", "b", 1, 0.5])
PARTIAL = st.dictionaries(
    st.sampled_from("abc"), VALUES | st.just(["a", 1]) | st.just({"min": 1}), min_size=1, max_size=2
)
LIKELY = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["grid", "random", "bayes"]),
        "parameters": st.dictionaries(st.sampled_from("abc"), LEAF, min_size=1),
        "program": st.just("t.py"),
        "metric": st.just({"name": "loss"}),
    },
    optional={
        "seed": st.integers(0, 9),
        "order": st.just("shuffle"),
        "run_cap": st.just(2),
        "when": st.dictionaries(st.sampled_from("abc"), PARTIAL, min_size=1, max_size=2),
        "exclude": st.lists(PARTIAL, min_size=1, max_size=2),
        "points": st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=2),
    },
)
SETS = st.lists(
    st.dictionaries(st.just("hyperparam_set") | st.text(max_size=3), PARAMETERS | ANY), max_size=3
)


def loaded(text: bytes, **flags: dict[str, str]) -> SweepSpec | None:
    with TemporaryDirectory() as home:
        file = Path(home, "s.yaml")
        file.write_bytes(text)
        try:
            return load(file, **flags)  # type: ignore[arg-type]
        except SweepFileError as error:
            lines = str(error).split("\n")
            assert len(lines) <= 11
            assert all(line.isprintable() and line for line in lines)
            return None


@settings(max_examples=200)
@given(LIKELY | KEYS | SETS)
def test_any_data_is_a_sweep_or_lines_that_say_why_not(data: object) -> None:
    spec = loaded(json.dumps(data).encode())
    if spec is None:
        return
    digest(spec.source, spec.keys.seed, "")
    first = [params.identity for params in islice(parameter_sets(spec), 3)]
    assert first and len(set(first)) == len(first)
    assert spec.trials is None or spec.trials >= len(first)  # type: ignore[operator]


@settings(max_examples=200)
@given(
    st.binary(max_size=60) | st.text("[]{}:,-&*!|>'\"#%@` \t\nab1<~?", max_size=60).map(str.encode)
)
def test_any_bytes_are_a_sweep_or_a_line(raw: bytes) -> None:
    """B1: random bytes as a sweep file."""
    loaded(raw)


@given(st.dictionaries(st.text("a.parmetsl", max_size=12), st.text(max_size=9), max_size=3))
def test_any_set_flag_is_taken_or_a_line(flags: dict[str, str]) -> None:
    good = b"program: t.py\nmethod: random\nparameters: {a: {value: 1}}\n"
    loaded(good, overrides=flags)
