"""Faults of hosts that a test switches on, and the folder by which a host and the lab tell each other about boots.

Each host has a folder of the lab's, bound to `/run/lab` in it. It isn't part of the host's file system, so it can be written
while the host is off:

faults/NAME    a fault that is switched on; the file's text is its value
power          there when this boot came after the power had been cut
tell           a pipe on which the host says `down SECONDS` when its shutdown begins, in seconds of /proc/uptime
"""
import os

from system import FS, put, read

SECONDS, PARAMETER = "SECONDS", "PARAMETER"
# What each takes as a value, if anything. `tests/lab/card.py` carries out the first six, at the boot of a host.
FAULTS = {
    "cold": None, "stubborn": None, "fwreset": None, "resets": PARAMETER, "half-speed": None, "port-down": SECONDS,
    "slow-boot": SECONDS, "slow-shutdown": SECONDS, "new-host-key": None, "no-boot": None, "failed-unit": None,
}

# Begins every shutdown that isn't forced: tells the lab, and hangs for as long as the fault says.
SHUTDOWN = """\
#!/bin/sh
read -r up idle </proc/uptime
echo "down $up" >/run/lab/tell
[ ! -e /run/lab/faults/slow-shutdown ] || sleep "$(cat /run/lab/faults/slow-shutdown)"
"""
SHUTDOWN_PATH = "/usr/local/sbin/lab-shutdown"
UNITS = {
    # What is ordered before this stops after it: sshd answers, and lets users in, as long as the shutdown hangs.
    "lab-shutdown.service": f"""\
[Unit]
Description=Tells the lab that a shutdown begins
After=ssh.service systemd-user-sessions.service systemd-networkd.service dbus.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStop={SHUTDOWN_PATH}
TimeoutStopSec=infinity
""",
    "simulated-failing.service": """\
[Unit]
Description=Simulated unit that fails
ConditionPathExists=/run/lab/faults/failed-unit
[Service]
Type=oneshot
ExecStart=/bin/false
""",
}


def folder(name):
    return f"{FS}/{name}/lab"


def fault(name, kind):
    """The value of a host's fault, or None when it is off."""
    try:
        return read(f"{folder(name)}/faults/{kind}")
    except FileNotFoundError:
        return None


def faults(name):
    """The faults that are on, with their values."""
    return {kind: fault(name, kind) for kind in sorted(os.listdir(f"{folder(name)}/faults"))}


def switch(name, kind, value):
    """Switches a fault on, or all off when `kind` is `none`."""
    top = f"{folder(name)}/faults"
    if kind == "none":
        for old in os.listdir(top):
            os.unlink(f"{top}/{old}")
    else:
        put(f"{top}/{kind}", value)


def prepare(name, power):
    """Makes the folder ready for a boot. Returns the pipe to read from."""
    top = folder(name)
    os.makedirs(f"{top}/faults", exist_ok=True)
    if not os.path.exists(f"{top}/tell"):
        os.mkfifo(f"{top}/tell")
    if power:
        put(f"{top}/power", "")
    elif os.path.exists(f"{top}/power"):
        os.unlink(f"{top}/power")
    # Open for writing as well: a host then never waits for a reader, and the pipe has no end.
    return os.open(f"{top}/tell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
