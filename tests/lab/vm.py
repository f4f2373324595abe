"""Hosts that are whole machines: qemu with a kernel of their own, unlike the other hosts, which have the machine's."""

import base64, contextlib, json, os, select, shutil, signal, socket, subprocess, sys, time

from hosts import SUITE, bootstrap, host_files, rootfs_stamp
from system import BIND, FS, LAB, LAYER, LOGS, NEWNS, PATH, PRIVATE, REC, ROOTFS, fail, mount, put, read, run, unshare

VM = f"{LAB}/vm"
STAMP = f"{VM}.stamp"
# Changed whenever the way the images are made changes, so that cached ones are built again.
VM_VERSION = 1
# Run on this machine, unpacked and not installed: qemu with its libraries and firmware, the hosts' kernel, and the
# shell of their initial file system. So it is no matter which qemu this machine has.
TOOLS = "qemu-system-x86 linux-image-amd64 busybox-static".split()
# What a host has beyond the packages of the others.
PACKAGES = """
    udev rdma-core ibverbs-utils ibverbs-providers rdmacm-utils infiniband-diags perftest pciutils
""".split()
# What stays of the kernel's modules: what a network can need, and what the devices of qemu do. All others would only make
# the disk larger, and a boot longer by what it finds to load.
MODULES = """
    net lib crypto fs/ext4 fs/jbd2 fs/mbcache.ko fs/overlayfs fs/fuse fs/configfs drivers/net drivers/infiniband drivers/virtio
    drivers/block/virtio_blk.ko drivers/char/virtio_console.ko drivers/char/hw_random drivers/ptp drivers/pps drivers/pci
""".split()
NOT_OF_THESE = "drivers/net/wireless drivers/net/usb net/wireless net/mac80211 net/bluetooth".split()
# Units that find nothing to do here, and take seconds for it under software emulation.
MASKED = """
    modprobe@.service e2scrub_reap.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount
    systemd-update-utmp.service systemd-update-utmp-runlevel.service dev-mqueue.mount dev-hugepages.mount
""".split()
CPUS = 2
QEMU = "/usr/bin/qemu-system-x86_64 -nodefaults -no-user-config -display none -M q35 -cpu max -m 640".split()

# The root of a host is an overlay, as with the others: what all share below, and the host's own disk above.
INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod $module; done
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do $b sleep 0.1; done
$b mount -t ext4 -o ro /dev/vda /shared && $b mount -t ext4 /dev/vdb /own &&
    $b mount -t overlay -o lowerdir=/shared,upperdir=/own/upper,workdir=/own/work lab /root &&
    exec $b switch_root /root /sbin/init
"""
UNIT = """\
[Unit]
Description=What `lab exec` talks to
After=network.target ssh.service systemd-user-sessions.service

[Service]
ExecStart=/usr/bin/python3 -I /usr/local/lib/lab/agent.py
Restart=always
"""


def images_stamp():
    return f"{VM_VERSION} {' '.join(TOOLS + PACKAGES)} with {' '.join(MODULES)} but {' '.join(NOT_OF_THESE)} on {rootfs_stamp()}"


def images_are_current():
    return os.path.exists(STAMP) and read(STAMP) == images_stamp()


def images():
    """Makes what all machines share: qemu, their kernel, its first file system, and a disk with the hosts' packages."""
    if os.uname().machine != "x86_64":
        fail("--vm needs an x86-64 machine")
    start, new = time.time(), f"{VM}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(STAMP)
    for old in (VM, new):
        if os.path.exists(old):
            shutil.rmtree(old)
    os.makedirs(new)
    bootstrap(TOOLS, f"{new}/tools", "--variant=extract")
    run(["cp", "-a", ROOTFS, f"{new}/root"])
    shutil.rmtree(f"{new}/root/dev")  # mmdebstrap makes it itself, and fails if it is there
    bootstrap(PACKAGES, f"{new}/root", "--variant=custom", "--skip=check/empty")
    kernel, = os.listdir(f"{new}/tools/lib/modules")
    modules = f"lib/modules/{kernel}"
    for name in [f"kernel/{name}" for name in MODULES] + ["modules.order", "modules.builtin", "modules.builtin.modinfo"]:
        os.makedirs(os.path.dirname(f"{new}/root/{modules}/{name}"), exist_ok=True)
        run(["mv", f"{new}/tools/{modules}/{name}", f"{new}/root/{modules}/{name}"])
    shutil.rmtree(f"{new}/tools/lib/modules")
    for folder in NOT_OF_THESE:
        shutil.rmtree(f"{new}/root/{modules}/kernel/{folder}")
    run(["chroot", f"{new}/root", "depmod", kernel])
    os.rename(f"{new}/tools/boot/vmlinuz-{kernel}", f"{new}/kernel")
    initial(new, kernel)
    disk(f"{new}/shared.img", f"{new}/root", 1, "^has_journal")
    shutil.rmtree(f"{new}/root")
    os.rename(new, VM)
    put(STAMP, images_stamp())
    print(f"lab: qemu and the machines' disk built in {time.time() - start:.0f} s")


