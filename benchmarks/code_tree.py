"""Measure the time to make and restore a code tree: `python benchmarks/code_tree.py [DIR]`."""

from __future__ import annotations

import math
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

_TIMES = 20


def seconds(folder: Path, modules: int, images: int) -> tuple[float, float]:
    """Return the time of a worker's first attempt, and the median of those that follow."""
    user, home, out = folder / "user", folder / "home", folder / "out"
    for n in range(modules):
        (user / f"package{n % 10}").mkdir(parents=True, exist_ok=True)
        (user / f"package{n % 10}" / f"module{n}.py").write_text("x = 1\n" * 60)
    for n in range(images):
        (user / "data" / f"class{n % 10}").mkdir(parents=True, exist_ok=True)
        (user / "data" / f"class{n % 10}" / f"{n}.png").touch()
    files = take_snapshot(user, most=math.inf)
    launch = Launch(
        program="x",
        code=digest_of(manifest(files)),
        code_dir=str(user),
        root=str(user),
        home=home_id(home, make=True),
        bundled=True,
    )
    packed = pack(files)
    bundles, took = CodeBundles(home, lambda _: packed), list[float]()
    assert bundles.refusal(launch) is None
    for _ in range(1 + _TIMES):
        started = time.perf_counter()
        tree = bundles.tree(launch)
        tree.collect(out)
        took.append(time.perf_counter() - started)
        assert tree.is_linked
    bundles.close()
    return took[0], statistics.median(took[1:])


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else None
    for modules, images in ((50, 0), (15_000, 0), (50, 60_000)):
        place = Path(tempfile.mkdtemp(prefix="hpq-b-", dir=where))
        try:
            first, later = seconds(place, modules, images)
        finally:
            shutil.rmtree(place)
        print(
            f"{modules:,} modules, {images:,} images: {1000 * first:,.1f} ms for a worker's first"
            f" trial, {1000 * later:.2f} ms for each later one"
        )
