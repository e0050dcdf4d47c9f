"""What depends on no test: where the repository and the data lie, and when a wait is a hang."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"

# No machine is that slow: a wait that takes longer hangs. pytest's own limit is twice as long.
DEADLINE_S = 300.0
