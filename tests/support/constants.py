"""Constants of all tests: paths of the repository and its data, and the longest wait."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"

# A longer wait is a hang on any machine. pytest's own limit is twice as long.
DEADLINE_S = 300.0
