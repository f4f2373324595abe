#!/usr/bin/python3 -I
"""A SIMULATED kubectl for tests of draining: there is no cluster, only a file. Messages and exit codes are those of kubectl 1.28
as far as they are known; a pod whose eviction is refused is tried again after one second, not five.

As `kubectl` (a link to this file) it knows

    get node[s] [NAME] [-o json|name|jsonpath=TEMPLATE]    annotate node NAME KEY=VALUE|KEY- [--overwrite]    get pods [--field-selector spec.nodeName=NODE] [-o json]
    cordon NODE    uncordon NODE    drain NODE [--ignore-daemonsets] [--delete-emptydir-data] [--force] [--timeout D] ..

As `simulated-kubectl` (another link in the same folder) it sets up what that one sees:

    node NAME..                          add nodes; each runs a pod of a DaemonSet
    pod NODE NAMESPACE/NAME [TRAIT..]    add a pod. Its traits: emptydir (has local storage), bare (no controller),
                                         pdb=SECONDS (a disruption budget refuses its eviction for so long since it was first
                                         asked for), ends=SECONDS (how long it takes to end)
    fault [unreachable|forbidden]        the API server is away, or allows nothing; without a word it is well again
    calls                                the calls of kubectl since `calls` was last asked, a JSON array of words a line

The state is in `kubectl.json` beside the link that was called.
"""
import contextlib, fcntl, json, os, re, sys, time

FILE = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "kubectl.json")
RETRY_SECONDS = 1
# Flags that take a value, and those that don't.
VALUES = {"-o", "--output", "-n", "--namespace", "--context", "--kubeconfig", "--timeout", "--grace-period", "--field-selector",
          "--request-timeout", "--pod-selector", "--skip-wait-for-delete-timeout", "--cluster", "--user", "-l", "--selector"}
