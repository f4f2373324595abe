use super::*;
use crate::error::Kind;
use crate::source::Source;
use std::fs;

/// A user `me` with a configuration file.
fn defaults(config: &str) -> (tempfile::TempDir, Defaults) {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    fs::write(home.path().join(".ssh/config"), config).unwrap();
    fs::write(home.path().join(".ssh/id_rsa"), "").unwrap();
    let agent = Some(PathBuf::from("/run/agent"));
    let defaults = Defaults::of("me".into(), home.path().to_owned(), None, agent).unwrap();
    (home, defaults)
}

fn variables(text: &str) -> Node {
    crate::yaml::load_one(&Source::new("inv.yaml", text), Kind::Inventory).unwrap().unwrap()
}

fn target(variables_: &str, defaults: &Defaults) -> Result<Target, Error> {
    let node = variables(variables_);
    Target::from_variables("n1", &|name| Ok(node.get(name).cloned()), defaults)
}

#[test]
fn without_variables_openssh_decides() {
    let (home, defaults) = defaults(
        "Host n1\n HostName 10.0.0.1\n User admin\n Port 2222\n IdentityFile ~/.ssh/%r\n IdentitiesOnly yes\n\
         Host gw\n User jump\n ProxyJump outer\nHost n*\n ProxyJump gw,me2@in:23\n UserKnownHostsFile ~/kh /x\n\
         StrictHostKeyChecking accept-new\n ConnectTimeout 1m\n ServerAliveInterval 7\n IdentityAgent none\n",
    );
    let t = target("{}", &defaults).unwrap();
    assert_eq!((t.address.as_str(), t.port, t.user.as_str()), ("10.0.0.1", 2222, "admin"));
    assert_eq!(t.identities, [home.path().join(".ssh/admin")]);
    assert!(t.identities_only && t.agent.is_none());
    assert_eq!(t.known_hosts[..2], [home.path().join("kh"), PathBuf::from("/x")]);
    assert_eq!(t.known_hosts[2], Path::new("/etc/ssh/ssh_known_hosts"));
    assert_eq!(t.host_key_checking, HostKeyChecking::AcceptNew);
    assert_eq!((t.connect_timeout, t.keepalive), (Some(Duration::from_secs(60)), (7, 3)));
    let jumps: Vec<_> = t.jumps.iter().map(|j| format!("{}@{}:{}", j.user, j.address, j.port)).collect();
    assert_eq!(jumps, ["me@outer:22", "jump@gw:22", "me2@in:23"]);
}

#[test]
fn variables_win_over_flags_and_those_over_the_file() {
    let (home, mut defaults) = defaults("User file\nPort 1\nStrictHostKeyChecking no\n");
    let t = target("{}", &defaults).unwrap();
    assert_eq!((t.user.as_str(), t.port, t.address.as_str()), ("file", 1, "n1"));
    assert_eq!((t.identities, t.agent), (vec![home.path().join(".ssh/id_rsa")], Some("/run/agent".into())));
    assert_eq!((t.host_key_checking, t.keepalive), (HostKeyChecking::No, (15, 3)));
    defaults.user = Some("flag".into());
    defaults.private_key = Some("/flag".into());
    defaults.host_key_checking = Some(HostKeyChecking::AcceptNew);
    let t = target("{}", &defaults).unwrap();
    assert_eq!((t.user.as_str(), t.host_key_checking), ("flag", HostKeyChecking::AcceptNew));
    assert_eq!(t.identities, [Path::new("/flag")]);
    let t = target(
        "{ansible_user: var, ansible_port: 3, ansible_host: h, ansible_ssh_private_key_file: /var, \
         ansible_password: 0123, ansible_ssh_common_args: '-o StrictHostKeyChecking=yes -p 4 -i /args'}",
        &defaults,
    )
    .unwrap();
    assert_eq!((t.user.as_str(), t.port, t.address.as_str()), ("var", 3, "h"));
    assert_eq!(t.identities, ["/var", "/args", "/flag"].map(PathBuf::from));
    assert_eq!(t.host_key_checking, HostKeyChecking::AcceptNew, "what is typed wins");
    let deadline = super::super::Deadline::after(Duration::ZERO, &Arc::default());
    assert_eq!(t.password.unwrap().attempt(&deadline).unwrap().reveal(), "0123");
}

