"""The checks of a sweep file's top level: its keys one by one, and those that belong together.

Imported by sweepfile only. What is wrong is noted; nothing is returned or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from hpq.hyperparams import SHIPPED
from hpq.trial import Json
from producer.sweepfile import early, fit, schema
from producer.sweepfile.problems import Problems, shown
from producer.sweepfile.values import Check

_NOT_BESIDE_A_LIST = frozenset({"method", "parameters", "order", "when", "exclude", "points"})


def check_keys(data: Mapping[str, Json], is_list: bool, out: Problems) -> None:
    """Note what is wrong with the top-level keys; `is_list` where the file lists its sets."""
    schema.check(data, schema.TOP, (), out)
    meant = _meant(data)
    if "metric" in data:
        _check_mapping(data, "metric", schema.METRIC, "name", out)
    if "early_terminate" in data:
        early.check(data, out)
    if "keep" in data:
        _check_keep(data, out)
    fit.check_code(data, out)
    if is_list:
        for key in _NOT_BESIDE_A_LIST & data.keys():
            out.add(
                (key,), "means nothing beside a list of sets; remove it", code="conflicting-keys"
            )
        return
    if "parameters" not in data and "parameters" not in meant:
        out.add(
            ("parameters",),
            "missing; write at least one, such as lr: {values: [0.1, 0.01]}",
            code="missing-key",
        )
    _check_method(data, meant, out)


def _meant(data: Mapping[str, Json]) -> frozenset[str]:
    """The keys that unknown ones are near to: they are not missing as well."""
    unknown = data.keys() - schema.TOP.keys()
    return frozenset(k for word in unknown for k in get_close_matches(word, schema.TOP, n=1))


def _check_method(data: Mapping[str, Json], meant: frozenset[str], out: Problems) -> None:
    method = data.get("method")
    if "method" not in data and "method" not in meant:
        out.add(("method",), "missing; write grid, random or bayes", code="missing-key")
    if method == "bayes":
        if "metric" not in data and str(data.get("trainer")) not in SHIPPED:
            out.add(
                ("metric",),
                "missing; bayes needs {name: …, goal: minimize or maximize}",
                code="missing-key",
            )
    elif "sampler" in data:
        out.add(("sampler",), "goes with method: bayes; remove it", code="conflicting-keys")
    if method in ("random", "bayes") and data.get("order") == "shuffle":
        out.warn(("order",), f"shuffle changes nothing for method {method}", code="order-ignored")


def _check_keep(data: Mapping[str, Json], out: Problems) -> None:
    value = data["keep"]
    if not isinstance(value, dict) or not value:
        out.add(("keep",), f"{shown(value)} is not a mapping; write {{best: 3, last: 1}}")
        return
    schema.check(value, schema.KEEP, ("keep",), out)
    if value.get("best") and "metric" not in data and str(data.get("trainer")) not in SHIPPED:
        out.add(
            ("keep", "best"), "needs a metric; write metric: {name: …, goal: …}", code="missing-key"
        )


def _check_mapping(
    data: Mapping[str, Json],
    key: str,
    table: Mapping[str, Check],
    needs: str,
    out: Problems,
) -> None:
    value = data[key]
    if not isinstance(value, dict):
        out.add((key,), f"{shown(value)} is not a mapping; write {{{needs}: …}}")
        return
    schema.check(value, table, (key,), out)
    if needs not in value:
        out.add((key,), f"needs {needs}", code="missing-key")
