//! The transport alone, against real sshds: what is reached, what is refused and in which words, and that nothing
//! takes longer than it may.

use crate::harness::{Host, Hosts, Kind, bastion, env, lab};
use crate::sessions::{
    Agent, LOGIN, carriers, connect, failure, failure_within, identity_of, in_controller, keygen, root, run, session,
    talk, target, told, with_arguments, within,
};
use netplay::transport::sudo::{self, Refusal};
use netplay::transport::{
    Carrier, Deadline, Exit, FailureKind, Gate, HostKeyChecking, Identity, Limits, Password, Secret, Target, Transport,
    never_began,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Each of these for each transport over SSH.
macro_rules! over_both {
    ($($name:ident),* $(,)?) => {
        mod ssh2 {
            $(#[test] fn $name() { super::$name(netplay::transport::Carrier::Ssh2); })*
        }
        mod openssh {
            $(#[test] fn $name() { super::$name(netplay::transport::Carrier::OpenSsh); })*
        }
    };
}

over_both! {
    each_login_shell_runs_the_same_script,
    sudo_becomes_whom_it_should_or_says_why_not,
    logins_that_fail_say_why,
    a_typed_password_that_is_wrong_is_tried_once,
    agents_are_used_and_cannot_hang_us,
    host_keys_are_checked,
    hosts_that_are_not_there_are_told_apart,
    a_silent_host_holds_nobody_up,
    an_execution_ends_by_its_deadline_and_by_interruption,
    one_session_at_a_time_is_enough,
    a_session_that_breaks_is_lost,
    much_goes_both_ways,
    bastions_lead_to_hidden_hosts,
    many_at_once_get_through,
    certificates_are_used_or_told,
    an_agent_with_many_keys_is_told_what_to_do,
    addresses_of_the_sixth_version,
    a_bastion_that_drops_half_of_the_handshakes,
}

fn each_login_shell_runs_the_same_script(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let banner = "echo Authorised use only >/etc/banner; echo Banner /etc/banner >/etc/ssh/sshd_config.d/a.conf";
    hosts.first().sh(&format!("{banner}; kill -HUP 1; sleep 0.3"));
    in_controller(|| {
        for user in ["root", "ops", "pw", "nosudo", "fishy", "cshell", "banner"] {
            let mut session = session(&target(over, hosts.first(), user));
            assert_eq!(identity_of(&mut *session, user, &Identity::Login).0, format!("{user}\n4\n"));
            let (exit, talk) = run(&mut *session, "{ echo out; echo err >&2; exit 3; }\n");
            assert_eq!(exit, Ok(Exit::Code(3)), "{user}");
            assert!(talk.out.ends_with("out\n") && talk.err.ends_with("err\n"), "{user}");
            // OpenSSH's client doesn't tell which one.
            let signal = if over == Carrier::Ssh2 { "KILL" } else { "unknown" };
            assert_eq!(run(&mut *session, "{ kill -KILL $$; }\n").0, Ok(Exit::Signal(signal.into())), "{user}");
        }
    });
}

fn sudo_becomes_whom_it_should_or_says_why_not(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    in_controller(|| {
        for user in ["ops", "fishy", "cshell", "banner"] {
            let mut session = session(&target(over, host, user));
            for identity in [root(None), root(Some("not asked for"))] {
                assert_eq!(identity_of(&mut *session, user, &identity).0, "root\n4\n", "{user}");
            }
            let other = Identity::Sudo { user: "nosudo".into(), password: None };
            assert_eq!(identity_of(&mut *session, user, &other).0, "nosudo\n4\n", "{user}");
        }
        let mut asked = session(&target(over, host, "pw"));
        let (_, refusal, exit) = identity_of(&mut *asked, "pw", &root(None));
        assert_eq!((refusal, exit), (Some(Refusal::PasswordNeeded), Exit::Code(1)));
        assert_eq!(identity_of(&mut *asked, "pw", &root(Some("wrong"))).1, Some(Refusal::WrongPassword));
        assert_eq!(identity_of(&mut *asked, "pw", &root(Some(env("LAB_PASSWORD")))).0, "root\n4\n");
        let (_, refusal, _) = identity_of(&mut *session(&target(over, host, "nosudo")), "nosudo", &root(None));
        assert!(matches!(refusal, Some(Refusal::PasswordNeeded | Refusal::NotAllowed(_))), "{refusal:?}");
        host.sh("echo 'Defaults requiretty' >/etc/sudoers.d/zz; chmod 440 /etc/sudoers.d/zz");
        assert_eq!(
            identity_of(&mut *session(&target(over, host, "ops")), "ops", &root(None)).1,
            Some(Refusal::RequireTty)
        );
        host.sh("rm /usr/bin/sudo");
        for user in ["ops", "fishy", "cshell"] {
            let (_, refusal, _) = identity_of(&mut *session(&target(over, host, user)), user, &root(None));
            assert_eq!(refusal, Some(Refusal::NoSudo), "{user}");
        }
    });
}

fn logins_that_fail_say_why(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str, passphrase: &str| {
        let path = folder.path().join(name);
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(&path).status();
        assert!(made.unwrap().success());
        path
    };
    let stranger = key("stranger", "");
    let locked = key("locked", "secret");
    in_controller(|| {
        let with = |user: &str, identities: Vec<PathBuf>, password: Option<&str>| Target {
            identities,
            password: password.map(|p| Password::stored(Secret::new(p))),
            ..target(over, host, user)
        };
        let login = |target: Target| {
            let failure = failure(&target);
            assert_eq!(failure.kind, FailureKind::Login, "{failure}");
            format!("{failure}; {}", failure.hint.as_deref().unwrap_or_default())
        };
        let told = login(with("ops", vec![stranger.clone()], None));
        assert!(told.contains(&format!("tried: {};", stranger.display())) && told.contains("publickey"), "{told}");
        let told = login(with("ops", vec![locked.clone(), folder.path().join("none")], None));
        if over == Carrier::Ssh2 {
            assert!(told.contains("locked is encrypted and not in the agent") && told.contains("ssh-add"), "{told}");
        }
        assert!(told.contains("none doesn't exist"), "{told}");
        let told = login(with("nobody-of-this-name", vec![env("LAB_KEY_RSA").into()], None));
        assert!(told.starts_with("nobody-of-this-name isn't let in"), "{told}");
        let told = login(with("pw", Vec::new(), Some("wrong")));
        assert!(told.contains("the password was refused"), "{told}");
        // Three types of keys, and a password.
        for kind in ["ED25519", "ECDSA", "RSA"] {
            session(&with("pw", vec![env(&format!("LAB_KEY_{kind}")).into()], None));
        }
        session(&with("pw", vec![stranger.clone()], Some(env("LAB_PASSWORD"))));
        let sshd = |line: &str| {
            host.sh(&format!("echo '{line}' >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3"));
        };
        sshd("PasswordAuthentication no\nKbdInteractiveAuthentication yes");
        session(&with("pw", Vec::new(), Some(env("LAB_PASSWORD"))));
        assert!(login(with("pw", Vec::new(), Some("wrong"))).contains("the password was refused"));
        assert!(
            login(with("expired", Vec::new(), Some(env("LAB_PASSWORD")))).contains("has expired and has to be changed")
        );
        sshd("AuthenticationMethods publickey,password");
        session(&with("pw", vec![env("LAB_KEY_RSA").into()], Some(env("LAB_PASSWORD"))));
        assert!(login(with("pw", vec![env("LAB_KEY_RSA").into()], None)).contains("the host accepts password;"));
        sshd("");

        let mut expired = session(&target(over, host, "expired"));
        let (exit, talk) = run(&mut *expired, "{ echo never; exit 0; }\n");
        let failure = never_began(&target(over, host, "expired"), &(talk.out + &talk.err), &exit.unwrap());
        assert_eq!(failure.message, "the password of expired has expired and has to be changed");
        let mut forced = session(&target(over, host, "forced"));
        let (exit, talk) = run(&mut *forced, "{ echo never; exit 0; }\n");
        let failure = never_began(&target(over, host, "forced"), &(talk.out + &talk.err), &exit.unwrap());
        assert!(failure.message.contains("This account runs one command: this one."), "{failure}");
        assert_eq!(failure.kind, FailureKind::Refused);
    });
}

fn a_typed_password_that_is_wrong_is_tried_once(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let password = Password::typed(Secret::new("mistyped"));
    in_controller(|| {
        let mut told = Vec::new();
        std::thread::scope(|scope| {
            let tries: Vec<_> = [0, 1, 0, 1, 0, 1]
                .map(|i| {
                    let host = hosts.each().nth(i).unwrap();
                    let password = Some(password.clone());
                    let with = Target { identities: Vec::new(), password, ..target(over, host, "pw") };
                    scope.spawn(move || failure(&with).message)
                })
                .into();
            told.extend(tries.into_iter().map(|t| t.join().unwrap()));
        });
        let refused = told.iter().filter(|t| t.contains("the password was refused;")).count();
        let spared = told.iter().filter(|t| t.contains("isn't tried here")).count();
        assert_eq!((refused, spared), (1, 5), "{told:?}");
    });
}

fn agents_are_used_and_cannot_hang_us(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(folder.path());
    let socket = agent.1.clone();
    for name in ["one", "two"] {
        agent.add(&keygen(&folder.path().join(name)));
    }
    agent.add(Path::new(env("LAB_KEY_RSA")));
    in_controller(|| {
        let with = |identities: &[&str], identities_only: bool, agent: &Path| Target {
            identities: identities.iter().map(PathBuf::from).collect(),
            identities_only,
            agent: Some(agent.to_owned()),
            ..target(over, hosts.first(), "ops")
        };
        session(&with(&[], false, &socket));
        session(&with(&[env("LAB_KEY_RSA")], true, &socket));
        let one = folder.path().join("one");
        let failed = failure(&with(&[one.to_str().unwrap()], true, &socket));
        assert_eq!(failed.message.matches("the agent's key").count(), 1, "{failed}");
        // No agent there: the file is used.
        session(&with(&[env("LAB_KEY_ED25519")], false, &folder.path().join("none")));
        // One that takes connections and never answers.
        let silent = folder.path().join("silent");
        let _listener = UnixListener::bind(&silent).unwrap();
        let start = Instant::now();
        let failed = failure_within(&with(&[env("LAB_KEY_ED25519")], false, &silent), Duration::from_secs(4));
        assert!(failed.message.contains("doesn't answer"), "{failed}");
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    });
}

fn host_keys_are_checked(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let folder = tempfile::tempdir().unwrap();
    let address = host.address();
    let key = |kind: &str| {
        let text = host.sh(&format!("cat /etc/ssh/ssh_host_{kind}_key.pub"));
        let words: Vec<&str> = text.split_whitespace().collect();
        format!("{} {}", words[0], words[1])
    };
    let other = fs::read_to_string(format!("{}.pub", env("LAB_KEY_ED25519"))).unwrap();
    let known = |text: &str| {
        let path = tempfile::NamedTempFile::new_in(folder.path()).unwrap().into_temp_path().keep().unwrap();
        fs::write(&path, text).unwrap();
        Target { known_hosts: vec![path], ..target(over, host, "ops") }
    };
    in_controller(|| {
        for kind in ["ed25519", "ecdsa", "rsa"] {
            session(&known(&format!("{address} {}\n", key(kind))));
        }
        let unknown = failure(&known("elsewhere ssh-ed25519 AAAA\n"));
        let print = host.sh("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub");
        let print = print.split_whitespace().nth(1).unwrap();
        assert_eq!(unknown.kind, FailureKind::HostKey);
        assert!(unknown.message.contains(print), "{unknown}");
        let changed = known(&format!("# one\n{address} {other}"));
        let told = failure(&changed);
        let place = format!("{}:2", changed.known_hosts[0].display());
        assert!(told.message.contains("has changed") && told.message.contains(&place), "{told}");
        assert!(told.hint.unwrap().contains("ssh-keygen -f"));
        let told = failure(&Target { host_key_checking: HostKeyChecking::AcceptNew, ..changed.clone() });
        assert!(told.message.contains("has changed"), "{told}");
        session(&Target { host_key_checking: HostKeyChecking::No, ..changed });
        let revoked = known(&format!("@revoked * {}\n", key("ed25519")));
        let told = failure(&Target { host_key_checking: HostKeyChecking::No, ..revoked });
        assert!(told.message.contains("is revoked by"), "{told}");
        let new = Target { host_key_checking: HostKeyChecking::AcceptNew, ..known("") };
        session(&new);
        session(&Target { host_key_checking: HostKeyChecking::Yes, ..new.clone() });
        assert_eq!(fs::read_to_string(&new.known_hosts[0]).unwrap(), format!("{address} {}\n", key("ed25519")));
    });
}

fn hosts_that_are_not_there_are_told_apart(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    in_controller(|| {
        let base = target(over, host, "ops");
        let start = Instant::now();
        let told = |target: Target, kind: FailureKind, text: &str| {
            let failed = failure(&target);
            assert!(failed.kind == kind && failed.message.contains(text), "{:?} {failed}", failed.kind);
        };
        told(Target { port: 23, ..base.clone() }, FailureKind::Connect, ":23 refuses it");
        told(
            Target { address: "host.invalid".into(), ..base.clone() },
            FailureKind::Name,
            "host.invalid can't be resolved",
        );
        told(Target { address: "10.99.250.250".into(), ..base.clone() }, FailureKind::Connect, "10.99.250.250:22 ");
        let quick = Target { connect_timeout: Some(Duration::from_secs(1)), ..base.clone() };
        host.sh("iptables -I INPUT -i eth0 -p tcp --dport 22 -j DROP");
        told(quick, FailureKind::Connect, "doesn't answer (1 s)");
        host.sh("iptables -F INPUT");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        // Other things than an SSH server listen.
        for (answer, text) in [
            ("", "closed the connection before it said anything"),
            ("a\0b", "isn't an SSH server"),
            ("HTTP/1.1 400 Bad Request\r\n", "isn't an SSH server: it says HTTP/1.1 400 Bad Request"),
            ("Exceeded MaxStartups\r\n", "closed the connection before it said anything"),
            ("SSH-2.0-odd_1\r\n", "the key exchange with the host's odd_1 failed"),
        ] {
            let listener = TcpListener::bind((env("LAB_CONTROLLER"), 0)).unwrap();
            let other = Target {
                address: env("LAB_CONTROLLER").into(),
                port: listener.local_addr().unwrap().port(),
                ..base.clone()
            };
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    // A connection closed with something unread is reset, and its answer may be lost.
                    let _ = stream.read(&mut [0; 256]);
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
            told(other, FailureKind::Handshake, text);
        }
    });
}

fn a_silent_host_holds_nobody_up(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    in_controller(|| {
        let another = target(over, host, "ops");
        // Only small packets pass: it names itself, and doesn't get what the key exchange begins with.
        host.sh("iptables -A INPUT -i eth0 -p tcp --dport 22 -m length --length 400:65535 -j DROP");
        let failed = failure_within(&another, Duration::from_secs(4));
        assert_eq!(failed.kind, FailureKind::KeyExchange, "{failed}");
        host.sh("iptables -F INPUT");
        let mut open = session(&Target { keepalive: (2, 2), ..target(over, host, "ops") });
        let idle = session(&target(over, host, "ops"));
        host.freeze();
        let start = Instant::now();
        let failed = failure_within(&another, Duration::from_secs(4));
        assert_eq!(failed.kind, FailureKind::Handshake, "{failed}");
        assert!(failed.message.contains("didn't name itself"), "{failed}");
        // OpenSSH's limit for TCP is also that for the first words.
        let limit = if over == Carrier::Ssh2 { 4..6 } else { 3..6 };
        assert!(limit.contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        let start = Instant::now();
        let lost = run(&mut *open, "{ echo x; exit 0; }\n").0.unwrap_err();
        assert_eq!(lost.kind, FailureKind::Lost, "{lost}");
        assert!(lost.message.contains("2 keepalives in 6 s went unanswered"), "{lost}");
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        let start = Instant::now();
        drop((open, idle));
        assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
        host.thaw();
        session(&another);
    });
}

fn an_execution_ends_by_its_deadline_and_by_interruption(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    in_controller(|| {
        let request = sudo::request(&Identity::Login, "", "n");
        for script in ["{ sleep 30; }\n", "{ while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done; }\n"] {
            let mut session = session(&target(over, hosts.first(), "ops"));
            let start = Instant::now();
            let failed = session.execute(&request, &mut talk(script, ""), &within(1)).unwrap_err();
            assert_eq!(failed.kind, FailureKind::Timeout, "{failed}");
            drop(session);
            assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
        }
        let flag = Arc::new(AtomicBool::new(false));
        let mut session = session(&target(over, hosts.first(), "ops"));
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                flag.store(true, Ordering::Relaxed);
            });
            let deadline = Deadline::after(Duration::from_secs(20), &flag);
            session.execute(&request, &mut talk("{ sleep 30; }\n", ""), &deadline).unwrap_err()
        });
        assert_eq!(failed.kind, FailureKind::Interrupted, "{failed}");
    });
}

