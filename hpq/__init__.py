"""What users import: `import hpq; hpq.report({"loss": 0.3})`, `from hpq import Recipe, Task, fit`.

`report` is loaded at once and needs the standard library alone: a program's Python may have nothing
else of hpq. Every other name loads the module that defines it at first use, and with it torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from hpq.reporting import report as report

__version__ = "0.1.0"

_HOMES = {
    "BadParams": "hpq_worker.trainers.training.trial_context",
    "DataMissing": "hpq.errors",
    "Diverged": "hpq_worker.trainers.training.trial_context",
    "Recipe": "hpq_worker.trainers.training.loop",
    "Split": "hpq_worker.trainers.data.datasets",
    "Task": "hpq_worker.trainers.training.loop",
    "Trial": "hpq_worker.runner.trial_api",
    "augmented": "hpq_worker.trainers.data.batches",
    "device": "hpq_worker.trainers.training.device",  # the module itself
    "fit": "hpq_worker.trainers.training.loop",
    "in_order": "hpq_worker.trainers.data.batches",
    "load_data": "hpq_worker.trainers.data.datasets",
    "shuffled": "hpq_worker.trainers.data.batches",
}

if TYPE_CHECKING:  # the same names, for editors and type checkers
    from hpq.errors import DataMissing as DataMissing
    from hpq_worker.runner.trial_api import Trial as Trial
    from hpq_worker.trainers.data.batches import augmented as augmented
    from hpq_worker.trainers.data.batches import in_order as in_order
    from hpq_worker.trainers.data.batches import shuffled as shuffled
    from hpq_worker.trainers.data.datasets import Split as Split
    from hpq_worker.trainers.data.datasets import load_data as load_data
    from hpq_worker.trainers.training import device as device
    from hpq_worker.trainers.training.loop import Recipe as Recipe
    from hpq_worker.trainers.training.loop import Task as Task
    from hpq_worker.trainers.training.loop import fit as fit
    from hpq_worker.trainers.training.trial_context import BadParams as BadParams
    from hpq_worker.trainers.training.trial_context import Diverged as Diverged
else:  # a type checker that sees `__getattr__` takes every misspelt name for one of hpq's

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
            raise ImportError(
                f"hpq.{name} needs {lacking}, which {sys.executable} does not have; run"
                f' `{sys.executable} -m pip install "hpq[trainers]"`, or set HPQ_PYTHON to a Python'
                " that has it",
                name=lacking,
            ) from error
        value = module if home.endswith(f".{name}") else getattr(module, name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})
