"""What training code cannot see of its worker, and what the log does not show of what it sees."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import plain_url
from tests.support.ids import ids

HEAD = "method: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"
PASSWORD, KEY = "s3cr3t-Passw0rd", "c0de-key-0f-ours"
HOOK = "http://127.0.0.1:9/h00k-0f-ours"  # nobody listens

# Looks wherever a program may: its variables, and those of every process that it can read.
SPY = """
    import json, os
    from pathlib import Path

    def look():
        seen = {}
        ours = os.environ.get("LAB_ID", "")
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\\0", b" ").decode()
                environ = (entry / "environ").read_bytes().decode("latin-1")
                if ours in environ if ours else "worker" in line:
                    seen[line] = environ
            except (OSError, ValueError):
                pass
        Path("draft").write_text(json.dumps([dict(os.environ), seen]))
        Path("draft").rename("seen")

    def train(params, trial):
        look()
        return {"loss": 1}

    if __name__ == "__main__":
        look()
        print("loss=1")
"""
TALKS = """
    import os, pathlib, time

    def half(text):
        os.write(1, text.encode())

    token = os.environ["MY_TOKEN"]
    half("the token is " + token[:5])
    pathlib.Path("said-half").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    half(token[5:] + ", so it is\\n")
    raise KeyError(token)
"""


@pytest.fixture
def spied(make_lab):
    def run(launch: str, flags: str = "", **env: str):
        lab = make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
        lab.env |= {"HPQ_CODE_KEY": KEY, "HPQ_NOTIFY": HOOK}
        lab.write("spy.py", SPY)
        sid = lab.enqueue(f"{launch}\n{flags}{HEAD}")
        lab.worker(**env)
        lab.wait_over(sid)
        # In a pod the working directory is a copy, and what is written there goes to HPQ_OUT.
        (seen,) = [p for p in (lab.code / "seen", *lab.home.glob("work/*/out/seen")) if p.exists()]
        return json.loads(seen.read_text("utf-8"))

    return run


@pytest.mark.parametrize("launch", ["program: spy.py", "trainer: spy:train"])
def test_training_code_reads_no_secret_from_the_processes_above_it(spied, launch) -> None:
    """Security: training code reads its variables and /proc/PID/environ of its worker and fleet."""
    own, others = spied(launch)
    assert any("hpq_worker.consumer" in line for line in others)  # it could look
    text = json.dumps([own, others])
    assert PASSWORD not in text and KEY not in text and HOOK not in text
    assert "HPQ_HOME" in own  # the rest is inherited


@pytest.mark.parametrize("launch", ["program: spy.py", "trainer: spy:train"])
def test_in_a_pod_only_what_is_allowed_and_passed_is_seen(spied, launch) -> None:
    """Security: the same in a pod, whose other variables are secrets, too."""
    own, others = spied(
        launch, "pass_env: [MY_TOKEN, CLUSTER_TOKEN]\n",
        KUBERNETES_SERVICE_HOST="10.0.0.1", HPQ_PASS_ENV="MY_TOKEN",
        MY_TOKEN="for-the-trial", CLUSTER_TOKEN="for-nobody", OTHER="als0-n0t",
        NCCL_DEBUG="INFO", CUDA_MPS_PIPE_DIRECTORY="/mps", PYTORCH_CUDA_ALLOC_CONF="x:y",
    )  # fmt: skip
    assert own["MY_TOKEN"] == "for-the-trial" and own["PATH"]
    assert own["NCCL_DEBUG"] == "INFO" and own["PYTORCH_CUDA_ALLOC_CONF"] == "x:y"
    assert own["CUDA_MPS_PIPE_DIRECTORY"] == "/mps"
    assert not {"CLUSTER_TOKEN", "OTHER", "LAB_ID", "KUBERNETES_SERVICE_HOST"} & set(own)
    text = json.dumps([own, others])
    for secret in (PASSWORD, KEY, HOOK, "for-nobody", "als0-n0t"):
        assert secret not in text


@pytest.mark.parametrize("is_private", [True, False], ids=["private server", "shared server"])
def test_training_code_of_a_run_reads_no_secret_from_any_process(make_lab, is_private) -> None:
    """B8: a program of `hpq run` looks into /proc/PID/environ of all processes it can read."""
    lab = make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
    lab.env |= {"HPQ_CODE_KEY": KEY}
    lab.write("spy.py", SPY)
    path = lab.write("sweep.yaml", f"program: spy.py\n{HEAD}")
    lab.ok("run", path, "--workers", "1", **({"HPQ_REDIS_URL": ""} if is_private else {}))
    own, others = json.loads((lab.code / "seen").read_text("utf-8"))
    assert any("hpq run" in line for line in others), others.keys()
    assert not is_private or any("keeper.py" in line for line in others)
    for text in (json.dumps(own), *(line + environ for line, environ in others.items())):
        assert PASSWORD not in text and KEY not in text, text


def test_the_value_of_a_passed_secret_is_masked_also_where_it_comes_in_halves(lab) -> None:
    """Security: a program prints a secret in two halves and raises it."""
    lab.write("talks.py", TALKS)
    sid = lab.enqueue(f"program: talks.py\n{HEAD}")
    lab.worker(MY_TOKEN="t0ken-of-mine")
    lab.wait_for("said-half")
    lab.wait_until(lambda: "the token is " in lab.printed(sid), "the first half")
    lab.go()
    lab.wait_over(sid)
    shown = lab.printed(sid) + lab.trial(sid).failure.message + lab.ok("show", f"{sid}/1")
    assert "the token is ***, so it is\n" in shown and "KeyError: '***'" in shown
    assert "t0ken" not in shown + lab.log()


LEAVES = (
    SPY
    + """
        print("the key of the store is " + "-".join(["st0re", "k3y"]))
        (Path(os.environ["HPQ_OUT"]) / "model").write_text("m")
