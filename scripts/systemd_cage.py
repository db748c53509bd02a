"""A machine that systemd runs, in namespaces of its own: services, a bus, logins of users.

Needs root, Linux, unshare, nsenter and Python 3.8. Its root file system is the tar of `xtask cage`.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time

# logind waits so long after a user's last login, in seconds; its own default is 10.
USER_STOP_DELAY = 1
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
STEP_SECONDS_MAX = 60

# Becomes PID 1 of the machine. Homes are where the host has them too: an engine is told of them.
BOOT = r"""
set -eu
root=$1 homes=$2 socket=$3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root$homes"
mount --bind "$homes" "$root$homes"
touch "$root/run/engine.sock"
mount --bind "$socket" "$root/run/engine.sock"
cd "$root"
pivot_root . .
umount -l .
exec env -i container=symbi-test /lib/systemd/systemd --system --log-target=console \
    --show-status=false < /dev/null
"""


class Ended:
    def __init__(self, code, stdout, stderr):
        self.code, self.stdout, self.stderr = code, stdout.strip(), stderr.strip()

    def __str__(self):
        return "exit %s\n%s\n%s" % (self.code, self.stdout, self.stderr)


def wait_until(condition, seconds=20):
    """What `condition` says at last: something true, or what was false to the end."""
    until = time.monotonic() + seconds
    while True:
        found = condition()
        if found or time.monotonic() > until:
            return found
        time.sleep(0.1)


class Cage:
    """One machine. Who is in it may use the engine at `socket`, and finds it in /run."""

    def __init__(self, archive, socket, programs, users):
        self.place = tempfile.mkdtemp(prefix="symbi-cage-")
        self.init = self.process = None
        try:
            self.fill(archive, socket, programs, users)
            self.boot(socket)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def fill(self, archive, socket, programs, users):
        os.chmod(self.place, 0o755)
        self.root, self.homes = (os.path.join(self.place, it) for it in ("root", "homes"))
        os.mkdir(self.root, 0o755)
        os.mkdir(self.homes, 0o755)
        subprocess.run(["tar", "-C", self.root, "-xf", archive], check=True)
        for program in programs:
            shutil.copy(program, os.path.join(self.root, "usr/local/bin"))
        settings = os.path.join(self.root, "etc/systemd/logind.conf.d")
        os.makedirs(settings)
        with open(os.path.join(settings, "test.conf"), "w", encoding="utf-8") as file:
            file.write("[Login]\nUserStopDelaySec=%d\n" % USER_STOP_DELAY)
        group = str(os.stat(socket).st_gid)
        self.in_root("groupadd", "-o", "-g", group, "engine")
        for user in users:
            self.in_root("useradd", "-G", "engine", "-s", "/bin/bash", "-m", "-d", self.home(user),
                         user)
        os.mkdir(self.home("root"), 0o700)

    def in_root(self, *words):
        # The homes are not in it yet.
        inside = self.root + self.homes
        os.makedirs(inside, exist_ok=True)
        subprocess.run(["mount", "--bind", self.homes, inside], check=True)
        try:
            subprocess.run(["chroot", self.root] + list(words), check=True)
        finally:
            subprocess.run(["umount", inside], check=True)

    def boot(self, socket):
        self.cgroups = os.path.join(self.place, "cgroups")
        os.mkdir(self.cgroups)
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", self.cgroups], check=True)
        self.cgroup = os.path.join(self.cgroups, os.path.basename(self.place))
        os.mkdir(self.cgroup)
        inside = ["unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net", "--fork",
                  "--kill-child", "--propagation", "private", "bash", "-c", BOOT, "cage",
                  self.root, self.homes, socket]
        joined = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        with open(os.path.join(self.place, "log"), "wb") as log:
            self.process = subprocess.Popen(["bash", "-c", joined, self.cgroup] + inside,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.init = wait_until(self.find_init)
        if not self.init or not wait_until(self.is_up):
            with open(os.path.join(self.place, "log"), encoding="utf-8", errors="replace") as log:
                raise SystemExit("systemd does not start in its cage:\n%s" % log.read()[-2000:])

    def home(self, user):
        return os.path.join(self.homes, user)

    def find_init(self):
        children = "/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)
        with open(children, encoding="ascii") as file:
            return int((file.read().split() or ["0"])[0])

    def is_up(self):
        return self.runs("systemctl is-system-running").stdout in ("running", "degraded")

    def start(self, *words):
        """A process of root's in the machine, outside of every login."""
        entered = ["nsenter", "-t", str(self.init), "-p", "-m", "-C", "-u", "-i", "-n", "-r", "-w",
                   "env", "-i", "PATH=" + SEARCH_PATH] + list(words)
        return subprocess.Popen(entered, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, encoding="utf-8", errors="replace")

    def runs(self, script):
        process = self.start("bash", "-c", script)
        stdout, stderr = process.communicate(timeout=STEP_SECONDS_MAX)
        return Ended(process.returncode, stdout, stderr)

    def process_folder(self, pid):
        """The host's /proc folder of a process of the machine's; nothing where there is none."""
        inside = os.stat("/proc/%d/ns/pid" % self.init)
        for name in filter(str.isdigit, os.listdir("/proc")):
            folder = os.path.join("/proc", name)
            try:
                with open(os.path.join(folder, "status"), encoding="utf-8") as file:
                    ids = [it.split()[-1] for it in file if it.startswith("NSpid:")]
                if ids == [str(pid)] and os.path.samestat(
                        os.stat(os.path.join(folder, "ns/pid")), inside):
                    return folder
            except OSError:
                pass
        return None

    def close(self):
        if self.init:
            # Its end is that of every process in it.
            os.kill(self.init, signal.SIGKILL)
        if self.process:
            self.process.wait(timeout=STEP_SECONDS_MAX)

            def is_removed():
                for folder, _, _ in os.walk(self.cgroup, topdown=False):
                    try:
                        os.rmdir(folder)
                    except OSError:
                        pass
                return not os.path.exists(self.cgroup)
            wait_until(is_removed)
            subprocess.run(["umount", self.cgroups], check=True)
        shutil.rmtree(self.place)


class Login:
    """A login of a user's, with a shell that obeys until the login is ended."""

    def __init__(self, cage, user):
        self.cage = cage
        self.process = cage.start("su", "-l", user, "-c", "echo $XDG_SESSION_ID; exec bash 2>&1")
        self.session = self.process.stdout.readline().strip()
        self.count = 0

    def tell(self, script):
        self.process.stdin.write(script + "\n")
        self.process.stdin.flush()

    def runs(self, script):
        self.count += 1
        mark = "this-was-command-%d-with-exit" % self.count
        self.tell("{ %s\n} < /dev/null; echo; echo %s $?" % (script, mark))
        said = []
        for line in self.process.stdout:
            if line.startswith(mark):
                return Ended(int(line.split()[1]), "".join(said), "")
            said.append(line)
        return Ended(None, "".join(said), "the login ended")

    def end(self, order="terminate-session {}"):
        self.cage.runs("loginctl " + order.format(self.session))
        self.process.communicate(timeout=STEP_SECONDS_MAX)

        def is_gone():
            sessions = self.cage.runs("loginctl --no-legend list-sessions").stdout.splitlines()
            return all(it.split()[0] != self.session for it in sessions)
        return wait_until(is_gone)
