"""The public names: `hpq.report({"loss": 0.3})`, `hpq.Sweep("digits").best()`, `hpq.fit`.

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
    "Augmented": "hpq_worker.trainers.cifar10",
    "BadParams": "hpq.errors",
    "Batches": "hpq_worker.trainers.data",
    "DataMissing": "hpq.errors",
    "Diverged": "hpq.errors",
    "Split": "hpq_worker.trainers.data",
    "Sweep": "hpq_producer.python_api.sweep",
    "SweepTrial": "hpq_producer.python_api.trial",
    "TimedOut": "hpq.errors",
    "Trial": "hpq_worker.runner.trial_api",
    "agent": "hpq_worker.function_agent",
    "device": "hpq_worker.trainers.device",  # the module itself
    "enqueue": "hpq_producer.python_api.enqueue_from_python",
    "errors": "hpq.errors",  # the module itself
    "fit": "hpq_worker.trainers.loop",
    "load_data": "hpq_worker.trainers.data",
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
    from hpq_worker.trainers import device as device
    from hpq_worker.trainers.cifar10 import Augmented as Augmented
    from hpq_worker.trainers.data import Batches as Batches
    from hpq_worker.trainers.data import Split as Split
    from hpq_worker.trainers.data import load_data as load_data
    from hpq_worker.trainers.loop import fit as fit
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
            trains = not home.startswith("hpq_producer")
            whole = "torch numpy pillow scikit-learn" if trains else lacking
            raise ImportError(
                f"hpq.{name} needs {lacking}, which {sys.executable} does not have; run"
                f" `{sys.executable} -m pip install {whole}`, or set HPQ_PYTHON to a Python"
                " that has it",
                name=lacking,
            ) from error
        value = module if home.endswith(f".{name}") else getattr(module, name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted(_HOMES)
