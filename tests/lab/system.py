"""Where the lab keeps its things, and the few system calls that Python lacks."""

import ctypes, fcntl, hashlib, os, signal, struct, subprocess, sys, tempfile

LAB = os.path.realpath(os.environ.get("NETPLAY_LAB") or os.path.join(tempfile.gettempdir(), "netplay-lab"))
ROOTFS, KEYS, RUN = f"{LAB}/rootfs", f"{LAB}/keys", f"{LAB}/run"
LAYER, FS, LOGS, WISHES = f"{RUN}/layer", f"{RUN}/fs", f"{RUN}/log", f"{RUN}/wish"
# When hosts became available and ceased to be.
TRACE = f"{RUN}/trace"
# The name of our control groups: no two labs share one.
CGROUP = "netplay-lab-" + hashlib.sha256(LAB.encode()).hexdigest()[:8]

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE, SLAVE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18, 1 << 19
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def fail(message, code=1):
    print(f"lab: {message}", file=sys.stderr)
    sys.exit(code)


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, kind=None, flags=0, data=None):
    raw = lambda text: None if text is None else text.encode()
    check(libc.mount(raw(source), raw(target), raw(kind), ctypes.c_ulong(flags), raw(data)), f"mount {target}")


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def enter(pid, kinds):
    """Joins namespaces of a process."""
    files = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    for file in files:
        check(libc.setns(file, 0), "setns")
        os.close(file)


def read(path):
    with open(path) as file:
        return file.read()


def put(path, text, mode=0o644, owner=0):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    os.chown(path, owner, owner)


def replace(path, text):
    put(path + ".new", text)
    os.rename(path + ".new", path)


def run(command, text=None):
    """Runs a tool, which ends with us: a crashed `lab up` leaves none working on its files."""
    die_with_parent = lambda: libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    subprocess.run(command, input=text or "", text=True, check=True, preexec_fn=die_with_parent)


def running():
    """The pid of the lab's first process, or None. It holds a lock as long as it lives, so nothing can be stale."""
    try:
        file = open(f"{LAB}/alive", "r+")
    except FileNotFoundError:
        return None
    with file:
        layout = "hhqqi4x"
        answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(layout, fcntl.F_WRLCK, 0, 0, 0, 0))
        kind, _, _, _, pid = struct.unpack(layout, answer)
        return None if kind == fcntl.F_UNLCK else pid
