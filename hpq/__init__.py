"""The public names: `hpq.report({"loss": 0.3})`, `hpq.Sweep("digits").best()`.

`import hpq` needs only Python's standard library and takes no time: a process of hpq does so before
it handles signals. A name loads its module, and the packages that the module needs, when it is
first used.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # that of typing, which takes longer to import than all else here

__version__ = "0.1.0"

_HOMES = {
    "BadParams": "hpq.errors",
    "DataMissing": "hpq.errors",
    "Diverged": "hpq.errors",
    "Sweep": "hpq_producer.python_api.sweep",
    "SweepTrial": "hpq_producer.python_api.trial",
    "TimedOut": "hpq.errors",
    "Trial": "hpq_worker.runner.trial_api",
    "agent": "hpq_worker.function_agent",
    "enqueue": "hpq_producer.python_api.enqueue_from_python",
    "errors": "hpq.errors",  # the module itself
    "report": "hpq.reporting",
    "sweeps": "hpq_producer.python_api.sweep",
}

if "HPQ_REPORT" in os.environ:  # a trial, which may report: it says so before it prints
    import_module("hpq.reporting")

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from hpq import errors as errors
    from hpq.errors import BadParams as BadParams
    from hpq.errors import DataMissing as DataMissing
    from hpq.errors import Diverged as Diverged
    from hpq.errors import TimedOut as TimedOut
    from hpq.reporting import report as report
    from hpq_producer.python_api.enqueue_from_python import enqueue as enqueue
    from hpq_producer.python_api.sweep import Sweep as Sweep
    from hpq_producer.python_api.sweep import sweeps as sweeps
    from hpq_producer.python_api.trial import SweepTrial as SweepTrial
    from hpq_worker.function_agent import agent as agent
    from hpq_worker.runner.trial_api import Trial as Trial
else:  # with `__getattr__`, a type checker would accept every misspelled name

    def __getattr__(name):
        """Load a name of `_HOMES`.

        Raises:
            AttributeError: hpq has no such name.
            ImportError: this Python lacks a package that the name needs.
        """
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'hpq' has no attribute {name!r}")
        try:
            module = import_module(home)
        except ModuleNotFoundError as error:
            lacking = (error.name or "").partition(".")[0]
            package = "./hpq" if lacking.startswith("hpq_") else lacking  # hpq's checkout
            raise ImportError(
                f"hpq.{name} needs {lacking}, which {sys.executable} does not have; run"
                f" `{sys.executable} -m pip install {package}`, or set HPQ_PYTHON to a Python"
                " that has it",
                name=lacking,
            ) from error
        value = module if home.endswith(f".{name}") else getattr(module, name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted(_HOMES)
