"""An agent: a client of the MCP SDK, which has started `hpq mcp` as its own process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MOST = 4096  # bytes of an answer


class Agent:
    """A connected client; each call checks that its answer is small."""

    def __init__(self, portal: Any, client: Any) -> None:
        self._portal = portal
        self._client = client

    def tools(self) -> set[str]:
        """Return the names of the tools."""
        return {tool.name for tool in self._portal.call(self._client.list_tools).tools}

    def closed(self) -> dict[str, Any]:
        """Return, by tool, the `additionalProperties` of the schema of its arguments."""
        found = self._portal.call(self._client.list_tools).tools
        return {tool.name: tool.input_schema.get("additionalProperties") for tool in found}

    def gets(self, tool: str, **arguments: object) -> Any:
        """Return the data of a call."""
        is_error, text = self._call(tool, arguments)
        assert not is_error, text
        return json.loads(text)

    def refusal(self, tool: str, **arguments: object) -> str:
        """Return the id of a refused call."""
        is_error, text = self._call(tool, arguments)
        assert is_error, text
        return str(json.loads(text)["error"]["code"])

    def _call(self, tool: str, arguments: Mapping[str, object]) -> tuple[bool, str]:
        found = self._portal.call(self._client.call_tool, tool, arguments)
        assert found.structured_content is None
        text = "".join(part.text for part in found.content)
        assert len(text.encode()) <= MOST, (tool, arguments, len(text))
        return found.is_error, text


@contextmanager
def connected(root: Path, env: Mapping[str, str], *options: str) -> Iterator[Agent]:
    """Start a server over a directory and a client of it; skip without the SDK."""
    mcp = pytest.importorskip("mcp")
    from_thread = pytest.importorskip("anyio.from_thread")
    words = ["-m", "hpq_producer", "mcp", str(root), *options]
    about = mcp.StdioServerParameters(command=sys.executable, args=words, env={**os.environ, **env})
    with (
        from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(mcp.Client(mcp.stdio_client(about))) as client,
    ):
        yield Agent(portal, client)
