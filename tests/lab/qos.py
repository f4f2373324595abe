#!/usr/bin/python3 -I
"""Stand-ins for the tools of a simulated card's quality of service: mlnx_qos, cma_roce_tos and cma_roce_mode, or dcb. None of
NVIDIA's tools and no driver is in it.

simulated-qos tools NAME            the tools that there are: mlnx_qos, dcb or none
simulated-qos show NET RDMA         add the driver's files to these folders of a simulated /sys (RDMA may be empty)
simulated-qos fault [FAULT..]       it has these faults from now on, and no others
simulated-qos calls                 the calls of the tools since `calls` was last asked

Values are kept in memory, as a driver keeps them: a boot loses them. See docs/lab.md.
"""
import glob, json, os, sys

STATE, CALLS, TOOLS = "/run/simulated-qos.json", "/run/simulated-qos.calls", "/usr/local/sbin"
FAULTS = "/var/lib/simulated-cards/qos-faults"
NEW = {"os": True, "trust": "pcp", "app": {}, "pfc": [0] * 8, "cable": 7, "buffers": [19872, 242112, 0, 0, 0, 0, 0, 0]}


def faults():
    return open(FAULTS).read().split() if os.path.exists(FAULTS) else []


def load():
    return json.load(open(STATE)) if os.path.exists(STATE) else {}


def save(state):
    with open(STATE + ".new", "w") as file:
        json.dump(state, file)
    os.rename(file.name, STATE)


def port(state, interface):
    if not os.path.exists(f"/sys/class/net/{interface}"):
        sys.exit(f"{interface}: no such device")
    return state.setdefault(interface, dict(NEW, os="firmware" not in faults()))


def settled():
    """The driver's file reads otherwise than it is written."""
    for name in glob.glob("/sys/class/infiniband/*/tc/1/traffic_class"):
        text = open(name).read().strip()
        if text.isdigit():
            put(name, f"Global tclass={text}\n")


def put(name, text):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w") as file:
        file.write(text)


def show(net, rdma):
    for side in ("np", "rp"):
        for priority in range(8):
            put(f"{net}/ecn/roce_{side}/enable/{priority}", "1\n")
    put(f"{net}/ecn/roce_np/cnp_dscp", "46\n")
    if rdma:
        put(f"{rdma}/tc/1/traffic_class", "")


def fail(message):
    print(message)
    sys.exit(1)


def mlnx_qos(words):
    given = dict(zip(words[::2], words[1::2]))
    broken, state = faults(), load()
    if "lldpad" in broken:
        print("****** WARNING: lldpad service is running and may overwrite your settings ******\n")
    at = port(state, given["-i"])
    if "-d" in given:
        at["os"] = given["-d"] == "os"
    if "--pfc" in given or "--cable_len" in given:  # both at once: what isn't given is empty
        at["pfc"] = [int(bit) for bit in given.get("--pfc", "0,0,0,0,0,0,0,0").split(",")]
        at["cable"] = int(given.get("--cable_len", 0)) or at["cable"]
    if "no-trust" in broken:
        print("Priority trust state is not supported on your system")
        if "--trust" in given:
            sys.exit(1)
    elif "--trust" in given:
        at["trust"] = given["--trust"]
    if "no-buffers" in broken:
        print("Buffers commands are not supported on your system")
    elif "--buffer_size" in given:
        at["buffers"] = [int(size) for size in given["--buffer_size"].split(",")]
    save(state)
    if "no-dcb" in broken:
        fail("ETS features are not supported on your system")
    if "older" not in broken:
        print(f"DCBX mode: {'OS' if at['os'] else 'Firmware'} controlled")
    print(f"Priority trust state: {'none' if 'no-trust' in broken else at['trust']}")
    if at["trust"] == "dscp":
        print("dscp2prio mapping:")
        for priority in range(8):
            print(f"\tprio:{priority} dscp:" + "".join(f"{d:02}," for d in range(8 * priority + 7, 8 * priority - 1, -1)))
    if "newer" in broken:
        print("default priority:")
    if "no-buffers" not in broken:
        most = "total_size" if "newer" in broken else "max_buffer_size"
        print("Receive buffer size (bytes): " + "".join(f"{size}," for size in at["buffers"]) + f"{most}=262016")
    print(f"Cable len: {at['cable']}\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7")
    print("\tenabled     " + "".join(f"{bit}   " for bit in at["pfc"]))
    if "no-buffers" not in broken:
        print("\tbuffer      " + "".join(f"{bit}   " for bit in at["pfc"]))
    for tc in range(8):
        print(f"tc: {tc} ratelimit: unlimited, tsa: vendor\n\t priority:  {tc}")


