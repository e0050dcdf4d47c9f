"""`make oracle`: run W&B's package on all cases and rewrite tests/data/oracle."""

from __future__ import annotations

from tests.oracle import configs, grids, hyperband, samples
from tests.oracle.files import write

for module in (configs, grids, hyperband, samples):
    print(write(module.__name__.rpartition(".")[2], module.answers()))
