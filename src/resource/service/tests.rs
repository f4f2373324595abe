//! Runs what the type asks and does in the shells of hosts, with a `systemctl` that tells what files say. Real ones are
//! asked in tests/lab.

use super::*;
use crate::resource::trial::Shell;
use crate::resource::{Inquiry, Output};
use std::fs;
use std::path::PathBuf;

/// `show … -- UNIT…` prints the file `units/UNIT` of each, as systemctl does; anything else is noted and succeeds,
/// unless the file `refuse` has its verb.
const SYSTEMCTL: &str = r#"#!/bin/sh
cd "$(dirname "$0")/.."
case $1 in --no-ask-password) shift ;; esac
verb=$1
case $verb in
  show)
    props=
    while [ "$1" != -- ]; do
      case $1 in -p) props="$props,$2" ;; esac
      shift
    done
    shift
    n=
    for u; do
      [ -z "$n" ] || echo
      n=1
      [ -f "units/$u" ] || { echo "Id=$u"; echo "Names=$u"; echo "LoadState=not-found"; continue; }
      while IFS= read -r line; do case $props, in *",${line%%=*},"*) printf '%s\n' "$line" ;; esac; done <"units/$u"
    done ;;
  *)
    printf '%s\n' "$*" >>log
    if grep -qx "$verb" refuse 2>/dev/null; then echo "Job for $3 failed." >&2; exit 5; fi ;;
esac
"#;

struct Host {
    shell: Shell,
    dir: tempfile::TempDir,
}

