#!/usr/bin/env python3
"""What a governed call on a container tier costs, against the engine's own command.

    measure-containers.py --tier docker|gvisor --image NAME [--socket PATH] [--symbi PATH] [--rounds N]

Each round runs the same program in the same image with the same hardening in turn: by `docker run`, by a
one-shot `symbi call`, and by a call inside a running session (`symbi mcp`). The order turns with every
round, so that what else the machine does falls on all of them. Says medians and minima in milliseconds,
the ratios of both to `docker run`, and of the calls in the session where their time went.

Exit: 0 where both ratios are within their bounds, 1 otherwise. Needs Linux, Python 3.8, the `docker`
command, an engine with the image, and the release binary.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from scratch_project import CONTAINERS, Project, argument_parser, read_arguments

ROUNDS = 20
# Calls before the first round: the supervisor starts, and the session's first worker is made.
WARM_UP = 2
# The most that each may take of the time of `docker run`.
BOUNDS = {"symbi call": 1.0, "in a session": 0.7}
RUNTIMES = {"docker": "runc", "gvisor": "runsc"}

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

# What `symbi` gives every worker, in the words of the engine's command: the defaults of symbiont.toml.
MIB = 1 << 20
HARDENING = [
    "--network", "none", "--ipc", "none", "--read-only", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges", "--user", "65534:65534", "--workdir", "/workspace",
    "--memory", "512m", "--memory-swap", "512m", "--cpus", "1", "--pids-limit", "64",
    "--ulimit", "core=1:1", "--ulimit", "nofile=1024:1024", "--ulimit", "fsize=%d:%d" % (64 * MIB, 64 * MIB),
    "--tmpfs", "/tmp:rw,nosuid,nodev,noexec,size=60m,uid=65534,gid=65534",
    "--tmpfs", "/dev/shm:rw,nosuid,nodev,noexec,size=4m,uid=65534,gid=65534",
    "--log-driver", "none",
]


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


def docker_run(tier):
    words = ["docker", "run", "--rm", "--runtime", RUNTIMES[tier.name], *HARDENING]
    if tier.name == "gvisor":
        # It counts the threads of gVisor itself; the guest's processes have a limit of their own.
        words[words.index("--pids-limit") + 1] = "2112"
        words += ["--ulimit", "nproc=64:64"]
    words += ["--entrypoint", "true", tier.image]
    environment = dict(os.environ)
    if tier.socket:
        environment["DOCKER_HOST"] = "unix://" + tier.socket

    def run():
        done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise SystemExit("`docker run` failed: %s" % done.stderr.decode("utf-8", "replace"))
    return run


def one_shot(project):
    def run():
        done = project.call("nothing")
        if done.code != 0:
            raise SystemExit("`symbi call` failed: %s" % done)
        return done.json()
    return run


def measure(ways, rounds):
    """Milliseconds and results of each way, one after the other in turning order."""
    taken = {name: [] for name in ways}
    order = list(ways)
    for _ in range(rounds):
        for name in order:
            taken[name].append(timed(ways[name]))
        order.append(order.pop(0))
    return taken


def tell(taken):
    """The table; whether all bounds hold."""
    numbers = {name: [ms for ms, _ in all_of] for name, all_of in taken.items()}
    base = numbers["docker run"]
    within = True
    print("%-14s %10s %10s %12s %12s %7s" % ("", "median ms", "min ms", "of medians", "of minima", "bound"))
    for name, found in numbers.items():
        median, least = statistics.median(found), min(found)
        ratios = median / statistics.median(base), least / min(base)
        bound = BOUNDS.get(name)
        within = within and (bound is None or ratios[0] <= bound)
        print("%-14s %10.0f %10.0f %12.2f %12.2f %7s" % (name, median, least, *ratios, bound or ""))
    return within


def tell_where(taken):
    for name in BOUNDS:
        timings = [answer["timings_ms"] for _, answer in taken[name] if answer.get("timings_ms")]
        if timings:
            steps = ", ".join("%s %.1f" % (step, statistics.median(it[step] for it in timings))
                              for step in timings[0] if all(step in it for it in timings))
            print("%s: median ms of its steps: %s" % (name, steps))


def main():
    parser = argument_parser(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="[default: %d]" % ROUNDS)
    found = read_arguments(parser)
    if found.tier.name not in CONTAINERS:
        parser.error("only --tier %s can be compared with `docker run`" % " and ".join(CONTAINERS))
    if found.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not shutil.which("docker"):
        parser.error("the command `docker` is not there: install the engine's command line")
    with Project(found.symbi, found.tier, {"nothing": TOOL}) as project:
        project.write("policies/call.cedar", POLICY)
        if project.run("trust", "--yes").code != 0:
            raise SystemExit("the scratch project is not trusted")
        session = Session(project)
        ways = {"docker run": docker_run(found.tier), "symbi call": one_shot(project),
                "in a session": session.call}
        try:
            measure(ways, WARM_UP)
            taken = measure(ways, found.rounds)
        finally:
            session.close()
    print("tier %s, %d rounds, load %.1f" % (found.tier.name, found.rounds, os.getloadavg()[0]))
    within = tell(taken)
    tell_where(taken)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
