"""A namespace with hpq in it, and a laptop that reaches its Redis."""

from __future__ import annotations

import base64
import contextlib
import re
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from redis.exceptions import RedisError

from hpq.domain.trial import TrialId, TrialView
from hpq.redis.client import connect
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.cluster.kube import DEADLINE_S, Cluster, tweaked, wait_for
from tests.support.commands import run_hpq, stdout_of

WORKER = "app.kubernetes.io/name=hpq-worker"
# Short, so that what is lost is soon found; a lease that a busy machine still keeps: pods ask for a
# tenth of a core, so all else goes before them. More threads than one wait for each other where
# cores are few and others work.
LEASE_S = 20
SETTINGS = {"HPQ_LEASE_S": str(LEASE_S), "HPQ_REAP_S": "1", "OMP_NUM_THREADS": "1"}


class Namespace:
    """What `hpq manifests` prints, applied."""

    def __init__(self, cluster: Cluster, name: str, home: Path) -> None:
        self.cluster, self.name, self.home = cluster, name, home

    def kubectl(self, *words: object, given: str | None = None, ok: bool = True) -> str:
        """kubectl in this namespace."""
        return self.cluster.kubectl("-n", self.name, *words, given=given, ok=ok)

    def get(self, *words: object) -> Any:
        """`kubectl get … -o json` in this namespace, as data."""
        return self.cluster.get("-n", self.name, *words)

    def manifests(self, *flags: object, keys: str = "{}") -> list[dict[str, Any]]:
        """What `hpq manifests` prints for this namespace and the keys of a file, as data."""
        path = self.home / f"{self.name}.yaml"
        path.write_text(keys)
        words = ("manifests", path, "--namespace", self.name, *flags)
        env = self.cluster.env | {"HPQ_HOME": str(self.home)}
        text = stdout_of(run_hpq(words, Path.cwd(), env, DEADLINE_S))
        return [one for one in yaml.safe_load_all(text) if one]

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """`kubectl apply` of these."""
        self.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))

    def deploy(
        self,
        image: str,
        *,
        keys: str = "{}",
        replicas: int | None = 1,
        settings: Mapping[str, str] = SETTINGS,
        change: Callable[[list[dict[str, Any]]], None] = lambda objects: None,
    ) -> None:
        """Secrets (once), then all of it, and wait until Redis and the workers are ready.

        `change` may alter the objects before they are applied; no replicas: an autoscaler decides.
        """
        words = ("--create-namespace", "--image", image, "--gpus", 0)
        objects = tweaked(self.manifests(*words, keys=keys), settings)
        for one in objects if replicas is not None else ():
            if (one["kind"], one["metadata"]["name"]) == ("Deployment", "hpq-worker"):
                one["spec"]["replicas"] = replicas
        change(objects)
        first = [one for one in objects if one["kind"] == "Namespace"]
        self.apply(first)
        if not self.kubectl("get", "secret", "hpq-code-key", "--ignore-not-found"):
            self.apply(self.manifests("--secrets"))
        self.apply(objects)
        self.rolled_out("statefulset/hpq-redis")
        self.rolled_out("deployment/hpq-worker")

    def rolled_out(self, what: str) -> None:
        """Wait until all pods of it are there and ready."""
        done = self.cluster.run(
            *("kubectl", "-n", self.name, "rollout", "status", what),
            f"--timeout={DEADLINE_S:.0f}s",
            ok=False,
        )
        assert done.returncode == 0, (done.stderr, self.tell())

    def scale(self, replicas: int) -> None:
        """`kubectl scale`, which returns at once."""
        self.kubectl("scale", "deployment/hpq-worker", f"--replicas={replicas}")

    def pods(self, selector: str = WORKER) -> list[dict[str, Any]]:
        """The pods that are there, also those that are going."""
        found: list[dict[str, Any]] = self.get("pods", "-l", selector)["items"]
        return found

    def ready(self, selector: str = WORKER) -> list[str]:
        """The names of those that are ready and not going."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods(selector)
            if "deletionTimestamp" not in pod["metadata"]
            and any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in pod["status"].get("conditions", [])
            )
        ]

    def wait_ready(self, count: int, selector: str = WORKER) -> list[str]:
        """Wait until so many are ready and no other is there; answers their names."""
        return wait_for(  # type: ignore[no-any-return]
            lambda: (
                len(names := self.ready(selector)) == count == len(self.pods(selector))
                and (names or ["none"])
            ),
            f"{count} ready pods of {selector}",
            tell=self.tell,
        )

    def kill(self, pod: str) -> None:
        """SIGKILL every process of a pod, as a node's crash does."""
        self.cluster.testcluster("kill", pod, self.name)

    def secret(self, name: str, field: str) -> str:
        """A value of a Secret."""
        return base64.b64decode(self.get("secret", name)["data"][field]).decode()

    def volume(self, claim: str) -> Path:
        """The directory of a bound claim's volume: the node is this machine."""
        name = self.get("pvc", claim)["spec"]["volumeName"]
        return Path(self.cluster.get("pv", name)["spec"]["hostPath"]["path"])

    def tell(self) -> str:
        """What a person would look at first."""
        looks = (
            ("get", "pods", "-o", "wide"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("logs", "-l", WORKER, "--tail=40", "--prefix"),
        )
        return "\n".join(self.kubectl(*look, ok=False) for look in looks)

    def delete(self) -> None:
        """All of it, its claims, and what its volumes hold."""
        self.kubectl("delete", "pod", "--all", "--grace-period=1", "--wait=false", ok=False)
        self.cluster.kubectl(
            "delete", "namespace", self.name, "--ignore-not-found", "--timeout=120s", ok=False
        )
        self.cluster.recycle()


class Laptop:
    """Somebody's machine: hpq commands that reach the namespace's Redis by a port-forward."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.code = namespace, folder / "code"
        self.code.mkdir(parents=True, exist_ok=True)
        self._port, self._forward = 0, None  # type: tuple[int, subprocess.Popen[str] | None]
        password = namespace.secret("hpq-redis-producer", "password")
        self._password, self._file = password, folder / "password"
        self._file.write_text(password)
        self._file.chmod(0o600)
        self.forward()
        self.redis = connect(self._url)
        self.keys = Keys("hpq")
        self.reader = StoreReader(self.redis, self.keys, 1000 * LEASE_S)

    def forward(self) -> None:
        """See to it that the port-forward leads to Redis.

        kubectl's goes to one pod, and finds out that it is gone when it is used.
        """
        if self._forward is not None and self._forward.poll() is None and self._leads():
            return
        self._end_forward()
        name = self.namespace.name
        self._forward = subprocess.Popen(
            ["kubectl", "-n", name, "port-forward", "svc/hpq-redis", f"{self._port or ''}:6379"],
            env=self.namespace.cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._forward.stdout is not None
        line = self._forward.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line + self._forward.stdout.read()
        self._port = int(found[1])

    def _leads(self) -> bool:
        redis = connect(self._url, retries=0)
        with contextlib.closing(redis), contextlib.suppress(RedisError):
            return bool(redis.ping())
        return False

    def _end_forward(self) -> None:
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()
            assert self._forward.stdout is not None
            self._forward.stdout.close()
            self._forward = None

    @property
    def _url(self) -> str:
        return f"redis://hpq-producer:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def env(self) -> dict[str, str]:
        """The environment of its commands."""
        return self.namespace.cluster.env | {
            "HPQ_REDIS_URL": f"redis://hpq-producer@127.0.0.1:{self._port}/0",
            "HPQ_REDIS_PASSWORD_FILE": str(self._file),
            "HPQ_HOME": str(self.namespace.home),
            "HPQ_USER": "tester",
        }

    def hpq(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        self.forward()
        return run_hpq(words, self.code, self.env | env, DEADLINE_S)

    def ok(self, *words: object, **env: str) -> str:
        """Run a command that must succeed; answers its stdout."""
        return stdout_of(self.hpq(*words, **env))

    def write(self, name: str, text: str) -> Path:
        """A file in the directory of the user's code."""
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def enqueue(self, text: str, *flags: object, **env: str) -> str:
        """Enqueue a sweep file; answers the sweep's id."""
        path = self.write(f"sweep-{time.monotonic_ns()}.yaml", text)
        return self.ok("enqueue", path, *flags, **env).strip()

    def trial(self, sid: str, number: int = 1) -> TrialView:
        """A trial as readers see it."""
        return self.reader.trials.get(TrialId(sweep=sid, number=number))

    def trials(self, sid: str) -> list[TrialView]:
        """All trials of a sweep, by number."""
        total = self.reader.sweeps.get(sid).counts.total
        return [self.trial(sid, number) for number in range(1, total + 1)]

    def events(self, sid: str, number: int = 1) -> list[str]:
        """What happened to a trial, in order."""
        return [e.what for e in self.reader.events.read(sid) if e.trial == number]

    def wait_over(self, sid: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until a sweep is over, and hold the audit."""
        self.wait_until(
            lambda: self.reader.sweeps.get(sid).state.is_over, f"the end of {sid}", deadline_s
        )
        self.audit(sid)

    def wait_until(
        self, is_so: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S
    ) -> Any:
        """Poll until it is so; fails with what the cluster says."""
        self.forward()
        return wait_for(is_so, what, deadline_s, tell=self.namespace.tell)

    def audit(self, sid: str) -> None:
        """`hpq audit` finds nothing wrong with a sweep that is over."""
        found = audit_sweep(self.reader, sid)
        assert not found.violations, found.violations
        assert not found.open, found

    def close(self) -> None:
        """End the port-forward."""
        with contextlib.suppress(Exception):
            self.redis.close()
        self._end_forward()
