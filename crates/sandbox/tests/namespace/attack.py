# Runs as a workload and tries what no workload may. Prints one line for each attempt that went
# through, and last how many it made. Arguments: the host's TCP port, UDP port, the name of its
# abstract socket, and the path of a file that must not be seen.
import ctypes, errno, fcntl, glob, mmap, os, signal, socket, struct, subprocess, sys, time

port, udp_port, abstract, canary = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
made, opened = 0, []

NR = dict(
    ptrace=101, mount=165, umount2=166, unshare=272, setns=308, chroot=161, pivot_root=155, bpf=321,
    keyctl=250, add_key=248, request_key=249, perf_event_open=298, process_vm_readv=310,
    process_vm_writev=311, sethostname=170, setdomainname=171, reboot=169, io_uring_setup=425,
    userfaultfd=323, name_to_handle_at=303, open_by_handle_at=304, kexec_load=246,
    init_module=175, finit_module=313, delete_module=176, swapon=167, settimeofday=164,
    clock_settime=227, adjtimex=159, iopl=172, ioperm=173, quotactl=179, acct=163, syslog=103,
    personality=135, memfd_secret=447, fanotify_init=300, modify_ldt=154, mknod=133,
    mknodat=259, setxattr=188, kcmp=312, prlimit64=302, setpriority=141, sched_setaffinity=203,
    sched_setscheduler=144, sched_setparam=142, sched_setattr=314, ioprio_set=251,
    migrate_pages=256, move_pages=279, pidfd_open=434, pidfd_send_signal=424, pidfd_getfd=438,
    process_madvise=440, tgkill=234, rt_sigqueueinfo=129, rt_tgsigqueueinfo=297, tkill=200,
    open_tree=428, move_mount=429, fsopen=430, fspick=433, mount_setattr=442, clone3=435,
    clone=56, seccomp=317, setuid=105, setgid=106, setreuid=113, setresuid=117, setresgid=119,
    setgroups=116, setfsuid=122, capset=126, shmget=29, msgget=68, semget=64, mq_open=240,
    vhangup=153, get_mempolicy=239, set_mempolicy=238, mbind=237, mlockall=151,
    landlock_create_ruleset=444, lookup_dcookie=212, nfsservctl=180, uselib=134, ustat=136,
    sysfs=139, fchmodat2=452, statmount=457, listmount=458, map_shadow_stack=453,
    io_setup=206, restart=219, kexec_file_load=320,
)

def attempt(name, action):
    """The action must raise, or return something false."""
    global made
    made += 1
    try:
        if action(): opened.append(name)
    except BaseException as error:
        if isinstance(error, AssertionError): opened.append(f'{name}: {error}')

def call(number, *args):
    def action():
        result = libc.syscall(ctypes.c_long(number), *[a if not isinstance(a, int) else ctypes.c_long(a) for a in args])
        return result != -1
    return action

def syscall(name, *args):
    attempt(name, call(NR[name], *args))

def readable(path):
    def action():
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try: return os.read(fd, 1) is not None
        finally: os.close(fd)
    attempt(f'read {path}', action)

def writable(path, data=b'0'):
    def action():
        fd = os.open(path, os.O_WRONLY)
        try: return os.write(fd, data) > 0
        finally: os.close(fd)
    attempt(f'write {path}', action)

def listable(path):
    attempt(f'list {path}', lambda: os.listdir(path))

def in_child(name, action):
    """The action runs in a child, which must die of a signal or not exit with 0."""
    global made
    made += 1
    pid = os.fork()
    if pid == 0:
        try: os._exit(0 if action() else 1)
        except BaseException: os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0: opened.append(name)

# -- the network
def connect(address):
    def action():
        s = socket.socket(); s.settimeout(2); s.connect(address); return True
    return action
for address in [('127.0.0.1', port), ('127.0.0.2', port), ('1.1.1.1', 53), ('10.0.2.2', 80), ('169.254.169.254', 80)]:
    attempt(f'tcp {address}', connect(address))
