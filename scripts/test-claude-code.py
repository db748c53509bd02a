#!/usr/bin/env python3
"""The real Claude Code as a contained agent, with a scripted provider: what it can do, and what not.

    test-claude-code.py [--symbi PATH] [--tier namespace|docker|gvisor --image NAME --socket PATH]

Installs the npm package @anthropic-ai/claude-code into a folder beside the build, once; nothing of
it is part of this project. On a container tier an image of NAME with the client in it is made, and
removed at the end. No account is needed: the provider is in this script.

Exit: 0 where all checks hold, 1 otherwise. Needs Linux, Python 3.8, npm and the built binaries.
"""

import http.client
import http.server
import io
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
from scratch_project import Project, Table, Tier, arguments, shell_tool

PACKAGE = "@anthropic-ai/claude-code"
# In the worker: where the namespace tier shows it, and where the image of this script has it.
PLACE = "/agent/claude"
KEY = "the-real-key"
MODEL = "claude-sonnet-4-5"
OUTPUT_TOKENS = 4096
BETAS = {"claude-code-20250219", "interleaved-thinking-2025-05-14", "context-management-2025-06-27"}
PATIENCE = 60

REPORT = """[tool]
name = "report"
version = "1.0.0"
description = "Write a report into one new file"
binary = "sh"
[args.text]
type = "string"
required = true
[args.output]
type = "path"
required = true
[command]
exec = ["sh", "-c", "printf '%s' \\"$1\\" > \\"$2\\"", "sh", "{text}", "{output}"]
allow_interpreter = true
[filesystem]
create = ["{output}"]
[output]
format = "text"
"""

# The longest name that an agent of this kind may have: 128 with the client's prefix.
LONGEST = "n" * (128 - len("mcp__symbi__"))

TOOLS = {
    LONGEST: shell_tool(LONGEST, "echo long-name-ran"),
    "read": shell_tool("read", 'cat "$1"', reads="y"),
    "report": REPORT,
    "unlisted": shell_tool("unlisted", "echo never"),
}

POLICY = """@id("reviewers-may")
permit(principal, action, resource);
@id("nobody-reads-neighbour")
@reason("that file is not for agents")
forbid(principal, action == Action::"tool_call::read", resource)
when { context.invocation.resolved.command_boundary.filesystem.read.input.name == "neighbour" };
"""

AGENT = """
[agents.%s]
executor = "claude_code"
program = "%s"
allowed_tools = ["read", "report", "%s"]
%s
"""

INFERENCE = """
[managed_cli.inference]
provider = "scripted"
model = "%s"
max_output_tokens = %d
max_requests = 32
"""


