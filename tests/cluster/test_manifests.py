"""Every component: the real API server's strict look, and two versions' schemas."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from hpq_ops.manifests.cluster_file import Flags, load
from hpq_ops.manifests.objects import folder
from hpq_ops.manifests.render import render
from tests.cluster.conftest import MakeNamespace
from tests.cluster.place import Namespace
from tests.support.constants import ROOT
from tests.support.manifests import EVERY, Yaml

VERSIONS = ("1.31", "1.34")
IN_PLACE: Flags = {("namespace",): ("--namespace dry-run", "dry-run")}
OPERATORS = ("monitoring.coreos.com",)  # whose kinds the test cluster has not


FILES = (
    "{}",
    "queues: {default: {gpus: 0}}",
    "queues: {default: {}, big: {gpus: 4}}",
    # Each component by itself, then nearly all.
    "create_namespace: true",
    "dataset: {}",
    "bucket: s3://ours/x",
    "store: {}\nbackup: {}",
    *(line for line in EVERY.split("\n") if line and line != "backup: {}"),
    f"{EVERY}queues: {{default: {{}}, big: {{gpus: 4}}, small: {{gpus: 0}}}}",
)


@pytest.fixture(scope="module")
def objects() -> list[Yaml]:
    """Every object of every component; what is the same in several is there once."""
    texts = [render(load(text=text, flags=IN_PLACE)) for text in FILES]
    texts += [render(load(folder() / "cluster.yaml"))]
    texts += [(folder() / "copy-data.yaml").read_text("utf-8")]
    found = {json.dumps(o): o for text in texts for o in yaml.safe_load_all(text)}
    return list(found.values())


@pytest.fixture(scope="module")
def dry(make_namespace: MakeNamespace, objects: list[Yaml]) -> Namespace:
    """An empty namespace as ours is: what is in one can only be looked at where it is."""
    made = make_namespace()
    ours = next(o for o in objects if o["kind"] == "Namespace")
    named = {**ours, "metadata": {**ours["metadata"], "name": made.name}}
    made.cluster.kubectl("create", "-f", "-", given=yaml.safe_dump(named))
    return made


def test_the_api_server_takes_every_manifest_without_a_warning(
    objects: list[Yaml], dry: Namespace
) -> None:
    there = set(dry.cluster.kubectl("api-versions").split())
    known = [o for o in copy.deepcopy(objects) if o["apiVersion"] in there]
    left = {o["apiVersion"].partition("/")[0] for o in objects if o["apiVersion"] not in there}
    assert left <= {*OPERATORS, "keda.sh"}, "the server does not know these"
    for one in known:
        if one["kind"] == "Namespace":
            one["metadata"]["name"] = dry.name
        elif one["kind"] != "PersistentVolume":
            one["metadata"]["namespace"] = dry.name
    done = dry.cluster.run(
        *("kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server"),
        *("--validate=strict", "-f", "-"),
        given=yaml.safe_dump_all(known),
    )
    assert "Warning" not in done.stderr, done.stderr  # deprecated, or against Pod Security
    assert len(done.stdout.splitlines()) == len(known) > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid_in_older_and_newer_kubernetes(
    version: str, objects: list[Yaml]
) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    seen = set()
    for one in objects:
        if re.fullmatch(r"[\w/]+|[\w.]+\.k8s\.io/\w+", one["apiVersion"]):
            validate.validate(one, version, strict=True)
            seen.add(one["kind"])
    assert {"Deployment", "StatefulSet", "NetworkPolicy", "PodDisruptionBudget", "Pod"} <= seen


@pytest.mark.skipif(not shutil.which("checkov"), reason="checkov is not on PATH")
def test_a_linter_finds_nothing_that_is_not_excused(objects: list[Yaml], tmp_path: Path) -> None:
    for number, one in enumerate(objects):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(one), "utf-8")
    words = ("checkov", "--directory", tmp_path, "--config-file", ROOT / ".checkov.yaml")
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Failed checks: 0" in done.stdout, done.stdout + done.stderr
