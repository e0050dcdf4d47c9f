"""Measure hpq against its targets and its peers: `python -m benchmarks [NAME …]`.

These are not tests: no slow result fails. Each peer runs in turn with hpq, on the same machine and
server settings; ratios compare values of one run only.
"""

import sys
from pathlib import Path

# A machine that is only lent has no installed hpq: its worker is found beside this directory.
sys.path.append(str(Path(__file__).resolve().parent.parent / "worker"))
