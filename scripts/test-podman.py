#!/usr/bin/env python3
"""A Podman service in a Docker engine's place: `symbi` refuses it in one sentence, makes nothing,
and what the sentence says of Podman is so.

    test-podman.py [--symbi PATH]

The service has private folders, and ends with the script. Exit: 0 where every promise holds, 1
otherwise. Needs podman, and root or sudo that asks nothing.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from scratch_project import (
    COPY, Project, Table, Tier, argument_parser, become_root, end_on_signals, read_arguments,
    xtask_beside)

IMAGE = "symbi-test:tools"
START_SECONDS_MAX = 30
PROMISES = ("is Podman ", "system call filter", "ignores the runtime", "Docker engine",
            "`namespace`")


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("engine", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Podman:
    """A service of the script's own, with one image."""

    def __init__(self, xtask, images):
        self.place = tempfile.mkdtemp(prefix="symbi-podman-")
        self.socket = os.path.join(self.place, "podman.sock")
        self.words = ["podman", "--cgroup-manager=cgroupfs"] + [
            word for name in ("root", "runroot", "tmpdir")
            for word in ("--" + name, os.path.join(self.place, name))]
        with open(os.path.join(self.place, "log"), "wb") as log:
            self.process = subprocess.Popen(
                self.words + ["system", "service", "--time=0", "unix://" + self.socket],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            self.await_answer()
            subprocess.run([xtask, "image", images, self.socket, IMAGE], check=True,
                           stdout=subprocess.DEVNULL)
        except BaseException:
            self.close()
            raise

    def await_answer(self):
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return self.ask("GET", "/_ping")
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=START_SECONDS_MAX)
        # What it leaves mounted while it runs.
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounted = [line.split()[4] for line in file]
        for place in sorted(mounted, reverse=True):
            if place.startswith(self.place + "/"):
                subprocess.run(["umount", "--lazy", place], check=True)
        shutil.rmtree(self.place)

    def ask(self, method, path, body=None):
        connection = Connection(self.socket)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        try:
            return answer.status, json.loads(said)
        except ValueError:
            return answer.status, said.decode("utf-8", "replace")

    def made(self, **host_config):
        """How it takes a wish, and what it then tells of the container, which is removed."""
        wish = {"Image": IMAGE, "Entrypoint": ["true"], "NetworkDisabled": True,
                "HostConfig": host_config}
        status, said = self.ask("POST", "/containers/create?name=tried", wish)
        if status != 201:
            return status, said
        found = self.ask("GET", "/containers/tried/json")[1]
        self.ask("DELETE", "/containers/tried?force=true&v=true")
        return status, found


def check_refusal(table, podman, symbi, tier):
    with Project(symbi, Tier(tier, IMAGE, podman.socket), {"copy": COPY}) as project:
        for name, ended in (("call", project.call("copy", input="data/a.csv", output="out/made")),
                            ("doctor", project.run("doctor"))):
            reason = ended.json().get("reason") or ended.json().get("error") or ""
            table.check("%s: %s is refused with exit 7" % (tier, name), ended.code == 7, ended)
            table.check("%s: %s says what Podman does not do, and what to do" % (tier, name),
                        all(it in reason for it in PROMISES) and podman.socket in reason, ended)
        table.check("%s: nothing is published" % tier, not project.exists("out/made"))
        status = project.run("sandbox", "status").json()
        table.check("%s: no supervisor was started for it" % tier,
                    status.get("supervisor", "?") is None and status.get("leases") == [], status)
    containers = podman.ask("GET", "/containers/json?all=true")
    table.check("%s: it was asked for no container" % tier, containers == (200, []), containers)


def check_reasons(table, podman):
    """Where one of these fails, Podman keeps more than it did, and the refusal may be too much."""
    profile = json.dumps({"defaultAction": "SCMP_ACT_ERRNO"})
    status, said = podman.made(SecurityOpt=["seccomp=" + profile])
    table.check("it takes no system call filter from a client",
                status == 500 and "seccomp" in said.get("message", ""), said)
    status, said = podman.made(Runtime="runsc", NetworkMode="none")
    table.check("it ignores the runtime that is asked for",
                status == 201 and said["HostConfig"]["Runtime"] != "runsc", said)
    status, said = podman.made(ReadonlyRootfs=True, NetworkMode="none")
    places = said["HostConfig"]["Tmpfs"] if status == 201 else {}
    table.check("a read-only root gets unbounded places to write",
                "/run" in places and "size=" not in places["/run"], said)
    status, said = podman.made()
    networks = said["NetworkSettings"]["Networks"] if status == 201 else {}
    table.check("it gives a network where that is disabled", networks != {}, said)


def main():
    found = read_arguments(argument_parser(__doc__.splitlines()[0]))
    become_root(found)
    end_on_signals()
    table = Table()
    with Podman(*xtask_beside(found.symbi)) as podman:
        for tier in ("docker", "gvisor"):
            check_refusal(table, podman, found.symbi, tier)
        check_reasons(table, podman)
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
