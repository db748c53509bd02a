"""A scratch project for the scripts that drive the release binary: its user, its tools, its checks.

Needs Python 3.8 or newer and nothing else.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))

CONFIG = """[project]
name = "scratch"
[sandbox]
tier = "%s"
[sandbox.%s]
working_dir = "/workspace"
volumes = ["./data:/workspace/data:ro", "./out:/workspace/out:rw"]
"""

# Tiers whose workers run in containers: they need an image, and perhaps their engine's socket.
CONTAINERS = ("docker", "gvisor")


class Tier:
    """Where workers run, as the configuration says it."""

    def __init__(self, name, image=None, socket=None):
        self.name, self.image, self.socket = name, image, socket

    def config(self):
        more = [("image", self.image), ("socket", self.socket)]
        return CONFIG % (self.name, self.name) + "".join(
            "%s = %s\n" % (key, json.dumps(value)) for key, value in more if value)

POLICY = """@id("operator-may-call")
permit(principal == Agent::"operator", action, resource);
"""


def argument_parser(description):
    """The arguments that every script has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--symbi", default=os.environ.get("SYMBI"), metavar="PATH",
                        help="the binary [default: the environment's SYMBI, or the release build]")
    parser.add_argument("--tier", default="namespace",
                        choices=["namespace", *CONTAINERS, "firecracker"], help="where workers run")
    parser.add_argument("--image", default=os.environ.get("SYMBI_TEST_IMAGE"), metavar="NAME",
                        help="of a container tier [default: the environment's SYMBI_TEST_IMAGE]")
    parser.add_argument("--socket", default=os.environ.get("SYMBI_TEST_ENGINE"), metavar="PATH",
                        help="of its engine [default: the environment's SYMBI_TEST_ENGINE]")
    return parser


def arguments(description, reserved=()):
    parser = argument_parser(description)
    for name in reserved:
        parser.add_argument(name, metavar="PATH", help="reserved")
    return read_arguments(parser, reserved)


def read_arguments(parser, reserved=()):
    found = parser.parse_args()
    if found.tier == "firecracker" or any(
            getattr(found, name.strip("-").replace("-", "_")) for name in reserved):
        parser.error("the tier `firecracker` is not available yet: use namespace, %s"
                     % " or ".join(CONTAINERS))
    if found.tier in CONTAINERS and not found.image:
        parser.error("the tier `%s` needs an image that is there already: --image NAME" % found.tier)
    found.tier = (Tier(found.tier, found.image, found.socket) if found.tier in CONTAINERS
                  else Tier(found.tier))
    if not found.symbi:
        found.symbi = os.path.join(HERE, "..", "target", "release", "symbi")
    found.symbi = os.path.abspath(found.symbi)
    if not os.access(found.symbi, os.X_OK):
        parser.error("%s is not there; build it, or give --symbi PATH" % found.symbi)
    return found


