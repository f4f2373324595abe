//! The files that are shipped: each is read, and rendered for hosts of several kinds.

use netplay::inventory::vault::Vault;
use netplay::inventory::{Inventory, Options};
use netplay::playbook::{Context, Extra, HostPlay, Playbook, Tags};
use netplay::source::{Source, Span};
use netplay::yaml::Node;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn inventory(path: &Path) -> Inventory {
    let options = Options { ansible_cfg: None, ..Options::default() };
    let (inventory, warnings) = Inventory::load(&[path.display().to_string()], &options).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    inventory
}

/// The first play of a playbook on a host.
fn render(playbook: &str, inventory: &Inventory, host: &str, extra: &[&str], facts: Option<Value>) -> HostPlay {
    render_play(0, playbook, inventory, host, extra, facts)
}

/// A play of a playbook on a host.
fn render_play(
    number: usize,
    playbook: &str,
    inventory: &Inventory,
    host: &str,
    extra: &[&str],
    facts: Option<Value>,
) -> HostPlay {
    let playbook = Playbook::load(&shipped(playbook), &Vault::default()).unwrap_or_else(|e| panic!("{e}"));
    let (inventory, _) = inventory.with_playbook_dir(playbook.dir()).unwrap();
    let context =
        Context::new(inventory, Extra::parse(extra.iter().copied(), &Vault::default()).unwrap(), playbook.dir());
    let play = &playbook.plays[number];
    let settings = play.settings(&context).unwrap_or_else(|e| panic!("{e}"));
    let host = context.inventory.host(host).unwrap();
    let selected = context.inventory.select(&settings.hosts, None, None).unwrap();
    assert!(selected.hosts.contains(&host));
    let facts = facts.map(|f| Node::from_json(&Span::start(&Source::new("facts", "")), &f));
    let variables = play.variables(&context, host).unwrap();
    play.render(&variables, &Tags::default(), facts.as_ref()).unwrap_or_else(|e| panic!("{e}"))
}

fn addresses(play: &HostPlay) -> Vec<&str> {
    play.resources.iter().map(|r| &*r.address).collect()
}

fn node() -> Value {
    json!({
        "host": {"virtual": null},
        "cpus": {"count": 128},
        "service_manager": "systemd",
        "rdma": [{"name": "mlx5_0"}],
        "interfaces": [
            {"name": "lo", "kind": "loopback", "rdma": null}, {"name": "eno1", "kind": "ethernet", "rdma": null},
            {"name": "ens1f0np0", "kind": "ethernet", "pci": "0000:86:00.0", "rdma": "mlx5_0"},
            {"name": "ibp1s0", "kind": "infiniband", "pci": "0000:87:00.0", "rdma": "mlx5_1"},
        ],
    })
}

