"""Measure hpq against its targets and its peers: `python -m benchmarks [NAME …]`.

These are not tests: no slow result fails. Each peer runs in turn with hpq, on the same machine and
server settings; ratios compare values of one run only.
"""

import sys
from pathlib import Path

# benchmarks.gpu also runs where hpq is not installed: its worker is beside this directory.
sys.path.append(str(Path(__file__).resolve().parent.parent / "worker"))
