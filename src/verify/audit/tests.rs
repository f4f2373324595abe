use super::*;
use crate::resource::trial::Shell;
use crate::resource::{Answers, Inquiry};
use serde_json::json;
use std::time::{Duration, Instant};

/// A host with rails of this MTU and other values.
fn host(name: &str, mtu: u32, values: &[(Topic, &str, &str)]) -> Seen {
    let mut seen = Seen { host: name.into(), ..Seen::default() };
    for rail in ["eth1", "eth2"] {
        seen.put(Topic::Mtu, "MTU", rail, mtu.to_string());
        seen.networks.push((rail.to_owned(), format!("10.{}.0.0/16", &rail[3..])));
    }
    seen.put(Topic::Sysctl, "net.core.rmem_max", "", "134217728");
    values.iter().for_each(|(topic, name, value)| seen.put(*topic, name, "", *value));
    seen
}

fn fleet(n: usize) -> Vec<Seen> {
    (1..=n).map(|i| host(&format!("gpu{i:02}"), 9000, &[])).collect()
}

struct Told {
    findings: Vec<(&'static str, String, String)>,
    remedies: Vec<String>,
    apart: Vec<String>,
    verdicts: (usize, usize, usize),
}

fn judge_in(hosts: &[Seen], groups: &[(&str, &[&str])]) -> Told {
    let mut of = HashMap::<String, Vec<Arc<str>>>::new();
    for (group, names) in groups {
        names.iter().for_each(|name| of.entry((*name).to_owned()).or_default().push((*group).into()));
    }
    let mut judged = Judged::default();
    let apart = super::judge(hosts, &of, &|_, _, _| false, &mut judged);
    let count = |ok| judged.verdicts.iter().filter(|v| v.ok == ok).count();
    Told {
        verdicts: (count(Some(true)), count(Some(false)), count(None)),
        remedies: judged.findings.iter().map(|f| f.remedy.clone()).collect(),
        findings: judged.findings.into_iter().map(|f| (f.name, f.hosts.join(","), f.evidence)).collect(),
        apart,
    }
}

fn told(hosts: &[Seen]) -> Vec<(&'static str, String, String)> {
    judge_in(hosts, &[]).findings
}

#[test]
fn hosts_that_are_alike_have_no_finding() {
    let all = judge_in(&fleet(4), &[]);
    assert_eq!((all.findings, all.apart, all.verdicts), (vec![], vec![], (4, 0, 0)));
    let alone = judge_in(&fleet(1), &[]);
    assert_eq!((alone.findings, alone.verdicts), (vec![], (0, 0, 1)), "nobody to compare it with");
}

#[test]
fn who_differs_is_told_with_what_most_have() {
    for mtu in [1500, 9216] {
        let mut hosts = fleet(4);
        hosts[2] = host("gpu03", mtu, &[]);
        let evidence = format!("MTU of eth[1-2] is {mtu}, and not 9000, as on 3 of 4 hosts");
        let all = judge_in(&hosts, &[]);
        assert_eq!(all.findings, [("mtu_differs", "gpu03".to_owned(), evidence)]);
        assert_eq!(all.remedies, ["`mtu: {interface: eth1, mtu: 9000}`"]);
        assert_eq!(all.verdicts, (3, 1, 0));
    }
    // Hosts that differ in the same things are one finding, and things of one host are too.
    let mut hosts = fleet(17);
    for at in [2, 16] {
        hosts[at].put(Topic::Sysctl, "net.core.rmem_max", "", "212992");
        hosts[at].put(Topic::Sysctl, "net.ipv4.tcp_rmem", "", "4096 131072 6291456");
    }
    for at in (0..17).filter(|at| ![2, 16].contains(at)) {
        hosts[at].put(Topic::Sysctl, "net.ipv4.tcp_rmem", "", "4096 87380 67108864");
    }
    let all = judge_in(&hosts, &[]);
    let evidence = "net.core.rmem_max is 212992, and not 134217728; net.ipv4.tcp_rmem is 4096 131072 6291456, and not \
                    4096 87380 67108864, as on 15 of 17 hosts";
    assert_eq!(all.findings, [("sysctl_differs", "gpu03,gpu17".to_owned(), evidence.to_owned())]);
    let remedy = "`sysctl: {values: {net.core.rmem_max: 134217728, net.ipv4.tcp_rmem: 4096 87380 67108864}}`";
    assert_eq!(all.remedies, [remedy]);
}

#[test]
fn in_a_tie_nobody_is_right() {
    let mut hosts = fleet(4);
    hosts[2] = host("gpu03", 1500, &[]);
    hosts[3] = host("gpu04", 1500, &[]);
    let (name, who, evidence) = told(&hosts).remove(0);
    assert_eq!((name, &*who), ("mtu_differs", "gpu01,gpu02,gpu03,gpu04"));
    let seen = "MTU of eth[1-2] is 9000 on gpu[01-02], and 1500 on gpu[03-04]: no value has most of the 4 hosts";
    assert_eq!(evidence, seen);
    assert_eq!(told(&hosts).len(), 1, "both rails are one finding");
    // Things that divide the hosts alike are one finding too.
    for (at, host) in hosts.iter_mut().enumerate() {
        host.put(Topic::Sysctl, "net.ipv4.tcp_sack", "", if at < 2 { "1" } else { "0" });
        host.put(Topic::Sysctl, "net.ipv4.tcp_ecn", "", if at < 2 { "1" } else { "2" });
    }
    let all = told(&hosts);
    let seen = "net.ipv4.tcp_sack is 1 on gpu[01-02], and 0 on gpu[03-04]; net.ipv4.tcp_ecn is 1 on gpu[01-02], and 2 on \
                gpu[03-04]: no value has most of the 4 hosts";
    assert_eq!((all.len(), &*all[1].2), (2, seen));
}

#[test]
fn what_another_check_has_found_is_not_told_again() {
    let mut hosts = fleet(4);
    hosts[2] = host("gpu03", 1500, &[]);
    let mut judged = Judged::default();
    let found = |host: &str, name: &str, place: &str| (host, name, place) == ("gpu03", "mtu_too_small", "eth1");
    super::judge(&hosts, &HashMap::new(), &found, &mut judged);
    let told: Vec<&str> = judged.findings.iter().map(|f| &*f.evidence).collect();
    assert_eq!(told, ["MTU of eth2 is 1500, and not 9000, as on 3 of 4 hosts"]);
    let bad: Vec<&str> = judged.verdicts.iter().filter(|v| v.ok == Some(false)).map(|v| &*v.reason).collect();
    assert_eq!(bad, ["differs: MTU of eth1, MTU of eth2"], "it differs all the same");
    let mut judged = Judged::default();
    super::judge(&hosts[1..3], &HashMap::new(), &found, &mut judged);
    let told: Vec<&str> = judged.findings.iter().map(|f| &*f.evidence).collect();
    assert_eq!(
        told,
        ["MTU of eth2 is 9000 on gpu02, and 1500 on gpu03: no value has most of the 2 hosts"],
        "of a tie too"
    );
}

#[test]
fn groups_that_differ_as_a_whole_are_compared_within() {
    let of = |name: &str, machine: &str, kernel: &str| {
        host(name, 9000, &[(Topic::Shape, "machine", machine), (Topic::Kernel, "kernel", kernel)])
    };
    let kernel = |name: &str, kernel: &str| of(name, if name.starts_with("st") { "R750" } else { "DGX H100" }, kernel);
    let gpu: Vec<String> = (1..=20).map(|i| format!("gpu{i:02}")).collect();
    let gpu: Vec<&str> = gpu.iter().map(String::as_str).collect();
    let mut hosts: Vec<Seen> = gpu.iter().map(|name| kernel(name, "6.1.0-18")).collect();
    hosts.extend(["st1", "st2", "st3"].map(|name| kernel(name, "5.14.0")));
    let groups: &[(&str, &[&str])] = &[("gpu", &gpu), ("storage", &["st1", "st2", "st3"])];
    let all = judge_in(&hosts, groups);
    assert_eq!((all.findings, all.verdicts), (vec![], (23, 0, 0)));
    assert_eq!(all.apart, ["kernel: 6.1.0-18 of gpu, 5.14.0 of storage"]);
    // One that lags in its group is told, with the group.
    hosts[6] = kernel("gpu07", "5.14.0");
    let evidence = "kernel is 5.14.0, and not 6.1.0-18, as on 19 of 20 hosts of gpu";
    assert_eq!(judge_in(&hosts, groups).findings, [("kernel_differs", "gpu07".to_owned(), evidence.to_owned())]);
    // Without groups that explain it the few are told, and where groups are the same machines too.
    let all = judge_in(&hosts, &[]);
    assert_eq!(all.findings[0].1, "gpu07,st1,st2,st3");
    hosts.iter_mut().for_each(|host| host.put(Topic::Shape, "machine", "", "DGX H100"));
    hosts[6] = kernel("gpu07", "6.1.0-18");
    let evidence = "kernel is 5.14.0, and not 6.1.0-18, as on 20 of 23 hosts; these are all hosts of storage";
    let whole = judge_in(&hosts, groups);
    assert_eq!(whole.findings, [("kernel_differs", "st1,st2,st3".to_owned(), evidence.to_owned())]);
    assert_eq!(whole.apart, [""; 0]);
}

#[test]
fn a_rack_that_was_forgotten_is_told_and_other_machines_are_not() {
    let of = |name: &str, cpus: &str, rmem: &str| {
        host(name, 9000, &[(Topic::Shape, "CPUs", cpus), (Topic::Sysctl, "net.core.wmem_max", rmem)])
    };
    let names: Vec<String> = (1..=12).map(|i| format!("gpu{i:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let value = |i: usize| if i >= 8 { "212992" } else { "134217728" };
    let groups: &[(&str, &[&str])] = &[("rack1", &names[..8]), ("rack2", &names[8..])];
    let hosts: Vec<Seen> = names.iter().enumerate().map(|(i, name)| of(name, "128", value(i))).collect();
    let found = judge_in(&hosts, groups).findings;
    assert_eq!(found[0].1, "gpu09,gpu10,gpu11,gpu12");
    let evidence = "net.core.wmem_max is 212992, and not 134217728, as on 8 of 12 hosts; these are all hosts of rack2";
    assert_eq!(found[0].2, evidence);
    let shape = |i: usize| if i >= 8 { "16" } else { "128" };
    let hosts: Vec<Seen> = names.iter().enumerate().map(|(i, name)| of(name, shape(i), value(i))).collect();
    let all = judge_in(&hosts, groups);
    assert_eq!(all.findings, []);
    assert_eq!(all.apart, ["net.core.wmem_max: 134217728 of rack1, 212992 of rack2"]);
}

#[test]
fn an_interface_of_another_network_is_another_rail() {
    let mut hosts = fleet(6);
    for at in [4, 5] {
        hosts[at] = host(&format!("st{at}"), 1500, &[]);
        hosts[at].networks.iter_mut().for_each(|(_, network)| *network = format!("192.168.{network}"));
    }
    let all = judge_in(&hosts, &[("storage", &["st4", "st5"])]);
    assert_eq!((all.findings, all.apart), (vec![], vec![]));
    // In the same network an inventory's group is no reason.
    hosts[4].networks = hosts[0].networks.clone();
    hosts[5].networks = hosts[0].networks.clone();
    assert_eq!(judge_in(&hosts, &[("storage", &["st4", "st5"])]).findings[0].1, "st4,st5");
}

#[test]
fn parameters_that_are_not_told_are_at_their_default() {
    let mut hosts = fleet(3);
    for host in &mut hosts {
        host.boards.insert("MT_0000000838".into());
    }
    let put = |host: &mut Seen, when: &str| {
        host.put(Topic::Parameter, &format!("CNP_DSCP_P1 {when}"), "MT_0000000838", "48");
    };
    put(&mut hosts[0], "at the next boot");
    let all = judge_in(&hosts, &[]);
    let evidence = "CNP_DSCP_P1 at the next boot of MT_0000000838 is 48, and not its default, as on 2 of 3 hosts";
    assert_eq!(all.findings, [("firmware_settings_differ", "gpu01".to_owned(), evidence.to_owned())]);
    assert!(all.remedies[0].contains("`mlxconfig -d ADDRESS reset CNP_DSCP_P1`"), "{:?}", all.remedies);
    put(&mut hosts[1], "at the next boot");
    let all = judge_in(&hosts, &[]);
    let evidence = "CNP_DSCP_P1 at the next boot of MT_0000000838 is its default, and not 48, as on 2 of 3 hosts";
    assert_eq!(all.findings, [("firmware_settings_differ", "gpu03".to_owned(), evidence.to_owned())]);
    assert_eq!(all.remedies, ["`mlxconfig: {device: all, set: {CNP_DSCP_P1: 48}}`, and a reboot"]);
}

#[test]
fn many_hosts_that_each_differ_otherwise_are_one_finding() {
    let mut hosts = fleet(40);
    for (at, host) in hosts.iter_mut().enumerate().take(15) {
        host.put(Topic::Sysctl, "net.core.rmem_max", "", format!("{}", 1000 + at));
    }
    let all = told(&hosts);
    assert_eq!(all.len(), 1);
    let begin = "net.core.rmem_max is 1000 on gpu01, and not 134217728, as on 25 of 40 hosts; ";
    assert!(all[0].2.starts_with(begin), "{}", all[0].2);
    assert!(all[0].2.ends_with("; and 3 more"), "{}", all[0].2);
    // Many values of which none has most hosts: those that the fewest have aren't told.
    for (at, host) in hosts.iter_mut().enumerate() {
        host.put(Topic::Sysctl, "net.core.rmem_max", "", format!("{}", 1000 + at));
    }
    let all = told(&hosts);
    assert_eq!((all.len(), all[0].1.split(',').count()), (1, 40));
    let end = ", and 1011 on gpu12; and 28 more: no value has most of the 40 hosts";
    assert!(all[0].2.ends_with(end), "{}", all[0].2);
    // Many things that differ here and there, each among other hosts.
    for (at, host) in hosts.iter_mut().enumerate() {
        for n in 0..20 {
            host.put(Topic::Sysctl, &format!("net.ipv4.n{n}"), "", if at < n { "1" } else { "0" });
            host.put(Topic::Sysctl, &format!("net.ipv6.n{n}"), "", if (at + n) % 40 < 20 { "1" } else { "0" });
        }
    }
    let all = told(&hosts);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].2.starts_with("net.ipv4.n19 is 1 on gpu[01-19], and not 0, as on 21 of 40 hosts; "), "{}", all[0].2);
    assert!(
        all[1].2.starts_with("no value has most of the 40 hosts, of net.core.rmem_max; net.ipv6.n0; "),
        "{}",
        all[1].2
    );
    assert!(all[1].2.ends_with("; and 9 more"), "{}", all[1].2);
}

#[test]
fn firmware_is_compared_by_board() {
    let facts = |firmware: [&str; 2]| {
        let port = |name: &str, board: &str, firmware: &str| json!({"name": name, "port": 1, "board_id": board, "firmware": firmware, "state": "ACTIVE", "sm_lid": 3});
        json!({
            "kernel": "6.1.0", "cpus": {"count": 8}, "interfaces": [],
            "rdma": [port("mlx5_0", "MT_0000000838", firmware[0]), port("mlx5_1", "MT_0000000838", firmware[1]),
                     port("mlx5_2", "DEL0000000027", "16.35.4030")],
        })
    };
    let see = |name: &str, firmware| {
        let name: Arc<str> = name.into();
        ask::see(&name, &facts(firmware), &Answers::default())
    };
    let old = "28.39.1002";
    let hosts = [see("n1", [old, old]), see("n2", [old, "28.36.1010"]), see("n3", [old, old])];
    let evidence = "firmware of MT_0000000838 is 28.36.1010 (mlx5_1) and 28.39.1002 (mlx5_0), and not 28.39.1002, as on 2 of 3 hosts";
    assert_eq!(told(&hosts), [("firmware_differs", "n2".to_owned(), evidence.to_owned())]);
    assert!(hosts[0].unknown.iter().any(|why| why.contains("was not asked")), "{:?}", hosts[0].unknown);
    let mut other = see("n4", [old, old]);
    other.put(Topic::SubnetManager, "subnet manager (LID)", "mlx5_0", "9");
    let [a, _, c] = hosts;
    assert_eq!(told(&[a, c, other])[0].0, "two_subnet_managers");
}

#[test]
fn what_a_real_host_is_asked_is_answered() {
    let inquiry = Inquiry::new(questions());
    for shell in Shell::ALL {
        let outputs = inquiry.fragments().iter().map(|f| Ok(shell.run(f.script.as_str()))).collect();
        let seen = ask::see(&"n1".into(), &json!({}), &inquiry.answers(outputs));
        assert_eq!(seen.unknown, Vec::<String>::new(), "{shell:?}");
        let get = |name: &str| {
            seen.values.get(&Key { topic: Topic::Sysctl, name: name.into(), place: "".into() }).map(String::as_str)
        };
        let real = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        assert_eq!(get("net.ipv4.tcp_congestion_control"), Some(real.trim()), "{shell:?}");
        assert_eq!(get("net.ipv4.tcp_rmem").map(|v| v.split(' ').count()), Some(3), "{shell:?}");
    }
}

#[test]
fn ten_thousand_hosts_are_compared_in_seconds() {
    let mut groups = HashMap::<String, Vec<Arc<str>>>::new();
    let one = |i: usize| {
        let name = format!("gpu{i:05}");
        let mut seen = Seen { host: name.into(), ..Seen::default() };
        for rail in 1..=8 {
            let rail = format!("eth{rail}");
            seen.put(Topic::Mtu, "MTU", &rail, if i % 1000 == 7 { "1500" } else { "9000" });
            seen.put(Topic::Speed, "speed", &rail, "400 Gb/s");
            seen.put(Topic::Driver, "driver", &rail, "mlx5_core");
            for name in ["trust", "PFC", "ECN (np)", "pause frames"] {
                seen.put(Topic::Qos, name, &rail, "3");
            }
            seen.networks.push((rail.clone(), "10.1.0.0/16".to_owned()));
        }
        for n in 0..34 {
            seen.put(Topic::Sysctl, &format!("net.core.parameter{n}"), "", if i % 500 == 3 { "1" } else { "2" });
        }
        for n in 0..40 {
            seen.put(Topic::Parameter, &format!("PARAMETER{n} now"), "MT_0000000838", "1");
        }
        seen.put(Topic::Shape, "machine", "", if i < 2000 { "DGX A100" } else { "DGX H100" });
        seen.put(Topic::Kernel, "kernel", "", if i < 2000 { "5.14" } else { "6.1" });
        seen
    };
    let hosts: Vec<Seen> = (0..10_000).map(one).collect();
    for (i, host) in hosts.iter().enumerate() {
        let of = [format!("rack{}", i / 32), if i < 2000 { "old".to_owned() } else { "new".to_owned() }];
        groups.insert(host.host.to_string(), of.iter().map(|name| name.as_str().into()).collect());
    }
    let start = Instant::now();
    let mut judged = Judged::default();
    let apart = super::judge(&hosts, &groups, &|_, _, _| false, &mut judged);
    let told: Vec<(&str, usize)> = judged.findings.iter().map(|f| (f.name, f.hosts.len())).collect();
    assert_eq!(told, [("mtu_differs", 10), ("sysctl_differs", 20)]);
    assert_eq!(apart, ["kernel: 6.1 of new, 5.14 of old"]);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    eprintln!("{:?}", start.elapsed());
}
