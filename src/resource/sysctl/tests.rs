//! Runs what the type asks and does for real, in the shells of hosts, on a folder that stands for `/`.

use super::*;
use crate::error::Kind;
use crate::resource::trial::Shell;
use crate::resource::{AnyResource, Assessment, Inquiry, Output, Weight};
use crate::source::Source;
use crate::yaml::{self, Node};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const OURS: &str = "etc/sysctl.d/99-zz-netplay.conf";

struct Nothing;

impl crate::resource::Env for Nothing {
    fn file(&self, _: &Node) -> Result<Vec<u8>, Error> {
        unreachable!()
    }
    fn template(&self, _: &Node) -> Result<String, Error> {
        unreachable!()
    }
    fn holds(&self, _: &Node) -> Result<bool, Error> {
        unreachable!()
    }
    fn predicate(&self, _: &Node) -> Result<crate::resource::Predicate, Error> {
        unreachable!()
    }
}

fn parse(text: &str) -> Result<Sysctl, Error> {
    let source = Source::new("t.yaml", text);
    let node = yaml::load_one(&source, Kind::Playbook)?.unwrap();
    Sysctl::parse(&Spec { node: &node, env: &Nothing, title: None, handler: false, image: false })
}

struct Host {
    shell: Shell,
    dir: tempfile::TempDir,
}

impl Host {
    /// A host with systemd-sysctl and these files.
    fn new(shell: Shell, files: &[(&str, &str)]) -> Host {
        let host = Host { shell, dir: tempfile::tempdir().unwrap() };
        host.write("usr/lib/systemd/systemd-sysctl", "");
        host.shell.run(&format!("chmod +x {}", host.path("usr/lib/systemd/systemd-sysctl").display()));
        files.iter().for_each(|(path, text)| host.write(path, text));
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Shell text with this folder as its root.
    fn inside(&self, script: &str) -> String {
        let root = self.dir.path().to_str().unwrap();
        let mut text = script.replace("root=''\n", &format!("root={root}\n"));
        if text == script {
            for top in ["/etc/", "/proc/sys/", "/proc/modules", "/sys/module/", "/lib/modules/"] {
                text = text.replace(top, &format!("{root}{top}"));
            }
        }
        text
    }

    fn answers(&self, resource: &Sysctl) -> Answers {
        let inquiry = Inquiry::new(Resource::probe(resource));
        let root = self.dir.path().to_str().unwrap();
        let back = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace(root, "").into_bytes();
        let run = |script: &Script| {
            let Output { code, stdout, stderr } = self.shell.run(&self.inside(script.as_str()));
            Ok(Output { code, stdout: back(stdout), stderr: back(stderr) })
        };
        inquiry.answers(inquiry.fragments().iter().map(|f| run(&f.script)).collect())
    }

    fn assess(&self, resource: &Sysctl) -> Assessment {
        match resource.assess(&self.answers(resource)).unwrap() {
            Reading::State(found) => found,
            Reading::NotYet(why) => panic!("{why:?}"),
        }
    }

    fn run(&self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            let Step::Run(script) = step else { panic!("{step:?}") };
            let output = self.shell.run(&self.inside(script.as_str()));
            if output.code != 0 {
                return Err(format!("{}{}", output.text(), output.complaint()));
            }
        }
        Ok(())
    }

    /// Applies it, and holds it to have nothing left to do then.
    fn apply(&self, text: &str) -> Assessment {
        let resource = parse(text).unwrap();
        let found = self.assess(&resource);
        self.run(&found.steps).unwrap_or_else(|e| panic!("{:?}: {e}", self.shell));
        for file in &found.files {
            let after = file.after.as_ref().unwrap();
            assert_eq!(
                fs::read(self.path(&file.path[1..])).unwrap(),
                *after,
                "{:?}: the diff told another",
                self.shell
            );
        }
        let after = self.assess(&resource);
        assert!(after.changes.is_empty() && after.steps.is_empty(), "{:?}: {:?}", self.shell, after.changes);
        found
    }
}

fn fields(found: &Assessment) -> Vec<String> {
    found.changes.iter().map(|c| format!("{} {} {}", c.field, c.from, c.to)).collect()
}

const LIVE: &[(&str, &str)] = &[
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/wmem_max", "212992\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
];

