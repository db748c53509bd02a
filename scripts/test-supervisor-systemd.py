#!/usr/bin/env python3
"""The supervisor under a systemd of the script's own: which unit it is in, what ends it, and
whether `symbi sandbox status` says so.

    test-supervisor-systemd.py [--symbi PATH] [--image NAME] [--socket PATH]

systemd runs in namespaces of its own, on a root file system of Debian packages that `xtask cage`
makes once. Exit: 0 where every promise holds, 1 otherwise. Needs root, or sudo that asks nothing.
"""

import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from scratch_project import (
    CONFIG, COPY, HERE, POLICY, Table, argument_parser, become_root, end_on_signals,
    read_arguments, shell_tool, xtask_beside)
from systemd_cage import USER_STOP_DELAY, Cage, Login, wait_until

TREE = os.path.join(HERE, "..")
UNIT = "symbi-supervisor.service"
# As crates/supervisor/src/limits.rs says it.
IDLE_SECONDS = 60
START_SECONDS_MAX = 10
# Past every delay of logind's after the end of a login.
SETTLED_SECONDS = USER_STOP_DELAY + 2
# A folder's name that systemd would change, if it were told so.
ODD_NAME = "odd-${HOME}-$USER"

LONELY = "in a unit of its own, and not independent of this user's logins"
FREE = "in a unit of its own\n"
TIED = "not independent of the login that started it"


class User:
    """A user of the machine's with one project on the container tier."""

    def __init__(self, cage, name, image):
        self.cage, self.name, self.home = cage, name, cage.home(name)
        self.project = os.path.join(self.home, "project")
        for folder in ("", "data", "out", "tools", "policies", "policies/call"):
            os.mkdir(os.path.join(self.project, folder), 0o755)
        config = CONFIG % ("docker", "docker") + 'image = "%s"\nsocket = "/run/engine.sock"\n'
        for file, text in (("symbiont.toml", config % image), ("data/a.csv", "a,b\n"),
                           ("policies/call/all.cedar", POLICY), ("tools/copy.clad.toml", COPY),
                           ("tools/wait.clad.toml", shell_tool("wait", "sleep 6")),
                           ("tools/long.clad.toml", shell_tool("long", "sleep 18"))):
            with open(os.path.join(self.project, file), "w", encoding="utf-8") as made:
                made.write(text)
        cage.runs("chown -R %s: %s" % (name, self.home))
        self.calls = 0

    def login(self):
        login = Login(self.cage, self.name)
        login.runs("cd %s && export XDG_STATE_HOME=%s/state" % (self.project, self.home))
        return login

    def copies(self, login):
        """Makes one call on the tier."""
        self.calls += 1
        return login.runs("symbi call copy --arg input=data/a.csv --arg output=out/%d" % self.calls)

    def ends_all(self, login):
        """Ends all logins, this last one too, and the user's manager."""
        login.end("terminate-user " + self.name)
        return self.is_away()

    def leaves_nothing(self):
        """Whatever the checks saw, no container of this user's stays."""
        self.cage.runs("loginctl kill-user --signal=KILL " + self.name)
        self.is_away()
        self.login().runs("symbi sandbox prune")

    def is_away(self):
        users = lambda: self.cage.runs("loginctl --no-legend list-users").stdout.split()
        return wait_until(lambda: self.name not in users())

    def supervisor(self):
        """What the last one said of itself: its process in the machine."""
        path = os.path.join(self.home, "state/symbi/supervisor/lock")

        def said():
            with open(path, encoding="utf-8") as file:
                return file.read()
        # One that begins has said nothing yet.
        return json.loads(wait_until(said))["pid"]

    def is_alive(self, pid):
        return self.cage.process_folder(pid) is not None


def status(login):
    """As a person reads it, and as a program does."""
    text = login.runs("symbi sandbox status").stdout + "\n"
    return text, json.loads(login.runs("symbi sandbox status --json").stdout)


def place(cage, pid):
    """The control group of a process, as the machine names it."""
    with open(os.path.join(cage.process_folder(pid), "cgroup"), encoding="utf-8") as file:
        path = [it.strip().split("::", 1)[1] for it in file if it.startswith("0::")][0]
    return path.rpartition(os.path.basename(cage.place))[2]


def check_seclusion(table, user, login):
    """A caller with a secret, an open file and no umask leaves nothing to its supervisor."""
    login.runs("export SECRET=told && systemctl --user import-environment SECRET && umask 0000 && "
               "exec 7< data/a.csv")
    called = user.copies(login)
    table.check("the first call starts a supervisor", called.code == 0, called)
    pid = user.supervisor()
    folder = user.cage.process_folder(pid)
    read = lambda name: open(os.path.join(folder, name), "rb").read()
    inherited = read("environ")
    table.check("its environment is empty, though the user's manager has one", inherited == b"",
                inherited)
    links = os.path.join(folder, "fd")
    files = [os.readlink(os.path.join(links, it)) for it in os.listdir(links)]
    foreign = [it for it in files if it.startswith("/") and it != "/dev/null" and not it.startswith(
        (user.home + "/state/symbi/", "/run/user/"))]
    table.check("it has no file of its caller's open", not foreign, foreign)
    table.check("it is in /", os.readlink(os.path.join(folder, "cwd")) == "/")
    table.check("its umask is 077", b"Umask:\t0077" in read("status"))
    cores = [it.split()[4] for it in read("limits").splitlines() if it.startswith(b"Max core")]
    table.check("it leaves no core file", cores == [b"0"], cores)
    table.check("it is in a transient unit of the user's",
                "/user@" in place(user.cage, pid) and "/run-" in place(user.cage, pid),
                place(user.cage, pid))


