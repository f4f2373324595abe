//! Nodes that are drained before they are booted: by a real Slurm, and by kubectl, which is simulated.

use std::time::{Duration, Instant};

use crate::harness::{Hosts, Kind, Netplay, Run, Trace, env, slurm_controller};
use crate::reboot::{CARD, boots, hosts, playbook, problem};
use crate::slurm::{Cluster, node};
use crate::told::{Told, apply};

/// A run on the nodes of a cluster: the controller is in the inventory, and not in the play.
fn on_cluster(cluster: &Cluster, reboot: &str) -> Netplay {
    let head = slurm_controller().unwrap();
    let lab = std::fs::read_to_string(env("LAB_INVENTORY")).unwrap();
    let line = lab.lines().find(|line| line.trim_start().starts_with(&format!("{head}:"))).unwrap();
    let names: String =
        cluster.hosts().each().map(|host| format!("    {}: {{slurm_node: {}}}\n", host.0, node(host))).collect();
    let inventory = format!("all:\n  hosts:\n{names}  children:\n    head:\n      hosts:\n{line}\n");
    let playbook = playbook(&format!("  reboot: {reboot}\n")).replace("hosts: all", "hosts: all:!head");
    apply(cluster.hosts(), &playbook, &["-i", "head.yaml"]).file("head.yaml", &inventory)
}

fn with_cards(cluster: &Cluster) {
    for host in cluster.hosts().each() {
        host.card(&format!("add {CARD} interfaces=eth1 rdma=mlx5_0 seconds=0"));
    }
}

#[test]
fn slurm_drains_what_runs_jobs_and_keeps_what_others_have_drained() {
    let cluster = Cluster::take(3);
    with_cards(&cluster);
    let [busy, other, idle] = cluster.hosts().each().collect::<Vec<_>>().try_into().unwrap();
    cluster.job(busy, 4);
    cluster.run(&format!("scontrol update nodename={} state=drain reason='bad fan'", node(other)));
    let before = boots(cluster.hosts());
    // A check asks the scheduler too.
    let check = |most: u32| {
        let reboot = format!("{{max_unavailable: {most}, timeout: 60, drain: slurm, drain_on: sd0001}}");
        Told::by(&on_cluster(&cluster, &reboot).with(&["--check"]), 0).run.stderr
    };
    let drained = format!("these wouldn't be booted, as somebody else has them out of service: {} (", other.0);
    let (one, two) = (check(1), check(2));
    assert!(
        one.contains(&drained) && one.contains("these wouldn't be booted: ") && !one.contains("would boot"),
        "{one}"
    );
    assert!(two.contains(&drained) && two.contains("would boot 2 hosts, at most 1 at once"), "{two}");
    // Where the budget is used up by what others have drained, the run ends at once and says so.
    let start = Instant::now();
    let netplay = on_cluster(&cluster, "{max_unavailable: 1, timeout: 60, drain: slurm, drain_on: sd0001}");
    let told_ = Told::by(&netplay, 2);
    for host in [busy, idle] {
        let problem_ = problem(&told_, host.0);
        assert!(problem_.starts_with("budget: ") && problem_.contains(&format!("{} (", other.0)), "{problem_}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(cluster.state(idle).0, "idle");
    // It has its place in its domain too, out of --limit as well.
    let netplay =
        on_cluster(&cluster, "{max_unavailable: 3, domain: rack1, timeout: 60, drain: slurm, drain_on: sd0001}");
    let told_ = Told::by(&netplay.with(&["--limit", idle.0]), 2);
    let problem_ = problem(&told_, idle.0);
    assert!(problem_.starts_with("budget: ") && problem_.contains("one of a `domain`"), "{problem_}");
    assert_eq!(boots(cluster.hosts()), before);
    let trace = Trace::begin(cluster.hosts());
    // What others have drained is one of the two.
    let netplay = on_cluster(&cluster, "{max_unavailable: 2, timeout: 60, drain: slurm, drain_on: sd0001}");
    let told_ = Told::by(&netplay, 2);
    let problem_ = problem(&told_, other.0);
    assert!(problem_.starts_with("drained: ") && problem_.contains("bad fan"), "{problem_}");
    assert_eq!(trace.most_down(), 1, "{:?}", trace.events());
    assert_eq!(boots(cluster.hosts()), [before[0] + 1, before[1], before[2] + 1]);
    for host in [busy, idle] {
        cluster.wait_for(host, "idle");
        assert_eq!(host.sh("cat /etc/after"), "x");
    }
    assert_eq!(cluster.wait_for(other, "drained"), "bad fan");
}

#[test]
fn what_others_drain_while_hosts_are_booted_counts() {
    let cluster = Cluster::take(3);
    with_cards(&cluster);
    let [first, second, other] = cluster.hosts().each().collect::<Vec<_>>().try_into().unwrap();
    first.fault("slow-boot 4");
    let before = boots(cluster.hosts());
    let netplay = on_cluster(&cluster, "{max_unavailable: 1, timeout: 60, drain: slurm, drain_on: sd0001}");
    let netplay = netplay.with(&["--limit", &format!("{},{}", first.0, second.0)]);
    let (trace, child) = (Trace::begin(cluster.hosts()), netplay.start());
    let start = Instant::now();
    while trace.events().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "it isn't booted");
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.run(&format!("scontrol update nodename={} state=drain reason='bad fan'", node(other)));
    let told_ = Told::from(Run::from(child.wait_with_output().unwrap()).exits(2));
    let problem_ = problem(&told_, second.0);
    assert!(problem_.starts_with("budget: ") && problem_.contains(&format!("{} (", other.0)), "{problem_}");
    assert_eq!(boots(cluster.hosts()), [before[0] + 1, before[1], before[2]]);
    cluster.wait_for(first, "idle");
    // When that is back, the next run goes on.
    cluster.run(&format!("scontrol update nodename={} state=resume", node(other)));
    Told::by(&netplay, 0);
    assert_eq!(boots(cluster.hosts()), [before[0] + 1, before[1] + 1, before[2]]);
    cluster.wait_for(second, "idle");
}

#[test]
fn two_runs_at_the_same_moment_take_away_no_more_than_one_may() {
    let cluster = Cluster::take(2);
    with_cards(&cluster);
    let before = boots(cluster.hosts());
    let reboot = "{max_unavailable: 1, timeout: 60, drain: slurm, drain_on: sd0001}";
    let netplay = |host| on_cluster(&cluster, reboot).with(&["--limit", host]);
    let both: Vec<_> = cluster.hosts().each().map(|host| (host, netplay(host.0))).collect();
    let trace = Trace::begin(cluster.hosts());
    let runs: Vec<_> = both.iter().map(|(host, netplay)| (*host, netplay.start())).collect();
    let mut good = 0;
    for (host, child) in runs {
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            good += 1;
        } else {
            // It has seen the other one before its own drain or after it.
            let told_ = Told::from(Run::from(output).exits(2));
            assert!(problem(&told_, host.0).starts_with("budget: "), "{}", told_.run.stdout);
        }
        cluster.wait_for(host, "idle");
    }
    assert_eq!(trace.most_down(), 1, "{:?}", trace.events());
    let booted: u32 = boots(cluster.hosts()).iter().zip(before).map(|(now, before)| now - before).sum();
    assert!(good >= 1 && booted == good, "{good} runs went well, and {booted} hosts booted");
}

