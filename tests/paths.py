"""Where the repository and the data of the tests lie, however deep the test is that asks."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