fn one_session_at_a_time_is_enough(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("echo MaxSessions 1 >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3");
    in_controller(|| {
        let mut session = session(&target(over, host, "ops"));
        let request = sudo::request(&Identity::Login, "", "n");
        for i in 0..10 {
            // A child in the background keeps the channel open; nobody waits for it.
            let mut talk = talk(format!("{{ sleep 60 & echo 'the end {i}'; exit 0; }}\n"), "the end");
            let start = Instant::now();
            assert_eq!(session.execute(&request, &mut talk, &within(20)), Ok(Exit::Finished));
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            assert_eq!(run(&mut *session, "{ echo x; exit 0; }\n").0, Ok(Exit::Code(0)));
        }
        // What doesn't end stands in the way of the next, and that is told.
        assert_eq!(
            session.execute(&request, &mut talk("{ echo go; sleep 60; }\n", "go"), &within(20)),
            Ok(Exit::Finished)
        );
        let refused = run(&mut *session, "{ echo x; exit 0; }\n").0.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Refused, "{refused}");
        assert!(refused.hint.unwrap().contains("MaxSessions"));
    });
}

fn a_session_that_breaks_is_lost(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    in_controller(|| {
        let mut one = session(&target(over, host, "root"));
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(500));
                host.sh("pkill -KILL -f '[s]shd: root@'");
            });
            run(&mut *one, "{ sleep 30; }\n").0.unwrap_err()
        });
        assert_eq!(failed.kind, FailureKind::Lost, "{failed}");
        assert!(run(&mut *one, "{ echo x; }\n").0.is_err());
    });
}

