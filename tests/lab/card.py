#!/usr/bin/python3 -I
"""A simulated ConnectX on a host of the lab: a PCI device with its interfaces and RDMA devices as sysfs shows them, and
the firmware tools that go with it. Nothing of it is hardware, a driver or a tool of NVIDIA's.

card add ADDRESS [KEY=VALUE..]     put a card on this host, or change it
card fault ADDRESS [FAULT..]       it has these faults from now on, and no others
card power                         what power off and on does to all cards
card show ADDRESS PARAMETER        default, current and next value
card poke ADDRESS PARAMETER VALUE  set the next value, as somebody else would
card calls                         the calls of the tools since `card calls` was last asked
card boot                          done at each boot: show the cards in /sys

Under the name of a tool (mlxconfig, mstconfig, mlxfwreset, mstfwreset, mstflint, flint, mst) it is that tool. See docs/lab.md.
"""
import fcntl, glob, json, os, shutil, signal, subprocess, sys, time

CARDS, TOOLS = "/var/lib/simulated-cards", "/usr/local/bin"
# What the lab tells this host: see faults.py.
LAB = "/run/lab"
QOS = "/usr/local/sbin/simulated-qos"
UNIT = "/etc/systemd/system/simulated-cards.service"
BOOL = {0: "False", 1: "True"}
ENUMS = {
    "LINK_TYPE": {1: "IB", 2: "ETH"}, "ROCE_CONTROL": {0: "DEVICE_DEFAULT", 1: "ROCE_DISABLE", 2: "ROCE_ENABLE"},
    "SRIOV_EN": BOOL, "ATS_ENABLED": BOOL, "KEEP_ETH_LINK_UP": BOOL, "ADVANCED_PCI_SETTINGS": BOOL,
    "PCI_WR_ORDERING": {0: "per_mkey", 1: "force_relax"}, "UAR_BAR_SIZE": {1: "_256KB", 2: "_512KB"},
    "PCI_ATOMIC_MODE": {0: "PCI_ATOMIC_DISABLED_EXT_ATOMIC_ENABLED", 1: "PCI_ATOMIC_ENABLED_EXT_ATOMIC_DISABLED"},
}
PER_CARD = {"HOST_CHAINING_DESCRIPTORS": [0] * 8, "PCI_ATOMIC_MODE": 0, "UAR_BAR_SIZE": 1, "SRIOV_EN": 0, "NUM_OF_VFS": 0,
            "ATS_ENABLED": 0, "ROCE_CONTROL": 2, "ADVANCED_PCI_SETTINGS": 0, "MAX_ACC_OUT_READ": 0, "PCI_WR_ORDERING": 0,
            "CARD_REVISION": 3}
PER_PORT = {"LINK_TYPE": 2, "CNP_DSCP": 48, "CNP_802P_PRIO": 6, "ROCE_CC_PRIO_MASK": 255, "KEEP_ETH_LINK_UP": 1}
READ_ONLY, HIDDEN, GATE = {"CARD_REVISION"}, {"MAX_ACC_OUT_READ", "PCI_WR_ORDERING"}, "ADVANCED_PCI_SETTINGS"
WIDTHS = {"4.25": 16, "4.30": 20, "4.36": 33}
NEW = {"ports": 1, "interfaces": [], "rdma": [], "type": "ConnectX7", "name": "MCX75310AAS-NEA_Ax", "psid": "MT_0000000838",
       "running": "28.39.1002", "image": "28.39.1002", "tools": "mst", "version": "4.30", "seconds": 0.1, "vpi": True,
       "current": True, "qos": "none", "faults": []}


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def faults(card):
    """The faults of a card: its own, and those that `lab fault` has switched on for all of the host."""
    return set(card["faults"]) | set(os.listdir(f"{LAB}/faults") if os.path.isdir(f"{LAB}/faults") else [])


def fault_value(name):
    with open(f"{LAB}/faults/{name}") as file:
        return file.read()


def path(address):
    return f"{CARDS}/{address}.json"


def load(address):
    with open(path(address)) as file:
        card = json.load(file)
    if card["boot"] != boot_id():  # the first who asks after a boot
        card["boot"] = boot_id()
        waits = "cold" in faults(card) or "fwreset" in faults(card) and not card.get("armed")
        if os.path.exists(f"{LAB}/power") or not waits:
            card = loaded(card)
        save(card)
    return card