def end_on_signals():
    """./test ends a script by a signal: what it started and mounted ends with it all the same."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def become_root(found):
    """Starts the script again by sudo, where another user started it."""
    if os.geteuid() == 0:
        return
    words = [sys.executable, os.path.abspath(sys.argv[0]), "--symbi", found.symbi]
    for name in ("image", "socket"):
        value = getattr(found, name)
        words += ["--" + name, value] if value else []
    os.execvp("sudo", ["sudo", "-n"] + words)


def xtask_beside(symbi):
    """The tool of this repository that makes root file systems, and where it keeps them."""
    target = os.path.dirname(os.path.dirname(symbi))
    xtask = os.path.join(target, "debug", "xtask")
    if not os.access(xtask, os.X_OK):
        raise SystemExit("%s is not there: cargo build -p xtask" % xtask)
    return xtask, os.path.join(target, "images")


def shell_tool(name, script, reads="", creates="", extra="", fixed=None):
    """A tool that runs a fixed shell script with its files as $1 and $2, or with two fixed ones."""
    names = [it for it in ("input" if reads else "", "output" if creates else "") if it]
    lines = [
        "[tool]", 'name = "%s"' % name, 'version = "1.0.0"', 'description = "%s"' % name,
        'binary = "sh"', "timeout_seconds = 20",
    ]
    for argument in names:
        lines += ["[args.%s]" % argument, 'type = "path"', "required = true"]
    words = ["sh", "-c", script.replace("{", "{{").replace("}", "}}"), "sh"]
    words += ["{%s}" % it for it in names]
    lines += ["[command]", "exec = %s" % json.dumps(words), "allow_interpreter = true"]
    if fixed:
        lines += ["[filesystem]", "read = [%s]" % json.dumps(fixed["IN"]),
                  "create = [%s]" % json.dumps(fixed["OUT"]), extra]
    if names:
        lines += ["[filesystem]"]
        lines += ['read = ["{input}"]'] if reads else []
        lines += ['create = ["{output}"]'] if creates else []
        lines += [extra] if extra else []
    return "\n".join(lines) + '\n[output]\nformat = "text"\n'


COPY = """[tool]
name = "copy"
version = "1.0.0"
description = "Copy one file"
binary = "cp"
[args.input]
type = "path"
required = true
[args.output]
type = "path"
required = true
[command]
exec = ["cp", "{input}", "{output}"]
[filesystem]
read = ["{input}"]
create = ["{output}"]
[output]
format = "text"
"""


class Ended:
    def __init__(self, done):
        self.code = done.returncode
        self.stdout = done.stdout.decode("utf-8", "replace")
        self.stderr = done.stderr.decode("utf-8", "replace")

    def json(self):
        try:
            return json.loads(self.stdout)
        except ValueError:
            return {}

    def __str__(self):
        return "exit %s\n%s%s" % (self.code, self.stdout, self.stderr)


class Project:
    """A home with one trusted project in it."""

    def __init__(self, symbi, tier, tools):
        self.symbi, self.tier = symbi, tier
        self.home = tempfile.mkdtemp(prefix="symbi-script-")
        for name in ("config", "state", "run"):
            os.mkdir(os.path.join(self.home, name), 0o700)
        self.path = os.path.join(self.home, "project")
        os.mkdir(self.path, 0o755)
        for name in ("data", "out", "out/sub", "tools", "policies", "policies/call"):
            os.mkdir(self.file(name), 0o755)
        self.write("symbiont.toml", tier.config())
        self.write("policies/call/all.cedar", POLICY)
        for name, text in tools.items():
            self.write("tools/%s.clad.toml" % name, text)
        self.write("data/a.csv", "a,b\n1,2\n")
        self.write("data/neighbour", "not granted\n")
        trusted = self.run("trust", "--yes")
        if trusted.code != 0:
            raise SystemExit("the scratch project is not trusted:\n%s" % trusted)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.keep_journals()
        shutil.rmtree(self.home, ignore_errors=True)

    def keep_journals(self):
        """Copies for verify-kept-journals.py, where ./test asks for them."""
        collection = os.environ.get("SYMBI_TEST_JOURNALS")
        if not collection:
            return
        key = self.key()
        for row in self.run("audit", "list", "--strict").json().get("runs", []):
            if not os.path.exists(self.journal(row["run"])):
                continue
            folder = os.path.join(collection, str(uuid.uuid4()))
            os.makedirs(folder)
            shutil.copy(self.journal(row["run"]), os.path.join(folder, "journal.jsonl"))
            shutil.copy(self.file(".symbiont/ledger.jsonl"), folder)
            case = {"key": key, "run": row["run"], "verdict": row["verdict"],
                    "records": row["records"]}
            with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as file:
                json.dump(case, file)

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, text):
        with open(self.file(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.file(name), 0o644)

    def read(self, name):
        with open(self.file(name), encoding="utf-8") as file:
            return file.read()

    def exists(self, name):
        return os.path.lexists(self.file(name))

    def environment(self):
        environment = {
            "HOME": self.home, "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8",
        }
        for variable, name in (("CONFIG_HOME", "config"), ("STATE_HOME", "state"),
                               ("RUNTIME_DIR", "run")):
            environment["XDG_" + variable] = os.path.join(self.home, name)
        return environment

    def words(self, *words):
        return [self.symbi, "--project", self.path, "--json"] + list(words)

    def start(self, words):
        return subprocess.Popen(words, env=self.environment(), cwd=self.home,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def finish(self, process):
        stdout, stderr = process.communicate(timeout=120)
        return Ended(subprocess.CompletedProcess([], process.returncode, stdout, stderr))

    def run(self, *words, before=()):
        return self.finish(self.start(list(before) + self.words(*words)))

    def call(self, tool, before=(), id=None, **values):
        words = ["call", tool]
        for name, value in values.items():
            words += ["--arg", "%s=%s" % (name, value)]
        if id:
            words += ["--invocation-id", id]
        return self.run(*words, before=before)

    def key(self):
        return self.run("audit", "key").json().get("vkey", "")

    def verify(self, journal, run_id=None):
        """The exit code of the verifier that shares no code with the binary."""
        words = [sys.executable, os.path.join(HERE, "verify-journal.py"), journal,
                 "--public-key", self.key()]
        words += ["--run-id", run_id] if run_id else []
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False).returncode

    def journal(self, run_id):
        return self.file(".symbiont/governed/%s.jsonl" % run_id)

    def candidates(self):
        try:
            return sorted(os.listdir(self.file("out/.symbi-candidates")))
        except FileNotFoundError:
            return []


class Table:
    """What was promised and what was seen."""

    def __init__(self):
        self.rows = []

    def check(self, name, ok, seen=""):
        self.rows.append((name, bool(ok)))
        print("%-6s %s" % ("ok" if ok else "FAILED", name), flush=True)
        if not ok and str(seen):
            print("       " + str(seen).strip().replace("\n", "\n       "), flush=True)

    def end(self):
        failed = [name for name, ok in self.rows if not ok]
        print("\n%d checks, %d failed" % (len(self.rows), len(failed)))
        for name in failed:
            print("  FAILED %s" % name)
        return 1 if failed or not self.rows else 0