#[test]
fn every_playbook_is_read() {
    let mut found = 0;
    for entry in std::fs::read_dir(shipped("playbooks")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yaml") {
            Playbook::load(&path, &Vault::default()).unwrap_or_else(|e| panic!("{e}"));
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn the_guide_needs_no_cluster_to_be_looked_at() {
    let example = inventory(&shipped("inventory.example.yaml"));
    let before = render("playbooks/site.yaml", &example, "localhost", &[], None);
    let tcp = ["sysctl:net.core.rmem_max", "sysctl:net.ipv4.tcp_congestion_control"];
    assert_eq!(addresses(&before), tcp);
    assert!(before.wants_facts);
    // A container: no interface of the fabric, no RDMA, no systemd.
    let bare = json!({
        "host": {"virtual": "docker"}, "cpus": {"count": 2}, "service_manager": null, "rdma": [],
        "interfaces": [
            {"name": "lo", "kind": "loopback", "rdma": null}, {"name": "eth0", "kind": "ethernet", "rdma": null},
        ],
    });
    let play = render("playbooks/site.yaml", &example, "localhost", &[], Some(bare));
    assert_eq!(addresses(&play), tcp);
    assert!(!play.wants_facts);
    // Five of them are rules of the firewall.
    assert_eq!(play.skipped.len(), 14);
}

#[test]
fn a_node_of_a_cluster_gets_all_of_the_guide() {
    let example = std::fs::read_to_string(shipped("inventory.example.yaml")).unwrap();
    let half = example.find("# all:").unwrap();
    let cluster: String = example[half..].lines().map(|l| format!("{}\n", l.strip_prefix("# ").unwrap())).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    std::fs::write(&path, cluster).unwrap();
    let cluster = inventory(&path);
    assert_eq!(cluster.hosts().count(), 130);

    let play = render("playbooks/site.yaml", &cluster, "gpu007", &[], Some(node()));
    assert_eq!(
        addresses(&play),
        [
            "sysctl:net.core.rmem_max",
            "sysctl:net.ipv4.tcp_congestion_control",
            "mtu:ens1f0np0",
            "template:/etc/security/limits.d/90-rdma.conf",
            "roce_qos:ens1f0np0",
            "irq_affinity:ens1f0np0",
            "service:irqbalance",
        ]
    );
    assert_eq!(play.resources[6].title.as_deref(), Some("no irqbalance"));
    assert!(play.resources.iter().all(|r| r.become_.enabled && r.title.is_some()));
    assert_eq!(play.resources[2].title.as_deref(), Some("jumbo frames on ens1f0np0"));

    // InfiniBand's MTU isn't the host's to set.
    let play = render("playbooks/site.yaml", &cluster, "gpu007", &["{fabric_interfaces: [ibp1s0]}"], Some(node()));
    assert!(!addresses(&play).iter().any(|a| a.starts_with("mtu:") || a.starts_with("roce_qos:")));

    let play = render("playbooks/site.yaml", &cluster, "gpu007", &["{fabric_ring_size: 8192}"], Some(node()));
    assert!(addresses(&play).contains(&"nic:ens1f0np0"));

    // The packet filter is only touched where that is asked for, and SSH comes first.
    let firewall = "{firewall: true, firewall_source: 10.0.0.0/8}";
    let play = render("playbooks/site.yaml", &cluster, "gpu007", &[firewall], Some(node()));
    let rules: Vec<&str> = addresses(&play).into_iter().filter(|a| a.starts_with("firewall_rule:")).collect();
    let wanted = ["ssh", "rocev2", "iperf3", "iperf3-udp", "perftest"].map(|name| format!("firewall_rule:{name}"));
    assert_eq!(rules, wanted);

    // Interrupts are left to irqbalance where that is to run, or where the ports aren't hardware.
    for extra in ["{irqbalance: true}", "{fabric_interfaces: [eno1]}"] {
        let play = render("playbooks/site.yaml", &cluster, "gpu007", &[extra], Some(node()));
        assert!(!addresses(&play).iter().any(|a| a.starts_with("irq_affinity:")));
        let service = play.resources.iter().find(|r| &*r.address == "service:irqbalance").unwrap();
        assert_eq!(service.title.as_deref(), Some("interrupts spread over the cores"));
    }
}

#[test]
fn cards_are_set_and_asserted_where_there_are_some() {
    let example = inventory(&shipped("inventory.example.yaml"));
    let wanted = ["{nic_settings: {ROCE_CONTROL: ROCE_ENABLE}}", "{nic_firmware: {MT_0000000838: '>= 28.39.1002'}}"];
    let ours = |address: &&str| ["package:", "mlxconfig:", "firmware:"].iter().any(|kind| address.starts_with(kind));
    let of = |extra: &[&str], driver: &str| {
        let mut facts = node();
        facts["interfaces"][2]["driver"] = driver.into();
        let play = render("playbooks/site.yaml", &example, "localhost", extra, Some(facts));
        addresses(&play).into_iter().filter(ours).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(of(&[], "mlx5_core").is_empty());
    assert!(of(&wanted, "bnxt_en").is_empty());
    assert_eq!(of(&wanted, "mlx5_core"), ["package:mstflint", "mlxconfig:all", "firmware:all"]);
    assert_eq!(of(&[wanted[0], "nic_tools="], "mlx5_core"), ["mlxconfig:all"]);
}

/// What the last play asserts of a host, by title, and what it says where that doesn't hold.
fn asserted(cluster: &Inventory, host: &str, extra: &[&str], facts: Value) -> BTreeMap<String, Option<String>> {
    let play = render_play(1, "playbooks/site.yaml", cluster, host, extra, Some(facts));
    let one = |item: &netplay::playbook::Item| {
        let state = match item.resource.assess(&netplay::resource::Answers::default()).unwrap() {
            netplay::resource::Reading::State(state) => state,
            netplay::resource::Reading::NotYet(why) => panic!("{}", why.message),
        };
        (item.title.as_deref().unwrap().to_owned(), state.obstacle.map(|o| o.trouble.message))
    };
    play.resources.iter().map(one).collect()
}

#[test]
fn ports_of_the_fabric_are_there_and_have_roce() {
    let example = inventory(&shipped("inventory.example.yaml"));
    let port = |name: &str, netdev: &str, state: &str, lacks: Option<&str>| {
        json!({"name": name, "netdev": netdev, "state": state, "phys_state": "LINK_UP", "link_layer": "Ethernet",
               "roce": {"on": lacks.is_none(), "lacks": lacks}, "sm_lid": null})
    };
    let told = |rdma: &[Value], extra: &str| {
        let facts = json!({"rdma": rdma, "interfaces": [{"name": "eth1"}, {"name": "eth2"}]});
        asserted(&example, "localhost", &[extra], facts).into_values().flatten().collect::<Vec<_>>()
    };
    let right = port("mlx5_0", "eth1", "ACTIVE", None);
    let both = "{fabric_interfaces: [eth1, eth2], roce_priority: 3}";
    assert!(told(&[right.clone(), port("mlx5_1", "eth2", "ACTIVE", None)], both).is_empty());
    let typo = told(&[], "{fabric_interfaces: [eth1, eth11]}");
    assert!(typo.len() == 1 && typo[0].contains("this host has no eth11"), "{typo:?}");
    // That RoCE is off may only wait for a boot where settings of the firmware were asked for.
    let off = port("mlx5_1", "eth2", "ACTIVE", Some("roce_control"));
    assert!(told(&[right.clone(), off.clone()], both)[0].contains("without RoCE: mlx5_1"));
    let with = "{fabric_interfaces: [eth1, eth2], roce_priority: 3, nic_settings: {ROCE_CONTROL: 2}}";
    assert!(told(&[right.clone(), off], with).is_empty());
    let said = told(&[right, port("mlx5_1", "eth2", "DOWN", Some("gid"))], with);
    assert!(said[0].contains("not active: mlx5_1; without RoCE: mlx5_1"), "{said:?}");
    // A port without RoCE is looked after all the same.
    let mut facts = node();
    facts["interfaces"][2]["rdma"] = Value::Null;
    let extra = "{fabric_interfaces: [ens1f0np0], roce_priority: 3, rdma_modules: [mlx5_ib]}";
    let play = render("playbooks/site.yaml", &example, "localhost", &[extra], Some(facts));
    let found = addresses(&play);
    assert!(found.contains(&"roce_qos:ens1f0np0") && found.contains(&"kernel_module:mlx5_ib"), "{found:?}");
}

#[test]
fn infiniband_has_a_subnet_manager_on_chosen_hosts_and_one_master() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    std::fs::write(&path, "subnet_managers: {hosts: {head: }}\nib: {hosts: {head: , n1: }}\n").unwrap();
    let cluster = inventory(&path);
    let managers = |host: &str| {
        let play = render("playbooks/site.yaml", &cluster, host, &[], Some(node()));
        addresses(&play).iter().filter(|a| a.contains("opensm")).count()
    };
    assert_eq!([managers("head"), managers("n1")], [2, 0]);
    // Whether the assertion holds, of ports with these subnet managers.
    let holds = |ports: Value, extra: &[&str]| {
        let port =
            |sm: &Value| json!({"name": "mlx5_0", "link_layer": "InfiniBand", "phys_state": "LINK_UP", "sm_lid": sm});
        let mut ports: Vec<Value> = ports.as_array().unwrap().iter().map(port).collect();
        ports.push(json!({"name": "mlx5_8", "link_layer": "Ethernet", "phys_state": "LINK_UP", "sm_lid": null}));
        ports.push(json!({"name": "mlx5_9", "link_layer": "InfiniBand", "phys_state": "POLLING", "sm_lid": null}));
        let facts = json!({"rdma": ports, "interfaces": []});
        match asserted(&cluster, "n1", extra, facts).remove("InfiniBand ports know their subnet manager") {
            None => "skipped".to_owned(),
            Some(None) => "holds".to_owned(),
            Some(Some(why)) => why.split(": ").next().unwrap().to_owned(),
        }
    };
    let none = "mlx5_0 knows no subnet manager";
    let more = |lids: &str| {
        format!("ports know the subnet managers at LID {lids}, more than there are fabrics (`infiniband_fabrics`)")
    };
    assert_eq!(holds(json!([1, 1]), &[]), "holds");
    assert_eq!(holds(json!([1, null]), &[]), none);
    assert_eq!(holds(json!([1, 7]), &[]), more("1, 7"));
    assert_eq!(holds(json!([1, 7]), &["infiniband_fabrics=2"]), "holds");
    // Addresses are each fabric's own.
    assert_eq!(holds(json!([1, 1]), &["infiniband_fabrics=2"]), "holds");
    assert_eq!(holds(json!([1, 7, 9]), &["infiniband_fabrics=2"]), more("1, 7, 9"));
    assert_eq!(holds(json!([]), &[]), "skipped");
}

/// What the host of a subnet manager asks all that its fabric has, by stand-ins for saquery and sminfo that say what the real
/// ones said of a real opensm.
#[test]
fn a_fabric_has_one_master() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("cluster.yaml"), "subnet_managers: {hosts: {head: }}\nib: {hosts: {head: , n1: }}\n").unwrap();
    let cluster = inventory(&path("cluster.yaml"));
    let port = json!({"name": "mlx5_0", "port": 1, "link_layer": "InfiniBand", "phys_state": "LINK_UP", "state": "ACTIVE", "sm_lid": 1});
    let facts = json!({"rdma": [port], "interfaces": []});
    let asked = |host: &str| {
        let play = render_play(1, "playbooks/site.yaml", &cluster, host, &[], Some(facts.clone()));
        let ask = play.resources.iter().find(|r| &*r.address == "command:the fabric of mlx5_0 has one master")?;
        match ask.resource.assess(&netplay::resource::Answers::default()).unwrap() {
            netplay::resource::Reading::State(state) => Some(state.steps),
            netplay::resource::Reading::NotYet(why) => panic!("{}", why.message),
        }
    };
    assert!(asked("n1").is_none(), "only those that run one ask");
    let steps = asked("head").unwrap();
    let [netplay::resource::Step::Run(script)] = steps.as_slice() else { panic!("{steps:?}") };
    for tool in ["saquery", "sminfo"] {
        // `-C mlx5_0 -P 1 ARGUMENT`, as the sample has it without the port.
        let stand_in = format!(
            "#!/bin/sh\n[ \"$1 $2 $3 $4\" = '-C mlx5_0 -P 1' ] || exit 9\n\
             awk -v \"c=\\$ {tool} $5\" 'BEGIN {{ r = 8 }} $0 == c {{ on = 1; next }} /^rc=/ {{ if (on) r = substr($0, 4); on = 0 }} on\n\
             END {{ exit r }}' {}\n",
            path("said").display()
        );
        std::fs::write(path(tool), stand_in).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path(tool), mode).unwrap();
    }
    let told: Vec<String> = include_str!("opensm_3.3.23.txt")
        .split("### ")
        .skip(1)
        .map(|said| {
            std::fs::write(path("said"), said).unwrap();
            let way = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
            let mut sh = std::process::Command::new("sh");
            let output = sh.args(["-c", script.as_str()]).env("PATH", way).output().unwrap();
            let name = said.lines().next().unwrap();
            format!("{name}: {} {}", output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).trim())
        })
        .collect();
    assert_eq!(
        told,
        [
            "none: 1 no subnet manager answers: ibwarn: [11] sa_get_handle: No SM/SA found on port (null):0\n\
             ibpanic: [11] main: Failed to bind to the SA: No such file or directory",
            "one: 0 ",
            "one, and one that stands by: 0 ",
            "two: 1 2 subnet managers are master (LID: 1 3): stop all but one, or give all the same sm_key \
             (/etc/opensm/opensm.conf)",
        ]
    );
}
