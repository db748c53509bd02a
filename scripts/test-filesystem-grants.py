#!/usr/bin/env python3
"""What a call may read and create, seen from outside: `symbi call` in a scratch project.

    test-filesystem-grants.py [--symbi PATH] [--tier namespace|docker|gvisor] [--image NAME]

Exit: 0 where all checks hold, 1 otherwise. Needs Linux, Python 3.8 and the built binaries.
"""

import json
import os
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from scratch_project import COPY, Project, Table, arguments, shell_tool

TOOLS = {
    "copy": COPY,
    "look": shell_tool("look", 'cat "$1"; echo data/* data/.[!.]*; cat data/neighbour; cat ../data/neighbour',
                       reads="y"),
    "bare": shell_tool("bare", "ls -A /workspace; cat data/a.csv; touch /tmp/own && echo own"),
    "write_input": shell_tool("write_input", 'echo x >> "$1" && echo changed', reads="y"),
    "big": shell_tool("big", 'head -c 3000000 /dev/zero > "$1"', creates="y",
                      extra="max_file_bytes = 1048576"),
    "full": shell_tool("full", 'head -c 1048576 /dev/zero > "$1"', creates="y",
                       extra="max_file_bytes = 1048576"),
    "failing": shell_tool("failing", 'echo partial > "$1"; exit 3', creates="y"),
    "other": shell_tool("other", 'echo x > "$1"; echo y > out/second; ls out', creates="y"),
    "slow": shell_tool("slow", 'sleep 2; cat "$1" > "$2"', reads="y", creates="y"),
    "small": shell_tool("small", 'cat "$1"', reads="y", extra="max_file_bytes = 8"),
}


def useful_work(project, table):
    ended = project.call("copy", input="data/a.csv", output="out/b.csv")
    body = ended.json()
    created = body.get("created_files", [{}])[0]
    table.check("a declared file is copied to a declared new file",
                ended.code == 0 and project.read("out/b.csv") == "a,b\n1,2\n", ended)
    table.check("its receipt names path, size and hash",
                created.get("path") == "out/b.csv" and created.get("bytes") == 8
                and len(created.get("sha256", "")) == 64, body)
    stat = os.stat(project.file("out/b.csv"))
    mask = os.umask(0)
    os.umask(mask)
    table.check("the published file is the operator's, 0666 minus the umask",
                (stat.st_uid, stat.st_mode & 0o7777) == (os.geteuid(), 0o666 & ~mask), oct(stat.st_mode))
    table.check("its journal is intact for the independent verifier",
                project.verify(body.get("journal", ""), body.get("run_id")) == 0)
    table.check("no candidate is left", project.candidates() == [], project.candidates())
    ended = project.call("full", output="out/full")
    table.check("an output of exactly its limit is published",
                ended.code == 0 and os.path.getsize(project.file("out/full")) == 1 << 20, ended)


def isolation(project, table):
    ended = project.call("look", input="data/a.csv")
    seen = ended.stdout
    table.check("a worker reads its input and no neighbour",
                "1,2" in seen and "not granted" not in seen, ended)
    listed = ended.json().get("results", "")
    table.check("a neighbour does not show in the folder of an input",
                "a.csv" in listed and "neighbour" not in listed.split("cat:")[0], listed)
    ended = project.call("bare")
    table.check("a tool without declarations sees no file of the host and has scratch space",
                "1,2" not in ended.stdout and "own" in ended.stdout
                and "neighbour" not in ended.json().get("results", ""), ended)
    ended = project.call("write_input", input="data/a.csv")
    table.check("an input is read-only",
                "changed" not in ended.json().get("results", "")
                and project.read("data/a.csv") == "a,b\n1,2\n", ended)
    ended = project.call("other", output="out/declared")
    table.check("an undeclared output is not published",
                not project.exists("out/second"), ended)


def limits(project, table):
    ended = project.call("big", output="out/big")
    table.check("an output past its limit fails and is not published",
                ended.code == 1 and not project.exists("out/big"), ended)
    ended = project.call("failing", output="out/failed")
    table.check("a failed command publishes nothing",
                ended.code == 1 and not project.exists("out/failed"), ended)
    project.write("data/eight", "12345678")
    project.write("data/nine", "123456789")
    ended = project.call("small", input="data/eight")
    table.check("an input of exactly its limit is read", ended.code == 0, ended)
    ended = project.call("small", input="data/nine")
    table.check("an input past its limit is refused", ended.code == 3, ended)