FLAGS = {"--overwrite", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--disable-eviction", "-A", "--all-namespaces"}


@contextlib.contextmanager
def state():
    """What there is, for a change that nothing else is between."""
    with open(FILE + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(FILE) as file:
                now = json.load(file)
        except FileNotFoundError:
            now = {"nodes": {}, "pods": [], "fault": None, "calls": []}
        yield now
        with open(FILE + ".new", "w") as file:
            json.dump(now, file, indent=1)
        os.rename(FILE + ".new", FILE)


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def seconds(text):
    """A duration as Go writes it: 90s, 1m30s, 0 for none."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    if text != "0" and "".join(number + unit for number, unit in parts) != text:
        fail(f'error: invalid argument "{text}" for "--timeout" flag: time: invalid duration "{text}"')
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for number, unit in parts)


def parse(words):
    words, plain, options = list(words), [], {}
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            plain.append(word)
        elif name in VALUES:
            if not equals and not words:
                fail(f"error: flag needs an argument: {name}")
            options[name] = value if equals else words.pop(0)
        elif name in FLAGS:
            options[name] = value != "false"
        else:
            fail(f"error: unknown flag: {name}\nSee 'kubectl {plain[0] if plain else ''} --help' for usage.")
    return plain, options


def found(now, name):
    if name not in now["nodes"]:
        fail(f'Error from server (NotFound): nodes "{name}" not found')
    return now["nodes"][name]


def node_object(name, node):
    spec = {"podCIDR": "10.244.0.0/24"}
    if node["unschedulable"]:
        spec.update(unschedulable=True, taints=[{"effect": "NoSchedule", "key": "node.kubernetes.io/unschedulable"}])
    return {"apiVersion": "v1", "kind": "Node", "spec": spec,
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": node.get("annotations", {})},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}


def pod_object(pod):
    namespace, _, name = pod["name"].partition("/")
    owners = [] if "bare" in pod else [{"kind": "DaemonSet" if "daemonset" in pod else "ReplicaSet", "name": name, "controller": True}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
            "spec": {"nodeName": pod["node"], "volumes": [{"name": "scratch", "emptyDir": {}}] if "emptydir" in pod else []},
            "status": {"phase": "Running"}}


def template(value, text):
    """What a JSONPath template gives: keys, one condition of a list, text and one `range` over all items."""
    whole = re.fullmatch(r"\{range \.items\[\*\]\}(.*)\{end\}", text)
    if whole:
        return "".join(template(item, whole[1]) for item in value["items"])

    def part(match):
        if match[1] is not None:
            return json.loads(match[1])
        now = value
        for key, field, wanted in re.findall(r"\.((?:[\w/]|\\\.)+)(?:\[\?\(@\.(\w+)==\"(\w+)\"\)\])?", match[2]):
            now = now.get(key.replace("\\.", "."), "") if isinstance(now, dict) else ""
            if field:
                now = next((one for one in now or [] if one.get(field) == wanted), "")
        return now if isinstance(now, str) else json.dumps(now)
    left = re.sub(r'\{(".*?")\}|\{((?:\.(?:[\w/]|\\\.)+(?:\[\?\(@\.\w+=="\w+"\)\])?)+)\}', "", text)
    if left:
        fail(f"error: simulated-kubectl knows no template with {left}")
    return re.sub(r'\{(".*?")\}|\{((?:\.(?:[\w/]|\\\.)+(?:\[\?\(@\.\w+=="\w+"\)\])?)+)\}', part, text)


def show(value, options):
    form = options.get("-o", options.get("--output", "name"))
    if form == "json":
        print(json.dumps(value, indent=4))
    elif form == "name":
        for item in value["items"] if "items" in value else [value]:
            print(f"{item['kind'].lower()}/{item['metadata']['name']}")
    elif form.startswith("jsonpath="):
        print(template(value, form[9:]), end="")
    else:
        fail(f"error: simulated-kubectl has no output {form}")


def get(words, options):
    kind, names = (words + [""])[0], words[1:]
    with state() as now:
        if kind in ("node", "nodes", "no"):
            items = [node_object(name, found(now, name)) for name in names or now["nodes"]]
        elif kind in ("pod", "pods", "po"):
            _, _, on = options.get("--field-selector", "").partition("spec.nodeName=")
            items = [pod_object(pod) for pod in now["pods"] if on in ("", pod["node"])]
        else:
            fail(f'error: the server doesn\'t have a resource type "{kind}"')
    show(items[0] if len(names) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}, options)


def annotate(words, options):
    with state() as now:
        known = found(now, words[1]).setdefault("annotations", {})
        for word in words[2:]:
            key, _, value = word.partition("=")
            if word.endswith("-"):
                known.pop(word[:-1], None)
            elif known.get(key, value) != value and not options.get("--overwrite"):
                fail(f"error: --overwrite is false but found the following declared annotation(s): '{key}' already has a value ({known[key]})")
            else:
                known[key] = value
    print(f"node/{words[1]} annotated")


def schedule(name, off):
    done = "cordoned" if off else "uncordoned"
    with state() as now:
        node = found(now, name)
        print(f"node/{name} {'already ' * (node['unschedulable'] == off)}{done}", flush=True)
        node["unschedulable"] = off


def drain(name, options):
    schedule(name, True)
    with state() as now:
        pods = [pod for pod in now["pods"] if pod["node"] == name]
    named = lambda trait: [pod["name"] for pod in pods if trait in pod]
    refusals = [f"cannot delete {what} ({flag} to {verb}): {', '.join(named(trait))}" for trait, flag, verb, what in (
        ("daemonset", "use --ignore-daemonsets", "ignore", "DaemonSet-managed Pods"),
        ("emptydir", "use --delete-emptydir-data", "override", "Pods with local storage"),
        ("bare", "use --force", "override", "Pods that declare no controller")) if named(trait) and not options.get(flag[4:])]
    if refusals:
        gave_up(name, f"[{', '.join(refusals)}]" if len(refusals) > 1 else refusals[0])
    if named("daemonset"):
        print(f"Warning: ignoring DaemonSet-managed Pods: {', '.join(named('daemonset'))}", file=sys.stderr, flush=True)
    given = options.get("--timeout", "0")
    limit = seconds(given) or float("inf")
    start, waiting = time.time(), [pod["name"] for pod in pods if "daemonset" not in pod]
    for pod in waiting:
        print(f"evicting pod {pod}", flush=True)
    while waiting:
        for pod in list(waiting):
            namespace, _, short = pod.partition("/")
            with state() as now:
                entry = next((entry for entry in now["pods"] if entry["name"] == pod), None)
                if entry is not None:
                    asked = entry.setdefault("asked", time.time())
                    refused = "pdb" in entry and not options.get("--disable-eviction") and time.time() < asked + entry["pdb"]
                    if not refused:
                        entry.setdefault("ending", time.time())
                        if time.time() >= entry["ending"] + entry.get("ends", 0):
                            now["pods"].remove(entry)
                            entry = None
            if entry is None:
                waiting.remove(pod)
                print(f"pod/{short} evicted", flush=True)
            elif refused:
                print(f'error when evicting pods/"{short}" -n "{namespace}" (will retry after {RETRY_SECONDS}s): Cannot evict pod as it '
                      "would violate the pod's disruption budget.", file=sys.stderr, flush=True)
        if waiting and time.time() > start + limit:
            gave_up(name, "[" + ", ".join(f'error when waiting for pod "{pod.partition("/")[2]}" to terminate: global timeout reached: '
                                          f"{given}" for pod in waiting) + "]")
        if waiting:
            time.sleep(min(RETRY_SECONDS, max(0.0, start + limit - time.time()) + 0.01))
    print(f"node/{name} drained")


def gave_up(name, why):
    fail(f'error: unable to drain node "{name}" due to error:{why}, continuing command...\n'
         f"There are pending nodes to be drained:\n {name}\n{why}")


def kubectl(words):
    with state() as now:
        now["calls"].append(words)
        fault = now["fault"]
    plain, options = parse(words)
    if fault == "unreachable":
        fail("The connection to the server 10.99.0.9:6443 was refused - did you specify the right host or port?")
    if fault == "forbidden":
        fail('Error from server (Forbidden): nodes is forbidden: User "netplay" cannot get resource "nodes" in API group "" at the '
             "cluster scope")
    command, rest = (plain + [""])[0], plain[1:]
    if command == "get":
        get(rest, options)
    elif command == "annotate" and len(rest) > 2 and rest[0] == "node":
        annotate(rest, options)
    elif command in ("cordon", "uncordon", "drain") and len(rest) == 1:
        if command == "drain":
            drain(rest[0], options)
        else:
            schedule(rest[0], command == "cordon")
    else:
        fail(f'error: unknown command "{" ".join(plain)}" for "kubectl" (simulated)')


def setup(words):
    command, rest = (words + [""])[0], words[1:]
    with state() as now:
        if command == "node" and rest:
            for name in rest:
                now["nodes"][name] = {"unschedulable": False}
                now["pods"].append({"name": f"kube-system/network-{name}", "node": name, "daemonset": True})
        elif command == "pod" and len(rest) >= 2:
            found(now, rest[0])
            traits = {key: float(value) if value else True for key, _, value in (word.partition("=") for word in rest[2:])}
            if not set(traits) <= {"emptydir", "bare", "pdb", "ends"}:
                fail(f"simulated-kubectl: no such trait among {', '.join(traits)}")
            now["pods"].append({"name": rest[1], "node": rest[0], **traits})
        elif command == "fault" and rest in ([], ["unreachable"], ["forbidden"]):
            now["fault"] = rest[0] if rest else None
        elif command == "calls":
            for call in now["calls"]:
                print(json.dumps(call))
            now["calls"] = []
        else:
            fail(__doc__)


(kubectl if os.path.basename(sys.argv[0]) == "kubectl" else setup)(sys.argv[1:])
