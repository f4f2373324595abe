"""How hosts come to life: their first processes, and the lab's own that starts them."""

import contextlib, fcntl, json, os, select, shutil, signal, socket, stat, struct, subprocess, sys, time

from faults import fault, folder, prepare
from hosts import BRIDGES, CARD, CONTROLLER, CONTROLLER_MAC, host_files, new_host_keys
from vm import CPUS, Monitor, accelerator, become_qemu
from system import (BIND, CGROUP, FS, LAYER, LOGS, NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, NODEV, NOEXEC, NOSUID, PATH,
                    PRIVATE, RDONLY, REC, REMOUNT, ROOTFS, RUN, TRACE, WISHES, check, libc, mount, put, read, replace, run, unshare)

# How long a boot may take; with a kernel that runs under software emulation, on a machine that has much to do.
BOOT_SECONDS, VM_BOOT_SECONDS = 180, 600
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

# What /proc/sys/net/core holds on a machine but not, or not writable, in a network namespace.
# The values are the kernel's usual defaults, so that no test depends on how this machine is tuned.
SIMULATED_CORE = {
    "busy_poll": 0, "busy_read": 0, "default_qdisc": "pfifo_fast", "dev_weight": 64, "message_burst": 10,
    "message_cost": 5, "netdev_budget": 300, "netdev_budget_usecs": 2000, "netdev_max_backlog": 1000,
    "optmem_max": 131072, "rmem_default": 212992, "rmem_max": 212992, "rps_sock_flow_entries": 0,
    "somaxconn": 4096, "wmem_default": 212992, "wmem_max": 212992,
}


def set_immutable(folder, on):
    """As in /proc, no file can be made in or removed from an immutable folder; those in it can be written."""
    FS_IOC_SETFLAGS, FS_IMMUTABLE_FL = 0x40086602, 0x10
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a kernel before 6.1 has no such flag on tmpfs
        fcntl.ioctl(descriptor, FS_IOC_SETFLAGS, struct.pack("l", FS_IMMUTABLE_FL if on else 0))
    os.close(descriptor)


def simulate(host):
    """New plain files for one boot of a host: a list of (folder, where it goes)."""
    top = f"{FS}/{host.name}/simulated"
    for folder, _, _ in os.walk(top):
        set_immutable(folder, False)
    shutil.rmtree(top, ignore_errors=True)
    values = {f"core/{name}": f"{value}\n" for name, value in SIMULATED_CORE.items()}
    for folder, _, names in os.walk("/proc/irq"):
        for name in names:
            with contextlib.suppress(OSError):  # some can't be read
                values[f"irq/{os.path.relpath(folder, '/proc/irq')}/{name}"] = read(f"{folder}/{name}")
    for name, value in values.items():
        put(f"{top}/{name}", value)
    for folder, _, _ in os.walk(top):
        set_immutable(folder, True)
    return [(f"{top}/core", "/proc/sys/net/core"), (f"{top}/irq", "/proc/irq")]


