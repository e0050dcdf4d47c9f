"""Run the Redis server of a Slurm job: the script of `hpq slurm --redis` starts this module.

One line in HPQ_HOME/redis-job/address names the server, and the job that may write the data. A job
writes its own line before it starts a server, and stops its server once another's line is there:
locks do not hold between machines on every network disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from hpq.connection import address_file, credentials
from hpq.connection.client import check_server, connect
from hpq.errors import ExitCode, HpqError, OutOfReach, SettingsError, UserError
from hpq.process import replace_private
from hpq.settings import EARLY_S, Settings
from hpq_producer.embedded_redis import binary, keeper
from hpq_producer.embedded_redis.state import Record, ServerHome
from hpq_producer.session import load_settings

_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0
_YIELD_S = 5.0  # for a server on a lost node to see the line of its successor, and to stop
_ENDED = "has ended"


def folder_of(home: Path) -> Path:
    """Return the directory of the address and the data."""
    return home.absolute() / "redis-job"


def url_of(home: Path) -> str:
    """Return the value of HPQ_REDIS_URL, without the password file."""
    return address_file.url_of(folder_of(home) / "address")


class _Line:
    """The line of this job in the address file."""

    def __init__(self, path: Path) -> None:
        self._path, self._own = path, ""

    def read(self) -> str:
        return self._path.read_text("utf-8").strip() if self._path.exists() else _ENDED

    def write(self, text: str) -> None:
        replace_private(self._path, f"{text}\n".encode())
        self._own = text

    @property
    def is_own(self) -> bool:
        """False once another job has written its line."""
        with suppress(OSError):  # of a network disk that does not answer now
            return self.read() == self._own
        return True


def serve(settings: Settings) -> ExitCode:
    """Run a server until a signal or another job ends it; TIME_UP at the end of the allocation.

    Raises:
        HpqError: no server can be started, or it has ended by itself.
        OSError: HPQ_HOME cannot be written.
    """
    if not settings.redis_url.startswith(url_of(settings.home)):
        text = "HPQ_HOME does not name this job's server; run `hpq slurm --redis | sbatch` again"
        raise UserError(text, code="setting-missing")
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    folder = folder_of(settings.home)
    place, line = ServerHome.of(folder), _Line(folder / "address")
    job = f"Redis job {os.environ.get('SLURM_JOB_ID', '')} on {platform.node()}"
    before = line.read()
    line.write(f"{job}, process {os.getpid()}, is starting")
    if not before.endswith(_ENDED) and _still_serves(before):
        line.write(before)  # commands go on with that server, and the next job looks again
        text = f"{before}: the server of an earlier Redis job still runs, and has the data open"
        remedy = f"end it on that node, or remove {folder}/address if another program answers there"
        raise OutOfReach(f"{text}; {remedy}", code="private-redis-orphaned")
    with socket.create_server(("", 0)) as free:
        address = f"{platform.node()}:{free.getsockname()[1]}"
    server = _start(place, address, credentials.of(settings.redis_url))
    is_known = False
    try:
        while not signals and line.is_own and server.poll() is None:
            if not is_known and _answers(settings, address):
                line.write(address)
                is_known = True
                print(f"{job}: {address} answers", flush=True)
            time.sleep(_POLL_S)
    finally:
        server.terminate()  # a second signal after Slurm's own does no harm
        code = server.wait()
    if not line.is_own:
        print(f"{job}: stopped, since another job has begun: {line.read()}")
        return ExitCode.DONE
    with suppress(OSError):  # on a full disk, the next job waits for the address instead
        line.write(f"{job} {_ENDED}")
    if not signals and code:  # 0: the signal has reached the server first
        text = f"{job}: its server ended with exit code {code}; its log is above"
        raise OutOfReach(text, code="private-redis-failed")
    return ExitCode.TIME_UP if 0 < settings.end <= time.time() + EARLY_S else ExitCode.DONE


def _still_serves(before: str) -> bool:
    """Return whether the server of a job that did not sign off runs after it should have ended."""
    time.sleep(_YIELD_S)
    host, _, port = before.rpartition(":")
    with suppress(OSError, ValueError), socket.create_connection((host, int(port)), _POLL_S):
        return True
    return False


def _start(place: ServerHome, address: str, password: str) -> subprocess.Popen[str]:
    last = place.read_record()
    found = binary.find(writer=last.binary if last and place.data_bytes() else None)
    place.data_dir.mkdir(mode=0o700, exist_ok=True)
    host, _, port = address.rpartition(":")
    place.write_record(
        Record(
            family=found.family, version=found.version, path=str(found.path), socket="", host=host
        )
    )
    own = {"port": port, "dir": str(place.data_dir), "requirepass": password}
    libc = ctypes.CDLL(None)

    def end_with_parent() -> None:  # Slurm without cgroups does not find the child of a killed job
        if sys.platform == "linux":
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    server = subprocess.Popen(
        [found.path, "-"], stdin=subprocess.PIPE, text=True, preexec_fn=end_with_parent
    )
    assert server.stdin is not None
    with server.stdin as lines:  # other users can read the words of a command
        for name, value in {**keeper.DURABLE, **own}.items():
            print(name, json.dumps(value, ensure_ascii=False), file=lines)
    return server


def _answers(settings: Settings, address: str) -> bool:
    url = settings.redis_url.replace(url_of(settings.home), f"redis://{address}/0")
    with suppress(OutOfReach):  # it loads its data
        return bool(check_server(connect(url, retries=0), url))
    return False


def main() -> None:
    """Serve, and exit with a line of text if that is impossible."""
    os.umask(0o077)  # of the server's files
    try:
        sys.exit(int(serve(load_settings())))
    except OSError as error:
        what = f"cannot write in HPQ_HOME: {error.strerror}; free some space or quota there"
        failed: HpqError = SettingsError(what, code="home-unusable")
    except HpqError as error:
        failed = error
    print(f"hpq: {failed.notice}", file=sys.stderr)
    sys.exit(int(failed.exit_code))


if __name__ == "__main__":
    main()