fn much_goes_both_ways(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    in_controller(|| {
        let mut session = session(&target(over, hosts.first(), "ops"));
        let script = format!("{{ x='{}'; echo ${{#x}}; exit 0; }}\n", "y".repeat(3_000_000));
        assert_eq!(run(&mut *session, &script).1.out, "3000000\n");
        // Keys are exchanged anew in the middle of it.
        let host = hosts.first();
        host.sh("echo RekeyLimit 500K >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3");
        let mut rekeyed = self::session(&target(over, host, "ops"));
        assert_eq!(run(&mut *rekeyed, &script).1.out, "3000000\n");
        assert_eq!(run(&mut *rekeyed, "{ head -c 9000000 /dev/zero; exit 0; }\n").1.out.len(), 9_000_000);
        let (exit, said) =
            run(&mut *session, "{ head -c 20000000 /dev/zero; head -c 5000000 /dev/zero >&2; exit 0; }\n");
        assert_eq!((exit, said.out.len(), said.err.len()), (Ok(Exit::Code(0)), 20_000_000, 5_000_000));
        // The other side says it is enough while we still write.
        let mut early = talk(vec![b'\n'; 20_000_000], "enough");
        assert_eq!(session.execute("echo enough; sleep 60", &mut early, &within(20)), Ok(Exit::Finished));
        assert_eq!(run(&mut *session, "{ echo x; exit 0; }\n").0, Ok(Exit::Code(0)));
    });
}

