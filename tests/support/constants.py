"""Constants of all tests: paths of the repository and its data, and the longest wait."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"

# A longer wait is a hang on any machine. pytest's own limit is twice as long.
DEADLINE_S = 300.0

# A standard deviation, its mean, and how all views write it.
DEVIATIONS = (
    (0.0013, 0.9421, "0.0013"),
    (0.1, 0.5, "0.1000"),
    (0.00042, 0.9421, "0.00042"),
    (12.34, 8621.0, "12"),
    (99.99, 8621.0, "100"),
    (3.21, 8621.0, "3.2"),
    (0.5, 0.001234, "0.5000"),
    (0.0, 0.5, "0"),
    (1.26e-7, 0.5, "1.3e-7"),
    (34567.0, 1.2e7, "34567"),
    (3.46e6, 1.2e7, "3.5e6"),
)