#[test]
fn a_drain_that_does_not_end_is_taken_back() {
    let cluster = Cluster::take(1);
    with_cards(&cluster);
    let host = cluster.hosts().first();
    cluster.job(host, 60);
    let reboot = "{timeout: 60, drain: slurm, drain_timeout: 3, drain_on: sd0001}";
    let told_ = Told::by(&on_cluster(&cluster, reboot), 2);
    let problem_ = problem(&told_, host.0);
    assert!(problem_.starts_with("drain: it wasn't drained within 3 s: ") && problem_.contains("jobs: "), "{problem_}");
    assert_eq!(cluster.state(host).0.trim_end_matches('*'), "allocated");
    host.sh("test ! -e /var/lib/netplay/reboot");
    cluster.cancel();
}

#[test]
fn slurm_boots_a_node_itself() {
    let cluster = Cluster::take(1);
    with_cards(&cluster);
    let host = cluster.hosts().first();
    cluster.job(host, 3);
    let before = host.boots();
    Told::by(&on_cluster(&cluster, "{timeout: 60, via: slurm, drain_on: sd0001}"), 0);
    assert_eq!(host.boots(), before + 1);
    assert_eq!(host.sh("cat /etc/after"), "x");
    cluster.wait_for(host, "idle");
}

#[test]
fn slurm_gets_a_node_that_it_boots_back_when_it_was_proven_and_boots_none_that_was_given_up() {
    let cluster = Cluster::take(2);
    with_cards(&cluster);
    let [half, busy] = cluster.hosts().each().collect::<Vec<_>>().try_into().unwrap();
    half.fault("half-speed");
    cluster.job(busy, 120);
    let before = boots(cluster.hosts());
    let reboot = "{max_unavailable: 2, timeout: 15, drain_timeout: 10, via: slurm, drain_on: sd0001}";
    let netplay = on_cluster(&cluster, reboot);
    let child = netplay.start();
    let start = Instant::now();
    while !cluster.run(&format!("scontrol show node {}", node(busy))).contains("REBOOT_REQUESTED") {
        assert!(start.elapsed() < Duration::from_secs(60), "Slurm isn't told to boot it");
        std::thread::sleep(Duration::from_millis(100));
    }
    // A short loss of the network is no boot.
    busy.sh("setsid sh -c 'sleep 3; iptables -I INPUT -p tcp --dport 22 -j DROP; sleep 8; iptables -D INPUT 1' \
         >/dev/null 2>&1 </dev/null &");
    let told_ = Told::from(Run::from(child.wait_with_output().unwrap()).exits(2));
    let problem_ = problem(&told_, busy.0);
    assert!(
        problem_.contains("Slurm didn't boot it within 25 s of the order") && problem_.contains("it was given back"),
        "{problem_}"
    );
    assert_eq!(cluster.state(busy), ("allocated".to_owned(), "none".to_owned()));
    busy.sh("test ! -e /var/lib/netplay/reboot");
    let problem_ = problem(&told_, half.0);
    assert!(problem_.contains("the RDMA port mlx5_0/1 has 200 Gb/s, and had 400"), "{problem_}");
    assert!(told_.warnings().contains("it stays drained (slurm-reboots "), "{}", told_.run.stdout);
    let (state, reason) = cluster.state(half);
    assert!(state == "down" && reason.starts_with("netplay:"), "{state} {reason}");
    assert_eq!(boots(cluster.hosts()), [before[0] + 1, before[1]]);
    cluster.cancel();
    cluster.wait_for(busy, "idle");
    assert_eq!(busy.boots(), before[1]);
}