def loaded(card):
    """What a boot does: the card takes over what is set for it."""
    if "stubborn" not in faults(card):
        card["values"] = {name: [default, following, following] for name, (default, _, following) in card["values"].items()}
    if "resets" in faults(card) and fault_value("resets") in card["values"]:
        lost = card["values"][fault_value("resets")]
        lost[1:] = [lost[0]] * 2
    return dict(card, running=card["image"], armed=False)


def save(card):
    with open(path(card["address"]) + ".new", "w") as file:
        json.dump(card, file, indent=1)
    os.rename(file.name, path(card["address"]))


def addresses():
    return sorted(os.path.basename(name)[:-5] for name in glob.glob(f"{CARDS}/*.json"))


def stem(name):
    return name[:-3] if name[-3:-1] == "_P" else name


def text(card, name, value):
    if isinstance(value, list):
        return f"Array[0..{len(value) - 1}]"
    word = ENUMS.get(stem(name), {}).get(value)
    return f"{word}({value})" if word and "numbers" not in faults(card) else str(value)


def add(address, settings):
    os.makedirs(CARDS, exist_ok=True)
    old = os.path.exists(path(address))
    card = load(address) if old else dict(NEW, address=address, boot=boot_id(), values={})
    tools = card.get("qos", "none")
    for key, _, value in (setting.partition("=") for setting in settings):
        if key not in NEW:
            sys.exit(f"card: no key {key}; there are {', '.join(NEW)}")
        kind = type(NEW[key])
        card[key] = value.split(",") if kind is list else value == "true" if kind is bool else kind(value)
    wanted = dict(PER_CARD)
    for port in range(1, card["ports"] + 1):
        wanted.update({f"{name}_P{port}": value for name, value in PER_PORT.items() if card["vpi"] or name != "LINK_TYPE"})
    card["values"] = {name: card["values"].get(name, [value] * 3) for name, value in sorted(wanted.items())}
    save(card)
    for tool in ("mlxconfig", "mstconfig", "mlxfwreset", "mstfwreset", "mstflint", "flint", "mst"):
        there = {"mst": tool in ("mstconfig", "mstfwreset", "mstflint"), "none": False,
                 "mft": tool in ("mlxconfig", "mlxfwreset", "flint", "mst")}[card["tools"]]
        name = f"{TOOLS}/{tool}"
        if os.path.lexists(name):
            os.unlink(name)
        if there:
            os.symlink(os.path.realpath(__file__), name)
    if card["qos"] != tools:
        subprocess.run([QOS, "tools", card["qos"]], check=True)
    if os.path.isdir("/run/systemd/system") and not os.path.exists(UNIT):
        put(UNIT, f"[Unit]\nDescription=Simulated cards\nDefaultDependencies=no\nBefore=network-pre.target sysinit.target\n"
            f"[Service]\nType=oneshot\nKillMode=process\nExecStart={os.path.realpath(__file__)} boot\n[Install]\nWantedBy=sysinit.target\n")
        subprocess.run(["systemctl", "-q", "enable", os.path.basename(UNIT)], check=True)
    show()


def put(name, content):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w") as file:
        file.write(content)


# What of /sys is the host's own and what is simulated: /sys/bus/pci/devices and /sys/class are file systems in memory. An
# interface is a folder there, whose attributes are links to the kernel's own; the classes have the kernel's links.
PCI, CLASS = "/sys/bus/pci/devices", "/sys/class"


def show(booting=False):
    with open("/proc/self/mounts") as mounts:
        shown = [line.split()[1] for line in mounts if line.startswith("simulated ")]
    for top in (CLASS, PCI):
        if top in shown:
            subprocess.run(["umount", "-l", top], check=True)
    kernels = "/run/simulated-class"
    shutil.rmtree(kernels, ignore_errors=True)
    shutil.copytree(CLASS, kernels, symlinks=True, ignore_dangling_symlinks=True, copy_function=lambda *_: None)
    for top in (PCI, CLASS):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "simulated", top], check=True)
    shutil.copytree(kernels, CLASS, symlinks=True, dirs_exist_ok=True)
    os.makedirs(f"{CLASS}/infiniband")
    down = booting and os.path.exists(f"{LAB}/faults/port-down")
    for address in addresses():
        show_card(load(address), down)
    # What this process goes on with, the boot doesn't wait for.
    if down and os.fork() == 0:
        os.setsid()
        for state in (INIT, ACTIVE):
            time.sleep(float(fault_value("port-down")) / 2)
            for port in glob.glob(f"{PCI}/*/infiniband/*/ports/1"):
                put_state(port, state)
        os._exit(0)