impl Host {
    fn new(shell: Shell) -> Host {
        let host = Host { shell, dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(host.path("run/systemd/system")).unwrap();
        host.write("bin/systemctl", SYSTEMCTL);
        host.write("bin/journalctl", "#!/bin/sh\necho \"the journal of $3\"\n");
        host.write("bin/sleep", "#!/bin/sh\n");
        host.shell.run(&format!("chmod +x {}/*", host.path("bin").display()));
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    /// A unit that is loaded, with more properties.
    fn unit(&self, name: &str, more: &str) {
        let text =
            format!("Id={name}\nNames={name}\nLoadState=loaded\nResult=success\nNeedDaemonReload=no\nDropInPaths=\n");
        self.write(&format!("units/{name}"), &(text + &more.replace(' ', "\n") + "\n"));
    }

    fn run(&self, script: &str) -> Output {
        let root = self.dir.path().to_str().unwrap();
        let mut text = script.to_owned();
        for top in ["/etc/systemd/", "/run/systemd/", "/run/netplay/", "/proc/1/"] {
            text = text.replace(top, &format!("{root}{top}"));
        }
        let Output { code, stdout, stderr } = self.shell.run(&format!("PATH={root}/bin:$PATH\n{text}"));
        Output { code, stdout: String::from_utf8(stdout).unwrap().replace(root, "").into_bytes(), stderr }
    }

    fn answers(&self, questions: Vec<Question>) -> Answers {
        let inquiry = Inquiry::new(questions);
        inquiry.answers(inquiry.fragments().iter().map(|f| Ok(self.run(f.script.as_str()))).collect())
    }

    fn read(&self, service: &Service) -> State {
        match service.read(&self.answers(Resource::probe(service))).unwrap() {
            Reading::State(state) => state,
            Reading::NotYet(why) => panic!("{why:?}"),
        }
    }

    /// Runs the steps, and gives what systemctl was asked.
    fn apply(&self, service: &Service) -> Result<Vec<String>, Output> {
        let _ = fs::remove_file(self.path("log"));
        for step in service.apply(&self.read(service)) {
            let Step::Run(script) = step else { panic!("{step:?}") };
            let output = self.run(script.as_str());
            if output.code != 0 {
                return Err(output);
            }
        }
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        Ok(log.lines().map(str::to_owned).collect())
    }
}

fn service(unit: &str, state: Option<Wanted>) -> Service {
    Service { unit: unit.to_owned(), state, enabled: None, masked: None, image: false }
}

#[test]
fn names() {
    for (name, full) in [
        ("irqbalance", "irqbalance.service"),
        ("foo.bar", "foo.bar.service"),
        ("s.socket", "s.socket"),
        ("getty@tty1", "getty@tty1.service"),
        (r"dev-disk\x2d1.mount", r"dev-disk\x2d1.mount"),
        (".service", ".service.service"),
    ] {
        assert_eq!(full_name(name).unwrap(), full);
    }
    for name in ["", "-x", "/lib/systemd/system/x.service", "a b", "x*", "x;reboot", "getty@", "getty@.service", "é"] {
        assert!(full_name(name).is_err(), "{name}");
    }
    assert!(full_name(&"x".repeat(250)).is_err());
    assert_eq!(template("getty@tty1.service").unwrap(), "getty@.service");
    assert_eq!(template("ssh.service"), None);
}

#[test]
fn many_units_are_read_at_once() {
    for shell in Shell::ALL {
        let host = Host::new(shell);
        host.unit("a.service", "ActiveState=active UnitFileState=enabled");
        host.unit(r"b\x2d1@i.service", "ActiveState=inactive");
        host.write(
            "units/ssh.service",
            "Id=ssh.service\nNames=ssh.service sshd.service\nLoadState=loaded\nActiveState=active\nDropInPaths=\n",
        );
        host.write("units/sshd.service", &fs::read_to_string(host.path("units/ssh.service")).unwrap());
        host.write(r"etc/systemd/system/b\x2d1@.service.d/x.conf", "[Service]\n");
        host.write("etc/systemd/system/new.service", "[Service]\n");
        host.write("etc/systemd/system/a.service.d/empty.conf", "");
        host.write("etc/systemd/system/ssh.service.d/x.conf", "[Service]\n");
        host.write("run/netplay/started/a.service", "");
        let names = ["a.service", r"b\x2d1@i.service", "gone.service", "new.service", "sshd.service"];
        let answers = host.answers(names.iter().map(|n| Question::of::<Units>(*n)).collect());
        let get = |name: &str| answers.get::<Units>(name).unwrap().clone();
        let a = get("a.service").unwrap();
        assert!(a.started && !a.outdated, "{shell:?}");
        assert_eq!((a.run(), a.enabled()), (Run::Yes, Enabled::Yes));
        let b = get(r"b\x2d1@i.service").unwrap();
        assert!(b.outdated && !b.started, "a drop-in that isn't loaded: {shell:?}");
        assert_eq!(get("gone.service"), None, "{shell:?}");
        assert!(get("new.service").unwrap().outdated, "systemd hasn't seen its file yet: {shell:?}");
        let sshd = get("sshd.service").unwrap();
        assert_eq!((sshd.id.as_str(), sshd.outdated, sshd.alias), ("ssh.service", true, false), "{shell:?}");
        let plain = ["ssh.service", "sshd.service"];
        let answers = host.answers(plain.iter().map(|n| Question::of::<Units>(*n)).collect());
        assert!(plain.iter().all(|n| answers.get::<Units>(n).unwrap().is_some()), "with nothing to note: {shell:?}");
    }
}

#[test]
fn hosts_without_systemd() {
    for shell in Shell::ALL {
        let host = Host::new(shell);
        fs::remove_dir(host.path("run/systemd/system")).unwrap();
        host.write("proc/1/comm", "sshd\n");
        let service = service("x.service", Some(Wanted::Stopped));
        let why = service.read(&host.answers(Resource::probe(&service))).unwrap_err();
        assert_eq!(why.message, "this host isn't run by systemd: its first process is sshd");
    }
}

#[test]
fn a_stop_takes_the_sockets_along() {
    for shell in Shell::ALL {
        let host = Host::new(shell);
        host.write(
            "units/x.service",
            "Id=x.service\nLoadState=loaded\nActiveState=inactive\nTriggeredBy=x.socket x.timer y.socket\n",
        );
        host.unit("x.socket", "ActiveState=active UnitFileState=enabled");
        host.unit("x.timer", "ActiveState=active UnitFileState=static");
        host.unit("y.socket", "ActiveState=inactive UnitFileState=disabled");
        let service = service("x.service", Some(Wanted::Stopped));
        let now = host.read(&service);
        assert_eq!(service.diff(&now), [Change::now("x.socket", "started", "stopped")], "{shell:?}");
        assert_eq!(
            service.warnings(&now),
            [
                "x.socket is enabled and can start x.service again after a boot",
                "x.timer is active and can start x.service again"
            ]
        );
        assert_eq!(host.apply(&service).unwrap(), ["stop -- x.socket x.service"], "{shell:?}");
    }
}

#[test]
fn a_start_that_fails_says_why() {
    for shell in Shell::ALL {
        let host = Host::new(shell);
        let failed = "Id=x.service LoadState=loaded ActiveState=failed SubState=failed Result=exit-code Type=simple";
        host.write("units/x.service", &format!("{failed} ExecMainStatus=1 ").replace(' ', "\n"));
        let service = service("x.service", Some(Wanted::Started));
        assert_eq!(service.diff(&host.read(&service)), [Change::now("state", "failed (exit-code)", "started")]);
        let told = |host: &Host| String::from_utf8(host.apply(&service).unwrap_err().stdout).unwrap();
        assert_eq!(
            told(&host),
            "ActiveState=failed SubState=failed Result=exit-code ExecMainStatus=1 \n\
             the last lines of its journal:\nthe journal of x.service\n",
            "it is seen to fail after a start that succeeded: {shell:?}"
        );
        host.write("refuse", "start\n");
        assert!(told(&host).ends_with("the journal of x.service\n"), "{shell:?}");
    }
}

#[test]
fn what_systemd_forgets_is_remembered_for_this_boot() {
    for shell in Shell::ALL {
        let host = Host::new(shell);
        host.unit("x.service", "ActiveState=inactive Type=oneshot ConditionTimestampMonotonic=0");
        let start = service("x.service", Some(Wanted::Started));
        assert_eq!(host.apply(&start).unwrap(), ["reset-failed -- x.service", "start -- x.service"], "{shell:?}");
        let now = host.read(&start);
        assert!(start.diff(&now).is_empty() && start.verify(&now).is_empty(), "{now:?}");
        assert!(start.warnings(&now).is_empty());
        host.unit("x.service", "ActiveState=active Type=oneshot ConditionTimestampMonotonic=0");
        host.apply(&service("x.service", Some(Wanted::Stopped))).unwrap();
        host.unit("x.service", "ActiveState=inactive Type=oneshot ConditionTimestampMonotonic=0");
        assert_eq!(start.diff(&host.read(&start)).len(), 1, "a stop is a stop: {shell:?}");
    }
}

#[test]
fn a_handler_takes_changed_files_in() {
    for shell in Shell::ALL {
        let host = Host::new(shell);
        let restart = service("x.service", Some(Wanted::Restarted));
        let calm = ["reset-failed -- x.service", "restart -- x.service"];
        let anew = ["daemon-reload", "reset-failed -- x.service", "restart -- x.service"];
        host.unit("x.service", "ActiveState=active");
        assert_eq!(host.apply(&restart).unwrap(), calm, "{shell:?}");
        // As when the file is written between the probe and the handler.
        let steps = restart.apply(&host.read(&restart));
        host.write("etc/systemd/system/x.service.d/x.conf", "[Service]\n");
        let _ = fs::remove_file(host.path("log"));
        let Step::Run(script) = &steps[0] else { panic!() };
        assert_eq!(host.run(script.as_str()).code, 0);
        assert_eq!(fs::read_to_string(host.path("log")).unwrap().lines().collect::<Vec<_>>(), anew, "{shell:?}");
    }
}