def connect6():
    s = socket.socket(socket.AF_INET6); s.settimeout(2); s.connect(('::1', port)); return True
attempt('tcp6', connect6)
for address in ['127.0.0.1', '255.255.255.255', '8.8.8.8']:
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'attack', (address, udp_port))
    except OSError: pass
attempt('udp to the world', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53)))
attempt('resolve a name', lambda: socket.getaddrinfo('example.com', 80))
attempt('another interface', lambda: [n for _, n in socket.if_nameindex() if n != 'lo'])
def abstract_connect(kind):
    def action():
        s = socket.socket(socket.AF_UNIX, kind); s.connect('\0' + abstract); return True
    return action
attempt('abstract stream', abstract_connect(socket.SOCK_STREAM))
attempt('abstract datagram', abstract_connect(socket.SOCK_DGRAM))
for family in [3, 4, 5, 8, 9, 15, 16, 17, 21, 29, 30, 31, 37, 38, 39, 40, 42, 43, 44, 45]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW]:
        attempt(f'family {family} kind {kind}', lambda: socket.socket(family, kind))
attempt('vsock pair', lambda: socket.socketpair(40, socket.SOCK_STREAM))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt('ping', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1))
attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW, 3))

# -- PID 1
for name in ['mem', 'environ', 'maps', 'smaps', 'auxv', 'stack', 'syscall', 'io', 'pagemap', 'personality',
             'timers', 'patch_state', 'clear_refs', 'numa_maps']:
    readable(f'/proc/1/{name}')
for name in ['fd', 'fdinfo', 'map_files', 'ns', 'root', 'cwd', 'task/1/fd', 'root/etc', 'cwd/etc']:
    if name == 'ns': attempt('readlink /proc/1/ns/user', lambda: os.readlink('/proc/1/ns/user'))
    else: listable(f'/proc/1/{name}')
for name in ['exe', 'root', 'cwd', 'fd/0', 'ns/mnt', 'ns/net']:
    attempt(f'readlink /proc/1/{name}', lambda: os.readlink(f'/proc/1/{name}'))
for name in ['mem', 'oom_score_adj', 'comm', 'uid_map', 'gid_map', 'setgroups', 'attr/current', 'loginuid',
             'coredump_filter', 'timerslack_ns', 'sched', 'autogroup']:
    writable(f'/proc/1/{name}')
attempt('sched_setaffinity 1', lambda: (os.sched_setaffinity(1, {0}), True)[1])
for sig in [0, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCHLD, 34]:
    attempt(f'kill 1 {sig}', lambda: (os.kill(1, sig), True)[1])
for sig in [signal.SIGTERM, signal.SIGUSR1]:
    syscall('tkill', 1, int(sig)); syscall('tgkill', 1, 1, int(sig))
info = ctypes.create_string_buffer(128); struct.pack_into('iii', info, 0, 15, 0, -1)
syscall('rt_sigqueueinfo', 1, 15, info); syscall('rt_tgsigqueueinfo', 1, 1, 15, info)
pidfd = libc.syscall(NR['pidfd_open'], 1, 0)
if pidfd >= 0:
    syscall('pidfd_send_signal', pidfd, 9, None, 0); syscall('pidfd_getfd', pidfd, 0, 0)
    syscall('process_madvise', pidfd, None, 0, 4, 0); syscall('setns', pidfd, 0x10000000)
