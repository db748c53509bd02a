#!/usr/bin/env python3
"""Real MCP clients against `symbi mcp`, and against the bridge of a contained agent's run.

    test-mcp-clients.py [--symbi PATH] [--tier namespace]

Installs clients into a folder beside the build, once; nothing of them is part of this project: at fixed
versions the official Python SDK (`mcp`, with pip, in a virtual environment), the MCP inspector and the
MCP conformance suite (with npm, beside a Node of the version that they need), and Claude Code as
test-claude-code.py does. The suite speaks HTTP: mcp_http_shim.py stands between. Both eras of the
protocol are spoken.

Exit: 0 where all checks hold, 1 otherwise. Needs Linux, Python 3.10 with venv, npm and the built binaries.
"""

import glob
import importlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from mcp_http_shim import Shim
from scratch_project import HERE, Project, Table, arguments, shell_tool

PYTHON_PACKAGES = ["mcp==2.3.0"]
MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
NODE = "node-linux-" + MACHINE
NPM_PACKAGES = [NODE + "@22.23.5", "@modelcontextprotocol/inspector@2.12.0",
                "@modelcontextprotocol/conformance@0.2.0-alpha.12"]
PATIENCE = 120
LEGACY, MODERN = "2025-11-25", "2026-07-28"

TOOLS = {
    "read": shell_tool("read", 'cat "$1"', reads="y"),
    "nap": shell_tool("nap", "sleep 2"),
    "test_simple_text": shell_tool("test_simple_text", "echo 'This is a simple text response for testing.'"),
    "test_error_handling": shell_tool("test_error_handling", "echo wrong >&2; exit 3"),
    # Told of after 1, 11 and 21 seconds.
    "test_tool_with_progress": shell_tool("test_tool_with_progress", "sleep 22")
    .replace("timeout_seconds = 20", "timeout_seconds = 30"),
}

POLICY = """@id("clients-may")
permit(principal, action, resource);
@id("nobody-reads-neighbour")
@reason("that file is not for clients")
forbid(principal, action == Action::"tool_call::read", resource)
when { context.invocation.resolved.command_boundary.filesystem.read.input.name == "neighbour" };
"""

AGENT = """
[agents.waiter]
executor = "command"
command = ["sleep", "900"]
allowed_tools = %s
"""

# Scenarios of the conformance suite that are about a server with tools alone, by revision.
SCENARIOS = {
    LEGACY: ["server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-error"],
    MODERN: ["server-stateless", "caching", "tools-list", "tools-call-simple-text", "tools-call-error"],
}
# Their checks that are not about such a server over standard streams.
NOT_OURS = {
    "sep-2575-http-server-header-mismatch-400": "about HTTP headers",
    "sep-2575-server-rejects-undeclared-capability": "needs a tool that wants something of its client",
    "sep-2575-missing-capability-http-400": "needs a tool that wants something of its client",
    "sep-2549-prompts-list-caching-hints": "about prompts",
    "sep-2549-resources-list-caching-hints": "about resources",
    "sep-2549-resources-templates-list-caching-hints": "about resources",
}


