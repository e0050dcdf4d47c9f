"""Fixtures that all tests share: a real Redis server, and a store on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import hypothesis
import pytest
from redis import Redis

from hpq.domain.attempt import Nothing, WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq.domain.trial import Claim
from hpq.redis.client import connect
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from tests.support.golden import Golden
from tests.support.server import temporary_server

# A busy machine takes longer: no time limit of hypothesis may decide. A failure prints the example
# that was found, and a line that repeats it, at once: to simplify one that needs Redis takes
# minutes. `pytest --hypothesis-profile=simplify` does so.
hypothesis.settings.register_profile(
    "simplify",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "hpq",
    hypothesis.settings.get_profile("simplify"),
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate),
)
hypothesis.settings.load_profile("hpq")

# A shell that starts the tests in the background ignores SIGINT, which child processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
for name in [n for n in os.environ if n.startswith("HPQ_") or n in ("COLUMNS", "LINES")]:
    del os.environ[name]  # a developer's shell must not change what a test sees


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite tests/golden.")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to rewrite the golden files by several processes: each would lose others' sections."""
    if config.getoption("--update-golden") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update-golden needs one process; add -n 0")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare texts with the golden files."""
    return Golden(update=request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def one_thread_of_torch(request: pytest.FixtureRequest) -> None:
    """Use one thread per test process: more would wait for each other."""
    if request.node.get_closest_marker("torch"):
        pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Start a server for this test run; yield its URL."""
    with temporary_server() as url:
        yield url


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """Return a client of the emptied server."""
    client = connect(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def keys() -> Keys:
    return Keys("hpq")


@pytest.fixture
def store_context(redis: Redis, keys: Keys) -> StoreContext:
    return StoreContext.open(redis, keys)


@pytest.fixture
def store(store_context: StoreContext) -> TrialStore:
    return TrialStore(store_context)


@pytest.fixture
def writer(store_context: StoreContext) -> SweepWriter:
    return SweepWriter(store_context)


@pytest.fixture
def control(store_context: StoreContext) -> SweepControl:
    return SweepControl(store_context)


@pytest.fixture
def reader(redis: Redis, keys: Keys) -> StoreReader:
    return StoreReader(redis, keys, 30_000)


@pytest.fixture
def who() -> WorkerPresence:
    return WorkerPresence(name="w1", host="h1", queue="default")


@pytest.fixture
def take(store: TrialStore, who: WorkerPresence) -> Callable[[], Claim | Nothing]:
    """Return a function that claims the next trial with a new nonce."""
    nonces = iter(range(10**6))
    return lambda: store.claim(who, nonce=f"n{next(nonces)}", lease_ms=30_000)


MakeSweep = Callable[..., SweepView]


@pytest.fixture
def sweep_of(writer: SweepWriter) -> MakeSweep:
    """Return a function that creates a sweep of n trials with x = 1 … n."""

    def make(n: int, sid: str = "demo-00000", **fields: object) -> SweepView:
        base: dict[str, object] = {
            "id": sid,
            "name": "demo",
            "digest": f"digest of {sid}",
            "launch": Launch(trainer="digits"),
            "metric": Metric(name="acc", goal=Goal.MAXIMIZE),
            "owner": "me",
            "varying": ("x",),
        }
        sweep = SweepView(**{**base, **fields})  # type: ignore[arg-type]
        rows = [(dumps({"x": i}), ParameterSet(x=i).identity) for i in range(1, n + 1)]
        writer.add_rows(sid, 1, rows)
        assert writer.create(sweep) is None
        return sweep

    return make
