#!/usr/bin/env python3
"""The memory of `symbi run` while its agent's model answers with as much as it may.

    test-inference-memory.py [--symbi PATH] [--tier namespace]

Exit: 0 where all checks hold, 1 otherwise. Needs Linux, Python 3.8 and the built binaries.
"""

import http.server
import json
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
from scratch_project import Project, Table, arguments, shell_tool

# What the inference channel lets through, and what `symbi` may take for it.
ANSWER_BYTES = 4 << 20
MEMORY_KIB_MAX = 40 * 1000 * 1000 // 1024
REQUESTS = 6

AGENT = """import http.client, json
def ask(stream):
    body = json.dumps({"model": "m-1", "max_tokens": 9, "stream": stream,
                       "messages": [{"role": "user", "content": "x"}]})
    link = http.client.HTTPConnection("127.0.0.1", 8091)
    link.request("POST", "/v1/messages", body, {"content-type": "application/json"})
    answer = link.getresponse()
    length = 0
    while True:
        piece = answer.read(65536)
        if not piece:
            return answer.status, length
        length += len(piece)
for number in range(%d):
    print(*ask(number %% 2 == 1), flush=True)
""" % REQUESTS

CONFIG = """
[agents.reader]
executor = "command"
command = ["python3", "-c", '''%s''']
allowed_tools = ["never"]

[managed_cli.inference]
provider = "scripted"
model = "m-1"
max_output_tokens = 64
"""


class Answerer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind = "text/event-stream" if body.get("stream") else "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(ANSWER_BYTES))
        self.end_headers()
        piece = b"data: " + b"x" * (65536 - 8) + b"\n\n"
        for _ in range(ANSWER_BYTES // len(piece)):
            self.wfile.write(piece)


def peak(pid, found):
    """Keeps the largest resident set of a process, until it is gone."""
    while True:
        try:
            with open("/proc/%d/status" % pid, encoding="ascii") as file:
                lines = [line.split() for line in file if line.startswith("VmHWM:")]
            if not lines:
                return
            found.append(int(lines[0][1]))
        except OSError:
            return
        time.sleep(0.002)


def prepare(project, port):
    os.mkdir(project.file("policies/run"), 0o755)
    project.write("policies/run/all.cedar",
                  '@id("may")\npermit(principal, action, resource);\n')
    project.write("symbiont.toml", project.read("symbiont.toml") + CONFIG % AGENT)
    folder = os.path.join(project.home, "config", "symbi")
    os.mkdir(folder, 0o700)
    with open(os.path.join(folder, "key"), "w", encoding="ascii") as file:
        file.write("the-real-key\n")
    with open(os.path.join(folder, "config.toml"), "w", encoding="utf-8") as file:
        file.write('[providers.scripted]\nbase_url = "http://127.0.0.1:%d"\napi_key_file = "%s"\n'
                   % (port, os.path.join(folder, "key")))
    for name in ("key", "config.toml"):
        os.chmod(os.path.join(folder, name), 0o600)
    trusted = project.run("trust", "--yes")
    if trusted.code != 0:
        raise SystemExit("the project is not trusted:\n%s" % trusted)


def main():
    found = arguments(__doc__.splitlines()[0])
    table = Table()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answerer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tools = {"never": shell_tool("never", "echo never")}
    with Project(found.symbi, found.tier, tools) as project:
        prepare(project, server.server_address[1])
        process = project.start(project.words("run", "reader", "--task", "read"))
        kib = []
        watcher = threading.Thread(target=peak, args=(process.pid, kib))
        watcher.start()
        ended = project.finish(process)
        watcher.join()
    whole = ended.json().get("results", "").split("\n")[:-1]
    table.check("each answer of %d bytes arrives whole" % ANSWER_BYTES,
                ended.code == 0 and whole == ["200 %d" % ANSWER_BYTES] * REQUESTS, ended)
    most = max(kib, default=0)
    print("largest resident set: %.1f MB" % (most * 1024 / 1e6))
    table.check("and symbi takes less than %d KiB for it" % MEMORY_KIB_MAX,
                0 < most < MEMORY_KIB_MAX, most)
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
