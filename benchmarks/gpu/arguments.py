"""The words of `python -m benchmarks.gpu`, checked before anything slow begins."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.upstream import REPOSITORY
from hpq.errors import UserError

MINUTES = 9.0
WITH = {"G4": "G3", "G5": "G3"}  # measured by another section
# What accuracies are of, if they are to be one sample.
SAME = ("images", "size", "device", "plan", "peer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The seeds of an earlier run, and what they were trained on."""

    path: str
    conditions: Mapping[str, object]
    parity: Mapping[str, list[float]]

    def check(self, conditions: Mapping[str, object]) -> None:
        """See that this run is of the same kind.

        Raises:
            UserError: its seeds and those of this run cannot be one sample.
        """
        for name in SAME:
            was, here = self.conditions.get(name, "not said"), conditions[name]
            if was != here:
                raise UserError(f"--parity-from {self.path}: its {name}: {was}; here: {here}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What was asked for."""

    out: Path
    data: str | None
    minutes: float
    small: bool
    only: list[str] = field(default_factory=list)  # sections; none: all
    published: Path | None = None
    earlier: Earlier | None = None


def arguments(sections: Sequence[str], words: Sequence[str] | None = None) -> Given:
    """Read the words (those of the process by default); nothing is made yet.

    Raises:
        UserError: a file or directory cannot be what it is named for.
    """
    names = [*sections, *WITH]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--data", help="where CIFAR10 lies (default: HPQ_DATA; else noise)")
    parser.add_argument("--out", type=Path, help="a directory for gpu.md and gpu.json: a new one")
    parser.add_argument(
        "--minutes", type=_minutes, default=MINUTES, help="of all of it (default: %(default)g)"
    )
    parser.add_argument(
        "--only", nargs="*", choices=names, metavar="NAME", default=[],
        help=f"of {', '.join(sections)}; G4 and G5 come with G3",
    )  # fmt: skip
    parser.add_argument("--parity-from", help="go on with the seeds in an earlier gpu.json")
    parser.add_argument(
        "--published", type=Path, metavar="DIR",
        help=f"a checkout of {REPOSITORY}: it is the peer (default: benchmarks/article.py)",
    )  # fmt: skip
    parser.add_argument("--small", action="store_true", help="tiny, also without a GPU")
    found = parser.parse_args(words)
    out = found.out or Path(time.strftime("gpu-%Y-%m-%d-%H%M%S", time.gmtime()))
    if (out / "gpu.json").exists():
        raise UserError(f"--out {out}: gpu.json of an earlier run lies there; name a new directory")
    data = found.data or os.environ.get("HPQ_DATA") or None
    if data and not Path(data).exists():
        raise UserError(f"--data {data}: no such file or directory")
    return Given(
        out=out,
        data=data,
        minutes=found.minutes,
        small=found.small,
        only=list(dict.fromkeys(WITH.get(name, name) for name in found.only)),
        published=found.published,
        earlier=_earlier(found.parity_from) if found.parity_from else None,
    )


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return minutes


def _earlier(path: str) -> Earlier:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
        seeds = {name: [float(v) for v in found["parity"][name]] for name in found["parity"]}
        if not seeds.keys() <= {"ours", "theirs"}:
            raise ValueError
        return Earlier(path=path, conditions=dict(found["conditions"]), parity=seeds)
    except OSError as error:
        raise UserError(f"--parity-from {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"--parity-from {path}: not a gpu.json of this benchmark") from None
