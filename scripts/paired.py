"""Ways to do the same work, timed one after the other in turning order. Shared by the measurements.

Which way is first turns with every round, so that what else the machine does falls on all of them.
"""

import contextlib
import json
import statistics
import subprocess
import time

from scratch_project import Project

# Calls before the first round: what is started once is started, what is cached is cached.
WARM_UP = 2

TOOL = """[tool]
name = "nothing"
version = "1.0.0"
description = "Does nothing"
binary = "true"
[command]
exec = ["true"]
[output]
format = "text"
"""

POLICY = """@id("anybody-may-call")
permit(principal, action == Action::"tool_call::nothing", resource);
"""

@contextlib.contextmanager
def governed(symbi, tier):
    """The two governed ways to run the tool: a one-shot `symbi call`, and a call inside a running session."""
    with Project(symbi, tier, {"nothing": TOOL}) as project:
        project.write("policies/call.cedar", POLICY)
        if project.run("trust", "--yes").code != 0:
            raise SystemExit("the scratch project is not trusted")
        session = Session(project)
        try:
            yield {"symbi call": one_shot(project), "in a session": session.call}
        finally:
            session.close()


def command(words, environment=None):
    """A way that runs a command, which must succeed."""
    def run():
        done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise SystemExit("`%s` failed: %s" % (words[0], done.stderr.decode("utf-8", "replace")))
    return run


def one_shot(project):
    def run():
        done = project.call("nothing")
        if done.code != 0:
            raise SystemExit("`symbi call` failed: %s" % done)
        return done.json()
    return run


class Session:
    """One `symbi mcp`, spoken to by hand."""

    def __init__(self, project):
        self.process = subprocess.Popen(
            [project.symbi, "--project", project.path, "mcp"], env=project.environment(),
            cwd=project.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.number = 0
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                "clientInfo": {"name": "measure", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the session ended before it answered `%s`" % method)
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer

    def call(self):
        answer = self.ask("tools/call", {"name": "nothing", "arguments": {}})
        result = answer.get("result", {})
        if "result" not in answer or result.get("isError"):
            raise SystemExit("the call in the session failed: %s" % json.dumps(answer))
        return json.loads(result["content"][0]["text"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def timed(work):
    start = time.monotonic()
    result = work()
    return (time.monotonic() - start) * 1000, result


def measure(ways, rounds):
    """Milliseconds and results of each way; the first rounds do not count."""
    for way in list(ways.values()) * WARM_UP:
        way()
    taken = {name: [] for name in ways}
    order = list(ways)
    for _ in range(rounds):
        for name in order:
            taken[name].append(timed(ways[name]))
        order.append(order.pop(0))
    return taken


def tell(taken, base, bounds):
    """The table, against the way `base`; whether all bounds hold."""
    numbers = {name: [ms for ms, _ in all_of] for name, all_of in taken.items()}
    reference = numbers[base]
    within = True
    print("%-14s %10s %10s %12s %12s %7s" % ("", "median ms", "min ms", "of medians", "of minima", "bound"))
    for name, found in numbers.items():
        median, least = statistics.median(found), min(found)
        ratios = median / statistics.median(reference), least / min(reference)
        bound = bounds.get(name)
        within = within and (bound is None or ratios[0] <= bound)
        print("%-14s %10.1f %10.1f %12.2f %12.2f %7s" % (name, median, least, *ratios, bound or ""))
    return within