def check_odd_folder(table, user, login):
    called = login.runs("export XDG_CONFIG_HOME=%s/config && XDG_STATE_HOME='%s/%s' symbi trust "
                        "--yes && XDG_STATE_HOME='%s/%s' symbi call copy --arg input=data/a.csv "
                        "--arg output=out/odd" % (user.home, user.home, ODD_NAME, user.home,
                                                  ODD_NAME))
    made = os.path.join(user.home, ODD_NAME, "symbi/supervisor/lock")
    table.check("a folder with `$` in its name stays itself in a unit",
                called.code == 0 and os.path.exists(made), called)
    login.runs("unset XDG_CONFIG_HOME")


def check_logins(table, user):
    """Without lingering a unit stays while the user is logged in anywhere."""
    first = user.login()
    first.runs("symbi trust --yes")
    check_seclusion(table, user, first)
    check_odd_folder(table, user, first)
    pid = user.supervisor()
    text, parts = status(first)
    table.check("status says that it ends with the user's last login",
                LONELY in text and parts["supervisor"]["unit"]
                and not parts["supervisor"]["independent"], text)
    second = user.login()
    table.check("the login that started it ends", first.end())
    time.sleep(SETTLED_SECONDS)
    text, parts = status(second)
    table.check("it outlives the login that started it",
                parts["supervisor"]["process"] == pid and user.is_alive(pid), text)
    table.check("the last login ends", second.end())
    table.check("it ends with the last login, as status said",
                wait_until(lambda: not user.is_alive(pid)) and user.is_away())


def check_lingering(table, user):
    user.cage.runs("loginctl enable-linger " + user.name)
    login = user.login()
    table.check("a call after that starts another", user.copies(login).code == 0)
    pid = user.supervisor()
    text, parts = status(login)
    table.check("status says that it is independent where the user lingers",
                FREE in text and parts["supervisor"]["independent"], text)
    table.check("the only login ends", login.end())
    time.sleep(SETTLED_SECONDS)
    table.check("it outlives the last login", user.is_alive(pid))
    login = user.login()
    login.tell("symbi call long > /dev/null 2>&1 &")
    leased = lambda: status(login)[1]["leases"]
    table.check("the next login finds it", wait_until(leased) and user.supervisor() == pid)
    login.end("kill-user --signal=KILL " + user.name)
    table.check("a kill of all that the user runs ends it too",
                wait_until(lambda: not user.is_alive(pid)))
    login = user.login()
    pruned = login.runs("symbi sandbox prune")
    table.check("a later one removes the container that is left",
                "removed container" in pruned.stdout or "removed lease" in pruned.stdout, pruned)
    text, parts = status(login)
    left = [it for engine in parts["engines"] for it in engine["containers"]
            if it["claim"] != "elsewhere"]
    table.check("nothing of it is left", not left and not parts["leases"], text)
    user.cage.runs("loginctl disable-linger " + user.name)
    user.ends_all(login)


def check_no_manager(table, user):
    """Where no manager answers, the supervisor is a process of the login."""
    first, second = user.login(), user.login()
    first.runs("export -n XDG_RUNTIME_DIR")
    table.check("a call works where no manager is known", user.copies(first).code == 0)
    pid = user.supervisor()
    text, parts = status(first)
    table.check("status says that it is tied to its login",
                TIED in text and not parts["supervisor"]["unit"]
                and not parts["supervisor"]["independent"], text)
    table.check("that is so", "/session-%s.scope" % first.session in place(user.cage, pid))
    second.tell("symbi call wait; echo the call ended with $?")
    wait_until(lambda: status(first)[1]["leases"])
    first.end()
    table.check("it ends with its login", wait_until(lambda: not user.is_alive(pid)))
    table.check("a live run has another one at once",
                wait_until(lambda: user.supervisor() != pid, 5)
                and "/user@" in place(user.cage, user.supervisor()))
    ended = second.runs("true")
    table.check("and ends well", "the call ended with 0" in ended.stdout, ended)
    user.ends_all(second)


def check_stopped_manager(table, user):
    login = user.login()
    service = "user@$(id -u %s).service" % user.name
    user.cage.runs("kill -STOP $(systemctl show --value -p MainPID %s)" % service)
    begun = time.monotonic()
    called = user.copies(login)
    took = time.monotonic() - begun
    table.check("a manager that is stopped is not waited for",
                called.code == 0 and took < START_SECONDS_MAX + 10, "%.1f s\n%s" % (took, called))
    table.check("the supervisor is then one of the login",
                "/session-%s.scope" % login.session in place(user.cage, user.supervisor()))
    user.cage.runs("kill -CONT $(systemctl show --value -p MainPID %s)" % service)
    user.ends_all(login)


