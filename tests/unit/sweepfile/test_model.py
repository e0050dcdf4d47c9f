"""The model of a sweep file: its JSON schema, and which commands import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpq.yamlfile import yaml_reader
from hpq_producer.commands.table import WHERE
from tests.support.constants import DEADLINE_S
from tests.support.sweep_files import SHIPPED, whole
from tests.support.sweep_schema import accepts

COMMAND = "import hpq_producer.cli, sys; sys.argv[1:] = {}; hpq_producer.cli.main()"
MOST_MODULES = {"ls": 98, "show": 118, "summary": 119}  # of hpq, that a command imports
MODEL = "hpq.yamlfile.strict_model"  # what imports pydantic: a test of layers


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_accepts_what_hpq_ships_and_shows(name: str) -> None:
    """`refused_file` asserts for every refused file of the tests that the schema refuses it."""
    assert accepts(yaml_reader.parse(whole(SHIPPED[name]), "s.yaml").data)


def modules_after(code: str, home: Path) -> set[str]:
    """Return the names of the modules that are imported once Python code has run."""
    tail = "\nfinally: import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"try:\n  {code}{tail}"],
        env={"HPQ_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    ["import hpq", "import hpq.settings", "import hpq.store.reader", "import hpq_worker.supervisor",
     "import hpq_worker.consumer.__main__", "import hpq_worker.runner.__main__"],
)  # fmt: skip
def test_only_sweep_files_import_pydantic(tmp_path: Path, code: str) -> None:
    found = modules_after(code, tmp_path)
    assert code.removeprefix("import ") in found and "pydantic" not in found


@pytest.mark.parametrize(
    "command",
    ["ls", "show", "summary", "best", "logs", "results", "workers", "pause", "watch", "rm"],
)
def test_a_command_without_a_sweep_file_does_not_import_the_model(
    tmp_path: Path, command: str
) -> None:
    found = modules_after(COMMAND.format([command]), tmp_path)
    assert WHERE[command][0] in found
    assert not found & {"pydantic", "hpq.search.space", MODEL}


@pytest.mark.parametrize("command", MOST_MODULES)
def test_a_command_that_shows_a_sweep_imports_only_what_it_shows(
    tmp_path: Path, command: str
) -> None:
    found = modules_after(COMMAND.format([command]), tmp_path)
    assert not found & {"rq", "yaml", "sklearn", "hpq.store.sweep_writer", "hpq.kubernetes.pods"}
    assert ("hpq_views.analysis.importance" in found) == (command == "summary")
    assert "hpq.store.audit_reader" not in found
    assert ("hpq.domain.attempt" in found) == (command == "show")
    own = [name for name in found if name.startswith("hpq")]
    assert len(own) <= MOST_MODULES[command], sorted(own)  # nearly all the time of `ls`


def test_an_idle_worker_holds_no_library_that_few_trials_need(tmp_path: Path) -> None:
    """yaml writes a file of W&B's own package; html takes half a megabyte for its entities."""
    found = modules_after("import hpq_worker.consumer.__main__", tmp_path)
    assert "hpq_worker.consumer.__main__" in found
    assert not found & {"yaml", "html", "numpy", "optuna", "rich", "typer"}


def test_a_writer_imports_rq_only_to_mint_a_ticket(tmp_path: Path) -> None:
    code = "from hpq.store.scripts import StoreContext; from hpq.store.keys import Keys"
    found = modules_after(f"{code}; StoreContext.open(None, Keys('hpq'))", tmp_path)
    assert "hpq.store.scripts" in found and "rq" not in found


def test_the_list_of_commands_needs_neither_settings_nor_redis(tmp_path: Path) -> None:
    found = modules_after(COMMAND.format(["--help"]), tmp_path)
    assert "hpq_producer.cli" in found
    assert not found & {"pydantic", "redis", "hpq.settings", "hpq.domain.sweep"}


def test_a_command_with_a_sweep_file_imports_the_model(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(whole("seed: 1\n"))
    assert MODEL in modules_after(COMMAND.format(["plan", f"{tmp_path}/s.yaml"]), tmp_path)
