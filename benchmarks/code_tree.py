"""Measure the time to copy a sweep's code per attempt: `python benchmarks/code_tree.py [FILES]`."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from hpq.code.bundle import pack
from hpq.code.manifest import digest_of, manifest, take_snapshot
from hpq.code.signing import home_id
from hpq.domain.sweep import Launch
from hpq_worker.attempt.code import CodeBundles

_TIMES = 50


def milliseconds(folder: Path, count: int) -> float:
    """Return the median time of copying `count` files of 4 KiB in ten packages beside data."""
    user, home = folder / "user", folder / "home"
    for n in range(count):
        (user / f"package{n % 10}" / "data").mkdir(parents=True, exist_ok=True)
        (user / f"package{n % 10}" / f"module{n}.py").write_text("x = 1\n" * 680)
    files = take_snapshot(user)
    code = digest_of(manifest(files))
    own = home_id(home, make=True)
    launch = Launch(
        program="x", code=code, code_dir=str(user), root=str(user), home=own, bundled=True
    )
    bundles, took = CodeBundles(home, lambda _: pack(files)), list[float]()
    for n in range(_TIMES):
        started = time.perf_counter()
        tree = bundles.copy(launch, folder / f"tree{n}")
        took.append(1000 * (time.perf_counter() - started))
        assert tree.is_linked
    return statistics.median(took)


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp(prefix="hpq-b-"))
    try:
        total = int(sys.argv[1]) if len(sys.argv) > 1 else 50
        print(f"a tree of {total} files: {milliseconds(place, total):.2f} ms")
    finally:
        shutil.rmtree(place)
