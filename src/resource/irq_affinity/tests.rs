//! The script against a simulated /sys and /proc/irq, and against what is read of them.

use super::*;
use crate::resource::trial::{Shell, parse};
use crate::resource::{Inquiry, Output};
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

/// A simulated host in a folder.
struct Host(tempfile::TempDir);

impl Host {
    /// With these CPUs, and an interface `eth0` of a card that is near to some of them.
    fn new(online: &str, isolated: &str, node: i32, local: &str) -> Host {
        let host = Host(tempfile::tempdir().unwrap());
        host.write("sys/devices/system/cpu/online", online);
        host.write("sys/devices/system/cpu/isolated", isolated);
        host.write("sys/card/numa_node", &node.to_string());
        host.write("sys/card/local_cpulist", local);
        for folder in
            ["sys/card/msi_irqs", "sys/card/virtio1", "sys/class/net/eth0", "sys/kernel/irq", "run/systemd/system"]
        {
            fs::create_dir_all(host.path(folder)).unwrap();
        }
        symlink(host.path("sys/card/virtio1"), host.path("sys/class/net/eth0/device")).unwrap();
        host
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn irq(&self, number: u32, name: &str, cpus: &str) {
        self.write(&format!("sys/card/msi_irqs/{number}"), "msix");
        self.write(&format!("sys/kernel/irq/{number}/actions"), name);
        self.write(&format!("proc/irq/{number}/smp_affinity_list"), cpus);
    }

    fn affinity(&self, number: u32) -> String {
        fs::read_to_string(self.path(&format!("proc/irq/{number}/smp_affinity_list"))).unwrap().trim().to_owned()
    }

    /// Runs a script of which this folder is the root.
    fn run(&self, shell: Shell, script: &Script) -> Output {
        let root = self.0.path().display();
        let below = |text: String, folder: &str| text.replace(folder, &format!("{root}{folder}"));
        let text = ["/sys/", "/proc/irq", "/run/", "/etc/"].into_iter().fold(script.as_str().to_owned(), below);
        let mut output = shell.run(&text);
        let said = String::from_utf8(output.stdout).unwrap();
        output.stdout = said.replace(&root.to_string(), "").into_bytes();
        output
    }

    fn found(&self, shell: Shell) -> Found {
        let inquiry = Inquiry::new([Question::of::<Interrupts>("eth0")]);
        let outputs = inquiry.fragments().iter().map(|f| Ok(self.run(shell, &f.script))).collect();
        match inquiry.answers(outputs).get::<Interrupts>("eth0").unwrap() {
            Of::These(found) => found.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn place(&self, shell: Shell, keys: &[(&'static str, &str)]) -> (IrqAffinity, Output) {
        let resource: IrqAffinity = parse(&[&[("interface", "eth0")], keys].concat()).unwrap();
        let output = self.run(shell, &resource.script);
        (resource, output)
    }
}

/// Of a mlx5 card, and of a virtio one.
fn names(queues: usize) -> impl Iterator<Item = String> {
    let mlx5 = |n| format!("mlx5_comp{n}@pci:0000:86:00.0");
    let virtio = |n| [format!("virtio1-input.{n}"), format!("virtio1-output.{n}")];
    (0..queues)
        .map(mlx5)
        .chain((0..2).flat_map(virtio))
        .chain(["mlx5_async0@pci:0000:86:00.0".to_owned(), String::new()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// What the script does and what is wanted are found out apart from each other.
    #[test]
    fn the_script_and_what_is_wanted_agree(
        policy in prop::sample::select(vec!["local", "spread", "all"]),
        isolated in prop::sample::select(vec!["", "0-3", "64-99,101", "0-127"]),
        online in prop::sample::select(vec!["0-127", "0-65,67-99", "0,70"]),
        node in -1..2,
    ) {
        for shell in Shell::ALL {
            let host = Host::new(online, isolated, node, "64-127");
            for (n, name) in names(20).enumerate() {
                host.irq(90 + u32::try_from(n).unwrap(), &name, online);
            }
            let (resource, output) = host.place(shell, &[("policy", policy)]);
            prop_assert_eq!(output.code, 0, "{:?}: {}", shell, output.complaint());
            let found = host.found(shell);
            prop_assert_eq!(found.queues.len(), 24, "{:?}", shell);
            let astray = resource.astray(&found);
            prop_assert!(astray.is_empty(), "{shell:?} {astray:?} {found:?}");
            prop_assert_eq!(host.affinity(114), online, "one that is of no queue was moved");
            let again = host.place(shell, &[("policy", policy)]).1;
            prop_assert!(again.text().contains(" 0 moved,"), "{shell:?}: {}", again.text());
        }
    }
}

#[test]
fn what_the_kernel_manages_is_left_and_known_from_then_on() {
    for shell in Shell::ALL {
        let host = Host::new("0-3", "", -1, "");
        for n in 0..3 {
            host.irq(40 + n, &format!("eth0-TxRx-{n}"), "0-3");
        }
        // Simulated by a file that the kernel refuses with the same error, whatever is written.
        let managed = host.path("proc/irq/41/smp_affinity_list");
        fs::remove_file(&managed).unwrap();
        symlink("/proc/self/uid_map", &managed).unwrap();
        // It vanishes after it was listed.
        fs::remove_dir_all(host.path("proc/irq/42")).unwrap();
        for moved in [1, 0] {
            let (resource, output) = host.place(shell, &[("cpus", "2-3")]);
            let wanted = format!("eth0: 2 interrupts of queues, {moved} moved, 1 managed by the kernel\n");
            assert_eq!((output.code, &*output.text()), (0, &*wanted), "{shell:?} {}", output.complaint());
            assert_eq!(host.affinity(40), "2");
            let found = host.found(shell);
            assert!(resource.astray(&found).is_empty(), "{shell:?}: {found:?}");
            assert_eq!(found.queues.iter().filter(|irq| irq.managed).count(), 1);
            let noted = fs::read_to_string(host.path("run/netplay/managed-irqs")).unwrap();
            assert_eq!(noted, "41 eth0-TxRx-1\n", "{shell:?}");
        }
    }
}

/// What is listed when a host is probed may be gone when it is changed, and between the reading of one and its writing too.
#[test]
fn what_vanishes_under_the_script_is_passed_over() {
    for shell in Shell::ALL {
        let host = Host::new("0-3", "", -1, "");
        for n in 0..3 {
            host.irq(40 + n, &format!("eth0-TxRx-{n}"), "0-3");
        }
        assert_eq!(host.found(shell).queues.len(), 3);
        // A pipe tells when the script reads it; and as in /proc, nothing can be made where its folder is gone.
        let folder = host.path("proc/irq/41");
        let file = folder.join("smp_affinity_list");
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let (resource, output) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut reader = fs::OpenOptions::new().write(true).open(&file).unwrap();
                fs::remove_dir_all(&folder).unwrap();
                writeln!(reader, "0-3").unwrap();
            });
            host.place(shell, &[("cpus", "2-3")])
        });
        let wanted = "eth0: 3 interrupts of queues, 2 moved, 0 managed by the kernel\n";
        assert_eq!((output.code, &*output.text()), (0, wanted), "{shell:?} {}", output.complaint());
        assert!(!host.path("run/netplay/managed-irqs").exists(), "{shell:?}: it isn't taken for a managed one");
        let found = host.found(shell);
        assert_eq!((found.queues.len(), resource.astray(&found).len()), (2, 0), "{shell:?}: {found:?}");

        // All of them: that is no success, and the interface itself is told apart.
        fs::remove_dir_all(host.path("proc/irq")).unwrap();
        let output = host.place(shell, &[]).1;
        assert_eq!(output.code, 1, "{shell:?}");
        let said = output.text();
        assert!(said.starts_with("eth0: 0 interrupts of queues, ") && said.contains("ip link set eth0 up"), "{said}");
        fs::remove_dir_all(host.path("sys/class/net/eth0")).unwrap();
        let output = host.place(shell, &[]).1;
        assert_eq!((output.code, &*output.text()), (1, "there is no interface eth0\n"), "{shell:?}");
    }
}

#[test]
fn what_is_refused_otherwise_fails_by_name() {
    for shell in Shell::ALL {
        let host = Host::new("0-3", "", 0, "0-3");
        for n in [0, 1] {
            host.irq(40 + n, &format!("eth0-TxRx-{n}"), "3");
        }
        let full = host.path("proc/irq/40/smp_affinity_list");
        fs::remove_file(&full).unwrap();
        symlink("/proc/self/setgroups", &full).unwrap();
        let output = host.place(shell, &[]).1;
        assert_eq!((output.code, host.affinity(41).as_str()), (1, "1"), "{shell:?}: the others are set all the same");
        let said = output.text();
        assert!(said.contains("eth0-TxRx-0 (interrupt 40) can't be set to CPU 0: "), "{shell:?}: {said}");
    }
}

#[test]
fn an_interface_without_interrupts_of_its_own() {
    for shell in Shell::ALL {
        let host = Host::new("0-3", "", 0, "0-3");
        fs::remove_file(host.path("sys/class/net/eth0/device")).unwrap();
        let output = host.place(shell, &[]).1;
        assert_eq!(output.code, 1);
        assert_eq!(output.complaint(), "eth0 has no interrupts of its own in /sys/class/net/eth0/device", "{shell:?}");
        let host = Host::new("0-3", "", 0, "0-3");
        host.irq(40, "", "0-3");
        assert_eq!(host.place(shell, &[]).1.code, 1, "{shell:?}: no queue has one, which a boot must not pass over");
    }
}

/// What a kernel of 2 CPUs answered to lists of CPUs: which of them are refused is the script's matter, as it writes none
/// of these.
#[test]
fn what_kernels_said() {
    let sample = include_str!("kernel-6.18.txt");
    let mut asked = 0;
    for answer in sample.split("$ echo ").skip(1) {
        let (value, rest) = answer.split_once(" > ").unwrap();
        if !rest.lines().next().unwrap().ends_with("smp_affinity_list") {
            continue;
        }
        asked += 1;
        let online = Cpus::parse("0-1").unwrap();
        let taken =
            Cpus::parse(value.trim_matches('\'')).is_some_and(|c| !c.is_empty() && c.without(&online).is_empty());
        assert_eq!(rest.contains("rc=0"), taken, "{value}");
        let now = rest.split("now: ").nth(1).unwrap().lines().next().unwrap();
        assert_eq!(Cpus::parse(now), Some(online), "{now}");
    }
    assert_eq!(asked, 5);
    // What it calls what it refuses because it is managed is what the script looks for.
    assert!(
        sample.contains(
            "'3' > /proc/irq/36/smp_affinity\nERR: s3.sh: line 1: echo: write error: Operation not permitted"
        )
    );
    assert!(include_str!("place.sh").contains("*'Operation not permitted' | *'nput/output error')"));
}
