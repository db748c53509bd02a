"""One session of the official Python SDK with a server over standard streams; run by test-mcp-clients.py.

    python3 mcp_sdk_session.py MODE COMMAND [ARGUMENT...]

MODE is the SDK's: auto, legacy, or a revision such as 2026-07-28. Prints one JSON object of what the
SDK saw. Needs the package `mcp`.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters


def result(found):
    return {"is_error": found.is_error, "text": found.content[0].text}


async def session(mode, command):
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    seen = {"progress": []}

    async def on_progress(progress, total, message):
        seen["progress"].append([progress, message])

    async with Client(server, mode=mode, read_timeout_seconds=60) as client:
        seen["revision"] = client.protocol_version
        seen["server"] = client.server_info.name if client.server_info else None
        listed = await client.list_tools()
        seen["tools"] = sorted(tool.name for tool in listed.tools)
        seen["again"] = sorted(tool.name for tool in (await client.list_tools()).tools)
        seen["reads"] = result(await client.call_tool("read", {"input": "data/a.csv"}))
        seen["refused"] = result(await client.call_tool("read", {"input": "data/neighbour"}))
        seen["unknown"] = result(await client.call_tool("no_such_tool", {}))
        seen["bare"] = result(await client.call_tool("test_simple_text"))
        calls = [client.call_tool("read", {"input": "data/a.csv"}) for _ in range(5)]
        together = await asyncio.gather(*calls)
        seen["together"] = [found.is_error for found in together]
        slow = await client.call_tool("nap", {}, progress_callback=on_progress)
        seen["slow"] = result(slow)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(session(sys.argv[1], sys.argv[2:]))))
