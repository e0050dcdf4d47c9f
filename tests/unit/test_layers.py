"""Who may import whom. Files and packages form a DAG; LAYERS is its table, lowest row first."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from redis import Redis

from tests.support.constants import ROOT

FOLDERS = {
    "hpq": ROOT / "hpq",
    "hpq_views": ROOT / "views" / "hpq_views",
    "hpq_ops": ROOT / "ops" / "hpq_ops",
    "hpq_producer": ROOT / "producer" / "hpq_producer",
    "hpq_worker": ROOT / "worker" / "hpq_worker",
}
# What looks at sweeps, and what it may not import: a command passes in each callable that writes.
WRITERS = "control enqueue file_garbage suggest_lease sweep_copy tickets trials"  # of the store
MOST_MODULES = 16  # of a package, its __init__ aside
MOST_LINES = 400  # of a file

# The import names, each with those that it may import besides itself.
MAY_IMPORT = {
    "hpq": (),
    "hpq_views": ("hpq",),
    "hpq_ops": ("hpq", "hpq_views"),
    "hpq_producer": ("hpq", "hpq_views", "hpq_ops"),
    "hpq_worker": ("hpq",),
}

# A package, or a file directly in one of the five, imports only from rows above its own, and from
# the import names before it. `hpq` itself is the lazy facade of the others.
LAYERS = {
    "hpq": """
        error_codes gpus interrupts reporting sanitize
        notice
        errors
        datasets domain extras agent_loop shell wandb
        redis search yamlfile
        private_files process_start settings store.wire
        filestore private_server
        code store
        access archive
        kubernetes
    """,
    "hpq_views": """
        text
        analysis targets
        export why
        follow stored_files
        command_output
        page watch
    """,
    "hpq_ops": """
        audit doctor installed_files
        manifests
    """,
    "hpq_producer": """
        capacity commands local_workers scaffold sweepfile
        actions cli enqueue
        __main__ commands.machines python_api
        commands.admin commands.change commands.make_sweep
        commands.inspect agent_worker
        commands.mcp
    """,
    "hpq_worker": """
        process rq_job
        health runner suggest
        lease trainers
        files function_agent
        attempt
        consumer terminal_attempt
        supervisor
        __main__
    """,
}

# The only homes of libraries that are heavy or that few files should know.
HOMES = {
    ("torch", "PIL"): ("hpq_worker.trainers",),
    ("sklearn", "numpy"): ("hpq_worker.trainers", "hpq_views.analysis.importance"),
    ("rq",): ("hpq.store.tickets", "hpq_worker.consumer.rq_worker"),
    ("kubernetes", "urllib3", "websocket"): ("hpq.kubernetes.api",),
    ("optuna", "cmaes"): ("hpq_worker.suggest",),
    ("jinja2", "markupsafe", "starlette", "uvicorn"): ("hpq_views.page",),
    ("pandas", "plotly"): ("hpq_producer.python_api",),
    ("pydantic", "pydantic_core"): (
        "hpq.yamlfile.strict_model",
        "hpq_producer.sweepfile",
        "hpq_producer.commands.mcp",
        "hpq_ops.manifests.cluster_file",
        "hpq_ops.manifests.key_types",
    ),
    ("psutil", "pynvml"): ("hpq_worker.health.usage",),
    ("mcp", "anyio"): ("hpq_producer.commands.mcp",),
}


def modules() -> dict[str, Path]:
    """Dotted names of all modules but those of the wandb shim, which training code imports."""
    found = {}
    for root, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            if "wandb_shim" not in path.parts:
                parts = path.relative_to(folder).with_suffix("").parts
                found[".".join((root, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all parts of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports, wherever in it: modules of ours, or the names of libraries."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def unit_of(module: str) -> str:
    """Return the row entry that a module belongs to: its package, or itself at the top."""
    if module in PACKAGES:
        return module
    package = module.rpartition(".")[0]
    return module if package in FOLDERS else package


def edges() -> Mapping[str, set[str]]:
    """Return each file with the files of ours that it imports."""
    return {
        name: {other for other in imports(path) if other in MODULES and other != name}
        for name, path in MODULES.items()
        if name != "hpq"  # what users import: it hands over
    }


def test_files_form_a_dag() -> None:
    TopologicalSorter(edges()).prepare()  # raises CycleError, which names the files


def test_every_import_goes_up_in_the_table_of_layers() -> None:
    rows = [
        [f"{root}.{unit}" for unit in row.split()]
        for root, table in LAYERS.items()
        for row in table.strip().split("\n")
    ]
    height = {unit: n for n, row in enumerate(rows) for unit in row}
    used = defaultdict(set)
    for module, others in edges().items():
        used[unit_of(module)] |= {unit_of(other) for other in others} - {unit_of(module)}
    assert set(height) == set(used) - set(FOLDERS), "the table names every package once"
    assert sum(map(len, rows)) == len(height)
    for unit, others in used.items():
        for other in others - set(FOLDERS):
            assert unit in FOLDERS or height[other] < height[unit], f"{unit} imports {other}"


def test_imports_go_from_the_producer_to_ops_to_views_to_hpq() -> None:
    for name, others in edges().items():
        root = name.split(".")[0]
        roots = {other.split(".")[0] for other in others}
        assert roots <= {root, *MAY_IMPORT[root]}, name


def test_of_the_producer_actions_alone_change_sweeps() -> None:
    for name, path in MODULES.items():
        if name.startswith("hpq_producer") and not name.startswith("hpq_producer.actions"):
            assert "hpq.store.control" not in imports(path), name
            assert "control_of" not in path.read_text("utf-8"), name


def test_what_looks_at_sweeps_imports_nothing_that_makes_or_changes_them() -> None:
    writers = tuple(f"hpq.store.{module}" for module in WRITERS.split())
    for name, others in edges().items():
        if name.startswith("hpq_views"):
            assert {other for other in others if other.startswith(writers)} == set(), name


def test_no_module_imports_a_private_name_of_another_package() -> None:
    for name, path in MODULES.items():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES:
                here = unit_of(node.module) == unit_of(name)
                private = [
                    alias.name
                    for alias in node.names
                    if alias.name.startswith("_") and "__" not in alias.name
                ]
                assert here or not private, f"{name} imports {private} of {node.module}"


def test_no_package_and_no_file_outgrows_a_reader() -> None:
    for path in MODULES.values():
        assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES, f"split {path} by idea"
    inside = defaultdict(list)
    for name in set(MODULES) - PACKAGES:
        inside[name.rpartition(".")[0]].append(name)
    assert {p: names for p, names in inside.items() if len(names) > MOST_MODULES} == {}


def test_heavy_libraries_stay_in_their_homes() -> None:
    for name, path in MODULES.items():
        used = {other.split(".")[0] for other in imports(path)}
        for libraries, homes in HOMES.items():
            if not name.startswith(homes):
                assert not used & set(libraries), name


def test_import_hpq_and_report_need_the_standard_library_only() -> None:
    for name in ("hpq", "hpq.reporting"):
        used = {other.split(".")[0] for other in imports(MODULES[name])}
        assert used <= {*FOLDERS, *sys.stdlib_module_names}, name


def test_only_the_store_and_the_connection_send_commands_to_redis() -> None:
    for name, path in MODULES.items():
        if name.startswith(("hpq.store", "hpq.redis")):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                client = ast.unparse(node.func.value).rpartition(".")[2].lstrip("_")
                is_client = client in ("redis", "connection", "pipe", "pipeline")
                assert not (is_client and hasattr(Redis, node.func.attr)), (name, node.lineno)


def test_a_redis_client_is_named_in_the_store_the_connection_and_the_session_alone() -> None:
    homes = ("hpq.store", "hpq.redis", "hpq.access.session")
    named = {name for name, path in MODULES.items() if {"redis", "redis.client"} & {*imports(path)}}
    assert {name for name in named if not name.startswith(homes)} == set()