#[test]
fn live_and_boot_of_an_untouched_host() {
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        let text = "values: {net.core.rmem_max: 134217728, net/ipv4/tcp_rmem: [4096, 87380, 67108864]}";
        let found = host.apply(text);
        assert_eq!(
            fields(&found),
            [
                "net.core.rmem_max 212992 134217728",
                "net.ipv4.tcp_rmem \"4096 131072 6291456\" \"4096 87380 67108864\"",
                "net.core.rmem_max at boot null 134217728",
                "net.ipv4.tcp_rmem at boot null \"4096 87380 67108864\"",
            ]
        );
        assert_eq!(host.read("proc/sys/net/core/rmem_max"), "134217728\n");
        let wanted = "net.core.rmem_max = 134217728\nnet.ipv4.tcp_rmem = 4096 87380 67108864\n";
        assert_eq!(host.read(OURS), wanted, "{shell:?}");
        assert!(found.obstacle.is_none() && found.warnings.is_empty(), "{found:?}");
    }
}

#[test]
fn resources_of_one_segment_share_a_file() {
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        host.write(OURS, "# by hand\nvm.swappiness = 1\n-net/core/wmem_max=1\nnet.core.wmem_max = 2");
        let one = parse("{name: net.core.rmem_max, value: 1000}").unwrap();
        let two = parse("{name: net.core.wmem_max, value: 2000}").unwrap();
        let steps = [&one, &two].map(|resource| host.assess(resource).steps);
        host.run(&steps.concat()).unwrap();
        let wanted = "# by hand\nvm.swappiness = 1\nnet.core.wmem_max = 2000\nnet.core.rmem_max = 1000\n";
        assert_eq!(host.read(OURS), wanted, "{shell:?}");
        let absent = host.apply("{state: absent, name: net.core.wmem_max}");
        assert_eq!(fields(&absent), ["net.core.wmem_max at boot 2000 null"]);
        assert_eq!(absent.warnings, ["net.core.wmem_max keeps its live value 2000 until the next boot"]);
        assert_eq!(host.read(OURS), "# by hand\nvm.swappiness = 1\nnet.core.rmem_max = 1000\n");
    }
}

#[test]
fn what_the_kernel_refuses_is_told_and_not_persisted() {
    let host = Host::new(Shell::Dash, LIVE);
    fs::remove_file(host.path("proc/sys/net/core/rmem_max")).unwrap();
    symlink("/proc/sys/kernel/osrelease", host.path("proc/sys/net/core/rmem_max")).unwrap();
    // Takes everything and gives nothing back.
    fs::remove_file(host.path("proc/sys/net/core/wmem_max")).unwrap();
    symlink("/dev/null", host.path("proc/sys/net/core/wmem_max")).unwrap();
    let text = "values: {net.core.rmem_max: 1, net.core.wmem_max: 2, net.ipv4.tcp_rmem: 1 2 3}";
    let resource = parse(text).unwrap();
    for shell in Shell::ALL {
        let _ = fs::remove_file(host.path(OURS));
        host.write("proc/sys/net/ipv4/tcp_rmem", "0\t0\t0\n");
        let steps = host.assess(&resource).steps;
        let Step::Run(script) = &steps[0] else { panic!() };
        let output = shell.run(&host.inside(script.as_str()));
        assert_eq!(output.code, 1, "{shell:?}");
        assert_eq!(
            output.text(),
            "net.core.rmem_max = 1: read-only here (Permission denied)\n\
             net.core.wmem_max = 2: the kernel took it without an error, and it reads ``\n",
            "{shell:?}"
        );
        assert_eq!(host.read("proc/sys/net/ipv4/tcp_rmem"), "1 2 3\n");
        assert_eq!(host.read(OURS), "net.ipv4.tcp_rmem = 1 2 3\n", "{shell:?}");
    }
}

