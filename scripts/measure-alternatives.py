#!/usr/bin/env python3
"""What a governed call costs on the tier `namespace`, against what else confines one command.

    measure-alternatives.py [--symbi PATH] [--srt PATH] [--image NAME --socket PATH] [--rounds N]

Each round runs `true` in turn: bare, by bubblewrap, by Claude Code's sandbox-runtime (`srt`, an npm package)
where it is named, by `docker run` where an image is named, by a one-shot `symbi call`, and by a call inside a
running session (`symbi mcp`). The others isolate and no more: they decide nothing, record nothing, prove no
removal and publish no file. Says medians and minima in milliseconds, and the ratios of both to bubblewrap.

Exit: 0. Needs Linux, Python 3.8, `bwrap` (Debian: bubblewrap), and the release binary.
"""

import os
import shutil
import sys

sys.dont_write_bytecode = True
import paired
from scratch_project import Tier, argument_parser, read_arguments

ROUNDS = 40

# The same system folders as a worker's, all namespaces its own, an empty environment.
BUBBLEWRAP = [
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true",
]
DOCKER = ["docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL",
          "--security-opt", "no-new-privileges", "--user", "65534:65534", "--entrypoint", "true"]


def main():
    parser = argument_parser(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="[default: %d]" % ROUNDS)
    parser.add_argument("--srt", metavar="PATH", help="the command of @anthropic-ai/sandbox-runtime")
    found = read_arguments(parser)
    if found.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not shutil.which("bwrap"):
        parser.error("the command `bwrap` is not there: install bubblewrap")
    ways = {"bare": paired.command(["true"]), "bwrap": paired.command(BUBBLEWRAP)}
    if found.srt:
        ways["srt"] = paired.command([found.srt, "true"])
    if found.image:
        docker = dict(os.environ)
        if found.socket:
            docker["DOCKER_HOST"] = "unix://" + found.socket
        ways["docker run"] = paired.command([*DOCKER, found.image], docker)
    with paired.governed(found.symbi, Tier("namespace")) as governed:
        taken = paired.measure({**ways, **governed}, found.rounds)
    print("%d rounds, load %.1f" % (found.rounds, os.getloadavg()[0]))
    paired.tell(taken, "bwrap", {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