for request in [16, 0x4206]: syscall('ptrace', request, 1, 0, 0)
buffer = ctypes.create_string_buffer(64); iov = struct.pack('QQ', ctypes.addressof(buffer), 64)
syscall('process_vm_readv', 1, iov, 1, iov, 1, 0); syscall('process_vm_writev', 1, iov, 1, iov, 1, 0)
limit = struct.pack('QQ', 0, 0); old = ctypes.create_string_buffer(16)
syscall('prlimit64', 1, 7, limit, None); syscall('prlimit64', 1, 7, None, old)
syscall('setpriority', 0, 1, 19); syscall('sched_setscheduler', 1, 3, struct.pack('i', 0))
syscall('sched_setparam', 1, struct.pack('i', 0)); syscall('sched_setattr', 1, bytes(56), 0)
syscall('sched_setaffinity', 1, 8, struct.pack('Q', 1)); syscall('ioprio_set', 1, 1, 0)
syscall('migrate_pages', 1, 8, struct.pack('Q', 1), struct.pack('Q', 1)); syscall('move_pages', 1, 0, None, None, None, 0)
syscall('kcmp', 1, os.getpid(), 0, 0, 0); syscall('perf_event_open', bytes(128), 1, -1, -1, 0)
attempt('kill everybody', lambda: (os.kill(-1, 0), False)[1] if os.fork() else os._exit(0))

# -- mounts and namespaces
syscall('mount', b'tmpfs', b'/tmp', b'tmpfs', 0, None)
syscall('mount', b'/proc', b'/tmp', None, 4096, None)
syscall('mount', None, b'/', None, 32 | 4096, None)
syscall('mount', b'none', b'/workspace', None, 1 << 18, None)
syscall('umount2', b'/proc', 2); syscall('umount2', b'/proc/sys', 2); syscall('umount2', b'/usr/local', 2)
syscall('pivot_root', b'/tmp', b'/tmp'); syscall('chroot', b'/tmp')
syscall('open_tree', -100, b'/', 1); syscall('fsopen', b'proc', 0); syscall('fspick', -100, b'/', 0)
syscall('move_mount', -100, b'/proc', -100, b'/tmp', 0); syscall('mount_setattr', -100, b'/', 0, bytes(32), 32)
for flag in [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x80, 0x10020000]:
    in_child(f'unshare {flag:x}', call(NR['unshare'], flag))
    in_child(f'clone {flag:x}', call(NR['clone'], flag | 17, None, None, None, None))
in_child('clone3', call(NR['clone3'], struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64))
for kind in ['user', 'mnt', 'pid', 'net', 'uts', 'ipc', 'cgroup']:
    attempt(f'setns {kind}', lambda: call(NR['setns'], os.open(f'/proc/self/ns/{kind}', os.O_RDONLY), 0)())

# -- the kernel
syscall('add_key', b'user', b'x', b'y', 1, -3); syscall('keyctl', 0, -3, 1); syscall('keyctl', 1, b'_')
syscall('request_key', b'user', b'x', None, -3); syscall('io_uring_setup', 4, bytes(120))
syscall('bpf', 0, bytes(72), 72); syscall('bpf', 5, bytes(72), 72); syscall('userfaultfd', 1)
syscall('perf_event_open', bytes(128), 0, -1, -1, 0)
syscall('name_to_handle_at', -100, b'/', struct.pack('Ii', 128, 0) + bytes(128), old, 0)
syscall('open_by_handle_at', 3, bytes(32), 0); syscall('kexec_load', 0, 0, None, 0); syscall('kexec_file_load', -1, -1, 0, None, 0)
syscall('init_module', b'x', 1, b''); syscall('finit_module', 0, b'', 0); syscall('delete_module', b'x', 0)
syscall('swapon', b'/tmp/x', 0); syscall('reboot', 0xfee1dead, 0x28121969, 0, None)
syscall('sethostname', b'x', 1); syscall('setdomainname', b'x', 1); syscall('settimeofday', struct.pack('qq', 0, 0), None)
syscall('clock_settime', 0, struct.pack('qq', 0, 0)); syscall('adjtimex', bytes(256)); syscall('iopl', 3); syscall('ioperm', 0, 1, 1)
syscall('quotactl', 0, None, 0, None); syscall('acct', None); syscall('syslog', 3, buffer, 64)
syscall('personality', 0x0040000); syscall('memfd_secret', 0); syscall('fanotify_init', 0, 0)
syscall('modify_ldt', 0, buffer, 64); syscall('lookup_dcookie', 0, buffer, 64); syscall('uselib', b'/usr/bin/true')
syscall('ustat', 0, buffer); syscall('sysfs', 3); syscall('statmount', bytes(24), buffer, 64, 0); syscall('listmount', bytes(24), buffer, 1, 0)
syscall('map_shadow_stack', 0, 4096, 0); syscall('io_setup', 1, bytes(8)); syscall('vhangup'); syscall('mlockall', 3)
syscall('shmget', 0, 4096, 0o1600); syscall('msgget', 0, 0o1600); syscall('semget', 0, 1, 0o1600)
syscall('mq_open', b'x', 0o102, 0o600, None); syscall('set_mempolicy', 0, None, 0); syscall('mbind', 0, 0, 0, None, 0, 0)
syscall('landlock_create_ruleset', None, 0, 1); syscall('seccomp', 2, 0, struct.pack('I', 0x7fff0000))
for kind, device in [(0o020000, 0x103), (0o060000, 0xfe00), (0o020000, 0x101)]:
    syscall('mknod', b'/tmp/node', kind | 0o666, device); syscall('mknodat', -100, b'/tmp/node', kind | 0o666, device)