DOWN, INIT, ACTIVE = ("1: DOWN", "2: Polling"), ("2: INIT", "5: LinkUp"), ("4: ACTIVE", "5: LinkUp")


def put_state(port, state):
    for file, value in zip(("state", "phys_state"), state):
        put(f"{port}/{file}", f"{value}\n")


def show_card(card, down):
    for number in range(card["ports"]):
        function = f"{card['address'][:-1]}{number}"
        link_type = card["values"].get(f"LINK_TYPE_P{number + 1}", [2, 2, 2])[1]
        top = f"{PCI}/{function}"
        files = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020000" if link_type == 2 else "0x020700", "numa_node": 0,
                 "local_cpulist": os.popen("cat /sys/devices/system/cpu/online").read().strip(),
                 "uevent": f"DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:1021\nPCI_SLOT_NAME={function}",
                 "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
                 "current_link_width": 16, "max_link_width": 16}
        for name, value in files.items():
            put(f"{top}/{name}", f"{value}\n")
        with open(f"{top}/config", "wb") as config:
            config.write(b"\xb3\x15\x21\x10" + bytes(4092))
        os.makedirs(f"{top}/msi_irqs")
        interface = card["interfaces"][number] if number < len(card["interfaces"]) else None
        if interface:
            folder, kernels = f"{top}/net/{interface}", f"/sys/devices/virtual/net/{interface}"
            os.makedirs(folder)
            for name in os.listdir(kernels):
                if name not in ("subsystem", "device"):
                    os.symlink(f"{kernels}/{name}", f"{folder}/{name}")
            if "half-speed" in faults(card):
                with open(f"{kernels}/speed") as speed:
                    half = int(speed.read()) // 2
                os.unlink(f"{folder}/speed")
                put(f"{folder}/speed", f"{half}\n")
            os.symlink(top, f"{folder}/device")
            os.unlink(f"{CLASS}/net/{interface}")
            os.symlink(folder, f"{CLASS}/net/{interface}")
        if number < len(card["rdma"]):
            show_rdma(card, card["rdma"][number], top, interface, link_type, DOWN if down else ACTIVE)
        if card["qos"] != "none" and interface:
            rdma = f"{top}/infiniband/{card['rdma'][number]}" if number < len(card["rdma"]) else ""
            subprocess.run([QOS, "show", f"{top}/net/{interface}", rdma], check=True)


def show_rdma(card, name, top, interface, link_type, state):
    folder = f"{top}/infiniband/{name}"
    port, ethernet = f"{folder}/ports/1", link_type == 2
    address = os.popen(f"ip -4 -o addr show dev {interface}").read().split()[3].split("/")[0] if interface else "0.0.0.0"
    roce = ethernet and card["values"]["ROCE_CONTROL"][1] != 1
    mapped = "0000:0000:0000:0000:0000:ffff:" + "{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))
    zero, local = ":".join(["0000"] * 8), "fe80:0000:0000:0000:0063:ffff:fe00:0001"
    files = {"fw_ver": card["running"], "board_id": card["psid"], "hca_type": "MT4129", "node_type": "1: CA",
             "node_guid": "c470:bd03:00cf:4964", "sys_image_guid": "c470:bd03:00cf:4964"}
    for file, value in files.items():
        put(f"{folder}/{file}", f"{value}\n")
    put_state(port, state)
    of_port = {"rate": "200 Gb/sec (2X NDR)" if "half-speed" in faults(card) else "400 Gb/sec (4X NDR)",
               "link_layer": "Ethernet" if ethernet else "InfiniBand", "lid": "0x0" if ethernet else "0x30",
               "sm_lid": "0x0" if ethernet else "0x1", "lid_mask_count": "0"}
    for file, value in of_port.items():
        put(f"{port}/{file}", f"{value}\n")
    for index, gid in enumerate([local, local, mapped, mapped]):
        put(f"{port}/gids/{index}", (gid if roce or (index == 0 and not ethernet) else zero) + "\n")
        if roce:
            put(f"{port}/gid_attrs/types/{index}", f"{('IB/RoCE v1', 'RoCE v2')[index % 2]}\n")
            put(f"{port}/gid_attrs/ndevs/{index}", f"{interface}\n")
    os.makedirs(f"{port}/gid_attrs/types", exist_ok=True)
    os.symlink(top, f"{folder}/device")
    os.symlink(folder, f"{CLASS}/infiniband/{name}")
    # What opens it, as ib_uverbs and rdma-core's rule of udev would make it: a plain file.
    verbs = f"uverbs{len(glob.glob(f'{CLASS}/infiniband_verbs/*'))}"
    put(f"{CLASS}/infiniband_verbs/{verbs}/ibdev", f"{name}\n")
    put(f"/dev/infiniband/{verbs}", "")
    os.chmod(f"/dev/infiniband/{verbs}", 0o666)