def initial(new, kernel):
    """Packs the first file system of a boot: a shell and the modules that reach the disks."""
    top = f"{new}/initial"
    for folder in ("bin", "dev", "modules", "own", "root", "shared"):
        os.makedirs(f"{top}/{folder}")
    shutil.copy(f"{new}/tools/bin/busybox", f"{top}/bin/busybox")
    run(["sh", "-ec", """
        for module in virtio_pci virtio_blk crc32c_generic ext4 overlay; do
            chroot "$1" modprobe -S "$2" --show-depends $module
        done | while read -r insmod path; do
            case $insmod in insmod) ;; *) continue ;; esac
            set -- "$1" "$2" "$3" $((${4-100} + 1))
            [ -n "$(find "$3/modules" -name "*-${path##*/}")" ] || cp "$1$path" "$3/modules/$4-${path##*/}"
        done""", "sh", f"{new}/root", kernel, top])
    put(f"{top}/init", INIT, 0o755)
    run(["sh", "-ec", 'cd "$1"; find . | bin/busybox cpio -o -H newc >"$2" 2>/dev/null', "sh", top, f"{new}/initial.cpio"])
    shutil.rmtree(top)


def disk(path, folder, gigabytes, features):
    with open(path, "w") as file:
        file.truncate(gigabytes << 30)
    run(["mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", features, "-d", folder, path])


def own_disk(host):
    """A host's own disk. Only for a new host."""
    top, new = f"{FS}/{host.name}", f"{FS}/{host.name}/new"
    os.makedirs(f"{new}/work")
    run(["cp", "-a", LAYER, f"{new}/upper"])
    host_files(host, f"{new}/upper")
    put(f"{new}/upper/usr/local/lib/lab/agent.py", read(f"{os.path.dirname(os.path.realpath(__file__))}/agent.py"))
    units = f"{new}/upper/etc/systemd/system"
    put(f"{units}/lab-agent.service", UNIT)
    os.symlink("../lab-agent.service", f"{units}/multi-user.target.wants/lab-agent.service")
    for name in MASKED:
        os.symlink("/dev/null", f"{units}/{name}")
    disk(f"{top}/own.img", new, 4, "has_journal")
    shutil.rmtree(new)


def enter_tools(own):
    """Makes qemu's folder the root of this process, with the images, a host's own folder and the logs in it."""
    unshare(NEWNS)
    mount(None, "/", None, REC | PRIVATE)
    tools = f"{VM}/tools"
    for source, target in ((VM, "boot"), (own, "tmp"), (LOGS, "var"), ("/dev", "dev")):
        mount(source, f"{tools}/{target}", None, BIND)
    os.chroot(tools)
    os.chdir("/")


