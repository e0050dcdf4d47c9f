"""The only place, with wire_*, where bytes of Redis become objects, and objects what is stored.

Both sides import it. Numbers are decimal text, times integer ms, structures JSON with sorted keys.
What no version can have written raises DecodeError with key and field; what is newer is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpq import wire_early, wire_growth, wire_metric
from hpq.fields import Reader, Row, known
from hpq.sweep import SCHEMA, Keep, Launch, Sweep
from hpq.trial import Json
from hpq.wire_launch import decode_launch, encode_launch, names


def dumps(value: Any) -> str:
    """Compact JSON, keys sorted, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dumps_in_order(value: Any) -> str:
    """Compact JSON in the order given, no NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def number(value: float) -> str:
    """A float as the shortest text that reads back the same."""
    return repr(float(value))


def _mapping(text: str) -> dict[str, Json]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


def encode_sweep(sweep: Sweep) -> dict[str, str]:
    """The fields of a sweep's hash that do not change by themselves (counts are the scripts')."""
    late = {"sampler": sweep.sampler, "search": sweep.search, "run_cap": str(sweep.run_cap)}
    return {
        **(late if sweep.sampler else {}),
        "schema": str(sweep.schema),
        "name": sweep.name,
        "digest": sweep.digest,
        "launch": encode_launch(sweep.launch),
        "signature": sweep.signature,
        "signer": sweep.signer,
        "metric": wire_metric.encode(sweep.metric),
        "goal": sweep.metric.goal if sweep.metric else "",
        "class": sweep.worker_class,
        "owner": sweep.owner,
        "priority": str(sweep.priority),
        "max_parallel": str(sweep.max_parallel),
        "retries": str(sweep.retries),
        "timeout_s": number(sweep.timeout_s),
        "stall_s": number(sweep.stall_s),
        "canary": str(sweep.canary),
        "keep": dumps(asdict(sweep.keep)) if sweep.keep else "",
        "early": wire_early.encode(sweep.early),
        "method": sweep.method,
        "seed": str(sweep.seed),
        **({"replicates": str(sweep.replicates)} if sweep.replicates > 1 else {}),
        "varying": dumps(list(sweep.varying)),
        "tags": dumps(list(sweep.tags)),
        "spec": dumps(sweep.spec),
        "provenance": dumps(sweep.provenance),
        "bundle": sweep.bundle,
    }


def decode_sweep(key: str, sid: str, row: Row, queued: int, running: int, dropped: int) -> Sweep:
    """A sweep from its hash and the sizes of its sorted sets.

    Raises:
        DecodeError: a field is not what this version writes (names it).
    """
    r = Reader(key, row)
    counts = r.counts(queued, running, dropped)
    return Sweep(
        id=sid,
        schema=r.parse("schema", SCHEMA, int),
        name=r.text("name"),
        digest=r.text("digest"),
        launch=r.parse("launch", Launch(), decode_launch),
        signature=r.text("signature"),
        signer=r.text("signer"),
        metric=r.parse("metric", None, wire_metric.decode),
        worker_class=r.text("class"),
        owner=r.text("owner"),
        priority=r.whole("priority"),
        max_parallel=r.whole("max_parallel"),
        retries=r.whole("retries"),
        timeout_s=r.real("timeout_s"),
        stall_s=r.real("stall_s"),
        canary=r.whole("canary"),
        keep=r.parse("keep", None, lambda text: known(Keep, text)),
        early=r.parse("early", None, wire_early.decode),
        method=r.text("method"),
        seed=r.whole("seed"),
        replicates=r.whole("replicates") or 1,
        varying=r.parse("varying", (), lambda text: names(json.loads(text))),
        spec=r.parse("spec", {}, _mapping),
        provenance=r.parse("provenance", {}, _mapping),
        bundle=r.text("bundle"),
        files=wire_growth.decode_files(key, row),
        tags=r.parse("tags", (), lambda text: names(json.loads(text))),
        created_ms=r.whole("created_ms"),
        flag=r.text("flag"),
        held=r.text("held"),
        sampler=r.text("sampler"),
        search=r.text("search"),
        run_cap=r.whole("run_cap"),
        no_more=r.text("no_more"),
        made={by: int(count) for by, count in r.reals(b"made:").items()},
        reached=r.parse("reached", None, wire_early.reached),
        bands=r.parse("bands", (), wire_early.bands),
        counts=counts,
    )


def flatten(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[str]:
    """[k, v, k, v, …] as scripts take fields."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [part for pair in items for part in pair]