# --- the tools

def fail(message, code=3):
    print(f"-E- {message}", flush=True)
    sys.exit(code)


def device(given):
    """The card that is meant: by the address of any of its functions, an RDMA device, a path of mst."""
    if given.startswith("/"):
        if not os.path.exists(given):
            print(f"Unable to parse device name {given}", file=sys.stderr)
            fail("Failed to open the device")
        with open(given) as file:
            given = file.read().strip()
    for address in addresses():
        if given.endswith(address[-7:-1], 0, -1) or given in load(address)["rdma"]:
            return load(address)
    fail("Failed to open the device")


def log(tool, given, command, **more):
    with open(f"{CARDS}/calls", "a") as calls:
        calls.write(json.dumps({"tool": tool, "device": given, "command": command, **more, "at": time.time()}) + "\n")


def config(tool, words):
    shown = want = yes = given = json_file = None
    rest = []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "-d":
            given = words.pop(0)
        elif word == "-e":
            shown = True
        elif word in ("-y", "--yes"):
            yes = True
        elif word == "-j":
            json_file = words.pop(0)
        elif word == "-v":
            print(f"{tool}, mstflint 4.30.0 (simulated), Git SHA Hash: N/A")
            return
        else:
            rest.append(word)
    command, names = rest[0] if rest else "q", rest[1:]
    log(tool, given, command, names=names)
    card = device(given)
    on = faults(card)
    lock = open(path(card["address"]) + ".lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log(tool, given, "TWICE AT ONCE")
        fail("Failed to open the device: the semaphore is locked")
    if shown and "no-e" in on:
        fail("Unrecognized option: -e")
    if "hangs" in on:
        time.sleep(3600)
    if "locked" in on:
        fail("Failed to query device: the flash semaphore is locked by another tool")
    if "livefish" in on:
        fail("Device in Livefish mode is not supported")
    time.sleep(card["seconds"])
    if command in ("q", "query"):
        query(card, names, shown, json_file, given)
    elif command in ("s", "set"):
        change(card, names, yes, given)
    elif command == "show_confs" and "no-confs" not in on:
        print(f"\nList of configurations the device {given} may support:\n{'':8}SIMULATED CONF:")
        for parameter in dict.fromkeys(stem(name) for name in visible(card)):
            words = ENUMS.get(parameter)
            print(f"{'':20}{parameter}=<{'|'.join(words.values()) if words else 'NUM'}>{'':8}what it is for")
            for number, word in (words or {}).items():
                print(f"{'':60}{number:#x}: {word}")
    elif command == "reset":
        for name, value in card["values"].items():
            value[2] = value[0]
        save(card)
        print("Applying... Done!\n-I- Please reboot machine to load new configurations.")
    else:
        fail(f"Unknown command {command}")
    log(tool, given, "end")


def visible(card):
    values = card["values"]
    return {name: value for name, value in values.items() if name not in HIDDEN or values[GATE][1] == 1}


def rows_of(card, names):
    """Name and [default, current, next] of what is asked for; an element of an array is a row of its own."""
    values = visible(card)
    if not names:
        return list(values.items())
    rows = []
    for name in names:
        base, _, index = name.partition("[")
        if base not in values:
            fail(f"The Device doesn't support {base} parameter" if card["version"] != "4.36" else
                 f"Failed to find Param / TLV with name '{base}' port 0 module -1")
        if index:
            index = int(index[:-1])
            if index >= len(values[base][0]):
                fail(f"Index {index} of the parameter {base} is out of range. Maximal index is {len(values[base][0]) - 1}")
            rows.append((name, [v[index] for v in values[base]]))
        else:
            rows.append((name, values[base]))
    return rows


def opening(card, given):
    print(f"\nDevice #1:\n----------\n\n{'Device type:':<20}{card['type']:<20}\n{'Name:':<20}{card['name']:<20}\n"
          f"{'Description:':<20}simulated ConnectX of netplay's lab\n{'Device:':<20}{given:<20}\n")


def table(card, rows, titles, cells):
    width = WIDTHS[card["version"]]
    name = 56 if width == 33 else 52 if width == 20 else 45
    print(f"{'Configurations:':<{name}}" + " ".join(f"{title:<{width}}" for title in titles))
    for row, (label, values) in zip(cells, rows):
        star = "*" if len(titles) > 1 and "New" not in titles and len(set(row)) > 1 else " "
        mark = "RO" if label in READ_ONLY and width == 33 else "  "
        pad = f"{star}{mark}     " if width == 33 else f"{star}       "
        print(f"{pad + label:<{name}}" + " ".join(f"{cell:<{width}}" for cell in row))


def query(card, names, shown, json_file, given):
    rows = rows_of(card, names)
    texts = lambda name, value: [text(card, name, v) for v in value]
    cells = [texts(name, value) for name, value in rows]
    for (name, value), row in zip(rows, cells):
        if name == "ROCE_CONTROL" and "device-default" in faults(card):
            row[1] = "DEVICE_DEFAULT(0)"
    if json_file:
        keys = ("default_value", "current_value", "next_value")
        found = {name: dict(zip(keys, row), read_only=name in READ_ONLY) for (name, _), row in zip(rows, cells)}
        put(json_file, json.dumps({"Device #1": {"device": given, "tlv_configuration": found}}))
        print(f"Query output saved to {json_file} successfully")
        return
    opening(card, given)
    if "dies" in faults(card):
        rows, cells = rows[:len(rows) // 2], cells[:len(rows) // 2]
    columns = [2] if not shown else [0, 1, 2] if card["current"] else [0, 2]
    titles = [("Default", "Current", "Next Boot")[i] for i in columns]
    table(card, rows, titles, [[row[i] for i in columns] for row in cells])
    if "dies" in faults(card):
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
    if shown and any(len(set(row)) > 1 for row in cells):
        print("The '*' shows parameters with next value different from default/current value.")
    if shown and not card["current"]:
        print("Device Firmware does not support reading current configurations")
    if "exits-3" in faults(card):
        fail("Failed to query some of the TLVs:\n    Failed to query the current values of the following TLVs:\n    nv_x nv_y")


def change(card, assignments, yes, given):
    if not assignments:
        fail("missing configuration arguments. For more information please run mstconfig -h|--help.")
    values, new = visible(card), {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            fail(f"Invalid Configuration argument {assignment}")
        base, _, index = name.partition("[")
        if base not in values:
            fail(f"The Device doesn't support {base} parameter")
        if base in READ_ONLY:
            fail(f"Operation is not supported (Read only TLV: {base})")
        if name in new:
            fail(f"Duplicate parameter, {name}.")
        words = {word: number for number, word in ENUMS.get(stem(base), {}).items()}
        if value not in words and not value.isdigit() or words and value.isdigit() and int(value) not in words.values():
            fail(f"Cannot set the value {value} for the parameter {name}: it isn't one of {', '.join(words) or 'the integers'}")
        new[name] = words.get(value, int(value) if value.isdigit() else 0)
    opening(card, given)
    rows = [(name, None) for name in new]
    table(card, rows, ["Next Boot", "New"], [["…" if "[" in name else text(card, name, values[name][2]), text(card, name, value)]
                                             for name, value in new.items()])
    print("\n Apply new Configuration? (y/n) [n] : y" if yes else "\n Apply new Configuration? (y/n) [n] :")
    if not yes:
        fail("Aborted by user.", 2)
    if "refuses" in faults(card):
        print("Applying... Failed!")
        fail("Failed to set configuration: the firmware returned bad status 0x5 (simulated)")
    for name, value in new.items():
        base, _, index = name.partition("[")
        if index:
            card["values"][base][2] = [value if i == int(index[:-1]) else v for i, v in enumerate(card["values"][base][2])]
        else:
            card["values"][base][2] = value
    save(card)
    cycle = "cold" in faults(card) and "quiet" not in faults(card)
    print(f"Applying... Done!\n-I- Please {'power cycle' if cycle else 'reboot'} machine to load new configurations.")


def firmware_reset(tool, words):
    """mlxfwreset: level 3 has the firmware load its configuration now, level 4 at the next warm reboot."""
    words = list(words)
    values = {word: words.pop(words.index(word) + 1) for word in ("-d", "-l", "--level") if word in words[:-1]}
    given, level = values.get("-d"), values.get("-l", values.get("--level", "0"))
    command = next((word for word in words if not word.startswith("-")), None)
    # Apart from mlxconfig's `q` and `reset` for whoever counts those.
    log(tool, given, f"firmware {command}", level=level)
    if given is None:
        fail("Device is required: -d DEVICE", 1)
    card = device(given)
    cold = "cold" in faults(card)
    names = {"0": 'Driver, PCI link, network link will remain up ("live-Patch")', "1": 'Only ARM side will not remain up ("Immediate reset").',
             "3": "Driver restart and PCI reset", "4": "Warm Reboot"}
    supported = {"0", "3"} if cold else {"0", "3", "4"}
    if command in ("q", "query"):
        mark = lambda row: "-Supported     " if row in supported else "-Not Supported "
        print("Reset-levels:\n" + "".join(f"{row + ': ' + title:<65}{mark(row)}{'(default)' * (row == '0')}\n" for row, title in names.items()))
        print("Reset-types (relevant only for reset-levels 1,3,4):\n"
              f"{'0: Full chip reset':<65}-Supported     (default)\n"
              f"{'1: Phy-less reset (keep network port active during reset)':<65}-Not Supported ")
    elif command in ("r", "reset"):
        if level not in supported:
            fail(f"Reset level {level} is not supported by this device (simulated)", 1)
        print(f"The reset level for device, {given} is:\n\n{level}: {names[level]}")
        if "-y" not in words and "--yes" not in words:
            fail("Aborted by user (simulated)", 1)
        if level == "3" and (not cold or "quiet" in faults(card)):
            card = loaded(card)
        save(dict(card, armed=level in ("3", "4")))
        print(f"-I- {'Sending Reset Command To Fw':<44}-Done\n-I- FW was loaded successfully.")
        show()
    else:
        fail(f"Unknown command {command} (simulated)", 1)


def flint(words):
    card = device(words[words.index("-d") + 1])
    print(f"Image type:            FS4\nFW Version:            {card['image']}")
    if card["running"] != card["image"]:
        print(f"FW Version(Running):   {card['running']}")
    print(f"FW Release Date:       1.1.2026\nProduct Version:       {card['image']}\nBase GUID:             c470bd0300cf4964        4\n"
          f"PSID:                  {card['psid']}\nSecurity Attributes:   N/A")


def mst(words):
    if words[:1] == ["start"]:
        for number, address in enumerate(addresses()):
            put(f"/dev/mst/mt4129_pciconf{number}", address)


def main():
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name in ("mlxconfig", "mstconfig"):
        config(name, words)
    elif name in ("mlxfwreset", "mstfwreset"):
        firmware_reset(name, words)
    elif name in ("flint", "mstflint"):
        flint(words)
    elif name == "mst":
        mst(words)
    elif words[:1] == ["add"]:
        add(words[1], words[2:])
    elif words[:1] == ["fault"]:
        save(dict(load(words[1]), faults=words[2:]))
    elif words[:1] == ["power"]:
        for address in addresses():
            save(loaded(load(address)))
    elif words[:1] == ["poke"]:
        card = load(words[1])
        card["values"][words[2]][2] = int(words[3])
        save(card)
    elif words[:1] == ["show"]:
        card = load(words[1])
        print(*(text(card, words[2], value) for value in card["values"][words[2]]))
    elif words[:1] == ["calls"]:
        calls = f"{CARDS}/calls"
        if os.path.exists(calls):
            print(open(calls).read(), end="")
            os.unlink(calls)
    elif words[:1] == ["boot"]:
        show(booting=True)
    else:
        sys.exit(__doc__)


main()
