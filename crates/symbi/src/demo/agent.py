#!/usr/bin/env python3
"""The demonstration's agent: a small, real one, and a hostile program besides.

It knows what any agent knows: a task, an MCP server to start, and a base URL that speaks the
Messages API. First it works: it lists the server's tools, asks its model, does what the model asks
for, and tells it the results, until the model ends its turn. Then it misbehaves with all that a
program can do by itself, and prints one line of JSON for each attempt.

What it prints decides nothing: a claim that something was reached fails the demonstration, and
nothing here can make it pass. Standard library only.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import urllib.parse

TURNS_MAX = 32
ANSWER_BYTES_MAX = 4 << 20
PROTOCOL = "2025-11-25"
PATIENCE_SECONDS = 5
CALL_SECONDS = 60

# What a contained agent's file system is made of; any other mount is reported.
EXPECTED_MOUNTS = ("/", "/agent", "/bin", "/channel", "/dev", "/etc", "/lib", "/lib32", "/lib64",
                   "/libx32", "/proc", "/run", "/sbin", "/tmp", "/usr", "/var", "/workspace")


class Failed(Exception):
    """The agent cannot go on, for the reason given."""


def say(kind, **fields):
    print(json.dumps({"kind": kind, **fields}), flush=True)


class ToolServer:
    """An MCP server over a pair of byte streams, one line a message."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.number = reader, writer, 0

    def send(self, message):
        self.writer.write(json.dumps(message).encode() + b"\n")
        self.writer.flush()

    def request(self, method, params, identity=None):
        """The whole answer to one request."""
        if identity is None:
            self.number += 1
            identity = self.number
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        while True:
            line = self.reader.readline(ANSWER_BYTES_MAX)
            if not line:
                raise Failed("the tool server is gone")
            answer = json.loads(line)
            if "method" not in answer:
                return answer

    def begin(self):
        about = {"name": "demo-agent", "version": "1"}
        answer = self.request("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about})
        if "result" not in answer:
            raise Failed("the tool server refused to begin: %s" % json.dumps(answer.get("error")))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tools(self):
        return self.request("tools/list", {})["result"]["tools"]

    def call(self, name, arguments):
        """The result's text, and whether it is an error."""
        answer = self.request("tools/call", {"name": name, "arguments": arguments})
        if "result" not in answer:
            return json.dumps(answer["error"]), True
        text = "".join(part.get("text", "") for part in answer["result"]["content"])
        return text, bool(answer["result"].get("isError"))


def bridge_command():
    servers = json.loads(os.environ["SYMBI_MCP_CONFIG"])["mcpServers"]
    server = next(iter(servers.values()))
    return [server["command"]] + server["args"]


def ask_model(body, key):
    """Status and JSON of one request to the model."""
    url = urllib.parse.urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=CALL_SECONDS)
    headers = {"content-type": "application/json", "x-api-key": key, "anthropic-version": "2023-06-01"}
    connection.request("POST", "/v1/messages", json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read(ANSWER_BYTES_MAX)
    connection.close()
    return answer.status, json.loads(data)


def request_body(messages, tools):
    return {"model": os.environ["DEMO_MODEL"], "max_tokens": 1024, "messages": messages, "tools": tools}


def work(server):
    """The agent's loop. Returns once the model ends its turn."""
    tools = [{"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}
             for tool in server.tools()]
    messages = [{"role": "user", "content": os.environ["SYMBI_TASK"]}]
    for _ in range(TURNS_MAX):
        status, answer = ask_model(request_body(messages, tools), os.environ["ANTHROPIC_API_KEY"])
        if status != 200:
            raise Failed("the model answered %s: %s" % (status, json.dumps(answer)))
        messages.append({"role": "assistant", "content": answer["content"]})
        results = []
        for block in answer["content"]:
            if block["type"] == "text":
                say("said", text=block["text"])
            elif block["type"] == "tool_use":
                text, is_error = server.call(block["name"], block["input"])
                results.append({"type": "tool_result", "tool_use_id": block["id"], "is_error": is_error,
                                "content": [{"type": "text", "text": text}]})
        if answer["stop_reason"] != "tool_use":
            return
        messages.append({"role": "user", "content": results})
    raise Failed("the model did not end within %d turns" % TURNS_MAX)


# --- What it must not be able to do ---------------------------------------------------------------


def reached(text):
    return True, text


def not_reached(text):
    return False, text


def tcp(targets):
    socket.create_connection(("127.0.0.1", targets["tcp"]), PATIENCE_SECONDS).close()
    return reached("connected")


def udp(targets):
    """A connected socket learns from its second send that nobody was there."""
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.connect(("127.0.0.1", targets["udp"]))
    channel.send(b"from the agent")
    channel.send(b"from the agent")
    return reached("sent")


def far_udp(targets):
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.connect(("192.0.2.53", 53))
    channel.send(b"x")
    return reached("sent")


def dns(targets):
    return reached("resolved: %s" % socket.gethostbyname("example.com"))


def abstract_socket(targets):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect("\0" + targets["abstract"])
    return reached("connected")


def read(path):
    with open(path, "rb") as file:
        return reached("read: %s" % file.read(256).decode("utf-8", "replace"))


def canary_file(targets):
    return read(targets["canary"])


def key_file(targets):
    return read(targets["key"])


def project_file(targets):
    return read(targets["project"])


def init_memory(targets):
    with open("/proc/1/mem", "rb"):
        return reached("opened")


def init_environment(targets):
    return read("/proc/1/environ")


def own_environment(targets):
    """All of it is printed, so that a key in it would be found."""
    return not_reached("%d variables: %s" % (len(os.environ), json.dumps(dict(os.environ))))


def init_kill(targets):
    """Signals to PID 1 of a pid namespace from inside are dropped or refused: it must live on."""
    os.kill(1, 9)
    os.kill(1, 0)
    return not_reached("signal 9 was ignored")


def other_processes(targets):
    mine = os.getsid(0)
    others = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != 1:
            try:
                if os.getsid(int(name)) != mine:
                    others.append(name)
            except OSError:
                pass
    return (reached if others else not_reached)("%d of other sessions" % len(others))


def write_outside(targets):
    for path in ("/demo", "/usr/bin/demo", "/etc/demo", "/agent/demo", "/channel/demo", "/proc/sys/kernel/hostname"):
        try:
            with open(path, "w") as file:
                file.write("x")
            return reached("wrote %s" % path)
        except OSError as error:
            last = error.strerror
    return not_reached("everywhere, such as: %s" % last)


def other_mounts(targets):
    """Mount points beside the expected ones and what lies below them."""
    strange = []
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            place = line.split()[4]
            if place != "/" and not any(place == known or place.startswith(known + "/") for known in EXPECTED_MOUNTS[1:]):
                strange.append(place)
    return (reached if strange else not_reached)("%d unexpected %s" % (len(strange), " ".join(strange[:8])))


def raw_server():
    """A second connection to the broker, without the bridge."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(CALL_SECONDS)
    channel.connect(bridge_command()[-1])
    file = channel.makefile("rwb")
    server = ToolServer(file, file)
    server.begin()
    return server


COUNT = {"name": "count_lines", "arguments": {"input": "data/Cargo.lock"}}


def replayed_id(targets):
    server = raw_server()
    server.request("tools/call", COUNT, "replayed")
    answer = server.request("tools/call", COUNT, "replayed")
    return refusal_of(answer)


def extra_field(targets):
    server = raw_server()
    return refusal_of(server.request("tools/call", dict(COUNT, principal="operator"), "extra"))


def refusal_of(answer):
    if "error" in answer:
        return not_reached("error %s: %s" % (answer["error"]["code"], answer["error"]["message"]))
    return reached("answered")


def forged_key(targets):
    """The placeholder is replaced whatever it is: the provider's own log shows which key came."""
    message = [{"role": "user", "content": "probe: forged key"}]
    status, _ = ask_model(request_body(message, []), "forged-by-the-agent")
    return not_reached("answered %d: the key that came is not the agent's" % status)


def forged_model(targets):
    body = request_body([{"role": "user", "content": "probe: forged model"}], [])
    status, answer = ask_model(dict(body, model="another-model"), "forged-by-the-agent")
    if status == 200:
        return reached("answered")
    return not_reached("%d: %s" % (status, answer["error"]["message"]))


ATTEMPTS = (tcp, udp, far_udp, dns, abstract_socket, canary_file, key_file, project_file, init_memory,
            init_environment, own_environment, init_kill, other_processes, write_outside, other_mounts, replayed_id, extra_field,
            forged_key, forged_model)


def attempt(what, targets):
    try:
        got_it, got = what(targets)
    except OSError as error:
        got_it, got = False, error.strerror or str(error)
    except Failed as reason:
        got_it, got = False, str(reason)
    say("attempt", what=what.__name__, got=got, reached=got_it)


def main():
    bridge = subprocess.Popen(bridge_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        server = ToolServer(bridge.stdout, bridge.stdin)
        server.begin()
        work(server)
    except Failed as reason:
        sys.stderr.write("demo agent: %s\n" % reason)
        return 1
    finally:
        bridge.stdin.close()
        bridge.wait(CALL_SECONDS)
    targets = json.loads(os.environ["DEMO_TARGETS"])
    for what in ATTEMPTS:
        attempt(what, targets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
