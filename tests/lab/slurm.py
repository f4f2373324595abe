"""Real Slurm on the lab's systemd hosts: the first is the cluster's controller, all others are its nodes."""
import os

from system import put

CONTROLLER = "sd0001"
# No plugin that needs control groups: those of a container aren't Slurm's to divide. What a real cluster sets is left at its
# default wherever that works, ReturnToService and SlurmdTimeout among it.
CONFIG = """\
ClusterName=lab
SlurmctldHost={controller}({address})
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
KillWait=2
RebootProgram=/usr/sbin/reboot
ResumeTimeout=60
{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def nodes(names):
    """The nodes' names by those of the systemd hosts. The last one's is another than the host's, as some sites have it."""
    names = [name for name in names if name != CONTROLLER]
    return {name: name if name != names[-1] else f"rack1-{name}" for name in names}


def configure(hosts, layer):
    """Writes what all hosts have the same of it. The key of munge is in the file system that they share."""
    address = {host.name: host.address for host in hosts if host.kind == "sysd"}
    lines = "".join(f"NodeName={node} NodeHostname={name} NodeAddr={address[name]} CPUs=1 RealMemory=256\n"
                    for name, node in nodes(address).items())
    put(f"{layer}/etc/slurm/slurm.conf", CONFIG.format(controller=CONTROLLER, address=address[CONTROLLER], nodes=lines))
    # /var/log is a folder of the host's own, in which packages have made nothing.
    put(f"{layer}/etc/default/munge", "OPTIONS=--syslog\n")
    # The uptime that slurmd reads is the machine's, so that no reboot would be seen by it: it takes its start for the boot.
    put(f"{layer}/etc/default/slurmd", "SLURMD_OPTIONS=-b\n")


def enable(host, top):
    for unit in ("munge", "slurmctld" if host.name == CONTROLLER else "slurmd"):
        os.symlink(f"/lib/systemd/system/{unit}.service", f"{top}/etc/systemd/system/multi-user.target.wants/{unit}.service")