def install(symbi):
    """Where the clients are: the folder of the virtual environment, and that of npm's packages."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(symbi))), "mcp-clients")
    venv, npm_folder = os.path.join(folder, "venv"), os.path.join(folder, "npm")
    stamp, wanted = os.path.join(folder, "installed"), "\n".join(PYTHON_PACKAGES + NPM_PACKAGES)
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            if file.read() == wanted:
                return venv, npm_folder
    npm = shutil.which("npm")
    if not npm:
        raise SystemExit("npm is missing, and two clients are installed with it: apt-get install npm")
    print("installing %s into %s" % (", ".join(PYTHON_PACKAGES + NPM_PACKAGES), folder), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(npm_folder)
    python = os.path.join(venv, "bin", "python")
    for words in (
            [sys.executable, "-m", "venv", venv],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"] + PYTHON_PACKAGES,
            [npm, "install", "--prefix", npm_folder, "--ignore-scripts", "--no-audit", "--no-fund",
             "--no-update-notifier", "--save-exact", "--loglevel=error"] + NPM_PACKAGES):
        if subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode != 0:
            raise SystemExit("this failed: %s\n(Debian's venv is in the package python3-venv)" % " ".join(words))
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted)
    return venv, npm_folder


class Clients:
    """The installed clients, and how each is run against a server that a command starts."""

    def __init__(self, symbi, project):
        venv, npm_folder = install(symbi)
        self.python = os.path.join(venv, "bin", "python")
        modules = os.path.join(npm_folder, "node_modules")
        self.node = os.path.join(modules, NODE, "bin", "node")
        self.inspector = os.path.join(modules, ".bin", "mcp-inspector")
        self.conformance = os.path.join(modules, ".bin", "conformance")
        self.project = project
        self.environment = dict(project.environment(), MCP_INSPECTOR_SECRET_STORE="memory")

    def run(self, words):
        done = subprocess.run(words, env=self.environment, cwd=self.project.home, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=PATIENCE)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def sdk(self, mode, command):
        code, stdout, stderr = self.run(
            [self.python, os.path.join(HERE, "mcp_sdk_session.py"), mode] + command)
        return json.loads(stdout) if code == 0 else {"failed": stderr}

    def inspect(self, era, command, *words):
        with tempfile.NamedTemporaryFile("w", suffix=".json", dir=self.project.home) as config:
            server = {"type": "stdio", "command": command[0], "args": command[1:],
                      "env": self.project.environment()}
            json.dump({"mcpServers": {"symbi": server}}, config)
            config.flush()
            code, stdout, stderr = self.run(
                [self.node, self.inspector, "--cli", "--config", config.name, "--server", "symbi",
                 "--protocol-era", era, "--quiet", "--format", "json"] + list(words))
        try:
            return code, json.loads(stdout)
        except ValueError:
            return code, stdout + stderr

    def conform(self, url, revision, scenario):
        """The checks of one scenario, {id: {status}}; each may have been made several times."""
        with tempfile.TemporaryDirectory(dir=self.project.home) as folder:
            _, stdout, stderr = self.run(
                [self.node, self.conformance, "server", "--url", url, "--scenario", scenario,
                 "--spec-version", revision, "--timeout", "60000", "--output-dir", folder])
            checks = {}
            for path in glob.glob(os.path.join(folder, "*", "checks.json")):
                with open(path, encoding="utf-8") as file:
                    for check in json.load(file):
                        checks.setdefault(check["id"], set()).add(check["status"])
            return checks, stdout + stderr


def sdk(clients, table, target, command):
    for mode, revision in (("auto", MODERN), ("legacy", LEGACY), (MODERN, MODERN)):
        seen = clients.sdk(mode, command)
        name = "%s: Python SDK, %s: " % (target, mode)
        told = lambda key: json.loads(seen.get(key, {}).get("text", "{}"))
        error = lambda key: seen.get(key, {}).get("is_error")
        table.check(name + "speaks %s and lists exactly the tools, twice" % revision,
                    seen.get("revision") == revision and seen.get("tools") == sorted(TOOLS)
                    and seen.get("again") == sorted(TOOLS), seen)
        table.check(name + "reads through a tool", error("reads") is False
                    and told("reads").get("results") == "a,b\n1,2\n", seen)
        table.check(name + "what policy refuses is an error result with the reason", error("refused")
                    and "nobody-reads-neighbour" in seen["refused"]["text"]
                    and "not granted" not in seen["refused"]["text"], seen)
        table.check(name + "an unknown tool is an error result, a missing `arguments` none",
                    error("unknown") and error("bare") is False, seen)
        table.check(name + "five calls at once are all answered", seen.get("together") == [False] * 5, seen)
        table.check(name + "a call that takes its time is told of",
                    error("slow") is False and [1, "runs"] in seen.get("progress", []), seen)


def inspector(clients, table, target, command):
    for era in ("legacy", "auto", "modern"):
        name = "%s: inspector, %s: " % (target, era)
        code, listed = clients.inspect(era, command, "--method", "tools/list", "--strict")
        table.check(name + "lists the tools, and has nothing against their schemas", code == 0
                    and sorted(tool["name"] for tool in result_of(listed).get("tools", [])) == sorted(TOOLS),
                    (code, listed))
        code, read = clients.inspect(era, command, "--method", "tools/call", "--tool-name", "read",
                                     "--tool-arg", "input=data/a.csv")
        table.check(name + "a call is answered",
                    code == 0 and "a,b" in json.dumps(read), (code, read))
        code, failed = clients.inspect(era, command, "--method", "tools/call",
                                       "--tool-name", "test_error_handling")
        table.check(name + "a failed tool is an error result, with its reason",
                    code != 0 and "wrong" in json.dumps(failed), (code, failed))


def result_of(said):
    """The inspector's JSON, with or without its wrapper."""
    said = said if isinstance(said, dict) else {}
    return said.get("result", said)


def conformance(clients, table, target, command, slow):
    shim = Shim(command, clients.environment)
    with shim as url:
        later = []
        if slow:  # takes 22 s: beside the others, in a session of its own
            later = [threading.Thread(target=scenario, args=(
                clients, table, target, url, LEGACY, "tools-call-with-progress"))]
            later[0].start()
        for revision, names in SCENARIOS.items():
            for name in names:
                scenario(clients, table, target, url, revision, name)
        for thread in later:
            thread.join()
    table.check("%s: every server of the conformance suite ended well" % target,
                shim.codes and set(shim.codes) == {0}, shim.codes)


