"""A client of the MCP SDK: `python mcp_client.py SERVER.py DIR`, one call per line of stdin.

A process of its own, because only the Python of ML_PYTHON has the SDK. The first line that it
prints lists the tools; then it answers each call: [tool, arguments] → [is_error, text, data].
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters, stdio_client


async def main() -> None:
    line = [sys.executable, *sys.argv[1:]]
    server = StdioServerParameters(command=line[0], args=line[1:], env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        print(json.dumps([tool.name for tool in (await client.list_tools()).tools]), flush=True)
        while call := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(call)
            found = await client.call_tool(tool, arguments)
            text = "".join(part.text for part in found.content)
            print(json.dumps([found.is_error, text, found.structured_content]), flush=True)


asyncio.run(main())
