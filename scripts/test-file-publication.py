#!/usr/bin/env python3
"""The command line killed around the rename that publishes a file, and what an operator can do then.

    test-file-publication.py [--symbi PATH] [--tier namespace|docker|gvisor] [--image NAME]

`strace` kills it at an exact system call. Exit: 0 where all checks hold, 1 otherwise, 2 without
strace. Needs Linux, Python 3.8 and the built binaries.
"""

import os
import re
import shutil
import subprocess
import sys
import uuid

sys.dont_write_bytecode = True
from scratch_project import COPY, Project, Table, arguments, shell_tool

TOOLS = {
    "copy": COPY,
    "slow": shell_tool("slow", 'sleep 3; cat "$1" > "$2"', reads="y", creates="y"),
    "counted": shell_tool("counted", "date +%N"),
}
CALLS = "renameat2,fsync,fdatasync"
CONTENT = "a,b\n1,2\n"


class Strace:
    """Finds out once at which system calls a publication's steps are."""

    def __init__(self, project):
        log = os.path.join(project.home, "strace.log")
        words = ["strace", "-f", "-qq", "-e", "trace=" + CALLS, "-e", "signal=none", "-o", log]
        # The first call makes the folder for candidates, which later ones find.
        project.call("copy", input="data/a.csv", output="out/sub/first.csv")
        ended = project.call("copy", before=words, id=str(uuid.uuid4()),
                             input="data/a.csv", output="out/sub/dry.csv")
        if ended.code != 0:
            raise SystemExit("a call does not work under strace:\n%s" % ended)
        with open(log, encoding="utf-8", errors="replace") as file:
            self.lines = [it for it in map(parse, file) if it]
        # Only the publication's rename is between two folders. Names cannot be relied on: an
        # ordinary user's strace may not read the memory of a process that holds keys.
        self.rename = next((i for i, (_, name, text) in enumerate(self.lines)
                            if name == "renameat2" and len(set(folders(text))) == 2), None)
        if self.rename is None:
            raise SystemExit("strace saw no rename between two folders")

    def kill_at(self, index):
        """The command before which strace kills the process at that line of the log."""
        thread, name, _ = self.lines[index]
        count = sum(1 for it in self.lines[:index + 1] if it[:2] == (thread, name))
        return ["strace", "-f", "-qq", "-e", "trace=" + CALLS, "-e", "signal=none", "-o", "/dev/null",
                "-e", "inject=%s:signal=SIGKILL:when=%d" % (name, count)]

    def fail_at(self, index, error):
        """The same, with that system call failing instead."""
        words = self.kill_at(index)
        return words[:-1] + [words[-1].replace("signal=SIGKILL", "error=" + error)]

    def near(self, step):
        """The line of the publishing thread that is `step` lines after the rename."""
        thread = self.lines[self.rename][0]
        own = [i for i, it in enumerate(self.lines) if it[0] == thread]
        return own[own.index(self.rename) + step]


def parse(line):
    found = re.match(r"(\d+)\s+(\w+)\((.*)", line)
    return found and (found.group(1), found.group(2), found.group(3))


def folders(text):
    found = re.match(r'(\d+), (?:"[^"]*"|0x[0-9a-f]+), (\d+), ', text)
    return found.groups() if found else ()


class Interrupted:
    """A call that was killed `step` system calls after the rename (0: at the rename itself)."""

    def __init__(self, project, strace, step):
        self.begin(project, strace.kill_at(strace.near(step)))

    def begin(self, project, before):
        self.project, self.id = project, str(uuid.uuid4())
        self.output = "out/sub/%s.csv" % self.id
        self.ended = project.call("copy", before=before, id=self.id,
                                  input="data/a.csv", output=self.output)
        self.publication = None
        publications = self.inspect().json().get("publications") or []
        if publications:
            self.publication = publications[0]["publication_id"]

    def was_killed(self):
        return self.ended.code in (-9, 137)

    def inspect(self):
        return self.project.run("invocation", "inspect", "--id", self.id)

    def file_inspect(self, publication=None):
        return self.project.run("invocation", "file-inspect", "--id", self.id, "--publication",
                                publication or self.publication)

    def reviewed(self):
        return self.file_inspect().json().get("snapshot_hash", "0" * 64)

    def recover(self, reviewed, publication=None):
        return self.project.run("invocation", "file-recover", "--id", self.id, "--publication",
                                publication or self.publication, "--snapshot-hash", reviewed)

    def resolve(self, *more):
        return self.project.run("invocation", "resolve", "--id", self.id,
                                "--rationale", "looked at it", *more)

    def again(self):
        return self.project.call("copy", id=self.id, input="data/a.csv", output=self.output)

    def journal(self):
        with open(self.project.journal(self.id), "rb") as file:
            return file.read()

    def candidate(self):
        return self.project.file("out/.symbi-candidates/%s.%s" % (self.id, self.publication))

    def receipt(self):
        name = ".symbiont/invocations/%s/recovered-%s.jsonl" % (self.id, self.publication)
        return self.project.file(name)


