"""hpq: what the producer and the worker share — the contract, and nothing of either side.

`hpq.report(...)` and `hpq.trial()` are what training code imports; they need the standard
library only, so this file imports nothing else.
"""

from hpq.report import report

__version__ = "0.1.0"

__all__ = ["__version__", "report"]