syscall('setxattr', b'/tmp', b'user.x', b'y', 1, 0)
attempt('x32 getpid', call(0x40000000 | 39))

# -- identity
syscall('setuid', 0); syscall('setgid', 0); syscall('setreuid', 0, 0); syscall('setresuid', 0, 0, 0); syscall('setresgid', 0, 0, 0)
syscall('setgroups', 0, None); syscall('setgroups', 1, struct.pack('I', 0)); syscall('setfsuid', 0)
syscall('capset', struct.pack('Ii', 0x20080522, 0), struct.pack('6I', 0xffffffff, 0xffffffff, 0, 0xffffffff, 0xffffffff, 0))
attempt('capabilities', lambda: [l for l in open('/proc/self/status') if l.startswith('Cap') and int(l.split()[1], 16)])
attempt('privileges', lambda: 'NoNewPrivs:\t1\n' not in open('/proc/self/status').read())
attempt('not 65534', lambda: {os.getuid(), os.geteuid(), os.getgid(), os.getegid()} != {65534})
attempt('PR_SET_MM', lambda: libc.prctl(35, 1, 0, 0, 0) == 0)
attempt('ambient', lambda: libc.prctl(47, 2, 21, 0, 0) == 0)
attempt('undo no_new_privs', lambda: libc.prctl(38, 0, 0, 0, 0) == 0)
for program in ['su', 'mount', 'sudo', 'newuidmap', 'passwd', 'fusermount3', 'ping']:
    attempt(f'set-id {program}', lambda: os.path.exists(f'/usr/bin/{program}') and subprocess.run(
        [program, '-c', 'id'] if program == 'su' else [program], stdin=subprocess.DEVNULL, capture_output=True, timeout=5).stdout.find(b'uid=0') >= 0)
for name, value in [(6, 100000), (1, 1 << 40), (7, 1 << 20), (4, 1 << 30), (8, 1 << 30), (13, 40), (14, 99)]:
    attempt(f'raise limit {name}', call(NR['prlimit64'], 0, name, struct.pack('QQ', value, value), None))

# -- terminal
readable('/dev/tty'); writable('/dev/tty'); readable('/dev/ptmx'); readable('/dev/console'); writable('/dev/console')
listable('/dev/pts')
for fd in range(3):
    for request in [0x5412, 0x541c, 0x540e, 0x5410]:
        attempt(f'ioctl {fd} {request:x}', lambda: (fcntl.ioctl(fd, request, b'x'), True)[1])
    attempt(f'ioctl {fd} TIOCSTI with high bits', call(16, fd, 0x100005412, b'x'))
attempt('controlling terminal', lambda: int(open('/proc/self/stat').read().rsplit(') ', 1)[1].split()[4]))
attempt('not a session leader', lambda: os.getsid(0) != os.getpid())