fn bastions_lead_to_hidden_hosts(over: Carrier) {
    let hosts = Hosts::take(Kind::Hidden, 1);
    let host = hosts.first();
    let first = Hosts::take(Kind::Fleet, 1);
    let config = format!("-F {}", env("LAB_SSH_CONFIG"));
    in_controller(|| {
        let hidden = |arguments: &str| with_arguments(over, host, &format!("{config} {arguments}"));
        let proxy = format!("-o ProxyCommand='ssh {config} -o Compression=no -W %h:%p {}'", bastion());
        for arguments in ["", &format!("-J {}", bastion()), &format!("-J {},{}", first.first().0, bastion()), &proxy] {
            let target = hidden(arguments);
            assert_eq!(target.jumps.len(), if arguments == proxy { 0 } else { 1 + arguments.matches(',').count() });
            assert_eq!(target.proxy_command.is_some(), arguments == proxy);
            let mut session = session(&target);
            let (exit, talk) = run(&mut *session, "{ cat /etc/hostname; head -c 9000000 /dev/zero >&2; exit 0; }\n");
            assert_eq!((exit, talk.out, talk.err.len()), (Ok(Exit::Code(0)), format!("{}\n", host.0), 9_000_000));
            let start = Instant::now();
            drop(session);
            assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        }
        if over == Carrier::Ssh2 {
            // The bastion itself is reached by a command.
            let mut twofold = hidden("");
            let to = &twofold.jumps[0].address;
            twofold.jumps[0].proxy_command = Some(format!("ssh {config} -W {to}:22 {}", bastion()));
            assert_eq!(run(&mut *session(&twofold), "{ echo here; exit 0; }\n").1.out, "here\n");
        }
        let told = |arguments: &str, kind: FailureKind, text: &str| {
            let failed = failure(&hidden(arguments));
            assert!(failed.kind == kind && failed.message.contains(text), "{:?} {failed}", failed.kind);
        };
        told("-p 24", FailureKind::Connect, "the bastion np0001 doesn't get through to");
        let nobody = format!("-J nobody-of-this-name@{}", bastion());
        told(&nobody, FailureKind::Login, "bastion np0001: nobody-of-this-name isn't let in");
        told("-o ProxyCommand='echo no way >&2; exit 1'", FailureKind::Handshake, "the proxy command says: no way");
        if over == Carrier::Ssh2 {
            told(
                "-o ProxyCommand='sh -c \"exit 7\"'",
                FailureKind::Handshake,
                "ended before the host said anything: exit code 7",
            );
            told(
                "-o ProxyCommand='sleep 60'",
                FailureKind::Handshake,
                "nothing came through the proxy command within ",
            );
            hosts.first().freeze();
            let silent = failure(&hidden(""));
            hosts.first().thaw();
            assert!(silent.message.contains("nothing came through the bastion np0001 within "), "{silent}");
        }
    });
}

