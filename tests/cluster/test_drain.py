"""`hpq drain` before `kubectl scale`: which pods go, and what becomes of their trials."""

from __future__ import annotations

import re

from tests.cluster.place import Laptop, Namespace
from tests.cluster.steered import Steered
from tests.support.ids import ids


def test_a_drained_pod_ends_its_trial_and_kubectl_scale_removes_it_and_no_other(
    namespace: Namespace, laptop: Laptop
) -> None:
    steered = Steered(namespace, laptop)
    namespace.scale(2)
    names = namespace.wait_ready(2)
    sid = steered.enqueue(2)
    runs = steered.wait_running(sid, 2)
    pod = next(name for name in names if runs[1].startswith(name))
    late = laptop.hpq("drain", pod, "--timeout", 1)
    assert (late.returncode, ids(late.stderr)[-1:]) == (5, ["timed-out"]), late.stderr
    assert f"{sid}/1" in late.stderr and f"`hpq drain {runs[1]}`" in late.stderr, late.stderr
    assert [w.state for w in laptop.reader.workers.live() if w.pod == pod] == ["draining"]

    steered.go(sid)
    laptop.wait_over(sid)
    done = laptop.hpq("drain", pod)
    assert done.returncode == 0, done.stderr
    (annotate,) = re.findall(r"kubectl -n NAMESPACE (annotate pod .*); then", done.stderr)
    namespace.kubectl(*annotate.split())
    namespace.scale(1)
    assert namespace.wait_ready(1) != [pod]
    assert [laptop.events(sid, n) for n in (1, 2)] == [["claimed", "finished"]] * 2
