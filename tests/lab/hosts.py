"""What a host of the lab is: its name and links, and the files that make up its system."""

import collections, contextlib, ctypes, hashlib, os, shutil, time

import slurm
from faults import SHUTDOWN, SHUTDOWN_PATH, UNITS
from system import KEYS, LAB, LAYER, ROOTFS, RUN, put, read, run

SUITE = "bookworm"
PACKAGES = """
    systemd systemd-sysv dbus openssh-server sudo busybox fish tcsh python3 procps kmod
    util-linux e2fsprogs iproute2 iptables nftables ethtool iputils-ping iperf3 irqbalance
    network-manager netplan.io ifupdown firewalld ufw
    slurmctld slurmd slurm-client munge
    cloud-init
""".split()
# What other than networkd can configure interfaces, and firewalls, are there and off: a test switches on what it is
# about.
OFF = ["multi-user.target.wants/NetworkManager.service", "multi-user.target.wants/networking.service",
       "multi-user.target.wants/firewalld.service", "dbus-org.fedoraproject.FirewallD1.service",
       "multi-user.target.wants/ufw.service", "network-online.target.wants", "multi-user.target.wants/munge.service",
       "multi-user.target.wants/slurmctld.service", "multi-user.target.wants/slurmd.service"]
WITHOUT_DOCUMENTATION = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("man", "doc", "locale")]
STAMP = f"{ROOTFS}.stamp"
# Changed whenever the way the file system is made changes, so that a cached one is built again.
ROOTFS_VERSION = 4

PASSWORD = "correct horse"
ANY, WITH_PASSWORD = "(ALL:ALL) NOPASSWD: ALL", "(ALL:ALL) ALL"
User = collections.namedtuple("User", "name shell sudo password expired", defaults=("/bin/bash", None, False, False))
USERS = [
    User("ops", sudo=ANY),
    User("pw", sudo=WITH_PASSWORD, password=True),
    User("nosudo"),
    User("fishy", "/usr/bin/fish", ANY),
    User("cshell", "/bin/csh", ANY),
    User("banner", sudo=ANY),
    User("forced"),
    User("expired", password=True, expired=True),
]
KEY_TYPES = {"ed25519": [], "ecdsa": [], "rsa": ["-b", "2048"]}

SSHD_CONFIG = """\
LogLevel VERBOSE
Match User forced
    ForceCommand /usr/local/bin/forced
"""
FORCED = "#!/bin/sh\necho 'This account runs one command: this one.'\n"
NOISE = "echo 'Welcome to the lab.'\necho 'Maintenance on Sunday!' >&2\n"

# The program that puts simulated network cards on a host.
CARD = "/usr/local/sbin/simulated-card"
# The tools of their quality of service.
QOS = "/usr/local/sbin/simulated-qos"
# For what drains nodes by a command on a host.
KUBECTL = "/usr/local/sbin/simulated-kubectl"
# What restarts a host that has no systemd, and under which names.
RESTART, RESTARTS = "/usr/local/sbin/simulated-restart", ("reboot", "shutdown", "systemctl")

KINDS = ("fleet", "hidden", "sysd", "vm")
BRIDGES = ["mgmt", "hidden", "rail1", "rail2"]
CONTROLLER, CONTROLLER_MAC = "10.99.0.1", "02:63:ff:00:00:00"


class Host:
    """A host's name, addresses and links. `kind` is fleet, hidden, sysd or vm."""

    def __init__(self, kind, number, bastion=False):
        self.kind, self.number = kind, number
        self.prefix = {"sysd": "sd", "vm": "vm"}.get(kind, "np")
        self.name = f"{self.prefix}{number:04d}"
        low = {"sd": f"200.{number}", "vm": f"210.{number}"}.get(
            self.prefix, f"{1 + (number - 1) // 250}.{1 + (number - 1) % 250}")
        management = ("hidden", f"10.98.{low}") if kind == "hidden" else ("mgmt", f"10.99.{low}")
        self.links = {"eth0": management, "eth1": ("rail1", f"10.101.{low}"), "eth2": ("rail2", f"10.102.{low}")}
        if bastion:
            self.links["eth3"] = ("hidden", "10.98.0.1")
        self.address = management[1]

    def mac(self, link):
        return f"02:63:{('np', 'sd', 'vm').index(self.prefix):02x}:{int(link[3:]):02x}:{self.number >> 8:02x}:{self.number & 255:02x}"


def all_hosts(fleet, sysd, hidden, vm):
    shown = [Host("fleet", i, bastion=i == 1 and hidden > 0) for i in range(1, fleet - hidden + 1)]
    return shown + [Host("hidden", i) for i in range(fleet - hidden + 1, fleet + 1)] + \
        [Host("sysd", i) for i in range(1, sysd + 1)] + [Host("vm", i) for i in range(1, vm + 1)]


