//! A cluster of real Slurm, for tests of what takes its nodes away, and tests that it is one.

use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, env, slurm_controller};

/// Hosts with systemd that are nodes of the cluster, each idle and as new; those that no test has are in it as well.
#[derive(Debug)]
pub(crate) struct Cluster {
    hosts: Hosts,
}

impl Cluster {
    /// Waits until so many nodes are free, and resumes what an earlier test has left drained or down.
    ///
    /// # Panics
    /// When the lab has no cluster or fewer nodes, or they aren't idle within a minute.
    pub(crate) fn take(count: usize) -> Self {
        assert!(slurm_controller().is_some(), "this test needs Slurm: start the lab with `lab up --sysd 4 --slurm`");
        let seconds = |text: &str| text.trim().parse::<u64>().unwrap();
        let start = Instant::now();
        let cluster = Self { hosts: Hosts::take(Kind::Sysd, count) };
        // What a test that has ended had queued for its nodes.
        cluster.cancel();
        for host in cluster.hosts.each() {
            // Until the node has registered since it is new, what the controller tells is of the host before.
            let registered = seconds(&host.sh("stat -c %Y /run/sshd.pid"));
            loop {
                let known = cluster.run(&format!("SLURM_TIME_FORMAT=%s scontrol show node {}", node(host)));
                let boot = known.split_whitespace().find_map(|word| word.strip_prefix("BootTime="));
                if boot.is_some_and(|boot| boot.parse().is_ok_and(|boot: u64| boot + 1 >= registered)) {
                    if cluster.state(host).0 == "idle" {
                        break;
                    }
                    cluster.run(&format!("scontrol update nodename={} state=resume || :", node(host)));
                }
                assert!(start.elapsed() < Duration::from_secs(240), "{} isn't idle: {known}", node(host));
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        cluster
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Runs a command of Slurm's where the cluster's controller is.
    pub(crate) fn run(&self, command: &str) -> String {
        Host(slurm_controller().unwrap()).sh(command)
    }

    /// A node's state as `sinfo` tells it in one word, and the reason for it, or `none`.
    pub(crate) fn state(&self, host: Host<'_>) -> (String, String) {
        let line = self.run(&format!("sinfo -h -N -n {} -o '%T %E'", node(host)));
        let (state, reason) = line.trim().split_once(' ').unwrap();
        (state.to_owned(), reason.to_owned())
    }

    /// Waits until a node is in this state, and returns the reason for it.
    ///
    /// # Panics
    /// When that takes more than a minute.
    #[track_caller]
    pub(crate) fn wait_for(&self, host: Host<'_>, state: &str) -> String {
        let start = Instant::now();
        loop {
            let (now, reason) = self.state(host);
            if now == state {
                return reason;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{} is {now} ({reason}), not {state}", node(host));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends the jobs of these nodes, and of no others: other tests run beside this one.
    pub(crate) fn cancel(&self) {
        self.hosts.each().for_each(|host| _ = self.run(&format!("scancel -n {}", node(host))));
    }

    /// Has a node run a job that sleeps, and waits until it does. It isn't begun again when the node is lost.
    pub(crate) fn job(&self, host: Host<'_>, seconds: u32) {
        self.run(&format!("sbatch --no-requeue -J {0} -w {0} -o /dev/null --wrap 'sleep {seconds}'", node(host)));
        self.wait_for(host, "allocated");
    }
}

/// A host's name as a node. The last host's is another than its own.
pub(crate) fn node(host: Host<'_>) -> &'static str {
    let pairs = env("LAB_SLURM_NODES").split(' ').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == host.0).map(|(_, node)| node).next().expect("a node of the cluster")
}

#[test]
fn a_drained_node_stays_drained_over_a_reboot_and_another_one_is_down() {
    let cluster = Cluster::take(1);
    let host = cluster.hosts().first();
    cluster.job(host, 5);
    cluster.run(&format!("scontrol update nodename={} state=drain reason=netplay:test", node(host)));
    assert_eq!(cluster.state(host), ("draining".to_owned(), "netplay:test".to_owned()));
    assert_eq!(cluster.wait_for(host, "drained"), "netplay:test");
    assert_eq!(cluster.run(&format!("squeue -h -w {}", node(host))), "");
    let booted = || {
        let known = cluster.run(&format!("SLURM_TIME_FORMAT=%s scontrol show node {}", node(host)));
        let boot = known.split_whitespace().find_map(|word| word.strip_prefix("BootTime=")).unwrap();
        boot.parse::<u64>().unwrap()
    };
    let (before, start) = (booted(), Instant::now());
    host.reboot();
    while booted() == before {
        assert!(start.elapsed() < Duration::from_secs(60), "the node hasn't registered");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(cluster.state(host), ("drained".to_owned(), "netplay:test".to_owned()));
    cluster.run(&format!("scontrol update nodename={} state=resume", node(host)));
    cluster.wait_for(host, "idle");

    host.reboot();
    assert_eq!(cluster.wait_for(host, "down"), "Node unexpectedly rebooted");
    cluster.run(&format!("scontrol update nodename={} state=resume", node(host)));
    cluster.wait_for(host, "idle");
}

#[test]
fn slurm_reboots_a_node_when_its_job_is_done() {
    // All of them, as the last one has two names.
    let cluster = Cluster::take(crate::harness::all(Kind::Sysd).len());
    let host = cluster.hosts().each().last().unwrap();
    assert_ne!(node(host), host.0);
    let (before, boots) = (host.boot_id(), host.boots());
    cluster.job(host, 4);
    cluster.run(&format!("scontrol reboot ASAP nextstate=RESUME reason=netplay:test {}", node(host)));
    assert_eq!(host.boots(), boots);
    assert!(cluster.state(host).1.starts_with("netplay:test"), "{:?}", cluster.state(host));
    host.wait_for_boot(boots + 1);
    assert_ne!(host.boot_id(), before);
    assert_eq!(cluster.wait_for(host, "idle"), "none");
}
