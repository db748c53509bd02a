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

import os
import shutil
import statistics
import sys

sys.dont_write_bytecode = True
import paired
from scratch_project import CONTAINERS, argument_parser, read_arguments

ROUNDS = 20
# The most that each may take of the time of `docker run`.
BOUNDS = {"symbi call": 1.0, "in a session": 0.7}
RUNTIMES = {"docker": "runc", "gvisor": "runsc"}

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

    return paired.command(words, environment)


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
    with paired.governed(found.symbi, found.tier) as ways:
        taken = paired.measure({"docker run": docker_run(found.tier), **ways}, found.rounds)
    print("tier %s, %d rounds, load %.1f" % (found.tier.name, found.rounds, os.getloadavg()[0]))
    within = paired.tell(taken, "docker run", BOUNDS)
    tell_where(taken)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