fn many_at_once_get_through(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 2);
    // As sshd comes, it drops connections at random from ten unauthenticated ones on.
    for host in hosts.each() {
        host.sh("echo MaxStartups 10:30:100 >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3");
    }
    in_controller(|| {
        let carriers = carriers(Limits::default());
        let gate = Gate::new(16);
        let targets: Vec<Target> = hosts.each().map(|host| told(&target(over, host, "ops"))).collect();
        std::thread::scope(|scope| {
            for target in targets.iter().cycle().take(64) {
                let (carriers, gate) = (&carriers, &gate);
                scope.spawn(move || {
                    let mut session = carriers.connect(target, gate, &within(60)).unwrap_or_else(|f| panic!("{f}"));
                    let (exit, talk) = run(&mut *session, "{ echo here; exit 0; }\n");
                    assert_eq!((exit, talk.out.as_str()), (Ok(Exit::Code(0)), "here\n"));
                });
            }
        });
    });
}

fn certificates_are_used_or_told(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (ca, key) = (keygen(&path("ca")), keygen(&path("id")));
    let sign = |arguments: &[&str], public: &Path| {
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-q", "-s"]).arg(&ca).args(["-I", "it"]).args(arguments).arg(public);
        assert!(sign.status().unwrap().success());
    };
    sign(&["-n", "ops"], &path("id.pub"));
    fs::write(path("host.pub"), host.sh("cat /etc/ssh/ssh_host_ed25519_key.pub")).unwrap();
    let address = host.address();
    sign(&["-h", "-n", &address], &path("host.pub"));
    let text = |name: &str| fs::read_to_string(path(name)).unwrap().trim().to_owned();
    host.sh(&format!(
        "echo '{}' >/etc/ssh/ca.pub; echo '{}' >/etc/ssh/host-cert.pub",
        text("ca.pub"),
        text("host-cert.pub")
    ));
    let sshd = |line: &str| host.sh(&format!("echo '{line}' >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3"));
    let with_key = || Target { identities: vec![key.clone()], ..target(over, host, "ops") };
    fs::write(path("known_hosts"), format!("@cert-authority 10.99.* {}\n", text("ca.pub"))).unwrap();
    let by_authority = || Target { known_hosts: vec![path("known_hosts")], ..target(over, host, "ops") };
    let agent = Agent::start(folder.path());
    agent.add(&key);
    in_controller(|| {
        sshd("TrustedUserCAKeys /etc/ssh/ca.pub");
        let by_agent = Target { identities: Vec::new(), agent: Some(agent.1.clone()), ..target(over, host, "ops") };
        if over == Carrier::OpenSsh {
            session(&with_key());
            session(&by_agent);
        } else {
            let told = failure(&with_key());
            let hint = told.hint.clone().unwrap();
            let certificate = path("id-cert.pub").display().to_string();
            assert!(hint.contains(&certificate) && hint.contains("netplay_transport: openssh"), "{told} {hint}");
            // That of an agent may do, or is told.
            if let Err(told) = connect(&by_agent, LOGIN) {
                assert!(told.hint.clone().unwrap().contains("netplay_transport: openssh"), "{told:?}");
            }
        }
        sshd("HostCertificate /etc/ssh/host-cert.pub");
        if over == Carrier::OpenSsh {
            session(&by_authority());
        } else {
            let told = failure(&by_authority());
            assert_eq!(told.kind, FailureKind::HostKey, "{told}");
            assert!(told.message.contains("known_hosts:1 vouches for it by a certificate"), "{told}");
            assert!(told.hint.unwrap().contains("netplay_transport: openssh"));
        }
        // Who isn't signed for isn't known.
        sshd("");
        assert_eq!(failure(&by_authority()).kind, FailureKind::HostKey);
    });
}