#[test]
fn what_a_killed_run_has_drained_is_not_finished_by_a_play_that_would_not_give_it_back() {
    let cluster = Cluster::take(1);
    with_cards(&cluster);
    let host = cluster.hosts().first();
    let before = host.boots();
    cluster.job(host, 120);
    let slurm = on_cluster(&cluster, "{timeout: 60, drain: slurm, drain_on: sd0001}");
    let mut child = slurm.start();
    cluster.wait_for(host, "draining");
    child.kill().unwrap();
    child.wait().unwrap();
    let other = on_cluster(&cluster, "{timeout: 60, drain: {command: 'true', undrain: 'true'}}");
    let told_ = Told::by(&other, 2);
    let problem_ = problem(&told_, host.0);
    assert!(problem_.contains("drained it by another `drain` (slurm "), "{problem_}");
    assert_eq!(cluster.state(host).0, "draining");
    assert_eq!(host.boots(), before);
    cluster.cancel();
    // What Slurm does for both ways is one.
    Told::by(&on_cluster(&cluster, "{timeout: 60, via: slurm, drain_on: sd0001}"), 0);
    cluster.wait_for(host, "idle");
    assert_eq!(host.boots(), before + 1);
    host.sh("test ! -e /var/lib/netplay/reboot");
}

#[test]
fn kubernetes_is_drained_and_uncordoned_where_it_was_netplay() {
    let hosts = hosts(2);
    let [ours, others] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    let head = Hosts::take(Kind::Fleet, 1);
    let head = head.first();
    // The simulated kubectl, on the host where the play has it run.
    head.sh("ln -s ../sbin/simulated-kubectl /usr/local/bin/kubectl; ln -s ../sbin/simulated-kubectl /usr/local/bin/simulated-kubectl");
    let simulated = |words: &str| head.sh(&format!("cd /usr/local/bin; ./simulated-kubectl {words}"));
    simulated(&format!("node {} kube2", ours.0));
    simulated(&format!("pod {} default/web-1 pdb=3 ends=1", ours.0));
    head.sh("kubectl cordon kube2");
    let lab = std::fs::read_to_string(env("LAB_INVENTORY")).unwrap();
    let line = lab.lines().find(|line| line.trim_start().starts_with(&format!("{}:", head.0))).unwrap();
    let inventory = format!(
        "all:\n  hosts:\n    {}: {{kubernetes_node: kube2}}\n  children:\n    head:\n      hosts:\n{line}\n",
        others.0
    );
    let reboot = format!("{{max_unavailable: 2, timeout: 60, drain: kubernetes, drain_on: {}}}", head.0);
    let playbook = playbook(&format!("  reboot: {reboot}\n")).replace("hosts: all", "hosts: all:!head");
    let netplay = apply(&hosts, &playbook, &["-i", "head.yaml"]).file("head.yaml", &inventory);
    let told_ = Told::by(&netplay, 2);
    assert_eq!(told_.resource(ours.0, "mlxconfig:all")["status"], "changed", "{}", told_.run.stdout);
    let problem_ = problem(&told_, others.0);
    assert!(problem_.starts_with("drained: ") && problem_.contains("cordoned"), "{problem_}");
    let left = head.sh(&format!("kubectl get node {} -o json", ours.0));
    assert!(!left.contains("unschedulable") && !left.contains("netplay"), "{left}");
    let calls = simulated("calls");
    assert!(
        calls.contains(&format!("\"drain\", \"{}\"", ours.0)) && !calls.contains("\"drain\", \"kube2\""),
        "{calls}"
    );
    head.sh("rm /usr/local/bin/kubectl /usr/local/bin/simulated-kubectl /usr/local/bin/kubectl.json*");
}