def killed_before_the_rename(project, strace, table):
    it = Interrupted(project, strace, 0)
    before = it.journal()
    table.check("killed at the rename, the target is absent and the candidate is kept",
                it.was_killed() and not project.exists(it.output)
                and os.path.exists(it.candidate()), it.ended)
    ended = it.again()
    table.check("the same id does not run again and is unresolved",
                ended.code == 5 and not project.exists(it.output), ended)
    ended = it.inspect()
    table.check("inspection says needs_recovery and the next command",
                ended.code == 5 and ended.json().get("state") == "needs_recovery"
                and "file-inspect" in ended.json().get("next", ""), ended)
    ended = it.file_inspect()
    table.check("the publication is ready_to_publish",
                ended.code == 5 and ended.json().get("state") == "ready_to_publish", ended)
    for name, rows in (("doctor", "waiting"), ("audit list", "runs")):
        waiting = project.run(*name.split()).json().get(rows, [])
        table.check("%s names the run with the command to type" % name,
                    any(it.id == row["run"] and "invocation inspect" in (row["next"] or "")
                        for row in waiting), waiting)
    ended = it.recover("0" * 64)
    table.check("another snapshot hash recovers nothing",
                ended.code == 3 and not project.exists(it.output), ended)
    ended = it.recover(it.reviewed(), str(uuid.uuid4()))
    table.check("another publication id recovers nothing",
                ended.code == 3 and not project.exists(it.output), ended)
    project.call("copy", input="data/a.csv", output="out/sub/%s.csv" % uuid.uuid4())
    table.check("the sweep of a later call keeps the candidate", os.path.exists(it.candidate()))
    reviewed = it.reviewed()
    first = it.recover(reviewed)
    table.check("recovery publishes the file and consumes the candidate",
                first.code == 0 and project.read(it.output) == CONTENT
                and not os.path.exists(it.candidate()), first)
    after_recovery(project, it, reviewed, first, before, table)


def after_recovery(project, it, reviewed, first, before, table):
    inode = os.stat(project.file(it.output)).st_ino
    again = it.recover(reviewed)
    table.check("a repeated recovery gives the same receipt and publishes nothing",
                again.code == 0 and again.stdout == first.stdout
                and os.stat(project.file(it.output)).st_ino == inode, again)
    table.check("the journal's bytes are as they were", it.journal() == before)
    table.check("the journal verifies independently as unterminated",
                project.verify(project.journal(it.id), it.id) == 5)
    table.check("the receipt verifies independently", project.verify(it.receipt()) == 0)
    ended = it.again()
    table.check("after the recovery the same id is still unresolved", ended.code == 5, ended)
    ended = it.resolve("--evidence", project.file(it.output))
    table.check("the operator resolves it, with evidence", ended.code == 0
                and ended.json()["resolution"]["evidence"]["bytes"] == len(CONTENT), ended)
    table.check("then inspection says resolved", it.inspect().code == 0, it.inspect())
    table.check("a second resolution is refused", it.resolve().code == 3)
    table.check("and so is a recovery", it.recover(reviewed).code == 3)
    table.check("and the same id never runs", it.again().code == 3)


def killed_after_the_rename(project, strace, table):
    for step in (1, 2):
        it = Interrupted(project, strace, step)
        whole = project.exists(it.output) and project.read(it.output) == CONTENT
        table.check("killed %d system calls after the rename, the file is whole" % step,
                    it.was_killed() and whole, it.ended)
        stat = os.stat(project.file(it.output))
        ended = it.file_inspect()
        table.check("  the publication is published",
                    ended.code == 0 and ended.json().get("state") == "published", ended)
        ended = it.recover(it.reviewed())
        now = os.stat(project.file(it.output))
        table.check("  recovery acknowledges the same file",
                    ended.code == 0 and ended.json()["receipt"]["found"] == "published"
                    and (stat.st_ino, stat.st_ctime_ns) == (now.st_ino, now.st_ctime_ns), ended)
        table.check("  the same id is unresolved", it.again().code == 5)
    it = Interrupted(project, strace, 3)
    ended = it.file_inspect()
    table.check("killed while the end is synced, there is nothing to recover",
                it.was_killed() and ended.code == 3 and project.read(it.output) == CONTENT, ended)
    table.check("  the same id is unresolved", it.again().code == 5)