def accelerator():
    """What runs the machines' processors: KVM, or software where it isn't there or doesn't get a kernel to its end.

    /dev/kvm alone says nothing: there are machines where it can be opened and no guest ever runs.
    """
    command = [*QEMU, "-accel", "kvm", "-no-reboot", "-kernel", "/boot/kernel", "-append", "quiet panic=-1"]
    if os.path.exists("/dev/kvm"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Without a root file system the kernel panics and restarts, which ends qemu.
            if subprocess.run(command, timeout=15, preexec_fn=lambda: enter_tools(FS), stderr=subprocess.DEVNULL).returncode == 0:
                return "kvm"
    print("no working KVM: the machines run under software emulation", file=sys.stderr, flush=True)
    return "tcg,thread=multi,tb-size=256"


def become_qemu(host, accel, monitor):
    """Makes this process the qemu of a host, which reports to this socket. Links and files are there."""
    if not os.path.exists(f"{FS}/{host.name}/own.img"):
        own_disk(host)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{FS}/{host.name}/exec")
    os.setsid()
    enter_tools(f"{FS}/{host.name}")
    null, log = os.open("/dev/null", os.O_RDONLY), os.open(f"/var/{host.name}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for number, descriptor in enumerate((null, log, log, monitor.fileno())):
        os.dup2(descriptor, number)
    os.closerange(4, 4096)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    links = []
    for link in host.links:
        links += ["-netdev", f"tap,id={link},ifname={host.name}-{link},script=no,downscript=no,queues={CPUS}", "-device",
                  f"virtio-net-pci,netdev={link},mac={host.mac(link)},mq=on,vectors={2 * CPUS + 2}"]
    os.execve(QEMU[0], [
        *QEMU, "-name", host.name, "-accel", accel, "-smp", str(CPUS),
        "-kernel", "/boot/kernel", "-initrd", "/boot/initial.cpio",
        "-append", "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off systemd.getty_auto=no",
        "-drive", "file=/boot/shared.img,if=virtio,format=raw,readonly=on",
        "-drive", "file=/tmp/own.img,if=virtio,format=raw,cache=unsafe",
        *links,
        "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
        "-chardev", "socket,id=exec,path=/tmp/exec,server=on,wait=off",
        "-device", "virtserialport,chardev=exec,name=lab,id=exec",
        "-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control",
        "-serial", f"file:/var/{host.name}-console.log"], {"PATH": PATH})


class Monitor:
    """What qemu tells of a host."""

    def __init__(self, host, pid, pipe):
        self.host, self.pid, self.pipe, self.rest, self.reset = host, pid, pipe, b"", False
        with contextlib.suppress(ConnectionError):  # if it has ended already, the next read tells
            pipe.send(b'{"execute": "qmp_capabilities"}\n')

    def events(self):
        """The changes of its state that have been told by now: "reset", "up", "down". None when qemu has ended."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self.pipe.recv(65536)
        if not data:
            self.pipe.close()
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        found = []
        for event in map(json.loads, lines):
            if event.get("event") == "RESET":
                found.append("reset")
            elif event.get("event") == "VSERPORT_CHANGE":  # the agent opens the port when the host is up
                found.append("up" if event["data"]["open"] else "down")
        return found


def execute(name, command, gone):
    """Runs a command in a host as root. Writes its outputs as they come, and returns its exit code.

    `gone` says whether the host has gone down since: then nobody is left to answer.
    """
    channel = socket.socket(socket.AF_UNIX)
    os.chdir(f"{FS}/{name}")  # the path of a socket has at most 107 bytes
    channel.connect("exec")
    nonce, rest = base64.b64encode(os.urandom(12)).decode(), b""
    channel.sendall(json.dumps([nonce, command]).encode() + b"\n")
    while True:
        if not select.select([channel], [], [], 1)[0]:
            if gone():
                fail(f"{name} went down")
            continue
        data = channel.recv(65536)
        if not data:
            fail(f"{name} went down")
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            # What was meant for one that was killed before us can still come.
            with contextlib.suppress(ValueError):
                of, number, value = json.loads(line)
                if of != nonce:
                    continue
                if number == 0:
                    return value
                output = (sys.stdout, sys.stderr)[number - 1].buffer
                output.write(base64.b64decode(value))
                output.flush()