def refusals(project, table):
    project.write("out/taken", "theirs")
    ended = project.call("copy", input="data/a.csv", output="out/taken")
    table.check("an existing output is refused and stays",
                ended.code == 3 and project.read("out/taken") == "theirs", ended)
    os.symlink("taken", project.file("out/link"))
    ended = project.call("copy", input="data/a.csv", output="out/link")
    table.check("a link at the output is refused",
                ended.code == 3 and os.path.islink(project.file("out/link")), ended)
    os.symlink("a.csv", project.file("data/link.csv"))
    os.symlink(".", project.file("data/way"))
    os.mkfifo(project.file("data/fifo"))
    os.mkdir(project.file("data/folder"))
    project.write("data/first", "x")
    os.link(project.file("data/first"), project.file("data/second"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(project.file("data/socket"))
    cases = [
        ("a link as input", "data/link.csv"), ("a link on the way", "data/way/a.csv"),
        ("a FIFO as input", "data/fifo"), ("a folder as input", "data/folder"),
        ("a socket as input", "data/socket"), ("a second hard link", "data/second"),
        ("a missing input", "data/none"), ("an input outside the volumes", "elsewhere/a"),
    ]
    for name, path in cases:
        began = time.monotonic()
        ended = project.call("small", input=path)
        quick = time.monotonic() - began < 10
        table.check("%s is refused" % name, ended.code == 3 and quick, ended)
    for name, path in [("a path that climbs", "data/../data/a.csv"), ("a rooted path", "/etc/hosts"),
                       ("a backslash", "data\\a.csv"), ("a colon", "data/a:b")]:
        ended = project.call("small", input=path)
        table.check("%s is refused" % name, ended.code in (2, 3), ended)
    ended = project.call("copy", input="data/a.csv", output="data/new")
    table.check("a read-only volume creates nothing",
                ended.code == 3 and not project.exists("data/new"), ended)
    ended = project.call("copy", input="data/a.csv", output="out/none/b")
    table.check("a missing parent folder is refused", ended.code == 3, ended)


def descendants(pid):
    found, queue = [], [pid]
    while queue:
        parent = queue.pop()
        try:
            tasks = os.listdir("/proc/%d/task" % parent)
        except OSError:
            continue
        for task in tasks:
            try:
                with open("/proc/%d/task/%s/children" % (parent, task)) as file:
                    children = [int(it) for it in file.read().split()]
            except OSError:
                continue
            found += children
            queue += children
    return found


def processes(project, process):
    """Where the worker's processes are: a container's are no descendants of ours."""
    if project.tier.name == "namespace":
        return descendants(process.pid)
    return [int(it) for it in os.listdir("/proc") if it.isdigit()]


def worker_mounts(project, process):
    """The worker's mounts, seen from the host, and one of its processes there."""
    if project.tier.name == "gvisor":
        return container_mounts(project, process), None
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        for pid in processes(project, process):
            try:
                with open("/proc/%d/mountinfo" % pid) as file:
                    lines = file.read().splitlines()
                with open("/proc/%d/comm" % pid) as file:
                    name = file.read().strip()
            except OSError:
                continue
            if name == "sleep" and any(" /workspace/" in line for line in lines):
                return [line.split()[4:6] for line in lines], pid
        time.sleep(0.02)
    return None, None


def ask_engine(project, path):
    words = ["curl", "--silent", "--fail", "--unix-socket", project.tier.socket, "http://engine" + path]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)


def container_mounts(project, process):
    """The mounts of the running worker, as its engine tells them: gVisor's own are its kernel's."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        for container in ask_engine(project, "/containers/json"):
            if "symbi.lease" in container["Labels"]:
                mounts = ask_engine(project, "/containers/%s/json" % container["Id"])["Mounts"]
                return [(it["Destination"], "rw" if it["RW"] else "ro") for it in mounts]
        time.sleep(0.02)
    return None


def snapshots(project, table):
    process = project.start(project.words("call", "slow", "--arg", "input=data/a.csv",
                                          "--arg", "output=out/slow.csv"))
    mounts, pid = worker_mounts(project, process)
    project.write("data/a.csv", "changed after preparation\n")
    absent = not project.exists("out/slow.csv")
    ended = project.finish(process)
    table.check("a worker was seen while it ran", mounts is not None, ended)
    below = sorted(place for place, _ in mounts or [] if place.startswith("/workspace/"))
    table.check("below the working directory its mounts are the declared files alone",
                set(below) <= {"/workspace/data/a.csv", "/workspace/out/slow.csv"}, mounts)
    writable = [place for place, options in mounts or []
                if place.startswith("/workspace/data") and "rw" in options.split(",")]
    table.check("its input's mount is read-only", not writable, writable)
    table.check("no host path shows in its mounts",
                all(project.path not in place for place, _ in mounts or []), mounts)
    table.check("the output is absent until the worker is gone", absent)
    table.check("an input that changes after preparation does not change the snapshot",
                ended.code == 0 and project.read("out/slow.csv") == "a,b\n1,2\n", ended)
    table.check("the worker is gone at the end", pid is None or not os.path.exists("/proc/%d" % pid))
    project.write("data/a.csv", "a,b\n1,2\n")


def competition(project, table):
    words = project.words("call", "slow", "--arg", "input=data/a.csv", "--arg", "output=out/race")
    ended = [project.finish(it) for it in [project.start(words) for _ in range(4)]]
    codes = sorted(it.code for it in ended)
    table.check("of four calls to one name one wins and three fail",
                codes == [0, 1, 1, 1] and project.read("out/race") == "a,b\n1,2\n", codes)
    table.check("the losers leave no candidate", project.candidates() == [], project.candidates())
    process = project.start(project.words("call", "slow", "--arg", "input=data/a.csv",
                                          "--arg", "output=out/beaten"))
    mounts, _ = worker_mounts(project, process)
    project.write("out/beaten", "theirs")
    ended = project.finish(process)
    table.check("a file that came first is never replaced",
                mounts is not None and ended.code == 1
                and project.read("out/beaten") == "theirs", ended)


def main():
    found = arguments(__doc__.splitlines()[0], ("--firecracker-binary", "--kernel", "--rootfs"))
    table = Table()
    with Project(found.symbi, found.tier, TOOLS) as project:
        for part in (useful_work, isolation, limits, refusals, snapshots, competition):
            part(project, table)
        listed = project.run("audit", "list").json().get("runs", [])
        table.check("every run's journal is intact",
                    listed and all(project.verify(project.journal(it["run"]), it["run"]) == 0
                                   for it in listed))
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