def dcb(words):
    if words[0] == "-j":
        words = words[1:]
    what, command, _, interface, *rest = words
    if "no-dcb" in faults():
        sys.exit("Attribute read: Operation not supported")
    state = load()
    at = port(state, interface)
    pairs = dict(word.split(":") for word in rest if ":" in word)
    if (what, command) == ("pfc", "show"):
        print(json.dumps({"pfc_cap": 8, "macsec_bypass": False, "delay": at["cable"], "prio_pfc": [bit == 1 for bit in at["pfc"]]}))
    elif (what, command) == ("pfc", "set"):
        for priority, value in pairs.items():
            at["pfc"][int(priority)] = int(value == "on")
        if "delay" in rest:
            at["cable"] = int(rest[rest.index("delay") + 1])
    elif (what, command) == ("app", "show"):
        entries = sorted([int(dscp), int(priority)] for dscp, priority in at["app"].items())
        print(json.dumps({"dscp_prio": entries} if entries else {}))
    elif (what, command) == ("app", "add"):
        at["app"].update(pairs)
    elif (what, command) == ("app", "flush"):
        at["app"] = {}
    elif (what, command) == ("buffer", "show"):
        print(json.dumps({"total_size": 262016, "prio_buffer": at["pfc"], "buffer_size": at["buffers"]}))
    elif (what, command) == ("buffer", "set"):
        for number, size in pairs.items():
            at["buffers"][int(number)] = int(size)
    else:
        sys.exit(f"What is \"{' '.join(words)}\"?")
    save(state)


def cma(name, words):
    given = dict(zip(words[::2], words[1::2]))
    device = given["-d"]
    if "no-rdma-cm" in faults():
        fail("Module rdma_cm is not loaded or does not support configfs")
    if not os.path.exists(f"/sys/class/infiniband/{device}"):
        fail(f"Failed to create configuration for {device}")
    state = load()
    at = state.setdefault(device, {"tos": 0, "mode": 1})
    if name == "cma_roce_tos":
        at["tos"] = int(given.get("-t", at["tos"]))
        print(at["tos"])
    else:
        at["mode"] = int(given.get("-m", at["mode"]))
        print({1: "IB/RoCE v1", 2: "RoCE v2"}[at["mode"]])
    save(state)


def main():
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name in ("mlnx_qos", "dcb", "cma_roce_tos", "cma_roce_mode"):
        with open(CALLS, "a") as calls:
            calls.write(" ".join([name, *words]) + "\n")
        settled()
        cma(name, words) if name.startswith("cma") else dcb(words) if name == "dcb" else mlnx_qos(words)
    elif words[:1] == ["tools"]:
        of = {"mlnx_qos": ("mlnx_qos", "cma_roce_tos", "cma_roce_mode"), "dcb": ("dcb",)}.get(words[1], ())
        for tool in ("mlnx_qos", "dcb", "cma_roce_tos", "cma_roce_mode"):
            if os.path.lexists(f"{TOOLS}/{tool}"):
                os.unlink(f"{TOOLS}/{tool}")
            if tool in of:
                os.symlink(os.path.realpath(__file__), f"{TOOLS}/{tool}")
    elif words[:1] == ["show"]:
        show(*words[1:])
    elif words[:1] == ["fault"]:
        put(FAULTS, " ".join(words[1:]))
        # The driver begins anew with what the firmware says.
        if os.path.exists(STATE):
            os.unlink(STATE)
    elif words[:1] == ["calls"]:
        if os.path.exists(CALLS):
            sys.stdout.write(open(CALLS).read())
            os.unlink(CALLS)
    else:
        sys.exit(__doc__)


main()