def killed_before_the_intent(project, strace, table):
    for step in (-2, -1):
        it = Interrupted(project, strace, step)
        left = [name for name in project.candidates() if name.startswith(it.id)]
        table.check("killed %d system calls before the rename, the target is absent" % -step,
                    it.was_killed() and not project.exists(it.output), it.ended)
        intended = it.publication is not None
        project.call("copy", input="data/a.csv", output="out/sub/%s.csv" % uuid.uuid4())
        kept = [name for name in project.candidates() if name.startswith(it.id)]
        table.check("  the next call's sweep keeps what an intent names, and nothing else",
                    kept == (left if intended else []), (left, kept))
        ended = it.inspect()
        table.check("  the invocation is not finished", ended.code == 5, ended)


def interference(project, strace, table):
    def change(it):
        with open(it.candidate(), "w", encoding="utf-8") as file:
            file.write("A,B\n1,2\n")

    def replace(it):
        os.rename(it.candidate(), it.candidate() + ".aside")
        with open(it.candidate(), "w", encoding="utf-8") as file:
            file.write(CONTENT)

    cases = [
        ("a competitor", "conflict", lambda it: project.write(it.output, "theirs")),
        ("a link at the target", "conflict",
         lambda it: os.symlink("first.csv", project.file(it.output))),
        ("other content", "conflict", change),
        ("equal content in another file", "conflict", replace),
        ("a second name", "conflict",
         lambda it: os.link(it.candidate(), project.file("out/%s" % it.id))),
        ("no candidate", "missing", lambda it: os.unlink(it.candidate())),
    ]
    for name, state, interfere in cases:
        it = Interrupted(project, strace, 0)
        reviewed = it.reviewed()
        interfere(it)
        lstat = os.lstat(project.file(it.output)).st_ino if project.exists(it.output) else None
        stale = it.recover(reviewed)
        ended = it.file_inspect()
        table.check("%s: the publication is %s" % (name, state),
                    ended.code == 5 and ended.json().get("state") == state, ended)
        fresh = it.recover(it.reviewed())
        same = lstat == (os.lstat(project.file(it.output)).st_ino
                         if project.exists(it.output) else None)
        table.check("  recovery is refused and nothing is touched",
                    (stale.code, fresh.code) == (3, 5) and same
                    and not os.path.exists(it.receipt()), "%s\n%s" % (stale, fresh))


