"""`hpq slurm`: the script that it prints, and what it refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.desk import run_here
from tests.support.ids import ids


def slurm(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {"HPQ_HOME": str(folder / "ana's home"), "HPQ_REDIS_URL": "redis://:secret@srv:6379/0"}
    return run_here(["slurm", *words], folder, {**own, **env})


def options(script: str) -> str:
    return "\n".join(re.findall(r"^#SBATCH (.+)$", script, re.M))


def test_the_script_fits_on_a_screen_and_bash_reads_it(tmp_path: Path) -> None:
    done = slurm(tmp_path, "--partition", "gpu", "--time", "1-12:00:00", "--jobs", "16", "--",
                 "--account=a b", "--cpus-per-task=8")  # fmt: skip
    script = done.stdout
    assert done.returncode == 0 and not done.stderr
    assert len(script.splitlines()) <= 40 and script.startswith("#!/bin/bash\n#SBATCH")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    wanted = ["--array=1-16", "--time=1-12:00:00", "--partition=gpu", "--gres=gpu:1", "--requeue"]
    wanted += ["--signal=TERM@17", "'--account=a b'", "--cpus-per-task=8", "--open-mode=append"]
    assert not [one for one in wanted if one not in options(script)]
    assert "secret" not in script and (tmp_path / "ana's home" / "logs").is_dir()


def test_the_script_of_the_redis_job_can_be_read_and_asks_for_no_gpu(tmp_path: Path) -> None:
    done = slurm(tmp_path, "--redis", "--time", "7-0", "--", "--mem=1G", HPQ_REDIS_URL="")
    script = done.stdout
    assert done.returncode == 0 and len(script.splitlines()) <= 64
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    wanted = ["--dependency=singleton", "--job-name=hpq-redis", "--requeue", "--mem=1G"]
    wanted += ["--signal=B:USR1@17"]
    assert not [one for one in wanted if one not in options(script)]
    assert "gres" not in script and "array" not in script
    assert (tmp_path / "ana's home" / "redis-job").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "ana's home" / "join" / "password").exists()
    assert slurm(tmp_path, "--redis", HPQ_REDIS_URL="").stdout.startswith("#!/bin/bash")


def test_the_signal_comes_as_early_as_the_grace_and_at_most_a_tenth_before_the_limit(
    tmp_path: Path,
) -> None:
    made = slurm(tmp_path, "--time", "60", HPQ_GRACE_S="300")
    assert "--signal=TERM@305" in options(made.stdout) and "end - 305" in made.stdout
    refused = slurm(tmp_path, "--time", "60", HPQ_GRACE_S="400")
    assert refused.returncode == 2 and "68 minutes" in refused.stderr


def test_jobs_without_gpus_and_of_another_queue(tmp_path: Path) -> None:
    script = slurm(tmp_path, "--gpus-per-job", "0", "--queue", "big").stdout
    assert "gres" not in script and "worker --queue big" in script
    assert "--job-name=hpq-big" in script and "partition" not in script


@pytest.mark.parametrize(
    ("words", "env", "found"),
    [
        (["--time", "soon"], {}, "usage"),
        (["--time", "2"], {}, "usage"),
        (["--time", "1-"], {}, "usage"),
        (["--jobs", "0"], {}, "usage"),
        (["--gpus-per-job", "-1"], {}, "usage"),
        (["--queue", "A b"], {}, "usage"),
        (["--", "account=x"], {}, "usage"),
        (["--", "--comment=a\nrm -rf"], {}, "value-not-for-shells"),
        (["--partition", "a\nb"], {}, "value-not-for-shells"),
        ([], {"HPQ_REDIS_URL": ""}, "setting-missing"),
        ([], {"HPQ_HOME": "/dev/null/home"}, "home-unusable"),
        (["--redis"], {"HPQ_HOME": "/dev/null/home", "HPQ_REDIS_URL": ""}, "home-unusable"),
    ],
)
def test_bad_input_prints_no_script(
    words: list[str], env: dict[str, str], found: str, tmp_path: Path
) -> None:
    done = slurm(tmp_path, *words, **env)
    assert (done.returncode, done.stdout) == (2, "")
    assert ids(done.stderr) == [found] or found in ids(done.stderr)


def test_a_server_of_this_machine_only_is_warned_of(tmp_path: Path) -> None:
    for url in ("redis://localhost:6379/0", "redis://127.0.0.1:6379/0", "unix:///tmp/s"):
        assert "warning" in slurm(tmp_path, HPQ_REDIS_URL=url).stderr
