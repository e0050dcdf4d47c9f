"""Somebody with a kubeconfig and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.kube import DEADLINE_S
from tests.cluster.place import Namespace
from tests.support.commands import run_hpq, stdout_of


class Outside:
    """A machine from which `hpq` reaches a namespace by `hpq connect` alone."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.home, self.code = namespace, folder / "outside", folder
        self.env = namespace.cluster.env | {"HPQ_HOME": str(self.home), "HPQ_USER": "outside"}

    def hpq(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return run_hpq(words, self.code, self.env | env, DEADLINE_S)

    def ok(self, *words: object, **env: str) -> str:
        """Run a command that must succeed; answers its stdout."""
        return stdout_of(self.hpq(*words, **env))

    @property
    def left(self) -> list[str]:
        """What connections have left in HPQ_HOME, but for the lock of the one in the background."""
        found = (path.name for path in (self.home / "connect").glob("*"))
        return [name for name in found if name != "background.lock"]