def evidence(project, strace, table):
    it = Interrupted(project, strace, 0)
    reviewed = it.reviewed()
    with open(project.journal(it.id), "ab") as file:
        file.write(b'{"torn":')
    ended = it.recover(reviewed)
    table.check("a journal that grew by a torn tail voids the review",
                ended.code == 3 and "changed since the review" in ended.stderr
                and not project.exists(it.output), ended)

    it, other = Interrupted(project, strace, 0), Interrupted(project, strace, 0)
    other.recover(other.reviewed())
    with open(other.receipt(), "rb") as file:
        stolen = file.read()
    forged = it.receipt()
    os.makedirs(os.path.dirname(forged), 0o700, exist_ok=True)
    for name, text in (("of another publication", stolen),
                       ("with a broken signature", stolen.replace(b"a", b"b", 1))):
        with open(os.open(forged, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(text)
        ended = it.recover(it.reviewed())
        table.check("a receipt %s stops the recovery" % name,
                    ended.code == 3 and not project.exists(it.output), ended)

    it = Interrupted(project, strace, 0)
    reviewed = it.reviewed()
    table.check("an invocation can be resolved instead", it.resolve().code == 0)
    ended = it.recover(reviewed)
    table.check("after which nothing of it is published",
                ended.code == 3 and not project.exists(it.output), ended)


class Everywhere(Interrupted):
    """A call that was killed, or given an error, at any of its renames and syncs."""

    def __init__(self, project, before):
        self.begin(project, before)
        self.is_whole = not project.exists(self.output) or project.read(self.output) == CONTENT
        folder = project.file(".symbiont/invocations/%s/" % self.id)
        self.is_claimed = os.path.exists(folder + "claim")
        self.has_result = os.path.exists(folder + "result")

    def faults(self):
        """What is not as it must be, after everything that an operator can do."""
        found = [] if self.is_whole else ["the file is partial"]
        if self.ended.code == 0 and not self.project.exists(self.output):
            found.append("it succeeded without its file")
        if self.is_claimed:
            again = self.again()
            if again.code != (self.ended.code if self.has_result and self.ended.code >= 0 else
                              0 if self.has_result else 5):
                found.append("the same id: %s" % again)
            if self.inspect().code not in (0, 5):
                found.append("inspection: %s" % self.inspect())
        if self.publication and self.file_inspect().json().get("state") in ("ready_to_publish",
                                                                           "published"):
            ended = self.recover(self.reviewed())
            if ended.code != 0 or self.project.read(self.output) != CONTENT:
                found.append("recovery: %s" % ended)
        self.project.call("counted")
        left = [name for name in self.project.candidates() if name.startswith(self.id)]
        if left:
            found.append("left candidates: %s" % left)
        return "; ".join(found)


def everywhere(project, strace, table):
    for index, (_, name, text) in enumerate(strace.lines):
        it = Everywhere(project, strace.kill_at(index))
        faults = it.faults() if it.was_killed() else "not killed: %s" % it.ended
        table.check("killed at %d, %s" % (index, name), not faults, "%s\n%s" % (text, faults))
    for error in ("EIO", "ENOSPC", "EINTR"):
        for index, (_, name, text) in enumerate(strace.lines):
            faults = Everywhere(project, strace.fail_at(index, error)).faults()
            table.check("%s at %d, %s" % (error, index, name), not faults,
                        "%s\n%s" % (text, faults))


def ids(project, table):
    chosen = str(uuid.uuid4())
    first = project.call("counted", id=chosen)
    again = project.call("counted", id=chosen)
    table.check("the same id gives the saved result",
                (first.code, again.code) == (0, 0) and first.stdout == again.stdout, again)
    ended = project.call("copy", id=chosen, input="data/a.csv", output="out/x")
    table.check("the same id for another request is refused", ended.code == 3, ended)
    chosen = str(uuid.uuid4())
    first = project.call("copy", id=chosen, input="data/none", output="out/x")
    again = project.call("copy", id=chosen, input="data/none", output="out/x")
    table.check("a refusal is saved with its exit code",
                (first.code, again.code) == (3, 3) and first.stdout == again.stdout, again)
    chosen = str(uuid.uuid4())
    words = project.words("call", "slow", "--arg", "input=data/a.csv", "--arg",
                          "output=out/%s" % chosen, "--invocation-id", chosen)
    both = [project.start(words), project.start(words)]
    live = None
    while live is None and any(it.poll() is None for it in both):
        if os.path.exists(project.journal(chosen)):
            live = project.run("invocation", "inspect", "--id", chosen)
    ended = sorted((project.finish(it) for it in both), key=lambda it: it.code)
    table.check("of two processes with one id one runs, the other is refused",
                [it.code for it in ended] == [0, 3], "\n".join(map(str, ended)))
    table.check("a live invocation is not inspected",
                live is not None and live.code == 3 and live.json().get("state") == "live", live)
    third = project.finish(project.start(words))
    table.check("a third gets the first's result",
                third.code == 0 and third.stdout == ended[0].stdout, third)
    table.check("an id in another spelling is a usage error",
                project.call("counted", id=chosen.upper()).code == 2)
    ended = project.run("invocation", "inspect", "--id", chosen)
    table.check("a finished invocation needs nothing",
                ended.code == 0 and ended.json().get("state") == "finished", ended)


def no_fault_points(project, table):
    """What test builds have, and a release build must not."""
    table.check("a release build lists no fault points", project.run("faults").code == 2)
    ended = project.call("copy", before=["env", "SYMBI_FAULT=publish.rename@1=kill"],
                         input="data/a.csv", output="out/unarmed.csv")
    table.check("and none can be armed", ended.code == 0 and project.exists("out/unarmed.csv"),
                ended)


def main():
    found = arguments(__doc__.splitlines()[0], ("--firecracker-binary", "--kernel", "--rootfs"))
    if not shutil.which("strace") or subprocess.run(
            ["strace", "-qq", "-o", "/dev/null", "true"], check=False).returncode != 0:
        print("test-file-publication.py: strace is not there, or may not trace", file=sys.stderr)
        return 2
    table = Table()
    with Project(found.symbi, found.tier, TOOLS) as project:
        no_fault_points(project, table)
        ids(project, table)
        strace = Strace(project)
        for part in (killed_before_the_rename, killed_after_the_rename, killed_before_the_intent,
                     interference, evidence, everywhere):
            part(project, strace, table)
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