def rootfs_stamp():
    return f"{ROOTFS_VERSION} {SUITE} {' '.join(PACKAGES)}\n"


def rootfs_is_current():
    return os.path.exists(STAMP) and read(STAMP) == rootfs_stamp()


def bootstrap(packages, folder, *options):
    """Brings Debian packages into a folder, with all that they depend on."""
    # In a mount and a pid namespace of its own: nothing stays mounted or running if this is killed.
    run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap", "--quiet",
         '--aptopt=Acquire::Languages "none"', *options, "--include=" + ",".join(packages), SUITE, folder])


def rootfs():
    """Builds the Debian file system that all hosts share."""
    start, new = time.time(), f"{ROOTFS}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(STAMP)
    for old in (ROOTFS, new):
        if os.path.exists(old):
            shutil.rmtree(old)
    bootstrap(PACKAGES, new, "--variant=minbase", *WITHOUT_DOCUMENTATION)
    # Host keys belong to a host, and timers would make a quiet host busy at odd times.
    for name in os.listdir(f"{new}/etc/ssh"):
        if name.startswith("ssh_host_"):
            os.unlink(f"{new}/etc/ssh/{name}")
    for wants in ("timers", "getty"):
        shutil.rmtree(f"{new}/etc/systemd/system/{wants}.target.wants", ignore_errors=True)
    for name in OFF:
        path = f"{new}/etc/systemd/system/{name}"
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    os.rename(new, ROOTFS)
    put(STAMP, rootfs_stamp())
    print(f"lab: file system built in {time.time() - start:.0f} s")


def keys(hosts):
    """Makes the login keys and each host's keys; they are kept, as RSA keys take long to make."""
    new = f"{KEYS}/new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)

    def make(kind, comment, path):
        if not os.path.exists(path + ".pub"):
            run(["ssh-keygen", "-q", "-t", kind, *KEY_TYPES[kind], "-N", "", "-C", comment, "-f", f"{new}/key"])
            os.rename(f"{new}/key", path)
            os.rename(f"{new}/key.pub", path + ".pub")
    for kind in KEY_TYPES:
        make(kind, "netplay-lab", f"{KEYS}/id_{kind}")
        for host in hosts:
            make(kind, host.name, f"{KEYS}/{host.name}_{kind}")


