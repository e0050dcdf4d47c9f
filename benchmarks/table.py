"""Print figures as a table or as JSON, with the machine and versions."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib import metadata

from benchmarks.figures import Figure
from benchmarks.page import commit

_HEAD = ("", "median", "min – max", "target", "hpq is better by")


def conditions(server: str) -> dict[str, str | int]:
    """Return the machine, its load and versions."""
    return {
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "machine": f"{_cpu()}, {len(os.sched_getaffinity(0))} cores, {platform.system()}",
        "load": f"{os.getloadavg()[0]:.1f} over the last minute",
        "python": platform.python_version(),
        "server": f"Redis {server}, TCP on loopback, AOF everysec",
        "rq": metadata.version("rq"),
    }


def text(name: str, line: str, figures: Sequence[Figure]) -> str:
    """Return one benchmark as an aligned Markdown table."""
    return f"**{name}**: {line}\n\n{aligned([_HEAD, *map(_row, figures)])}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is the head, the first column has names."""
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(wide))
    lines = [_line(row, wide) for row in rows]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]]) + "\n"


def as_json(about: dict[str, str | int], groups: Mapping[str, Sequence[Figure]]) -> str:
    """Return all figures, with each round's value, as JSON."""
    return json.dumps(
        {
            "conditions": about,
            "benchmarks": {
                name: [_record(figure) for figure in figures] for name, figures in groups.items()
            },
        },
        indent=2,
    )


def _row(figure: Figure) -> tuple[str, ...]:
    low, high = min(figure.values), max(figure.values)
    sign = "≥" if figure.more_is_better else "≤"
    target = ""
    if figure.target is not None:
        verdict = " over" if figure.is_over else ""
        target = f"{sign} {number(figure.target)}{verdict}"
    return (
        figure.what,
        f"{number(figure.median)} {figure.unit}",
        f"{number(low)} – {number(high)}" if len(figure.values) > 1 else "",
        target,
        "" if figure.ratio is None else f"{number(figure.ratio)} ×",
    )


def _line(cells: Sequence[str], wide: Sequence[int]) -> str:
    padded = [
        c.ljust(w) if i == 0 else c.rjust(w)
        for i, (c, w) in enumerate(zip(cells, wide, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def _record(figure: Figure) -> dict[str, object]:
    return {
        "what": figure.what,
        "unit": figure.unit,
        "median": figure.median,
        "values": list(figure.values),
        "target": figure.target,
        "over": figure.is_over,
        "beside": figure.beside.what if figure.beside else None,
        "ratio": figure.ratio,
    }


def number(value: float) -> str:
    """Return a number with three digits, or whole."""
    if not math.isfinite(value):
        return str(value)
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 1 else f"{value:.2f}"


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
