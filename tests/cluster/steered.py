"""A program that goes on in each pod until the test says so, by a file on the shared volume."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.place import Laptop, Namespace

STORE = "/store"  # where the component store mounts its volume
PROGRAM = """
    import os, sys, time
    from pathlib import Path
    import hpq

    kept = Path(os.environ["HPQ_CHECKPOINT_DIR"], "step")
    step = int(kept.read_text()) if kept.exists() else 0
    print("hpq of", Path(hpq.__file__).resolve().parents[1], "begins at", step)
    go = Path("/store", "go-" + os.environ["HPQ_SWEEP_ID"])
    while step < 3 or not go.exists():
        step += 1
        kept.with_suffix(".tmp").write_text(str(step))
        kept.with_suffix(".tmp").rename(kept)
        hpq.report({"loss": 1 / step}, step=step)
        time.sleep(0.25)
    Path(os.environ["HPQ_OUT"], "model.txt").write_text(str(step))
"""


class Steered:
    """Sweeps of that program in one namespace."""

    def __init__(self, namespace: Namespace, laptop: Laptop) -> None:
        self.namespace, self.laptop = namespace, laptop
        laptop.write("steered.py", PROGRAM)

    def enqueue(self, count: int) -> str:
        """Trials x = 1 … count, each of which goes on until `go`; the code is sent along."""
        return self.laptop.enqueue(
            f"program: steered.py\ncode: .\nmethod: grid\nmetric: {{name: loss, goal: minimize}}\n"
            f"parameters: {{x: {{values: {list(range(1, count + 1))}}}}}\n",
            "--new",
        )

    @property
    def volume(self) -> Path:
        """The shared volume, as this machine has it."""
        return self.namespace.volume("hpq-store")

    def go(self, sid: str) -> None:
        """Let the trials of a sweep come to their end."""
        (self.volume / f"go-{sid}").touch()

    def running(self, sid: str) -> dict[int, str]:
        """The trials that have reported in their attempt of now: {number: worker}."""
        return {
            t.id.number: t.worker
            for t in self.laptop.trials(sid)
            if t.state == "running" and t.step
        }

    def wait_running(self, sid: str, count: int) -> dict[int, str]:
        """Wait until so many trials train."""
        found: dict[int, str] = self.laptop.wait_until(
            lambda: len(now := self.running(sid)) == count and now,
            f"{count} running trials of {sid}",
        )
        return found