#[test]
fn arguments_of_ssh_are_understood() {
    let (home, defaults) = defaults("User file\n");
    fs::write(home.path().join("other"), "Host *\n User other\nHost b\n HostName 10.9.9.9\n").unwrap();
    let with = |arguments: &str| target(&format!("ansible_ssh_common_args: {arguments:?}"), &defaults).unwrap();
    let jumps = |t: &Target| t.jumps.iter().map(|j| format!("{}@{}:{}", j.user, j.address, j.port)).collect::<Vec<_>>();
    assert_eq!(jumps(&with("-C -q -J a@b:2,c")), ["a@b:2", "file@c:22"]);
    assert_eq!(jumps(&with("-o ProxyJump=none")), Vec::<String>::new());
    let t = with("-F ~/other -oProxyJump=ssh://x@b:7 -oBatchMode=yes -o 'ControlPath=/a b'");
    assert_eq!((t.user.as_str(), jumps(&t)), ("other", vec!["x@10.9.9.9:7".to_owned()]));
    // What Ansible's users write for a bastion.
    for command in [
        "ssh -W %h:%p -q gw@bastion",
        "/usr/bin/ssh -q -o StrictHostKeyChecking=no -p 22 gw@bastion -W %h:%p",
        "ssh -o User=gw -W[%h]:%p bastion",
    ] {
        let t = with(&format!("-o ProxyCommand='{command}'"));
        assert_eq!((jumps(&t), t.proxy_command), (vec!["gw@bastion:22".to_owned()], None), "{command}");
    }
    let t = with("-o ProxyCommand='ssh -W %h:%p -o StrictHostKeyChecking=no -i /k bastion'");
    assert_eq!(
        (t.jumps[0].host_key_checking, &t.jumps[0].identities[..]),
        (HostKeyChecking::No, &[PathBuf::from("/k")][..])
    );
    assert_eq!(t.host_key_checking, HostKeyChecking::Yes);
    for command in ["nc -X 5 %h %p", "ssh -o Compression=yes -W %h:%p b", "ssh b nc %h %p", "sss -W %h:%p b"] {
        let t = with(&format!("-o ProxyCommand='{command}'"));
        assert_eq!((jumps(&t).len(), t.proxy_command), (0, Some(command.replace("%h", "n1").replace("%p", "22"))));
    }
}

#[test]
fn openssh_is_told_what_is_asked_for_in_its_order() {
    let (_home, mut defaults) = defaults("Host n1\n User file\n GSSAPIAuthentication yes\n");
    defaults.user = Some("flag".into());
    defaults.private_key = Some("/flag".into());
    let t = target(
        "{netplay_transport: openssh, ansible_host: 10.0.0.1, ansible_port: 3, ansible_ssh_private_key_file: /var, \
         ansible_ssh_common_args: \"-4q -o GSSAPIAuthentication=yes -J 'a@b:2,c' -o 'SetEnv=A=b c' -vbeth0\", \
         ansible_ssh_extra_args: '-C'}",
        &defaults,
    )
    .unwrap();
    let (options, destination) = t.arguments.split_at(t.arguments.len() - 2);
    assert_eq!(
        options.join("|"),
        "-p|3|-i|/var|-4|-o|GSSAPIAuthentication=yes|-J|a@b:2,c|-o|SetEnv=A=b c|-b|eth0|-C|-l|flag|-i|/flag"
    );
    assert_eq!(destination, ["--", "10.0.0.1"]);
    // What netplay itself has to know of it.
    assert_eq!((t.carrier, t.user.as_str(), t.port, t.jumps.len()), (Carrier::OpenSsh, "flag", 3, 2));
    let t = target("{netplay_transport: ssh2, ansible_user: var}", &defaults).unwrap();
    assert_eq!((t.carrier, t.arguments.len()), (Carrier::Ssh2, 0));
    assert_eq!(target("{netplay_transport: openssh, ansible_user: var}", &defaults).unwrap().user, "var");
}