fn an_agent_with_many_keys_is_told_what_to_do(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(folder.path());
    for i in 0..20 {
        agent.add(&keygen(&folder.path().join(i.to_string())));
    }
    in_controller(|| {
        let with = |identities: Vec<PathBuf>, identities_only| Target {
            identities,
            identities_only,
            agent: Some(agent.1.clone()),
            ..target(over, hosts.first(), "ops")
        };
        let told = failure(&with(Vec::new(), false));
        assert_eq!(told.kind, FailureKind::Login, "{told}");
        assert!((5..8).contains(&told.message.matches("the agent's key").count()), "{told}");
        let hint = told.hint.unwrap();
        assert!(hint.contains("MaxAuthTries") && hint.contains("IdentitiesOnly"), "{hint}");
        // The remedy is one, whether a file or the agent has the key.
        let own = PathBuf::from(env("LAB_KEY_RSA"));
        session(&with(vec![own.clone()], true));
        agent.add(&own);
        session(&with(vec![own.clone()], true));
        // One that was named comes before all others. OpenSSH's client sees to that if an agent has it.
        session(&with(vec![own], false));
        if over == Carrier::Ssh2 {
            session(&with(vec![env("LAB_KEY_ED25519").into()], false));
        }
    });
}

fn addresses_of_the_sixth_version(over: Carrier) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("printf 'Port 22\nPort 2222\n' >/etc/ssh/sshd_config.d/a.conf; kill -HUP 1; sleep 0.3");
    // The lab's links have none by themselves.
    let local = format!("fe80::{}", host.address().rsplit('.').next().unwrap());
    host.sh(&format!("ip -6 addr add {local}/64 dev eth0 nodad"));
    let ours = lab(["ctl", "ip", "-4", "-o", "addr", "show", "to", env("LAB_CONTROLLER")]);
    let zone = ours.split_whitespace().nth(1).unwrap().to_owned();
    lab(["ctl", "ip", "-6", "addr", "replace", "fe80::ffff/64", "dev", &zone, "nodad"]);
    let key = host.sh("cat /etc/ssh/ssh_host_ed25519_key.pub");
    let folder = tempfile::tempdir().unwrap();
    let known = folder.path().join("known_hosts");
    in_controller(|| {
        for port in [22, 2222] {
            let address = format!("{local}%{zone}");
            let name = if port == 22 { address.clone() } else { format!("[{address}]:{port}") };
            fs::write(&known, format!("{name} {key}")).unwrap();
            let there = Target { address, port, known_hosts: vec![known.clone()], ..target(over, host, "ops") };
            let (_, said) = run(&mut *session(&there), "{ echo \"$1\"; exit 0; }\n");
            let words: Vec<&str> = said.out.split_whitespace().collect();
            assert!(words.len() == 4 && words[2].starts_with("fe80::") && words[3] == port.to_string(), "{words:?}");
        }
        let refused =
            Target { address: "::1".into(), port: 9, known_hosts: vec![known.clone()], ..target(over, host, "ops") };
        assert!(failure(&refused).message.contains("[::1]:9 "), "{}", failure(&refused));
    });
}

