"""Measure what a fresh copy of its code costs an attempt: `python benchmarks/code_tree.py [DIR]`.

The modules are copies of the standard library's glob.py, about 250 lines each.
"""

from __future__ import annotations

import glob
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hpq.code.bundle import keep, pack
from hpq.code.signing import home_id
from hpq.code.snapshot import digest_of, manifest, take_snapshot
from hpq.domain.sweep import Launch
from hpq_worker.attempt.code import CodeBundles
from hpq_worker.attempt.code_tree import CodeTree

_TIMES = 7


def used_ms(call: Callable[[], object]) -> tuple[float, float]:
    """Return wall time and CPU time of a call and the children that it waits for."""
    wall, cpu = time.perf_counter(), _cpu_s()
    call()
    return 1000 * (time.perf_counter() - wall), 1000 * (_cpu_s() - cpu)


def _cpu_s() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def measure(folder: Path, modules: int) -> dict[str, list[tuple[float, float]]]:
    """Return the times of each step of _TIMES attempts that import all modules."""
    user, home, out = folder / "user", folder / "home", folder / "out"
    names = [f"package{n % 20}.module{n}" for n in range(modules)]
    for name in names:
        path = user / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(glob.__file__, path)
    imports = "".join(f"import {name}\n" for name in names)
    (user / "train.py").write_text(imports)
    files = take_snapshot(user, most=math.inf)
    launch = Launch(
        program="train.py",
        code=digest_of(manifest(files)),
        code_dir=str(user),
        root=str(user),
        home=home_id(home, make=True),
        bundled=True,
    )
    keep(home, launch.code, pack(files))
    bundles = CodeBundles(home, lambda _: None)
    assert bundles.refusal(launch) is None
    env = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    took: dict[str, list[tuple[float, float]]] = {}
    for _ in range(_TIMES):
        for step, both in attempt(bundles, launch, env, out).items():
            took.setdefault(step, []).append(both)
    return took


def attempt(
    bundles: CodeBundles, launch: Launch, env: Mapping[str, str], out: Path
) -> dict[str, tuple[float, float]]:
    """Return the times of the steps of one attempt."""
    made: list[CodeTree] = []
    copied = used_ms(lambda: made.append(bundles.tree(launch)))
    tree = made[0]
    command = [sys.executable, f"{tree.code_dir}/train.py"]

    def imported() -> tuple[float, float]:
        return used_ms(lambda: subprocess.run(command, env=env, check=True))

    return {
        "copy": copied,
        "import, compiled": imported(),
        "import, from bytecode": imported(),
        "collect": used_ms(lambda: tree.collect(out)),
        "remove": used_ms(bundles.close),
    }


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else None
    for modules in (10, 100, 2_000):
        place = Path(tempfile.mkdtemp(prefix="hpq-b-", dir=where))
        try:
            found = measure(place, modules)
        finally:
            shutil.rmtree(place)
        for step, both in found.items():
            wall, cpu = (statistics.median(times) for times in zip(*both, strict=True))
            print(f"{modules:,} modules: {step}: {wall:,.1f} ms, {cpu:,.1f} ms of CPU time")