#[test]
fn addresses_and_names_are_taken_as_they_are() {
    let (_home, defaults) = defaults("Host zoned\n HostName fe80::1%p1p1\n");
    for (variables, address, known_as) in [
        ("ansible_host: '::1'", "::1", "::1"),
        ("{ansible_host: '::1', ansible_port: 2222}", "::1", "[::1]:2222"),
        ("ansible_host: FE80::1%eth0", "FE80::1%eth0", "fe80::1%eth0"),
        ("{ansible_host: zoned, ansible_port: 23}", "fe80::1%p1p1", "[fe80::1%p1p1]:23"),
        ("ansible_host: rack_1_node_02", "rack_1_node_02", "rack_1_node_02"),
    ] {
        let t = target(variables, &defaults).unwrap();
        assert_eq!((t.address.as_str(), super::super::refusal::known_as(&t).as_str()), (address, known_as));
    }
    let t = target("ansible_ssh_common_args: '-J ops@[fe80::2%eth1]:2222,::1,gw_1:23'", &defaults).unwrap();
    let jumps: Vec<_> = t.jumps.iter().map(|j| (j.user.as_str(), j.address.as_str(), j.port)).collect();
    assert_eq!(jumps, [("ops", "fe80::2%eth1", 2222), ("me", "::1", 22), ("me", "gw_1", 23)]);
}

#[test]
fn how_keys_are_checked_is_as_it_was_typed() {
    let (_home, mut typed) = defaults("StrictHostKeyChecking no\n");
    typed.host_key_checking = Some(HostKeyChecking::Yes);
    for text in [
        "ansible_ssh_common_args: -J b",
        "ansible_ssh_common_args: -o StrictHostKeyChecking=no -J b",
        "ansible_ssh_common_args: -o ProxyCommand='ssh -W %h:%p -o StrictHostKeyChecking=no b'",
        "{ansible_host_key_checking: false, ansible_ssh_common_args: -J b}",
    ] {
        let t = target(text, &typed).unwrap();
        assert_eq!([t.host_key_checking, t.jumps[0].host_key_checking], [HostKeyChecking::Yes; 2], "{text}");
    }
}

#[test]
fn a_bastion_does_not_jump_over_itself() {
    let (_home, defaults) = defaults("Host *\n ProxyJump n1\n");
    assert!(target("{}", &defaults).unwrap().jumps.is_empty());
    let (_home, circle) = super::tests::defaults("Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost *\n ProxyJump a\n");
    assert!(target("{}", &circle).unwrap_err().message.contains("circle"));
}

#[test]
fn errors_stand_where_the_value_is_written() {
    let (_home, defaults) = defaults("Host n1\n");
    for (text, expected) in [
        ("ansible_port: 70000", "`70000` isn't a port from 1 to 65535\n  --> inv.yaml:1:15"),
        ("ansible_port: [1]", "ansible_port must be a string, not a list\n  --> inv.yaml:1:15"),
        ("ansible_connection: winrm", "netplay has no connection `winrm`\n  --> inv.yaml:1:21"),
        ("netplay_transport: opensh", "there is no transport `opensh`\n  --> inv.yaml:1:20"),
        ("{netplay_transport: openssh, ansible_ssh_extra_args: -N}", "`-N` in ansible_ssh_extra_args is no option for"),
        ("{netplay_transport: openssh, ansible_ssh_extra_args: -w}", "`-w` in ansible_ssh_extra_args has no value"),
        ("ansible_ssh_common_args: '-o X11Forwarding=yes'", "`-o X11Forwarding` in ansible_ssh_common_args is unknown"),
        ("ansible_ssh_extra_args: -6", "`-6` in ansible_ssh_extra_args is unknown"),
        ("ansible_ssh_extra_args: -o", "`-o` in ansible_ssh_extra_args has no value"),
        ("ansible_ssh_extra_args: host", "`host` in ansible_ssh_extra_args isn't an option"),
        ("ansible_ssh_extra_args: \"-o 'X\"", "a quote isn't closed in ansible_ssh_extra_args"),
        ("ansible_ssh_extra_args: -F /nope", "there is no file /nope"),
        ("ansible_ssh_extra_args: -o StrictHostKeyChecking=maybe", "`maybe` isn't yes, accept-new or no"),
        ("ansible_host_key_checking: maybe", "ansible_host_key_checking must be true or false, not a string"),
    ] {
        let error = target(text, &defaults).unwrap_err().to_string();
        assert!(error.starts_with(expected) && error.contains("inv.yaml:1:"), "{error}");
    }
}

