"""The identity of every sweep file that hpq ships or shows, and of its first rows, is recorded.

A change here makes `hpq enqueue` take the same file for another sweep, and `--reuse` train again.
"""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import islice
from pathlib import Path

import pytest

from hpq.domain.identity import digest
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import parameter_sets
from tests.support.golden import Golden
from tests.support.sweep_files import SHIPPED, whole

ROWS = 500


@pytest.mark.parametrize("name", SHIPPED)
def test_a_sweep_keeps_its_identity(golden: Golden, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.yaml"
    file.write_text(whole(SHIPPED[name]), "utf-8")
    spec = load(file)
    rows = list(islice(parameter_sets(spec), ROWS))
    hashed = sha256(b"".join(row.identity for row in rows)).hexdigest()[:32]
    golden.check(
        "sweep-identity",
        name,
        f"sweep {digest(spec.source, spec.keys.seed, '')}, {spec.trials} trials\n"
        f"rows  {hashed}, {len(rows)} hashed",
    )