/// Takes connections and hands them on, but for about half of them, which it closes at once; counts those.
fn drops_half(to: String, dropped: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind((env("LAB_CONTROLLER"), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut random: u32 = 2_463_534_242;
        while let Ok((near, _)) = listener.accept() {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            if random.is_multiple_of(2) {
                dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let far = TcpStream::connect(&to).unwrap();
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    port
}

fn a_bastion_that_drops_half_of_the_handshakes(over: Carrier) {
    let hosts = Hosts::take(Kind::Hidden, 1);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let way = Command::new("ssh").args(["-F", env("LAB_SSH_CONFIG"), "-G", bastion()]).output().unwrap();
    let way = String::from_utf8(way.stdout).unwrap();
    let address = way.lines().find_map(|l| l.strip_prefix("hostname ")).unwrap();
    in_controller(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let port = drops_half(format!("{address}:22"), dropped.clone());
        let text = format!(
            "Host relay\n HostName {}\n Port {port}\n HostKeyAlias {address}\nHost *\n \
             KexAlgorithms curve25519-sha256\nInclude {}\n",
            env("LAB_CONTROLLER"),
            env("LAB_SSH_CONFIG")
        );
        fs::write(&config, text).unwrap();
        let behind = with_arguments(over, hosts.first(), &format!("-F {} -J relay", config.display()));
        // The same for a host behind a bastion.
        let before = with_arguments(over, Host("relay"), &format!("-F {} -J {}", config.display(), bastion()));
        let (carriers, gate) = (carriers(Limits::default()), Gate::new(16));
        std::thread::scope(|scope| {
            for target in [&behind; 14].into_iter().chain([&before; 6]) {
                let (carriers, gate) = (&carriers, &gate);
                scope.spawn(move || {
                    let mut session = carriers.connect(target, gate, &within(60)).unwrap_or_else(|f| panic!("{f}"));
                    assert_eq!(run(&mut *session, "{ echo here; exit 0; }\n").1.out, "here\n");
                });
            }
        });
        assert!(dropped.load(Ordering::Relaxed) > 5);
    });
}
