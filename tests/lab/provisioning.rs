//! Nodes that are configured before they run: the commands of docs/provisioning.md, as they stand there.

use std::fs::File;
use std::process::{Command, Stdio};

use netplay::error::Kind as ErrorKind;
use netplay::source::Source;
use netplay::yaml::{self, Node};

use crate::harness::{Host, Hosts, Kind, Netplay, env, ssh};
use crate::told::Told;

const SITE: &str = "
- hosts: gpu
  resources:
    - sysctl: {values: {net.core.rmem_max: 134217728, net.ipv4.tcp_rmem: 4096 131072 134217728}}
    - sysctl: {name: net.ipv4.ip_forward, value: 1, persist: false}
    - service: {name: irqbalance, state: stopped, enabled: false}
      notify: rerun
    - copy: {dest: /etc/nccl.conf, content: \"family={{ facts.os.family }}\\n\"}
    - command: {cmd: 'echo {{ word }} >/etc/built', creates: /etc/built}
  handlers:
    - name: rerun
      service: {name: dbus, state: restarted}
";

const CLUSTER: &str = "all: {children: {gpu: {hosts: {n1: {}}, vars: {word: built}}}}\n";
const IMAGE: &str = "all: {children: {gpu: {hosts: {image: {ansible_connection: local}}}}}\n";

/// The block of docs/provisioning.md below the mark of this name.
fn block(name: &str) -> String {
    let page = include_str!("../../docs/provisioning.md");
    let (_, rest) = page.split_once(&format!("<!-- tested: {name} -->\n```")).expect("the mark and its block");
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("\n```").expect("the end of the block").0.to_owned()
}

/// Puts the program and a site into a host, and binds the host's own root as an image, so that what is made there is
/// what the host boots from.
fn prepare(host: Host<'_>) {
    let program = std::env::var("NETPLAY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_netplay").to_owned());
    let copied = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab"))
        .args(["exec", host.0, "sh", "-c", "cat >/usr/local/bin/netplay && chmod 755 /usr/local/bin/netplay"])
        .env("NETPLAY_LAB", env("NETPLAY_LAB"))
        .stdin(Stdio::from(File::open(program).unwrap()))
        .status()
        .unwrap();
    assert!(copied.success());
    host.sh(&format!(
        "mkdir -p /srv/image /srv/site && mount --bind / /srv/image && cd /srv/site
        cat >cluster.yaml <<'E'\n{CLUSTER}E\ncat >image.yaml <<'E'\n{IMAGE}E\ncat >site.yaml <<'E'\n{SITE}E\n"
    ));
}

/// Boots what was made, and applies the same playbook over SSH.
fn boots_as_wanted(hosts: &Hosts) {
    let host = hosts.first();
    assert_eq!(host.sh("cat /etc/nccl.conf /etc/built"), "family=debian\nbuilt\n");
    let boots = host.boots();
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
    let site = SITE.replace("hosts: gpu", "hosts: all").replace("{{ word }}", "built");
    let netplay = Netplay::new(hosts, &["apply", "-i", "inventory.yaml", "site.yaml", "--output", "ndjson"]);
    let told = Told::by(&netplay.file("site.yaml", &site), 0);
    // What doesn't last is all that is left to do.
    assert_eq!((told.count("changed"), told.count("ok")), (1, 4), "{}", told.run.stdout);
    assert_eq!(told.status("sysctl:net.ipv4.ip_forward"), "changed");
}

#[test]
fn an_image_in_a_folder_boots_as_wanted() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    prepare(host);
    let run = |more: &str| host.sh(&format!("cd /srv/site; {} {more} 2>&1", block("chroot").trim()));
    let live = host.sh("cat /proc/sys/net/core/rmem_max; systemctl is-active dbus");
    let would = run("--check -v");
    assert!(would.contains("1 host: 1 would change"), "{would}");
    assert!(host.sh("ls /etc/built /etc/nccl.conf /etc/sysctl.d 2>&1 || true").contains("No such file"));
    let made = run("-v");
    assert!(
        made.contains(
            "skipped (nothing of it lasts, and an image doesn't run): sysctl:net.ipv4.ip_forward, service:dbus"
        ),
        "{made}"
    );
    assert!(run("").contains("nothing to do: 1 host as wanted"));
    // Nothing that runs has noticed, and nothing stays mounted.
    assert_eq!(host.sh("cat /proc/sys/net/core/rmem_max; systemctl is-active dbus"), live);
    assert_eq!(host.sh("grep -c ' /srv/image' /proc/mounts"), "1\n");
    boots_as_wanted(&hosts);
}