def configure_links(host):
    """From inside a host's network namespace."""
    lines = ["link set lo up"]
    for link, (_, address) in host.links.items():
        lines += [f"link set {link} addrgenmode none up", f"addr add {address}/16 brd + dev {link}"]
    if host.kind == "fleet":  # the kernel's neighbour table is one for the whole machine: spare it
        lines.append(f"neigh replace {CONTROLLER} lladdr {CONTROLLER_MAC} dev eth0 nud permanent")
    run(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def overlay(host):
    top = f"{FS}/{host.name}"
    for folder in ("upper", "work", "root", "log"):
        os.makedirs(f"{top}/{folder}", exist_ok=True)
    mount("lab", f"{top}/root", "overlay", 0,
          f"lowerdir={LAYER}:{ROOTFS},upperdir={top}/upper,workdir={top}/work")


def become_sshd(host):
    """Makes this process, pid 1 of its namespace, the sshd of a fleet host."""
    root, simulated = f"{FS}/{host.name}/root", simulate(host)
    os.setsid()
    mount("proc", f"{root}/proc", "proc", NOSUID | NODEV | NOEXEC)
    mount(f"{root}/proc/sys", f"{root}/proc/sys", None, BIND)
    mount(f"{root}/proc/sys/net", f"{root}/proc/sys/net", None, BIND)
    mount(None, f"{root}/proc/sys", None, BIND | REMOUNT | RDONLY)  # all but net/ is the machine's own
    mount("sysfs", f"{root}/sys", "sysfs", NOSUID | NODEV | NOEXEC)
    mount(f"{root}/sys/devices/virtual/net", f"{root}/sys/devices/virtual/net", None, BIND)
    mount(None, f"{root}/sys", None, BIND | REMOUNT | RDONLY)  # and so is all but this namespace's links
    for source, target in simulated:
        mount(source, root + target, None, BIND)
    put(f"{FS}/{host.name}/boot_id", read("/proc/sys/kernel/random/uuid"), 0o444)
    mount(f"{FS}/{host.name}/boot_id", f"{root}/proc/sys/kernel/random/boot_id", None, BIND)
    if os.path.exists(f"{root}/proc/sysrq-trigger"):
        mount("/dev/null", f"{root}/proc/sysrq-trigger", None, BIND)
    devices(f"{root}/dev")
    mount("run", f"{root}/run", "tmpfs", NOSUID | NODEV, "mode=755,size=64m")
    os.mkdir(f"{root}/run/sshd")
    os.mkdir(f"{root}/run/lab")
    mount(folder(host.name), f"{root}/run/lab", None, BIND)
    # The only files that are open for writing lie apart, so that a test can make / read-only.
    mount(f"{FS}/{host.name}/log", f"{root}/var/log", None, BIND)
    os.chdir(root)
    check(libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    check(libc.umount2(b".", 2), "umount the old root")  # it lies on top of the new one
    os.chroot(".")
    os.chdir("/")
    check(libc.sethostname(host.name.encode(), len(host.name)), "sethostname")
    for capability in (16, 17, 25):  # SYS_MODULE, SYS_RAWIO, SYS_TIME: they would reach the machine
        libc.prctl(24, capability, 0, 0, 0)
    null, log = os.open("/dev/null", os.O_RDWR), os.open("/var/log/boot.log", os.O_CREAT | os.O_WRONLY, 0o600)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)
    os.closerange(3, 4096)
    if os.path.isdir("/var/lib/simulated-cards"):
        run([CARD, "boot"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and sshd would hand that on
        signal.signal(number, signal.SIG_DFL)
    os.execve("/usr/sbin/sshd", ["/usr/sbin/sshd", "-D", "-E", "/var/log/sshd.log"], {"PATH": PATH, "LANG": "C.UTF-8"})


def devices(dev):
    mount("dev", dev, "tmpfs", NOSUID, "mode=755,size=1m")
    for name, major, minor in (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)):
        os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod(f"{dev}/{name}", 0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")):
        os.symlink(target, f"{dev}/{name}")
    for name, kind, options in (("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5"), ("shm", "tmpfs", "size=64m")):
        os.mkdir(f"{dev}/{name}")
        mount(name, f"{dev}/{name}", kind, NOSUID | NOEXEC, options)


def cgroups():
    """The folders of the cgroup hierarchies that systemd-nspawn needs an own place in."""
    old = [f"/sys/fs/cgroup/{name}" for name in ("systemd", "unified") if os.path.isdir(f"/sys/fs/cgroup/{name}")]
    return [f"{top}/{CGROUP}" for top in old or ["/sys/fs/cgroup"]]


def remove_cgroups(name=""):
    for top in cgroups():
        for folder, _, _ in os.walk(f"{top}/{name}", topdown=False):
            for _ in range(50):  # a process that was killed leaves its group a little later
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)


def become_nspawn(host):
    """Makes this process the systemd-nspawn that boots a systemd host. It exits with 133 for a reboot."""
    # nspawn makes what goes over /proc when it has left our file tree, so their source lies in the host's own.
    simulated, shown = simulate(host), "/run/lab-simulated"
    binds = [f"--bind={FS}/{host.name}/log:/var/log", f"--bind={os.path.dirname(simulated[0][0])}:{shown}",
             f"--bind={folder(host.name)}:/run/lab"]
    binds += [f"--bind={shown}/{os.path.basename(source)}:{target}" for source, target in simulated]
    remove_cgroups(host.name)
    for top in cgroups():
        os.makedirs(f"{top}/{host.name}")
        put(f"{top}/{host.name}/cgroup.procs", "0")
    os.setsid()
    mount("run", "/run", "tmpfs")  # nspawn keeps its locks there, and the machine must not see them
    log = os.open(f"{LOGS}/{host.name}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    null = os.open("/dev/null", os.O_RDONLY)
    for number, descriptor in enumerate((null, log, log)):
        os.dup2(descriptor, number)
    os.closerange(3, 4096)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve("/usr/bin/systemd-nspawn", [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={FS}/{host.name}/root", f"--machine={host.name}",
        "--keep-unit", "--register=no", "--network-namespace-path=/proc/self/ns/net", "--capability=CAP_NET_ADMIN,CAP_NET_RAW",
        "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe", *binds],
        {"PATH": PATH, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"})


def boot_seconds(kinds):
    return VM_BOOT_SECONDS if "vm" in kinds else BOOT_SECONDS


class Init:
    """Pid 1 of the lab's namespaces. When it ends, by whatever cause, the kernel ends all that is in them."""

    def __init__(self, hosts, report, lifeline, owner):
        self.hosts = {host.name: host for host in hosts}
        self.report, self.lifeline, self.owner = report, lifeline, owner
        self.state = {host.name: {"kind": host.kind, "address": host.address, "state": "off", "boots": 0, "pid": 0} for host in hosts}
        self.deadline = time.time() + boot_seconds({host.kind for host in hosts})
        self.monitors, self.pipes = {}, {}
        self.poll = select.poll()

    def main(self):
        mount("lab", FS, "tmpfs", 0, "mode=755,nr_inodes=0")
        run(["ip", "-batch", "-"], "link set lo up\n" + "".join(
            f"link add {bridge} type bridge stp_state 0 mcast_snooping 0\nlink set {bridge} mtu 9000 addrgenmode none up\n"
            for bridge in BRIDGES) + f"link set mgmt address {CONTROLLER_MAC}\naddr add {CONTROLLER}/16 dev mgmt\n")
        if any(host.kind == "vm" for host in self.hosts.values()):
            self.accelerator = accelerator()
        wake, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        self.boot(list(self.hosts.values()))
        for descriptor in (wake, self.lifeline, self.owner):
            if descriptor is not None:
                self.poll.register(descriptor, select.POLLIN)
        while True:
            self.look()
            waiting = any(entry["state"] == "booting" for entry in self.state.values())
            for descriptor, _ in self.poll.poll(50 if waiting else None):
                if descriptor == wake:
                    os.read(wake, 4096)
                    self.reap()
                    self.grant()
                elif descriptor in self.monitors:
                    self.listen(descriptor)
                elif descriptor in self.pipes:
                    self.hear(descriptor)
                elif descriptor == self.lifeline and os.read(descriptor, 1):
                    self.poll.unregister(descriptor)  # `lab up` has seen all hosts answer: the lab stays
                    self.lifeline = None
                else:
                    return  # `lab up` was killed, or the process named by --while has ended

    def save(self):
        replace(f"{RUN}/state.json", json.dumps(self.state))

    def turn(self, name, state, at=None):
        """A host is in another state, since `at` in seconds of the machine's uptime. When it became available or ceased to
        be is in the trace."""
        was, self.state[name]["state"] = self.state[name]["state"], state
        if (was == "up") != (state == "up"):
            at = time.clock_gettime(time.CLOCK_BOOTTIME) if at is None else at
            with open(TRACE, "a") as trace:
                trace.write(f"{at:.3f} {name} {'up' if state == 'up' else 'down'}\n")

    def hear(self, descriptor):
        """What a host tells: that its shutdown has begun."""
        name = self.pipes[descriptor]
        with contextlib.suppress(BlockingIOError):
            for line in os.read(descriptor, 4096).decode().splitlines():
                if self.state[name]["state"] == "up":
                    self.turn(name, "stopping", float(line.split()[1]))
        self.save()

    def prepare(self, host, power):
        for descriptor in [number for number, name in self.pipes.items() if name == host.name]:
            self.hear(descriptor)
            self.poll.unregister(descriptor)
            del self.pipes[descriptor]
            os.close(descriptor)
        if host.kind != "vm":
            descriptor = prepare(host.name, power)
            self.pipes[descriptor] = host.name
            self.poll.register(descriptor, select.POLLIN)

    def boot(self, hosts, power=()):
        """Starts hosts: a process in a new network namespace each, then all links, then the rest. Those in `power` had none."""
        for host in hosts:
            self.prepare(host, host.name in power)
        # The links of an earlier boot go away with its network namespace, a little later: be sure.
        ports = [f"link del {host.name}-{link}\n" for host in hosts if self.state[host.name]["boots"] for link in host.links]
        subprocess.run(["ip", "-force", "-batch", "-"], input="".join(ports), text=True, stderr=subprocess.DEVNULL)
        started = []
        for host in hosts:
            if host.kind == "sysd":
                self.mount_root(host)
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                ours.close()
                self.child(host, theirs)
            theirs.close()
            started.append((host, pid, ours))
        lines = []
        started = [(host, pid, pipe) for host, pid, pipe in started if pipe.recv(1)]
        for host, pid, pipe in started:
            for link, (bridge, _) in host.links.items():
                port = f"{host.name}-{link}"
                lines += [f"tuntap add {port} mode tap{' multi_queue' * (CPUS > 1)}" if host.kind == "vm" else
                          f"link add {port} type veth peer name {link} address {host.mac(link)} netns {pid}",
                          f"link set {port} mtu 9000 addrgenmode none master {bridge} up"]
            if host.kind != "hidden":
                lines.append(f"neigh replace {host.address} lladdr {host.mac('eth0')} dev mgmt nud permanent")
        run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        for host, pid, pipe in started:
            pipe.send(b"g")
            if host.kind == "vm":
                self.monitors[pipe.fileno()] = Monitor(host, pid, pipe)
                self.poll.register(pipe.fileno(), select.POLLIN)
            else:
                if host.kind != "sysd":
                    pid = int(pipe.recv(16) or 0)
                pipe.close()
            self.state[host.name].update(pid=pid, boots=self.state[host.name]["boots"] + 1)
            self.turn(host.name, "booting" if pid else "off")
        self.save()

    def mount_root(self, host):
        root = f"{FS}/{host.name}/root"
        if not os.path.ismount(root):
            overlay(host)
            host_files(host, root)

    def child(self, host, pipe):
        """What becomes a host. Never returns."""
        try:
            if host.kind == "vm":
                pipe.send(b"n")
                pipe.recv(1)
                become_qemu(host, self.accelerator, pipe)
            unshare(NEWNET | NEWNS)
            mount(None, "/", None, REC | PRIVATE)
            pipe.send(b"n")
            pipe.recv(1)
            if host.kind == "sysd":
                self.firmware(host)
                become_nspawn(host)
            fresh = not os.path.exists(f"{FS}/{host.name}/upper")
            overlay(host)
            if fresh:
                host_files(host, f"{FS}/{host.name}/root")
            unshare(NEWUTS | NEWIPC | NEWPID)
            pid = os.fork()
            if pid == 0:
                self.firmware(host)
                become_sshd(host)
            pipe.send(str(pid).encode())
            os._exit(0)
        except BaseException as error:
            print(f"{host.name}: {error}", file=sys.stderr, flush=True)
        os._exit(1)

    def firmware(self, host):
        """What a machine does before its kernel runs: until then nobody answers in the network."""
        time.sleep(float(fault(host.name, "slow-boot") or 0))
        if fault(host.name, "new-host-key") is not None:
            new_host_keys(f"{FS}/{host.name}/root")
        configure_links(host)

    def reap(self):
        """A host whose first process has ended is off, unless it asked for a reboot."""
        ended = {}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                ended[pid] = os.waitstatus_to_exitcode(status)
        again = []
        for name, entry in self.state.items():
            if entry["pid"] in ended:
                code = ended[entry["pid"]]
                entry["pid"] = 0
                self.turn(name, "off")
                print(f"{name}: boot {entry['boots']} ended with {code}", file=sys.stderr, flush=True)
                # The kernel ends the first process of a namespace that asks for a restart with SIGHUP.
                if code == (133 if entry["kind"] == "sysd" else -signal.SIGHUP) and fault(name, "no-boot") is None:
                    again.append(self.hosts[name])
        if ended:
            self.save()
        if again:
            self.boot(again)

    def listen(self, descriptor):
        """Follows what qemu tells of a host: it restarts by itself, without ending."""
        monitor = self.monitors[descriptor]
        entry, events = self.state[monitor.host.name], monitor.events()
        if events is None:
            self.poll.unregister(descriptor)
            del self.monitors[descriptor]
            return
        # What one tells that has been killed, when the next one runs, or none, is no news.
        for event in events if entry["pid"] == monitor.pid else []:
            self.turn(monitor.host.name, "up" if event == "up" else "booting")
            # The firmware resets once more by itself, so a reboot is counted when the host is up again.
            if event == "up":
                entry["boots"] += monitor.reset
            monitor.reset = event == "reset" or monitor.reset and event != "up"
        self.save()

    def grant(self):
        """Carries out what `lab reset`, `lab renew` and `lab powercycle` asked for."""
        again, power = [], set()
        for name in os.listdir(WISHES):
            host, entry = self.hosts[name], self.state[name]
            if entry["pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(first_process(entry), signal.SIGKILL)
                self.turn(name, "stopping")
                continue  # its end wakes us again
            wish = read(f"{WISHES}/{name}")
            os.unlink(f"{WISHES}/{name}")
            if wish == "renew":
                self.forget_files(host)
            elif wish == "powercycle":
                power.add(name)
                if fault(name, "no-boot") is not None:
                    continue
            again.append(host)
        if again:
            self.boot(again, power)

    def forget_files(self, host):
        top = f"{FS}/{host.name}"
        while libc.umount2(f"{top}/root".encode(), 2) == 0:
            pass
        for folder, _, _ in os.walk(top):
            set_immutable(folder, False)
        os.rename(top, f"{FS}/.old-{host.name}-{self.state[host.name]['boots']}")
        for old in os.listdir(FS):
            if old.startswith(".old-"):
                shutil.rmtree(f"{FS}/{old}", ignore_errors=True)

    def look(self):
        """Finds out which of the booting hosts answer by now, and tells `lab up`."""
        changed = False
        for name, entry in self.state.items():
            if entry["state"] == "booting" and entry["kind"] != "vm" and answers(entry):
                self.turn(name, "up", since(entry))
                changed = True
        if changed:
            self.save()
        if self.report is not None:
            missing = [name for name, entry in self.state.items() if entry["state"] != "up"]
            dead = [name for name in missing if self.state[name]["state"] == "off"]
            if not missing or dead or time.time() > self.deadline:
                os.write(self.report, " ".join(missing).encode() or b"-")
                os.close(self.report)
                self.report = None


def first_process(entry):
    """The pid of a host's pid 1, or of the qemu that is the host, as the lab's pid namespace counts."""
    if entry["kind"] != "sysd":
        return entry["pid"]
    children = read(f"/proc/{entry['pid']}/task/{entry['pid']}/children").split()
    return int(children[-1]) if children else entry["pid"]


def since(entry):
    """Since when sshd listens, in seconds of the machine's uptime: it writes its pid into a file when it does."""
    try:
        written = os.stat(f"/proc/{first_process(entry)}/root/run/sshd.pid").st_mtime
    except OSError:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - written)


def answers(entry):
    """Whether sshd listens, without connecting: a connection would show in its log."""
    try:
        if ":0016 00000000:0000 0A" not in read(f"/proc/{entry['pid']}/net/tcp"):
            return False
        # until this file is gone only root may log in
        return entry["kind"] != "sysd" or not os.path.lexists(f"/proc/{first_process(entry)}/root/run/nologin")
    except OSError:
        return False
