"""A real sweep in pods, and what is left of it when the pods are gone."""

from __future__ import annotations

import json

from tests.cluster.conftest import Images
from tests.cluster.place import Laptop, Namespace
from tests.support.constants import ROOT


def test_a_sweep_of_digits_is_trained_in_a_pod_and_outlives_it(
    namespace: Namespace, laptop: Laptop, images: Images
) -> None:
    short = ("parameters.epochs.value=10", "parameters.hidden.values=[8]")
    sets = [word for one in short for word in ("--set", one)]
    sid = laptop.ok("enqueue", ROOT / "configs" / "digits.yaml", *sets).strip()
    laptop.wait_over(sid)
    (pod,) = namespace.ready()
    namespace.scale(0)
    namespace.wait_ready(0)

    found = json.loads(laptop.ok("results", sid, "--json"))
    assert len(found) == 8 and {row["state"] for row in found} == {"finished"}
    shown = json.loads(laptop.ok("show", f"{sid}/1", "--json", "--provenance"))
    assert images.worker in json.dumps(shown) and pod in json.dumps(shown)
    assert laptop.reader.trials.metric_history(laptop.trial(sid).id, "test/acc")
    assert f"{sid}/" in laptop.ok("best", sid)
    assert laptop.ok("audit", sid)