#[test]
fn who_wins_at_boot() {
    const NAME: &str = "{name: net.core.rmem_max, value: 1000}";
    let told = |host: &Host, text: &str| {
        let found = host.assess(&parse(text).unwrap());
        host.run(&found.steps).unwrap();
        found.obstacle.map(|o| (o.trouble.message, o.weight == crate::resource::Weight::Lasts))
    };
    let fails = |says: &str| Some((says.to_owned(), true));
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        // A pattern, an earlier file and other parameters don't matter, nor what isn't read.
        host.write("etc/sysctl.d/zz.conf", "net.core.* = 1\nnet.core.rmem_maxx = 1\n");
        host.write("etc/sysctl.d/10.conf", "net.core.rmem_max = 1\n");
        host.write("etc/sysctl.d/zz.conf.bak", "net.core.rmem_max = 1\n");
        host.write("etc/sysctl.d/.zzz.conf", "net.core.rmem_max = 1\n");
        host.write("etc/sysctl.conf", "# x\nnet.core.rmem_max = 2\n");
        let found = host.assess(&parse(NAME).unwrap());
        assert_eq!(found.obstacle, None, "{shell:?}");
        assert_eq!(fields(&found)[1], "net.core.rmem_max at boot 1 1000", "{shell:?}");
        assert_eq!(
            found.warnings,
            [
                "/etc/sysctl.conf:2 sets net.core.rmem_max to 2: not at boot, as no link in /etc/sysctl.d leads there, but \
              whenever `sysctl -p` or `sysctl --system` is run"
            ]
        );
        // A later file wins, the live value is set all the same.
        host.write("usr/lib/sysctl.d/zz-x.conf", "; note\n\n net/core/rmem_max=212992 \r\n");
        assert_eq!(told(&host, NAME), fails("at boot 212992 wins: /usr/lib/sysctl.d/zz-x.conf:3"), "{shell:?}");
        assert_eq!(host.read("proc/sys/net/core/rmem_max"), "1000\n");
        let again = host.assess(&parse(NAME).unwrap());
        assert!(again.changes.is_empty() && again.steps.is_empty() && again.obstacle.is_some(), "{again:?}");
        // With the same value it doesn't matter, and /etc hides /usr/lib, by a link to /dev/null too.
        host.write("usr/lib/sysctl.d/zz-x.conf", "net.core.rmem_max = 0x3e8\n");
        assert_eq!(told(&host, NAME), None, "{shell:?}");
        host.write("usr/lib/sysctl.d/zz-x.conf", "net.core.rmem_max = 5\n");
        symlink("/dev/null", host.path("etc/sysctl.d/zz-x.conf")).unwrap();
        assert_eq!(told(&host, NAME), None, "{shell:?}");
        host.write("run/sysctl.d/zzz.conf", "-net.core.rmem_max\n");
        let says = "at boot it isn't set, by the line `-net.core.rmem_max`: /run/sysctl.d/zzz.conf:1";
        assert_eq!(told(&host, NAME), fails(says), "{shell:?}");
        // With the link, /etc/sysctl.conf is a boot file by the link's name.
        host.write("run/sysctl.d/zzz.conf", "");
        symlink("../sysctl.conf", host.path("etc/sysctl.d/99-sysctl.conf")).unwrap();
        assert_eq!(told(&host, NAME), None, "{shell:?}");
        let classic = "{name: net.core.wmem_max, value: 7, file: /etc/sysctl.conf}";
        assert_eq!(told(&host, classic), None, "{shell:?}");
        assert_eq!(host.read("etc/sysctl.conf"), "# x\nnet.core.rmem_max = 2\nnet.core.wmem_max = 7\n");
        fs::remove_file(host.path("etc/sysctl.d/99-sysctl.conf")).unwrap();
        assert_eq!(told(&host, classic), fails("nothing reads /etc/sysctl.conf at boot"), "{shell:?}");
        let hidden = "{name: net.core.wmem_max, value: 7, file: /usr/lib/sysctl.d/10.conf}";
        let says = "/usr/lib/sysctl.d/10.conf isn't read at boot, since /etc/sysctl.d/10.conf has the same name and goes first";
        assert_eq!(told(&host, hidden), fails(says), "{shell:?}");
    }
}

#[test]
fn hosts_without_systemd() {
    const NAME: &str = "{name: net.core.rmem_max, value: 1000}";
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        fs::remove_file(host.path("usr/lib/systemd/systemd-sysctl")).unwrap();
        let found = host.apply(NAME);
        assert!(found.warnings[0].contains("neither systemd-sysctl nor"), "{:?}", found.warnings);
        host.write("etc/init.d/sysctl", "");
        host.write("etc/sysctl.conf", "net.core.rmem_max = 2\n");
        let found = host.assess(&parse(NAME).unwrap());
        assert_eq!(found.obstacle.unwrap().trouble.message, "at boot 2 wins: /etc/sysctl.conf:1", "{shell:?}");
        assert!(found.warnings.is_empty());
        assert!(
            host.assess(&parse("{name: net.core.rmem_max, value: 2, file: /etc/sysctl.conf}").unwrap())
                .obstacle
                .is_none()
        );
    }
}