def scenario(clients, table, target, url, revision, name):
    checks, output = clients.conform(url, revision, name)
    bad = sorted(check for check, status in checks.items()
                 if status & {"FAILURE", "WARNING"} and check not in NOT_OURS)
    good = sum(status == {"SUCCESS"} for status in checks.values())
    skipped = sorted(check for check in checks if check in NOT_OURS and "FAILURE" in checks[check])
    more = "; not ours: %s" % ", ".join("%s (%s)" % (it, NOT_OURS[it]) for it in skipped) if skipped else ""
    table.check("%s: conformance, %s, %s: %d checks%s" % (target, revision, name, good, more),
                good and not bad, "%s\n%s" % (bad, "\n".join(
                    line for line in re.sub("\x1b\\[[0-9;]*m", "", output).splitlines()
                    if "FAILURE" in line or "Error:" in line)))


def claude_code(project, table):
    """Claude Code as people have it, not contained, with the entry that `symbi init --mcp-json` prints."""
    contained = importlib.import_module("test-claude-code")
    program, provider = contained.install(project.symbi), contained.Provider(contained.processes)
    entry = project.run("init", "--mcp-json", project.path)
    project.write(".mcp.json", entry.stdout)
    tools = ["mcp__symbi__read"]
    provider.play(contained.use("read", input="data/a.csv"), contained.use("read", input="data/neighbour"),
                  contained.text("It has two rows."))
    environment = dict(
        project.environment(), ANTHROPIC_API_KEY="placeholder", DISABLE_AUTOUPDATER="1",
        ANTHROPIC_BASE_URL="http://127.0.0.1:%d" % provider.server_address[1],
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", MCP_CONNECTION_NONBLOCKING="0")
    done = subprocess.run(
        [program, "-p", "Read data/a.csv", "--mcp-config", ".mcp.json", "--strict-mcp-config", "--tools", "",
         "--permission-mode", "dontAsk", "--model", contained.MODEL, "--allowedTools", ",".join(tools)],
        env=environment, cwd=project.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    results, said = provider.results(), (done.stdout + done.stderr).decode("utf-8", "replace")
    offered = [tool["name"] for body in provider.bodies()[:1] for tool in body.get("tools", [])]
    name = "Claude Code, not contained: "
    table.check(name + "starts the server of its .mcp.json and is offered its tools",
                sorted(offered) == sorted("mcp__symbi__" + tool for tool in TOOLS), (offered, said))
    table.check(name + "reads through a tool", len(results) == 2 and not results[0][0]
                and "1,2" in results[0][1], (results, said))
    table.check(name + "is refused what policy refuses", len(results) == 2 and results[1][0]
                and "nobody-reads-neighbour" in results[1][1], results)
    table.check(name + "ends with its answer", done.returncode == 0 and "It has two rows." in said, said)


def waiting_run(project, table):
    """A run whose agent only waits, and the folder of its channel."""
    process = project.start(project.words("run", "waiter", "--task", "wait", "--max-calls", "1000"))
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        found = glob.glob(os.path.join(project.home, "run", "**", "broker.sock"), recursive=True)
        if found:
            return process, os.path.dirname(found[0])
        time.sleep(0.05)
    process.kill()
    table.check("a run waits with its channel open", False, project.finish(process))
    return None, None


def journals(project, table):
    found = glob.glob(os.path.join(project.path, ".symbiont", "governed", "*.jsonl"))
    bad = [path for path in found if project.verify(path) != 0]
    table.check("all %d journals are intact for the independent verifier" % len(found),
                found and not bad, bad)


def prepare(project):
    for name in ("mcp", "run"):
        os.mkdir(project.file("policies/" + name), 0o755)
        project.write("policies/%s/all.cedar" % name, POLICY)
    project.write("symbiont.toml", project.read("symbiont.toml") + AGENT % json.dumps(sorted(TOOLS)))
    trusted = project.run("trust", "--yes")
    if trusted.code != 0:
        raise SystemExit("the project is not trusted:\n%s" % trusted)


def main():
    found = arguments(__doc__.splitlines()[0])
    table = Table()
    with Project(found.symbi, found.tier, TOOLS) as project:
        prepare(project)
        clients = Clients(found.symbi, project)
        command = [project.symbi, "--project", project.path, "mcp"]
        sdk(clients, table, "symbi mcp", command)
        inspector(clients, table, "symbi mcp", command)
        conformance(clients, table, "symbi mcp", command, slow=True)
        claude_code(project, table)
        process, channel = waiting_run(project, table)
        if process:
            command = [sys.executable, "-I", os.path.join(channel, "bridge.py"),
                       os.path.join(channel, "broker.sock")]
            sdk(clients, table, "bridge", command)
            inspector(clients, table, "bridge", command)
            conformance(clients, table, "bridge", command, slow=False)
            process.send_signal(signal.SIGINT)
            ended = project.finish(process)
            table.check("bridge: the run ends with 1 at Ctrl-C, and its channel is gone",
                        ended.code == 1 and not os.path.exists(channel), ended)
        journals(project, table)
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
