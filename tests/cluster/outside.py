"""Somebody with a kubeconfig and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.kube import DEADLINE_S
from tests.cluster.place import HPQ, Namespace


class Outside:
    """A machine from which `hpq` reaches a namespace by `hpq connect` alone."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.home, self.code = namespace, folder / "outside", folder
        self.env = namespace.cluster.env | {"HPQ_HOME": str(self.home), "HPQ_USER": "outside"}

    def hpq(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [HPQ, *map(str, words)],
            cwd=self.code,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def ok(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command that must succeed."""
        done = self.hpq(*words, **env)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done

    @property
    def left(self) -> list[str]:
        """What connections have left in HPQ_HOME, but for the lock of the one in the background."""
        found = (path.name for path in (self.home / "connect").glob("*"))
        return [name for name in found if name != "background.lock"]