# -- what came along
attempt('descriptors', lambda: [f for f in os.listdir('/proc/self/fd') if f not in '0 1 2'.split() and os.path.exists(f'/proc/self/fd/{f}') and not os.readlink(f'/proc/self/fd/{f}').startswith(('/proc/', 'anon_inode:[pidfd]', '/workspace'))] if pidfd < 0 else
        [f for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists(f'/proc/self/fd/{f}') and canary in os.readlink(f'/proc/self/fd/{f}')])
attempt('descriptors of a fresh child', lambda: subprocess.run(['/bin/ls', '/proc/self/fd'], capture_output=True, text=True, close_fds=True).stdout.split() != ['0', '1', '2', '3'])
attempt('environment', lambda: set(os.environ) - {'PATH', 'HOME', 'LANG', 'LC_CTYPE'})
attempt('ignored signals', lambda: [l for l in open('/proc/self/status') if l.startswith(('SigBlk', 'ShdPnd')) and int(l.split()[1], 16)])
attempt('supplementary groups', lambda: set(os.getgroups()) - {65534})

# -- files of the host
for path in [canary, '/proc/self/root' + canary, '/proc/self/cwd/../../..' + canary, '/../../..' + canary, '/etc/shadow', '/etc/machine-id',
             '/proc/kcore', '/proc/kmsg', '/proc/keys', '/proc/timer_list', '/proc/sysrq-trigger', '/dev/kmsg',
             '/dev/mem', '/dev/vda', '/dev/sda', '/dev/fuse', '/dev/kvm', '/dev/net/tun', '/dev/loop0', '/dev/vsock', '/sys/kernel/notes']:
    if path in ('/proc/kcore', '/proc/kmsg', '/proc/keys', '/proc/timer_list'):
        attempt(f'content of {path}', lambda: open(path, 'rb').read(1))
    elif path == '/proc/sysrq-trigger': writable(path)
    else: readable(path)
for path in ['/root', '/home', '/mnt', '/opt', '/sys', '/boot', '/srv', '/var/lib', '/run', '/usr/local', '/usr/src', '/proc/acpi', '/proc/scsi', '/lost+found']:
    listable(path)
for path in ['/proc/sys/kernel/core_pattern', '/proc/sys/user/max_user_namespaces', '/proc/sys/kernel/hostname', '/proc/sys/net/ipv4/ip_forward',
             '/proc/sys/vm/drop_caches', '/proc/irq/default_smp_affinity', '/proc/bus/pci/00', '/etc/passwd', '/etc/hosts', '/usr/bin/true', '/bin/sh',
             '/etc/ld.so.cache', '/workspace/attack.py', '/proc/self/uid_map', '/proc/self/setgroups']:
    writable(path)
for folder in ['/', '/workspace', '/etc', '/usr/bin', '/dev', '/run', '/proc', '/var', '/root']:
    attempt(f'create in {folder}', lambda: os.close(os.open(folder + '/attack', os.O_CREAT | os.O_WRONLY)) is None)
attempt('max_user_namespaces', lambda: open('/proc/sys/user/max_user_namespaces').read() != '0\n')
attempt('other processes', lambda: [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid()) and os.path.exists(f'/proc/{p}/exe')])
attempt('host paths in mountinfo', lambda: [l for l in open('/proc/self/mountinfo') if 'symbi' in l or canary.rsplit('/', 1)[0] in l])
attempt('writable mounts', lambda: [l for l in open('/proc/self/mountinfo') if l.split()[5].startswith('rw') and l.split()[4] not in ('/tmp', '/dev/shm', '/proc')
        and not l.split()[4].startswith(('/dev/', '/workspace/out'))])
attempt('name of PID 1', lambda: open('/proc/1/cmdline').read() != 'symbi-init\0')
attempt('cgroup path', lambda: [l for l in open('/proc/self/cgroup') if not l.rstrip().endswith(':/')])

# -- code of another architecture: must kill
def i386():
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')  # mov eax, 20 (getpid); int 0x80; ret
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0
in_child('int 0x80', i386)

for line in opened: print('OPEN', line)
print('MADE', made)
