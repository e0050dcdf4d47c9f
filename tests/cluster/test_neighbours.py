"""hpq beside another application, applied by a namespace's administrator without cluster rights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
import yaml

from tests.cluster.conftest import Images, MakeNamespace
from tests.cluster.kube import tweaked, wait_for
from tests.cluster.place import SETTINGS, WORKER, Laptop, Namespace
from tests.support.constants import ROOT

FILE = """
queues: {default: {gpus: 0}, big: {gpus: 0}}
store: {}
egress: true
backup: {schedule: '@monthly'}
"""
ANA, BOB = ("--as", "ana"), ("--as", "bob")
# Not as Pod Security's level restricted wants it: it runs as root, with all of its capabilities.
SHOP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: IMAGE
          command: [python, -m, http.server, "8080"]
          securityContext: {runAsUser: 0}
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: customer}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: IMAGE, command: [sleep, "3600"]}]
"""
CALL = "import urllib.request as r; print(r.urlopen('http://shop:8080', timeout=5).status)"
CONNECT = "import socket; socket.create_connection(('hpq-redis', 6379), 3)"


def shop_answers(team: Namespace) -> bool:
    """The customer's pod gets a page of the shop."""
    return team.kubectl("exec", "customer", "--", "python", "-c", CALL, ok=False) == "200\n"


def wait_shop(team: Namespace) -> None:
    wait_for(lambda: shop_answers(team), "the shop to answer", tell=team.tell)


@pytest.fixture(scope="module")
def team(make_namespace: MakeNamespace, images: Images) -> Namespace:
    """A namespace that ana administers, where a shop has answered; and then hpq, by ana."""
    made = make_namespace()
    made.cluster.kubectl("create", "namespace", made.name)
    made.kubectl("create", "rolebinding", "ana", "--clusterrole=admin", "--user=ana")
    made.kubectl("apply", "-f", "-", given=SHOP.replace("IMAGE", images.worker))
    made.rolled_out("deployment/shop")
    wait_shop(made)
    apply(made, images, "--server-side")
    made.kubectl(*ANA, "scale", "deployment/hpq-worker-big", "--replicas=0")
    apply(made, images)
    secrets = yaml.safe_dump_all(made.manifests("--secrets"))
    made.kubectl(*ANA, "create", "-f", "-", given=secrets)
    made.rolled_out("statefulset/hpq-redis")
    made.rolled_out("deployment/hpq-worker")
    return made


def apply(team: Namespace, images: Images, *flags: str) -> None:
    """What a namespace that exists needs, applied by ana."""
    objects = tweaked(team.manifests("--image", images.worker, keys=FILE), SETTINGS)
    assert {o["metadata"].get("namespace") for o in objects} == {team.name}
    team.kubectl(*ANA, "apply", *flags, "-f", "-", given=yaml.safe_dump_all(objects))


def test_the_other_application_answers_and_restarts_and_reaches_no_redis(team: Namespace) -> None:
    assert shop_answers(team)
    team.kubectl("rollout", "restart", "deployment/shop")
    team.rolled_out("deployment/shop")
    wait_shop(team)
    done = team.cluster.run(
        *("kubectl", "-n", team.name, "exec", "customer", "--", "python", "-c", CONNECT), ok=False
    )
    assert done.returncode and "TimeoutError" in done.stderr, done.stderr


def test_an_operator_of_hpq_changes_nothing_of_the_other_application(team: Namespace) -> None:
    team.kubectl(*ANA, "create", "rolebinding", "bob", "--role=hpq-operator", "--user=bob")

    def may(verb: str, what: str, *flags: str) -> bool:
        return team.kubectl(*BOB, "auth", "can-i", verb, what, *flags, ok=False) == "yes\n"

    scale, forward = "--subresource=scale", "--subresource=portforward"
    team.kubectl(*BOB, "scale", "deployment/hpq-worker-big", "--replicas=0")
    assert may("patch", "deployments/hpq-worker", scale)
    assert may("create", "pods/hpq-redis-0", forward)
    assert not may("patch", "deployments/shop", scale)
    assert not may("create", "pods/customer", forward)
    assert not may("patch", "pods/customer") and not may("get", "configmaps/any")


def restored(team: Namespace) -> str:
    """Restore the newest backup by the commands of the page; return the last one's output."""
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    text = next(
        block for block in re.findall(r"(?ms)^```text\n(.*?)^```$", page) if "restore.rdb" in block
    )
    name, *lines = text.replace("-n hpq ", f"-n {team.name} ").strip().splitlines()
    newest = team.cluster.run("sh", "-c", name).stdout.split()[-1]
    for line in lines:
        said = team.cluster.run("sh", "-c", line.replace("NAME", newest)).stdout
    return said


def test_all_returns_from_a_backup_after_the_volume_of_redis_is_lost(
    team: Namespace, images: Images, make_laptop: Callable[[Namespace], Laptop]
) -> None:
    """It was taken while a trial ran, which the restored server queues again."""
    laptop = make_laptop(team)
    laptop.write("long.py", "import time\ntime.sleep(3600)\n")
    short = ("parameters.epochs.value=2", "parameters.hidden.values=[8]")
    sets = [word for one in short for word in ("--set", one)]
    sid = laptop.ok("enqueue", ROOT / "configs" / "digits.yaml", *sets).strip()
    laptop.wait_over(sid)
    before = json.loads(laptop.ok("results", sid, "--json"))
    long = laptop.enqueue("{program: long.py, method: grid, parameters: {x: {values: [1]}}}")
    laptop.wait_until(lambda: laptop.trial(long).state == "running", "a trial that runs")
    team.kubectl(*ANA, "create", "job", "now", "--from=cronjob/hpq-backup")
    wait_for(lambda: team.get("job", "now")["status"].get("succeeded"), "the Job", tell=team.tell)

    team.kubectl("delete", "statefulset/hpq-redis", "pvc/data-hpq-redis-0")
    apply(team, images)
    team.rolled_out("statefulset/hpq-redis")
    laptop.forward()
    assert sid not in laptop.ok("ls")
    logs = ("logs", "-l", WORKER, "--tail=-1")
    wait_for(lambda: "trial-unknown" in team.kubectl(*logs), "its end", tell=team.tell)
    assert "restore: the backup is the data" in restored(team)
    laptop.forward()
    assert json.loads(laptop.ok("results", sid, "--json")) == before
    laptop.wait_until(lambda: laptop.trial(long).attempt == 2, "the trial to run again")
    laptop.ok("cancel", long, "--yes")
    assert "refused, Redis holds sweeps" in restored(team)
    assert json.loads(laptop.ok("results", sid, "--json")) == before
    assert shop_answers(team)


def test_the_commands_of_the_page_remove_hpq_and_nothing_else(team: Namespace) -> None:
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| remove everything |"))
    removes = re.findall(r"`kubectl -n hpq (delete [^`]*)`", row)
    assert len(removes) == 2
    for words in removes:
        team.kubectl(*ANA, *words.split())
    kinds = team.cluster.kubectl("api-resources", "--namespaced", "--verbs=list,delete", "-o=name")
    kinds = ",".join(k for k in kinds.split() if "event" not in k)
    wait_for(  # what belongs to a deleted object goes a moment later
        lambda: "hpq" not in team.kubectl("get", kinds, "-o=name"),
        "the end of every object of hpq",
        tell=lambda: team.kubectl("get", kinds, "-o=name"),
    )
    assert shop_answers(team)