def install(symbi):
    """The native program, installed once beside the build."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(symbi))), "claude-code")
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    program = os.path.join(folder, "node_modules", "%s-linux-%s" % (PACKAGE, machine), "claude")
    if os.path.exists(program):
        return program
    npm = shutil.which("npm")
    if not npm:
        raise SystemExit("npm is missing, and Claude Code is installed with it: apt-get install npm")
    print("installing %s into %s" % (PACKAGE, folder), flush=True)
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run([npm, "install", "--prefix", folder, "--ignore-scripts", "--no-audit",
                           "--no-fund", "--no-update-notifier", PACKAGE + "@2"],
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0 or not os.path.exists(program):
        raise SystemExit("npm could not install %s: there is no %s" % (PACKAGE, program))
    return program


class Link(http.client.HTTPConnection):
    """One connection to a container engine's socket."""

    def __init__(self, path):
        super().__init__("engine", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(engine, method, path, body=None, kind="application/json"):
    link = Link(engine)
    link.request(method, path, body, {"Content-Type": kind} if body else {})
    answer = link.getresponse()
    text = answer.read()
    link.close()
    if answer.status >= 400:
        raise SystemExit("the engine answers %s %s with %d: %s"
                         % (method, path, answer.status, text.decode("utf-8", "replace")))
    return json.loads(text) if text else {}


class ClientImage:
    """An image with Python 3 and, at PLACE, the client: what a user of a container tier makes."""

    def __init__(self, tier, program):
        self.engine, self.base, self.program = tier.socket, tier.image, program

    def __enter__(self):
        base = json.dumps({"Image": self.base, "Cmd": ["true"]})
        box = ask(self.engine, "POST", "/containers/create", base)["Id"]
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(self.program, PLACE.lstrip("/"))
        ask(self.engine, "PUT", "/containers/%s/archive?path=/" % box, file.getvalue(),
            "application/x-tar")
        self.id = ask(self.engine, "POST", "/commit?container=%s" % box, "{}")["Id"]
        ask(self.engine, "DELETE", "/containers/%s?v=true" % box)
        return self

    def __exit__(self, *_):
        ask(self.engine, "DELETE", "/images/%s" % self.id)

    def containers(self):
        """The first processes of its containers, as the host sees them."""
        filters = json.dumps({"ancestor": [self.id]})
        query = urllib.parse.urlencode({"all": "true", "filters": filters})
        found = ask(self.engine, "GET", "/containers/json?" + query)
        return [ask(self.engine, "GET", "/containers/%s/json" % it["Id"])["State"]["Pid"]
                for it in found]


def use(tool, **values):
    return {"type": "tool_use", "name": "mcp__symbi__" + tool, "input": values}


def text(words):
    return {"type": "text", "text": words}


class Provider(http.server.ThreadingHTTPServer):
    """Answers the n-th request of a conversation with the n-th block of its script."""

    daemon_threads = True

    def __init__(self, clients):
        super().__init__(("127.0.0.1", 0), Answerer)
        self.clients = clients
        self.script, self.seen, self.looks = [], [], []
        self.asked, self.release = threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def play(self, *script):
        self.script, self.seen, self.looks = list(script), [], []
        self.asked.clear()
        self.release.clear()

    def bodies(self):
        return [body for path, _, body in self.seen if path == "/v1/messages?beta=true"]

    def results(self):
        """The tool results that the last request carried: (is_error, text)."""
        found = []
        for message in self.bodies()[-1]["messages"] if self.bodies() else []:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_result":
                    found.append((block.get("is_error") is True, json.dumps(block.get("content"))))
        return found


class Answerer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.seen.append((self.path, dict(self.headers), body))
        server.looks.append(look_at_network(server.clients()))
        if self.path.startswith("/v1/messages/count_tokens"):
            return self.send(200, "application/json", b'{"input_tokens":1}')
        results = sum(block.get("type") == "tool_result" for message in body["messages"]
                      if isinstance(message["content"], list) for block in message["content"])
        block = server.script[min(results, len(server.script) - 1)]
        server.asked.set()
        if block is None:
            server.release.wait(PATIENCE)
            self.close_connection = True
            return None
        try:
            return self.send(200, "text/event-stream", events(dict(block), results, body["model"]))
        except BrokenPipeError:
            self.close_connection = True  # the run ended meanwhile


def events(block, number, model):
    """One message with one block, as server-sent events."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_%d" % number, "type": "message", "role": "assistant", "model": model,
               "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    if block["type"] == "tool_use":
        block["id"] = "toolu_%d" % number
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        start, stop = dict(block, input={}), "tool_use"
    else:
        delta = {"type": "text_delta", "text": block["text"]}
        start, stop = dict(block, text=""), "end_turn"
    told = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None},
         "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return "".join("event: %s\ndata: %s\n\n" % (it["type"], json.dumps(it)) for it in told).encode()


def processes():
    """The ids of the processes that are a contained Claude Code."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                if file.read().startswith(PLACE.encode() + b"\0"):
                    found.append(int(name))
        except OSError:
            pass
    return found


def lines_of(pid, name):
    with open("/proc/%d/net/%s" % (pid, name), encoding="ascii") as file:
        return file.read().splitlines()


def look_at_network(pids):
    """What the client's network has and did so far, read from outside: None if it is well."""
    if len(pids) != 1:
        return "%d clients run" % len(pids)
    try:
        devices = [line.split(":")[0].strip() for line in lines_of(pids[0], "dev")[2:]]
        if devices != ["lo"]:
            return "its devices are %s" % devices
        peers = [line.split()[2] for line in lines_of(pids[0], "tcp")[1:]]
        # 127.0.0.1 is 0100007F here; a listening socket's peer is 0.
        strange = [it for it in peers if not it.startswith(("0100007F:", "00000000:0000"))]
        if strange:
            return "it is connected to %s" % strange
        if len(lines_of(pids[0], "udp")) > 1:
            return "it has a datagram socket: %s" % lines_of(pids[0], "udp")
        # A look-up is a datagram to 127.0.0.1, since there is no resolver; whatever else it tries
        # to reach has no route.
        for layer, counter in (("Udp:", "OutDatagrams"), ("Ip:", "OutNoRoutes")):
            rows = [line.split() for line in lines_of(pids[0], "snmp") if line.startswith(layer)]
            count = dict(zip(*rows))[counter]
            if count != "0":
                return "its %s %s is %s" % (layer, counter, count)
        return None
    except OSError as error:
        return str(error)


def prepare(project, provider, program):
    os.mkdir(project.file("policies/run"), 0o755)
    project.write("policies/run/all.cedar", POLICY)
    config = project.read("symbiont.toml") + INFERENCE % (MODEL, OUTPUT_TOKENS)
    for name, file, more in (
            ("reviewer", program, ""), ("least", program, "memory_mib = 192\npids = 32"),
            ("hasty", program, "max_turns = 1"), ("small", program, "memory_mib = 191"),
            ("lonely", program, "pids = 31"), ("gone", "/nowhere/claude", "")):
        config += AGENT % (name, file, LONGEST, more)
    project.write("symbiont.toml", config)
    folder = os.path.join(project.home, "config", "symbi")
    os.mkdir(folder, 0o700)
    with open(os.path.join(folder, "key"), "w", encoding="ascii") as file:
        file.write(KEY + "\n")
    with open(os.path.join(folder, "config.toml"), "w", encoding="utf-8") as file:
        file.write('[providers.scripted]\nbase_url = "http://127.0.0.1:%d"\napi_key_file = "%s"\n'
                   % (provider.server_address[1], os.path.join(folder, "key")))
    for name in ("key", "config.toml"):
        os.chmod(os.path.join(folder, name), 0o600)
    trusted = project.run("trust", "--yes")
    if trusted.code != 0:
        raise SystemExit("the project is not trusted:\n%s" % trusted)


def run(project, agent, *more, task="Review data/a.csv"):
    return project.run("run", agent, "--task=" + task, *more)


def proved(project, provider, table, what, ended):
    body = ended.json()
    journal, run_id = body.get("journal", ""), body.get("run_id", "")
    table.check("%s: its journal is intact for the independent verifier" % what,
                project.verify(journal, run_id) == 0, ended)
    try:
        with open(journal, encoding="utf-8") as file:
            written = file.read()
    except OSError:
        written = KEY
    table.check("%s: the credential is in no record and no output" % what,
                KEY not in written + ended.stdout + ended.stderr)
    table.check("%s: no client is left" % what, provider.clients() == [],
                provider.clients())


def useful_work(project, provider, table, agent):
    provider.play(use("read", input="data/a.csv"), use("read", input="data/neighbour"),
                  use("report", text="two-rows", output="out/report-" + agent), use(LONGEST),
                  text("The report is written."))
    ended = run(project, agent)
    body, results = ended.json(), provider.results()
    story = body.get("story") or {}
    table.check("%s: the run succeeds with the client's final answer" % agent,
                ended.code == 0 and body.get("status") == "succeeded"
                and body.get("results") == "The report is written.", ended)
    table.check("%s: it reads through a tool" % agent,
                len(results) == 4 and not results[0][0] and "1,2" in results[0][1], results)
    table.check("%s: what policy refuses is refused, with the reason" % agent,
                len(results) == 4 and results[1][0] and "nobody-reads-neighbour" in results[1][1]
                and "not granted" not in results[1][1], results)
    report = project.file("out/report-" + agent)
    table.check("%s: it writes a report through a grant" % agent,
                os.path.exists(report) and project.read("out/report-" + agent) == "two-rows", ended)
    table.check("%s: turns, calls and errors are told" % agent,
                (story.get("turns"), story.get("calls"), story.get("call_errors")) == (5, 4, 1), story)
    table.check("%s: a tool with the longest name works" % agent,
                len(results) == 4 and "long-name-ran" in results[3][1], results)
    proved(project, provider, table, agent, ended)


def requests(provider, table):
    """What the provider saw of the last run."""
    bodies = provider.bodies()
    headers = [{name.lower(): value for name, value in it.items()} for _, it, _ in provider.seen]
    tools = [sorted(tool["name"] for tool in body.get("tools", [])) for body in bodies]
    table.check("the client has exactly the allowed tools",
                tools and all(it == ["mcp__symbi__" + name for name in (LONGEST, "read", "report")]
                              for it in tools), tools)
    table.check("each request streams, and asks for the model and at most the tokens of the terms",
                all(body["model"] == MODEL and body["max_tokens"] <= OUTPUT_TOKENS
                    and body.get("stream") is True for body in bodies), bodies[:1])
    table.check("each request has the operator's key and the client's betas",
                all(it.get("x-api-key") == KEY and BETAS <= set(it["anthropic-beta"].split(","))
                    for it in headers), headers[:1])
    table.check("the client had loopback alone, and looked nothing up",
                provider.looks and not any(provider.looks), [it for it in provider.looks if it][:1])


def budgets(project, provider, table):
    provider.play(use("read", input="data/a.csv"), use("read", input="data/a.csv"), text("done"))
    ended = run(project, "reviewer", "--max-calls", "1")
    table.check("one call over the budget ends the run with 1", ended.code == 1
                and ended.json().get("session") != "completed", ended)
    proved(project, provider, table, "out of calls", ended)
    provider.play(use("read", input="data/a.csv"), text("done"))
    ended = run(project, "reviewer", "--budget-tokens", str(OUTPUT_TOKENS))
    table.check("one request over the token budget ends the run with 1, not as a success",
                ended.code == 1 and ended.json().get("status") == "failed"
                and "reserved" in str(ended.json().get("reason")), ended)
    table.check("what is over the budget does not reach the provider", len(provider.bodies()) == 1)
    proved(project, provider, table, "out of tokens", ended)
    provider.play(use("read", input="data/a.csv"), use("read", input="data/a.csv"), text("done"))
    ended = run(project, "hasty")
    table.check("one turn too many ends the run with 1", ended.code == 1
                and "maximum number of turns" in str(ended.json().get("reason")), ended)
    proved(project, provider, table, "out of turns", ended)


def ends(project, provider, table):
    provider.play(None)
    process = project.start(project.words("run", "reviewer", "--task", "wait"))
    waited = provider.asked.wait(PATIENCE)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    ended = project.finish(process)
    provider.release.set()
    table.check("Ctrl-C ends the run with 1, at once",
                waited and ended.code == 1 and time.monotonic() - began < 10, ended)
    proved(project, provider, table, "cancelled", ended)
    provider.play(None)
    began = time.monotonic()
    ended = run(project, "reviewer", "--budget-timeout", "5")
    provider.release.set()
    table.check("a run over its time ends with 1",
                ended.code == 1 and 5 <= time.monotonic() - began < 20, ended)
    proved(project, provider, table, "out of time", ended)
    provider.play(text("An option it is not."))
    ended = run(project, "reviewer", task="--version")
    table.check("a task that looks like an option is a task",
                ended.code == 0 and "--version" in json.dumps(provider.bodies()[0]["messages"]), ended)


def shown_live(project, provider, table):
    """What the operator is told while the client still runs."""
    provider.play(use("read", input="data/a.csv"), None)
    process = project.start(project.words("run", "reviewer", "--task", "look"))
    events = []
    for line in process.stderr:
        if line.startswith(b"{"):
            events.append(json.loads(line.decode("utf-8")))
        if events and events[-1].get("step") == "asked" and events[-1].get("request", 0) > 1 \
                and any(it.get("tool") == "read" and it.get("step") == "ended" for it in events):
            break
    steps = [(it["event"], it.get("tool"), it.get("step"), it.get("status")) for it in events]
    table.check("the run is still going on when its first call is told", process.poll() is None)
    for wanted in (("agent", None, "started", None), ("agent", "mcp__symbi__read", "asks", None),
                   ("call", "read", "prepared", None), ("call", "read", "running", None),
                   ("call", "read", "ended", "succeeded"), ("model", None, "answered", 200)):
        table.check("told while it runs: %s" % " ".join(str(it) for it in wanted if it),
                    wanted in steps, steps)
    process.send_signal(signal.SIGINT)
    ended = project.finish(process)
    provider.release.set()
    table.check("and it ends with 1 when it is interrupted", ended.code == 1, ended)


def checked_first(project, provider, table):
    provider.play(text("done"))
    for agent, code, words in (("small", 7, "192 MiB"), ("lonely", 7, "at least 32"),
                               ("gone", 7, "/nowhere/claude")):
        ended = run(project, agent)
        table.check("%s: what is missing is said before anything starts" % agent,
                    ended.code == code and words in ended.stderr, ended)
    config = project.read("symbiont.toml")
    project.write("symbiont.toml", config.replace(INFERENCE % (MODEL, OUTPUT_TOKENS), ""))
    project.run("trust", "--yes")
    ended = run(project, "reviewer")
    table.check("without a model nothing starts",
                ended.code == 2 and "managed_cli.inference" in ended.stderr, ended)
    table.check("and nothing of these reached the provider", provider.seen == [], provider.seen)


def main():
    found = arguments(__doc__.splitlines()[0])
    program = install(found.symbi)
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=False,
                             env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"})
    print("client: %s" % version.stdout.decode("utf-8", "replace").strip(), flush=True)
    if not found.tier.image:
        return whole(found.symbi, found.tier, program, processes)
    with ClientImage(found.tier, program) as image:
        tier = Tier(found.tier.name, image.id, found.tier.socket)
        # gVisor shows the host no process of its guests; its own are in their network namespace.
        return whole(found.symbi, tier, PLACE,
                     image.containers if tier.name == "gvisor" else processes)


def whole(symbi, tier, program, clients):
    table, provider = Table(), Provider(clients)
    with Project(symbi, tier, TOOLS) as project:
        prepare(project, provider, program)
        useful_work(project, provider, table, "reviewer")
        requests(provider, table)
        useful_work(project, provider, table, "least")
        budgets(project, provider, table)
        ends(project, provider, table)
        shown_live(project, provider, table)
        checked_first(project, provider, table)
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