#[test]
fn local_is_this_machine() {
    let (_home, defaults) = defaults("User other\n");
    let t = target("{ansible_connection: local, ansible_host: 10.0.0.1}", &defaults).unwrap();
    assert_eq!((t.carrier, t.user.as_str(), t.host.as_str()), (Carrier::Local, "me", "n1"));
}

#[test]
fn variables_of_becoming_win_over_keywords() {
    let (_home, mut defaults) = defaults("");
    defaults.become_password = Some(Password::stored(Secret::new("flag")));
    let ask = |text: &str, keyword, user| {
        let node = variables(text);
        let identity = become_from_variables(&|name| Ok(node.get(name).cloned()), keyword, user, &defaults)?;
        let deadline = super::super::Deadline::after(Duration::ZERO, &Arc::default());
        Ok::<_, Error>(match identity {
            Identity::Login => None,
            Identity::Sudo { user, password } => {
                Some((user, password.unwrap().attempt(&deadline).unwrap().reveal().to_owned()))
            }
        })
    };
    let sudo = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
    assert_eq!(ask("{}", None, None).unwrap(), None);
    assert_eq!(ask("{}", Some(true), None).unwrap(), sudo("root", "flag"));
    assert_eq!(ask("{}", Some(true), Some("www")).unwrap(), sudo("www", "flag"));
    for no in ["no", "'False'", "0", "'0'"] {
        assert_eq!(ask(&format!("ansible_become: {no}"), Some(true), None).unwrap(), None);
    }
    for yes in ["yes", "'True'", "1", "'yes'"] {
        let text = format!("{{ansible_become: {yes}, ansible_become_user: svc, ansible_become_pass: 007}}");
        assert_eq!(ask(&text, Some(false), Some("www")).unwrap(), sudo("svc", "007"));
    }
    for (text, expected) in [
        ("{ansible_become: maybe}", "ansible_become must be true or false"),
        ("{ansible_become: yes, ansible_become_method: su}", "netplay becomes another user by sudo only"),
        ("{ansible_become: yes, ansible_become_user: 'a b'}", "`a b` can't be the name of a user"),
    ] {
        let error = ask(text, None, None).unwrap_err();
        assert!(error.message.starts_with(expected) && error.place.is_some(), "{error}");
    }
}

#[test]
fn a_name_that_a_shell_would_run_reaches_none() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    // Asked of the shell while the configuration is read.
    let (_home, defaults) = defaults("Match exec \"test -n %h\"\n ProxyCommand nc %h %p\n");
    for transport in ["ssh2", "openssh"] {
        let told = |key: &str, value: &str| {
            let vars = format!("{{netplay_transport: {transport}, {key}: {value:?}}}");
            target(&vars, &defaults).map(|t| t.address).map_err(|e| e.to_string())
        };
        let run = mark.display();
        for (key, value) in [
            ("ansible_host", format!("a|touch {run}")),
            ("ansible_host", format!("a$(touch {run})")),
            ("ansible_host", format!("a\ntouch {run}")),
            ("ansible_host", "-oProxyCommand=x".to_owned()),
            ("ansible_host", "a b".to_owned()),
            ("ansible_user", format!("u`touch {run}`")),
            ("ansible_user", format!("u$(touch {run})")),
            ("ansible_user", "-l".to_owned()),
            ("ansible_user", "a\\".to_owned()),
            ("ansible_user", "a -l".to_owned()),
        ] {
            let said = told(key, &value).unwrap_err();
            assert!(said.contains("which no such name may have") && said.contains("of n1"), "{said}");
        }
        for value in ["10.0.0.1", "fe80::1%eth0", "gpu_01.rack-2", "bücher.example"] {
            assert_eq!(told("ansible_host", value).unwrap(), value);
        }
        for value in ["ops", "DOMAIN\\ops", "ops@example.org", "first last"] {
            told("ansible_user", value).unwrap();
        }
    }
    assert!(!mark.exists());
}