#[test]
fn a_container_build_and_installers_make_what_boots_as_wanted() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    prepare(host);
    // Simulated: the web server that has the site, and the installer's own commands.
    host.sh("cat >/usr/local/bin/curl <<'E'\n#!/bin/sh\nexec tar cz -C /srv/site .\nE\n
        cat >/usr/local/bin/in-target <<'E'\n#!/bin/sh\nexec chroot /srv/image \"$@\"\nE\n
        chmod 755 /usr/local/bin/curl /usr/local/bin/in-target; mkdir -p /srv/image/tmp/site; cp /srv/site/* /srv/image/tmp/site
        mount --rbind /proc /srv/image/proc; mount --rbind /dev /srv/image/dev");
    let undo = "rm -f /etc/built /etc/nccl.conf /etc/sysctl.d/99-zz-netplay.conf; systemctl enable irqbalance";
    let done = |said: String| assert!(said.contains("1 host: 1 changed"), "{said}");
    let run = block("container");
    let (_, run) = run.split_once("RUN ").expect("a RUN line");
    done(host.sh(&format!("chroot /srv/image sh -ec '{run}' 2>&1")));
    host.sh("! ls -d /srv/image/run/netplay || exit 1; ! ls -d /srv/image/tmp/site");
    host.sh(undo);
    let post = block("kickstart");
    let (_, post) = post.split_once('\n').expect("%post");
    let post = post.strip_suffix("%end").expect("%end");
    done(host.sh(&format!("chroot /srv/image sh -e <<'E' 2>&1\n{post}\nE\n")));
    host.sh(undo);
    let preseed = block("preseed");
    let command = preseed.strip_prefix("d-i preseed/late_command string").expect("a late_command");
    done(host.sh(&format!("{{ {} ; }} 2>&1", command.replace("\\\n", " "))));
    boots_as_wanted(&hosts);
}

/// What a machine of the lab has by itself, cloud-init isn't to set anew: its network, name, keys, and language.
const CLOUD: &str =
    "{network: {config: disabled}, preserve_hostname: true, ssh_deletekeys: false, disable_root: false, locale: false}";

#[test]
fn a_first_boot_by_cloud_init_does_all_of_it() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    prepare(host);
    let seed = "/var/lib/cloud/seed/nocloud";
    let data = block("cloud-init");
    host.sh(&format!(
        "mkdir -p {seed}; echo 'instance-id: first' >{seed}/meta-data; cat >{seed}/user-data <<'E'\n{data}\nE
        echo '{CLOUD}' >/etc/cloud/cloud.cfg.d/99-lab.cfg; rm /etc/cloud/cloud-init.disabled"
    ));
    host.reboot();
    let status =
        host.sh("timeout 120 cloud-init status --wait --long || true; tail -n 40 /var/log/cloud-init-output.log");
    assert!(status.contains("status: done"), "{status}");
    assert!(status.contains("1 host: 1 changed"), "{status}");
    assert_eq!(host.sh("cat /proc/sys/net/core/rmem_max /sys/class/net/eth1/mtu"), "134217728\n9000\n");
    let config = yaml::load_one(&Source::new("cloud-init", data.as_str()), ErrorKind::Usage).unwrap().unwrap();
    let file = &config.get("write_files").and_then(Node::as_seq).unwrap()[0];
    let site = file.get("content").and_then(Node::text).unwrap().replace("hosts: localhost", "hosts: all");
    let netplay = Netplay::new(&hosts, &["apply", "-i", "inventory.yaml", "site.yaml", "--output", "ndjson"]);
    let told = Told::by(&netplay.file("site.yaml", &site), 0);
    assert_eq!((told.count("changed"), told.count("ok")), (0, 2), "{}", told.run.stdout);
    // What fails is an error of cloud-init.
    host.sh(&format!("sed -i s/9000/999999/ {seed}/user-data; cloud-init clean --logs"));
    host.reboot();
    let status = host.sh("timeout 120 cloud-init status --wait --long || true; cat /var/log/cloud-init-output.log");
    assert!(status.contains("status: error"), "{status}");
    assert!(status.contains("999999"), "{status}");
}

#[test]
fn a_pipeline_tells_drift_from_failure() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let job = block("pipeline");
    let lines: Vec<Vec<&str>> = job
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- netplay "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let [validate, check] = &lines[..] else { panic!("two commands: {job}") };
    let site = "- hosts: all\n  resources: [{copy: {dest: /etc/drift, content: x}}]\n";
    let inventory = |netplay: &Netplay| std::fs::read_to_string(netplay.path("inventory.yaml")).unwrap();
    let step = |arguments: &[&str]| {
        let netplay = Netplay::new(&hosts, arguments).file("site.yaml", site);
        let text = inventory(&netplay);
        netplay.file("cluster.yaml", &text)
    };
    step(validate).run().exits(0);
    let pipeline = step(check);
    pipeline.run().exits(3);
    assert!(std::fs::read_to_string(pipeline.path("drift.xml")).unwrap().contains("copy:/etc/drift"));
    step(&["apply", "-i", "cluster.yaml", "site.yaml"]).run().exits(0);
    pipeline.run().exits(0);
    hosts.first().sh("mkdir /etc/x; rm /etc/drift; ln -s /etc/x /etc/drift");
    pipeline.run().exits(2);
    // A yellow job is for code 3 alone.
    assert!(job.contains("allow_failure: {exit_codes: 3}"));
}