def crypt(password):
    library = ctypes.CDLL("libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    return library.crypt(password.encode(), b"$6$netplaylab$").decode()


def layer(hosts, with_slurm):
    """Writes what all hosts have beyond Debian: the users, their keys, sudo and sshd settings."""
    hashed = crypt(PASSWORD)
    accounts = {name: read(f"{ROOTFS}/etc/{name}") for name in ("passwd", "group", "shadow")}
    authorized = "".join(read(f"{KEYS}/id_{kind}.pub") for kind in KEY_TYPES)
    put(f"{LAYER}/root/.ssh/authorized_keys", authorized, 0o600)
    for folder in ("root", "root/.ssh"):
        os.chmod(f"{LAYER}/{folder}", 0o700)
    sudoers = ""
    for uid, user in enumerate(USERS, 1000):
        home = f"/home/{user.name}"
        accounts["passwd"] += f"{user.name}:x:{uid}:{uid}::{home}:{user.shell}\n"
        accounts["group"] += f"{user.name}:x:{uid}:\n"
        # A password of 1990 that was good for 30 days has expired; 20000 is a day in 2024.
        accounts["shadow"] += f"{user.name}:{hashed if user.password else '*'}:" + \
            ("7305:0:30:7:::\n" if user.expired else "20000:0:99999:7:::\n")
        if user.sudo:
            sudoers += f"{user.name} ALL={user.sudo}\n"
        put(f"{LAYER}{home}/.ssh/authorized_keys", authorized, 0o600, uid)
        if user.name == "banner":
            for name in (".bashrc", ".profile"):
                put(f"{LAYER}{home}/{name}", NOISE, owner=uid)
        for folder in (home, f"{home}/.ssh"):
            os.chmod(f"{LAYER}{folder}", 0o700)
            os.chown(f"{LAYER}{folder}", uid, uid)
    for name, text in accounts.items():
        put(f"{LAYER}/etc/{name}", text, 0o640 if name == "shadow" else 0o644)
    put(f"{LAYER}/etc/sudoers.d/lab", sudoers, 0o440)
    put(f"{LAYER}/usr/local/bin/forced", FORCED, 0o755)
    for program, file in ((CARD, "card.py"), (QOS, "qos.py"), (RESTART, "restart.sh"), (KUBECTL, "kubectl.py")):
        put(f"{LAYER}{program}", read(f"{os.path.dirname(os.path.realpath(__file__))}/{file}"), 0o755)
    put(f"{LAYER}{SHUTDOWN_PATH}", SHUTDOWN, 0o755)
    # Its generator leaves the boot alone where this is.
    put(f"{LAYER}/etc/cloud/cloud-init.disabled", "")
    put(f"{LAYER}/etc/ssh/sshd_config.d/lab.conf", SSHD_CONFIG)
    put(f"{LAYER}/etc/default/ssh", "SSHD_OPTS='-E /var/log/sshd.log'\n")
    os.makedirs(f"{LAYER}/etc/sysconfig/network-scripts")
    if with_slurm:
        slurm.configure(hosts, LAYER)
    wants = f"{LAYER}/etc/systemd/system/multi-user.target.wants"
    os.makedirs(wants)
    os.symlink("/lib/systemd/system/systemd-networkd.service", f"{wants}/systemd-networkd.service")
    for folder, _, _ in os.walk(f"{LAYER}/etc"):
        os.chmod(folder, 0o755)
    os.chmod(f"{LAYER}/etc/sudoers.d", 0o750)
    os.chmod(LAYER, 0o755)


def host_files(host, top):
    """Writes what is a host's own into its file system. Only for a new host."""
    put(f"{top}/etc/hostname", f"{host.name}\n")
    put(f"{top}/etc/hosts", f"127.0.0.1 localhost\n{host.address} {host.name}\n")
    put(f"{top}/etc/machine-id", hashlib.md5(f"{LAB} {host.name}".encode()).hexdigest() + "\n", 0o444)
    for kind in KEY_TYPES:
        put(f"{top}/etc/ssh/ssh_host_{kind}_key", read(f"{KEYS}/{host.name}_{kind}"), 0o600)
        put(f"{top}/etc/ssh/ssh_host_{kind}_key.pub", read(f"{KEYS}/{host.name}_{kind}.pub"))
    if host.kind in ("fleet", "hidden"):
        for name in RESTARTS:
            os.symlink(RESTART, f"{top}{os.path.dirname(RESTART)}/{name}")
    if host.kind == "sysd":
        for name, text in UNITS.items():
            put(f"{top}/etc/systemd/system/{name}", text)
            os.symlink(f"../{name}", f"{top}/etc/systemd/system/multi-user.target.wants/{name}")
        if os.path.exists(f"{LAYER}/etc/slurm/slurm.conf"):
            slurm.enable(host, top)
    if host.kind in ("sysd", "vm"):
        for link, (_, address) in host.links.items():
            put(f"{top}/etc/systemd/network/10-{link}.network",
                f"[Match]\nName={link}\n\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n\n"
                # Without a written broadcast address the networkd of Debian 12 asks for the address in an endless loop.
                f"[Address]\nAddress={address}/16\nBroadcast={address.rsplit('.', 2)[0]}.255.255\n")


def new_host_keys(top):
    """Gives a host other keys than those that `known_hosts` has."""
    for kind in KEY_TYPES:
        path = f"{top}/etc/ssh/ssh_host_{kind}_key"
        os.unlink(path)
        run(["ssh-keygen", "-q", "-t", kind, *KEY_TYPES[kind], "-N", "", "-C", "another", "-f", path])


def inventory(hosts):
    options = f"-o UserKnownHostsFile={RUN}/known_hosts -o GlobalKnownHostsFile=/dev/null"
    text = "all:\n  vars:\n    ansible_user: root\n    ansible_python_interpreter: /usr/bin/python3\n" \
        f"    ansible_ssh_private_key_file: {KEYS}/id_ed25519\n    ansible_ssh_common_args: {options}\n  children:\n"
    for kind in KINDS:
        text += f"    {kind}:\n"
        if kind == "hidden":
            text += f"      vars:\n        ansible_ssh_common_args: -F {RUN}/ssh_config -J np0001\n"
        members = [host for host in hosts if host.kind == kind]
        text += "      hosts:\n" if members else "      hosts: {}\n"
        text += "".join(f"        {host.name}: {{ansible_host: {host.address}}}\n" for host in members)
    put(f"{RUN}/inventory.yaml", text)
    put(f"{RUN}/known_hosts", "".join(
        f"{host.name},{host.address} {' '.join(read(f'{KEYS}/{host.name}_{kind}.pub').split()[:2])}\n"
        for host in hosts for kind in KEY_TYPES))
    put(f"{RUN}/ssh_config", "".join(
        f"Host {host.name} {host.address}\n  HostName {host.address}\n" + ("  ProxyJump np0001\n" if host.kind == "hidden" else "")
        for host in hosts) + f"Host *\n  User root\n  IdentityFile {KEYS}/id_ed25519\n  IdentitiesOnly yes\n"
        f"  IdentityAgent none\n  UserKnownHostsFile {RUN}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n  UpdateHostKeys no\n")