#[test]
fn others_that_set_it_are_warnings() {
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        host.write("etc/infiniband/openib.conf", "# x\nONBOOT=yes\nRUN_SYSCTL=yes\n");
        host.write("etc/tuned/active_profile", "mine\n");
        host.write(
            "etc/tuned/mine/tuned.conf",
            "[main]\ninclude = base, ../evil\n[sysctl]\nnet.core.wmem_max = 1000\n",
        );
        host.write("usr/lib/tuned/mine/tuned.conf", "[sysctl]\nnet.core.rmem_max=5\n");
        host.write("usr/lib/tuned/base/tuned.conf", "[sysctl]\nnet.core.rmem_max=5\n");
        host.write(
            "etc/tuned/base/tuned.conf",
            "[main]\ninclude=mine\n[sysctl]\n# c\nnet.core.wmem_max=5\nnet.ipv4.tcp_rmem=\"4096 131072 16777216\"\n\
             [vm]\nnet.core.rmem_max = 7\n",
        );
        let text = "values: {net.core.rmem_max: 1000, net.core.wmem_max: 1000, net.ipv4.tcp_rmem: 4096 87380 4194304}";
        let found = host.apply(text);
        assert_eq!(
            found.warnings,
            [
                "net.core.rmem_max is set to 4194304 whenever the MLNX_OFED driver is loaded, by RUN_SYSCTL=yes in \
                 /etc/infiniband/openib.conf",
                "net.core.wmem_max is set to 4194304 whenever the MLNX_OFED driver is loaded, by RUN_SYSCTL=yes in \
                 /etc/infiniband/openib.conf",
                "tuned's active profile sets net.ipv4.tcp_rmem to 4096 131072 16777216 \
                 (/etc/tuned/base/tuned.conf:6) and then takes /etc/sysctl.d again (reapply_sysctl)",
            ],
            "{shell:?}"
        );
        host.write("etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n");
        host.write("etc/infiniband/openib.conf", "RUN_SYSCTL=no\n");
        let found = host.assess(&parse(text).unwrap());
        assert_eq!(found.warnings.len(), 1, "{shell:?}");
        assert!(found.warnings[0].ends_with("and keeps it, by reapply_sysctl = 0"), "{:?}", found.warnings);
    }
}

#[test]
fn a_congestion_control_brings_its_module() {
    let files = &[
        ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
        ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n"),
        ("proc/modules", ""),
        ("etc/modules-load.d/tcp_bbr.conf", "# none\n"),
    ];
    const BBR: &str = "{name: net.ipv4.tcp_congestion_control, value: bbr}";
    for shell in Shell::ALL {
        let host = Host::new(shell, files);
        let found = host.apply(BBR);
        assert_eq!(fields(&found)[2], "module tcp_bbr at boot null \"loaded\"");
        assert_eq!(host.read("etc/modules-load.d/tcp_bbr.conf"), "# none\ntcp_bbr\n");
        // Loaded as a module, it still needs the line; built in, it needs none.
        host.write("etc/modules-load.d/tcp_bbr.conf", "");
        host.write("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n");
        host.write("sys/module/tcp_bbr/initstate", "live\n");
        assert_eq!(fields(&host.apply(BBR)), ["module tcp_bbr at boot null \"loaded\""]);
        host.write("etc/modules-load.d/tcp_bbr.conf", "");
        fs::remove_file(host.path("sys/module/tcp_bbr/initstate")).unwrap();
        assert_eq!(fields(&host.apply(BBR)), [""; 0]);
    }
}