def begin_persistent(table, user):
    """Enables the shipped unit beside a supervisor that was started on demand."""
    user.cage.runs("loginctl enable-linger " + user.name)
    login = user.login()
    # The unit has no variables of a login's.
    login.runs("unset XDG_STATE_HOME && symbi trust --yes && mkdir -p ~/.cargo/bin "
               "~/.config/systemd/user && ln -s /usr/local/bin/symbi ~/.cargo/bin/ && "
               "ln -s ~/.local/state ~/state")
    with open(os.path.join(TREE, "packaging", UNIT), encoding="utf-8") as shipped:
        login.runs("cat > ~/.config/systemd/user/%s << 'END'\n%sEND\n" % (UNIT, shipped.read()))
    called = user.copies(login)
    table.check("a supervisor is started on demand", called.code == 0, called)
    pid = user.supervisor()
    enabled = login.runs("systemctl --user enable --now symbi-supervisor && sleep 3 && "
                         "systemctl --user is-active symbi-supervisor")
    table.check("the shipped unit waits beside it", enabled.code == 0 and user.supervisor() == pid,
                enabled)
    return login, pid


def end_persistent(table, user, login, before):
    table.check("the shipped unit takes over when that one ends",
                wait_until(lambda: user.supervisor() != before, IDLE_SECONDS))
    text, parts = status(login)
    pid = parts["supervisor"]["process"]
    table.check("status says that it is persistent and independent",
                ", persistent, " + FREE in text and parts["supervisor"]["persistent"]
                and parts["supervisor"]["independent"], text)
    folder = user.cage.process_folder(pid)
    with open(os.path.join(folder, "environ"), "rb") as file:
        table.check("its environment is empty too", file.read() == b"")
    table.check("it is the unit's own process", place(user.cage, pid).endswith("/" + UNIT))
    user.cage.runs("kill -KILL %d" % pid)
    table.check("it is started again when it is killed",
                wait_until(lambda: user.supervisor() != pid))
    called = user.copies(login)
    table.check("and has the next call's lease",
                called.code == 0 and status(login)[1]["supervisor"]["persistent"], called)
    stopped = login.runs("systemctl --user disable --now symbi-supervisor")
    table.check("it stops when it is told to", stopped.code == 0
                and wait_until(lambda: status(login)[1]["supervisor"] is None), stopped)


def begin_root(table, user):
    login = user.login()
    login.runs("symbi trust --yes")
    called = user.copies(login)
    table.check("root's call starts a supervisor", called.code == 0, called)
    begun, pid = time.monotonic(), user.supervisor()
    table.check("it is in a unit of the machine's", place(user.cage, pid).startswith(
        "/system.slice/run-"), place(user.cage, pid))
    text, parts = status(login)
    table.check("status says that it is independent of root's logins",
                FREE in text and parts["supervisor"]["independent"], text)
    user.ends_all(login)
    time.sleep(SETTLED_SECONDS)
    table.check("it outlives all of root's logins", user.is_alive(pid))
    return begun, pid


def end_root(table, user, begun, pid):
    table.check("it ends by itself without leases", wait_until(
        lambda: not user.is_alive(pid), IDLE_SECONDS + 10))
    stayed = time.monotonic() - begun
    table.check("after %d seconds" % IDLE_SECONDS, IDLE_SECONDS - 1 < stayed < IDLE_SECONDS + 30,
                "%.1f s" % stayed)
    units = user.cage.runs("systemctl list-units --all --no-legend 'run-*.service'").stdout
    table.check("its unit is gone", units == "", units)


def main():
    parser = argument_parser(__doc__.splitlines()[0])
    found = read_arguments(parser)
    if not found.socket or not found.image:
        parser.error("it needs a container engine and an image: --socket PATH --image NAME")
    become_root(found)
    end_on_signals()
    xtask, folder = xtask_beside(found.symbi)
    made = subprocess.run([xtask, "cage", folder], check=True, stdout=subprocess.PIPE,
                          encoding="utf-8")
    table = Table()
    programs = [found.symbi, os.path.join(os.path.dirname(found.symbi), "symbi-init")]
    with Cage(made.stdout.strip(), found.socket, programs, ("person", "steward")) as cage:
        root, person, steward = (User(cage, it, found.image)
                                 for it in ("root", "person", "steward"))
        try:
            of_root = begin_root(table, root)
            login, before = begin_persistent(table, steward)
            check_logins(table, person)
            check_lingering(table, person)
            check_no_manager(table, person)
            check_stopped_manager(table, person)
            end_root(table, root, *of_root)
            end_persistent(table, steward, login, before)
            steward.ends_all(login)
        finally:
            for user in (root, person, steward):
                user.leaves_nothing()
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