"""
)


def test_the_key_in_the_url_of_a_store_is_used_and_seen_nowhere(lab) -> None:
    """Security: HPQ_STORE with a key in its query; all that hpq says and keeps is searched."""
    pytest.importorskip("fsspec")
    key = "st0re-k3y"
    place = lab.folder / f"store?secret={key}"  # to fsspec's local files the query is of the path
    lab.env |= {**plain_url.install(lab.folder / "fsspec"), "HPQ_STORE": f"plain://{place}"}
    lab.write("spy.py", LEAVES)
    sid = lab.enqueue(f"program: spy.py\n{HEAD}")
    lab.worker(HPQ_LOG="debug")
    lab.wait_over(sid)
    assert "the key of the store is ***" in lab.printed(sid)
    said = [(lab.code / "seen").read_text("utf-8"), lab.printed(sid)]
    assert "model" in lab.ok("get", f"{sid}/1")
    for words in ("config --json", "workers --json", "doctor", f"show {sid}/1 --json"):
        done = lab.hpq(*words.split())
        said += [done.stdout, done.stderr]
    assert "?secret=***" in "".join(said)
    for name in lab.redis.scan_iter():
        kind = lab.redis.type(name)
        said.append(repr(lab.redis.hgetall(name) if kind == b"hash" else lab.redis.dump(name)))

    place.rename(lab.folder / "away")
    place.write_text("no directory")
    for words in (f"get {sid}/1 model", "doctor", f"rm {sid} --yes"):
        for debug in ([], ["--debug"]):
            done = lab.hpq(*debug, *words.split())
            said += [done.stdout, done.stderr]
    assert any("store-unusable" in ids(text) for text in said)
    lab.worker()
    lab.wait_until(lambda: "store-unusable" in ids(lab.log(1)), "a worker without it")
    found = [text for text in [*said, lab.log()] if key in text]
    assert not found, found


@pytest.mark.parametrize("first", ["run", "enqueue", "worker"])
def test_only_its_owner_reads_hpq_home_whoever_makes_it_first(lab, first) -> None:
    lab.write("train.py", "print('loss=1')\n")
    sweep = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"
    path = lab.write("sweep.yaml", sweep)
    lab.home = lab.home / "below"  # its parents are missing, too
    lab.env["HPQ_HOME"] = str(lab.home)
    if first == "run":
        lab.ok("run", path, HPQ_REDIS_URL="")
        # As it ends, the private server replaces files, which a walk would miss.
        lab.wait_for_no_process()
    elif first == "enqueue":
        sid = lab.enqueue(sweep)
        lab.worker()
        lab.wait_over(sid)
    else:
        key = {"HPQ_CODE_KEY": "ours, of 16 letters"}
        lab.worker(**key)
        lab.wait_until(lambda: lab.reader.workers.live(), "the worker")
        sid = lab.enqueue(sweep, **key, HPQ_HOME=str(lab.folder / "other"))
        lab.wait_over(sid)
    walked = [Path(top, n) for top, *names in os.walk(lab.home) for n in (*names[0], *names[1])]
    for found in (lab.home.parent, lab.home, *walked):
        others = {"inductor", "triton", "bytecode", "store"} & {p.name for p in found.parents}
        # Copies of the user's files keep their modes, in a directory that others cannot enter.
        in_tree = any(p.name.startswith("code-") for p in found.parents)
        with suppress(FileNotFoundError):  # the worker has removed it meanwhile
            mode = found.lstat().st_mode
            if not others and not in_tree and not stat.S_ISLNK(mode):
                assert not mode & 0o077, (oct(mode), found)