#[test]
fn a_congestion_control_that_there_is_not() {
    let control = "proc/sys/net/ipv4/tcp_congestion_control";
    let files = &[(control, "cubic\n"), ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n")];
    let keys = |name: &str| format!("values: {{net.ipv4.tcp_congestion_control: {name}}}");
    for shell in Shell::ALL {
        let host = Host::new(shell, files);
        let obstacle = |name: &str, persist: &str| {
            let text = format!("{{{}{persist}}}", keys(name));
            host.assess(&parse(&text).unwrap()).obstacle.map(|o| (o.trouble.message, o.trouble.hint.unwrap(), o.weight))
        };
        // Where nobody knows the modules, the kernel says it.
        host.write("proc/modules", "");
        assert_eq!(obstacle("bbr9", ""), None, "{shell:?}");
        let modules = format!("lib/modules/{}", std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
        host.write(&format!("{modules}/modules.dep"), "kernel/net/ipv4/tcp_bbr.ko.xz: x\n");
        host.write(&format!("{modules}/modules.alias"), "alias tcp_other something\n");
        for there in ["bbr", "reno", "other"] {
            assert_eq!(obstacle(there, ""), None, "{shell:?} {there}");
        }
        for persist in ["", ", persist: false"] {
            let (message, hint, weight) = obstacle("bbr9", persist).unwrap();
            let why = "net.ipv4.tcp_congestion_control can't be bbr9: the kernel has reno, cubic, and there is no module tcp_bbr9";
            assert_eq!((message.as_str(), hint.as_str()), (why, "is it bbr?"), "{shell:?}");
            assert_eq!(weight, Weight::Unless(vec![Claim::new(kernel_module::KIND, "tcp_bbr9")]));
        }
        // A kernel without modules has what is built in alone.
        fs::remove_file(host.path("proc/modules")).unwrap();
        assert!(obstacle("bbr", "").is_some() && obstacle("cubic", "").is_none(), "{shell:?}");
    }
}

#[test]
fn a_missing_parameter() {
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        let values = "values: {net.netfilter.nf_conntrack_max: 5, net.core.rmem_max: 9}";
        let found = host.assess(&parse(values).unwrap());
        host.run(&found.steps).unwrap();
        let trouble = found.obstacle.unwrap().trouble;
        assert_eq!(trouble.message, "net.netfilter.nf_conntrack_max isn't on this host");
        assert!(trouble.hint.unwrap().contains("kernel module nf_conntrack"));
        assert_eq!(host.read(OURS), "net.core.rmem_max = 9\n", "{shell:?}");
        let found = host.apply(&format!("{{ignore_missing: true, {values}}}"));
        assert_eq!(fields(&found), ["net.netfilter.nf_conntrack_max at boot null 5"], "{shell:?}");
        assert_eq!(
            found.warnings,
            ["net.netfilter.nf_conntrack_max isn't on this host, which `ignore_missing` lets pass"]
        );
    }
}

#[test]
fn the_boot_file_can_be_a_link_or_in_the_way() {
    for shell in Shell::ALL {
        let host = Host::new(shell, LIVE);
        host.write("opt/real", "a.b = 1\n");
        fs::create_dir_all(host.path("etc/sysctl.d")).unwrap();
        symlink("../../opt/real", host.path(OURS)).unwrap();
        host.apply("{name: net.core.rmem_max, value: 1000}");
        assert_eq!(host.read("opt/real"), "a.b = 1\nnet.core.rmem_max = 1000\n", "{shell:?}");
        assert!(fs::symlink_metadata(host.path(OURS)).unwrap().is_symlink());
        fs::remove_file(host.path(OURS)).unwrap();
        fs::create_dir(host.path(OURS)).unwrap();
        let resource = parse("{name: net.core.rmem_max, value: 1000}").unwrap();
        let why = resource.assess(&host.answers(&resource)).unwrap_err();
        assert!(why.message.contains("can't be read: is a directory"), "{why:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_value_arrives(value in "[ -~]{0,40}", name in "[a-z0-9_:@+%~-]{1,12}") {
        for shell in Shell::ALL {
            let path = format!("proc/sys/net/{name}");
            let host = Host::new(shell, &[(&path, "old\n")]);
            let Ok(resource) = parse(&format!("{{name: 'net.{name}', value: '{}'}}", value.replace('\'', "''"))) else {
                return Ok(());
            };
            let found = host.assess(&resource);
            prop_assert_eq!(host.run(&found.steps), Ok(()), "{:?}", shell);
            let squashed = value::squash(&value);
            prop_assert_eq!(host.read(&path), format!("{squashed}\n"));
            prop_assert_eq!(host.read(OURS), format!("net.{name} = {squashed}\n"));
            prop_assert!(host.assess(&resource).changes.is_empty(), "{:?}", shell);
        }
    }
}
