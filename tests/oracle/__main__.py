"""`make oracle`: ask W&B's package everything again and rewrite tests/data/oracle."""

from __future__ import annotations

from tests.oracle import configs, hyperband
from tests.oracle.files import write

for name, answers in {"hyperband": hyperband.answers, "configs": configs.answers}.items():
    print(write(name, answers()))
