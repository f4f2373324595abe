//! Rules in network namespaces of this machine, by the real nft and the real iptables.

use super::*;
use crate::resource::trial::{Shell, parse, parse_nodes};
use crate::resource::{Fragment, Inquiry, Output};

const NFT: &str = "
    nft -f - <<'N'
    table inet fw {
      chain input {
        type filter hook input priority 0; policy drop;
        ct state vmap { established : accept, related : accept, invalid : drop }
        iifname lo accept
        tcp dport { 22, 80 } accept
        ip saddr 192.0.2.0/24 drop
      }
      chain forward { type filter hook forward priority 0; policy drop; }
    }
N\n";

fn rule(keys: &[(&'static str, &str)]) -> FirewallRule {
    parse(&[&[("name", "x"), ("persist", "false")], keys].concat()).unwrap()
}

/// A rule and the namespace that it is made in.
struct Trial {
    shell: Shell,
    setup: String,
}

impl Trial {
    fn new(shell: Shell, setup: &str) -> Trial {
        Trial { shell, setup: format!("mount -t tmpfs tmpfs /run; ip link set lo up; {setup}\n") }
    }

    fn run(&self, script: &str) -> Output {
        self.shell.run_in_net(&self.setup, script)
    }

    fn sh(&self, script: &str) -> String {
        let output = self.run(script);
        assert_eq!(output.code, 0, "{:?}: {script}: {}", self.shell, output.complaint());
        output.text().into_owned()
    }

    fn ask(&self, rule: &FirewallRule, session: &str) -> Result<State, Trouble> {
        let inquiry = Inquiry::new(rule.probe());
        // All in one namespace, as making one is what takes the time.
        let one = |f: &Fragment| format!("(\n{}\n)\necho '@@'\n", f.script.as_str());
        let all: String = inquiry.fragments().iter().map(one).collect();
        let output = self.run(&format!("SESSION='{session}'\n{all}"));
        let (text, none) = (output.text(), Vec::new());
        let each = text.split("@@\n").map(|t| Ok(Output { stdout: t.into(), stderr: none.clone(), code: 0 }));
        let answers = inquiry.answers(each.take(inquiry.fragments().len()).collect());
        match rule.read(&answers)? {
            Reading::State(state) => Ok(state),
            Reading::NotYet(why) => Err(why),
        }
    }

    fn state(&self, rule: &FirewallRule) -> State {
        self.ask(rule, "").unwrap_or_else(|why| panic!("{:?}: {}", self.shell, why.message))
    }

    /// What differs, `FIELD: FROM -> TO`.
    fn differs(&self, rule: &FirewallRule) -> Vec<String> {
        told(rule, &self.state(rule))
    }

    /// Makes the rule so, and sees that it is.
    fn settle(&mut self, rule: &FirewallRule) -> Vec<String> {
        let state = self.state(rule);
        let differs = told(rule, &state);
        for step in rule.apply(&state) {
            let Step::Run(script) = step else { panic!("{step:?}") };
            let output = self.run(script.as_str());
            assert_eq!(output.code, 0, "{:?}: {}", self.shell, output.complaint());
            self.setup += &format!("(\n{}\n)\n", script.as_str());
        }
        assert_eq!(self.differs(rule), [""; 0], "{:?}: after {differs:?}", self.shell);
        differs
    }

    fn risk(&self, rule: &FirewallRule, session: &str) -> Risk {
        rule.risk(&self.ask(rule, session).unwrap())
    }
}

fn told(rule: &FirewallRule, state: &State) -> Vec<String> {
    assert_eq!(rule.obstacle(state), None);
    rule.diff(state).iter().map(|c| format!("{}: {} -> {}", c.field, c.from, c.to)).collect()
}

#[test]
fn nftables_has_it_in_each_chain_that_would_drop_it() {
    for shell in Shell::ALL {
        let mut trial = Trial::new(shell, NFT);
        let rule = rule(&[("backend", "nftables"), ("protocol", "udp"), ("port", "4791")]);
        let foreign = trial.sh("nft list ruleset");
        assert_eq!(
            trial.settle(&rule),
            [
                "inet netplay input: null -> \"udp dport 4791 accept\"",
                "inet fw input: null -> \"udp dport 4791 accept\""
            ]
        );
        let ours = trial.sh("nft list ruleset");
        assert_eq!(ours.matches("udp dport 4791 accept comment \"netplay:x\"").count(), 2, "{ours}");
        let rest: Vec<&str> = ours.lines().filter(|l| !l.contains("netplay:x")).collect();
        assert!(rest.join("\n").starts_with(foreign.trim_end()), "{ours}");
        // One that would let it in needs no rule of ours.
        let ssh =
            super::tests::rule(&[("backend", "nftables"), ("protocol", "tcp"), ("port", "22"), ("family", "ipv4")]);
        let ssh = FirewallRule { name: "ssh".to_owned(), ..ssh };
        assert_eq!(trial.settle(&ssh), ["inet netplay input: null -> \"meta nfproto ipv4 tcp dport 22 accept\""]);
        // Another port: the old one goes.
        let other = super::tests::rule(&[("backend", "nftables"), ("protocol", "tcp"), ("port", "5201")]);
        assert_eq!(
            trial.settle(&other),
            [
                "inet netplay input: \"udp dport 4791 accept\" -> \"tcp dport 5201 accept\"",
                "inet fw input: \"udp dport 4791 accept\" -> \"tcp dport 5201 accept\""
            ]
        );
        let gone = super::tests::rule(&[("backend", "nftables"), ("state", "absent")]);
        assert_eq!(trial.settle(&gone).len(), 2);
        let absent = FirewallRule { name: "ssh".to_owned(), ..gone };
        trial.settle(&absent);
        assert_eq!(trial.sh("nft list ruleset"), foreign, "{shell:?}: nothing of ours is left");
    }
}

#[test]
fn a_rule_that_is_twice_or_late_is_mended() {
    {
        let shell = Shell::Dash;
        let late =
            "nft add rule inet fw input drop; nft add rule inet fw input udp dport 4791 accept comment '\"netplay:x\"'";
        let mut trial = Trial::new(shell, &format!("{NFT}{late}; {late}\n"));
        let rule = rule(&[("backend", "nftables"), ("protocol", "udp"), ("port", "4791")]);
        let found = trial.settle(&rule);
        assert_eq!(found[1], "inet fw input: \"2 times\" -> \"udp dport 4791 accept\"");
        let chain = trial.sh("nft list chain inet fw input");
        assert_eq!(chain.matches("netplay:x").count(), 1, "{chain}");
        let mut trial = Trial::new(shell, &format!("{NFT}{late}\n"));
        assert_eq!(trial.settle(&rule)[1], "inet fw input: \"behind a rule that drops\" -> \"udp dport 4791 accept\"");
    }
}

#[test]
fn iptables_has_it_in_a_chain_of_its_own() {
    for (shell, kind) in [(Shell::Dash, "nft"), (Shell::Bash, "legacy"), (Shell::Busybox, "nft")] {
        let setup = format!(
            "ln -s /usr/sbin/iptables-{kind} /run/iptables; ln -s /usr/sbin/ip6tables-{kind} /run/ip6tables
            for t in iptables ip6tables; do for w in save restore; do ln -s /usr/sbin/$t-{kind}-$w /run/$t-$w; done; done
            PATH=/run:$PATH
            iptables -A INPUT -p tcp --dport 22 -j ACCEPT; iptables -A INPUT -j DROP; ip6tables -P INPUT DROP\n"
        );
        let mut trial = Trial::new(shell, &setup);
        trial.setup += "tools=/run:$tools\n";
        let rule =
            rule(&[("protocol", "tcp"), ("port", "18515-18530"), ("interface", "eth1"), ("backend", "iptables")]);
        let saved = "for t in iptables ip6tables; do $t-save -t filter | grep -v '^#'; done | sed 's/\\[.*//'";
        let foreign = trial.sh(saved);
        assert_eq!(
            trial.settle(&rule),
            [
                "iptables INPUT: null -> \"iifname \\\"eth1\\\" tcp dport 18515-18530 accept\"",
                "ip6tables INPUT: null -> \"iifname \\\"eth1\\\" tcp dport 18515-18530 accept\""
            ],
            "{shell:?} {kind}"
        );
        let drop = FirewallRule {
            name: "y".to_owned(),
            ..super::tests::rule(&[
                ("protocol", "tcp"),
                ("port", "23"),
                ("action", "reject"),
                ("source", "10.0.0.0/8"),
                ("backend", "iptables"),
            ])
        };
        trial.settle(&drop);
        let own = trial.sh("iptables -S NETPLAY-IN-DROP");
        let lines: Vec<&str> = own.lines().collect();
        assert!(lines[1].contains("--dport 18515:18530 -j RETURN") && lines[2].contains("-s 10.0.0.0/8"), "{own}");
        // Behind a drop the jump is of no use, and twice it is once too many.
        trial.setup += "iptables -D INPUT -j NETPLAY-IN; iptables -A INPUT -j NETPLAY-IN\n";
        let late = "behind a rule that drops";
        assert!(trial.settle(&rule)[0].contains(late));
        let base = trial.sh("iptables -S INPUT | sed -n '2,$p'");
        let lines = ["-j NETPLAY-IN-DROP", "-p tcp -m tcp --dport 22 -j ACCEPT", "-j NETPLAY-IN", "-j DROP"];
        assert_eq!(base, lines.map(|l| format!("-A INPUT {l}\n")).concat());
        trial.setup += "iptables -I INPUT -j NETPLAY-IN\n";
        assert!(trial.settle(&rule)[0].contains("2 jumps to NETPLAY-IN in INPUT"));
        trial.setup += "iptables -F NETPLAY-IN; iptables -A NETPLAY-IN -m comment --comment other -j RETURN\n";
        trial.settle(&rule);
        assert!(trial.sh("iptables -S NETPLAY-IN").contains("--comment other"), "what others put there stays");
        trial.setup += "iptables -D NETPLAY-IN 2\n";
        for name in ["x", "y"] {
            let gone = FirewallRule { name: name.to_owned(), ..super::tests::rule(&[("state", "absent")]) };
            trial.settle(&gone);
        }
        assert_eq!(trial.sh(saved), foreign, "{shell:?} {kind}");
    }
}

/// A chain with bans in several places and a port that others close.
const BANS: &str = "
    iptables -N f2b; iptables -A f2b -s 192.0.2.7 -j REJECT; iptables -A f2b -j RETURN
    iptables -A INPUT -p tcp -j f2b; iptables -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
    iptables -A INPUT -p tcp --dport 22 -j ACCEPT; iptables -A INPUT -m conntrack --ctstate INVALID -j DROP
    iptables -A INPUT -s 192.0.2.6 -j DROP; iptables -A INPUT -p tcp --dport 5432 -j DROP
    iptables -A INPUT -s 192.0.2.8 -j DROP; iptables -A INPUT -j DROP\n";

/// Why a rule can't be, or nothing.
fn rule_obstacle(rule: &FirewallRule, trial: &Trial) -> String {
    rule.obstacle(&trial.state(rule)).map(|o| o.trouble.message).unwrap_or_default()
}

#[test]
fn what_others_ban_stays_before_what_is_accepted() {
    let v4 = |keys: &[(&'static str, &str)]| {
        super::tests::rule(&[&[("backend", "iptables"), ("family", "ipv4"), ("protocol", "tcp")], keys].concat())
    };
    let web = FirewallRule { name: "web".to_owned(), ..v4(&[("port", "80")]) };
    let db = FirewallRule { name: "db".to_owned(), ..v4(&[("port", "5432")]) };
    let closed = FirewallRule { name: "closed".to_owned(), ..v4(&[("port", "22"), ("action", "drop")]) };
    let mine = FirewallRule { name: "mine".to_owned(), ..v4(&[("port", "22"), ("source", "10.0.0.0/8")]) };
    let mut trial = Trial::new(Shell::Dash, BANS);
    let order = |trial: &Trial| {
        let base = trial.sh("iptables -S INPUT");
        let word = |l: &str| l.rsplit("INPUT ").next().unwrap().to_owned();
        base.lines().skip(1).map(word).collect::<Vec<_>>().join("; ")
    };
    let foreign = order(&trial);
    let (start, end) = foreign.split_once("-p tcp -m tcp --dport 5432 -j DROP").unwrap();
    trial.settle(&web);
    let end = &end.replace("; -j DROP", "; -j NETPLAY-IN; -j DROP");
    assert_eq!(order(&trial), format!("{start}-p tcp -m tcp --dport 5432 -j DROP{end}"), "before the last alone");
    // At boot its script does the same, with and without the jump.
    let boot = trial.state(&web).work.unwrap().boot.unwrap();
    let again = |trial: &mut Trial, flush: &str| trial.setup += &format!("{flush}\n(\n{}\n)\n", boot.as_str());
    let before = order(&trial);
    again(&mut trial, "iptables -D INPUT -j NETPLAY-IN");
    assert_eq!(order(&trial), before);
    again(&mut trial, "");
    assert_eq!(order(&trial), before);
    // A drop comes first, and what is accepted is kept from it alone.
    assert!(trial.risk(&closed, "10.1.0.1 40000 10.99.0.2 22") != Risk::None);
    trial.settle(&closed);
    trial.settle(&mine);
    assert_eq!(order(&trial), format!("-j NETPLAY-IN-DROP; {before}"));
    let drops = trial.sh("iptables -S NETPLAY-IN-DROP");
    let returns = drops.lines().filter(|l| l.ends_with("-j RETURN")).count();
    assert!(returns == 2 && drops.lines().last().unwrap().ends_with("netplay:closed\" -j DROP"), "{drops}");
    // One that others close by its port comes before that, if nothing in between bans some of what is let in already: the
    // jump has one place.
    let refused = rule_obstacle(&db, &trial);
    assert!(
        refused.contains("what `web` lets in would pass a ban of others by, `-A INPUT -s 192.0.2.8/32 -j DROP`")
            && refused.contains("before `-A INPUT -p tcp -m tcp --dport 5432 -j DROP`"),
        "{refused}"
    );
    // Both at once are found out behind it, by the one that is concerned.
    let script = Trial::new(Shell::Dash, BANS).state(&db).work.unwrap().live.unwrap();
    let mut both = Trial::new(Shell::Dash, BANS);
    both.settle(&web);
    both.setup += &format!("(\n{}\n)\n", script.as_str());
    assert!(rule_obstacle(&web, &both).contains("what `web` lets in would pass a ban"));
    assert_eq!(rule_obstacle(&db, &both), "");
    trial.setup += "iptables -D INPUT -s 192.0.2.8 -j DROP; iptables -I INPUT 4 -s 192.0.2.8 -j DROP\n";
    assert_eq!(trial.differs(&web), [""; 0]);
    trial.settle(&db);
    let closed_by_others = "-p tcp -m tcp --dport 5432 -j DROP";
    assert!(
        order(&trial).contains(&format!("192.0.2.6/32 -j DROP; -j NETPLAY-IN; {closed_by_others}")),
        "{}",
        order(&trial)
    );
    // Another verdict by the same name takes the first one's place.
    let turned = FirewallRule { verdict: Verdict::Drop, ..v4(&[("port", "80")]) };
    let turned = FirewallRule { name: "web".to_owned(), ..turned };
    assert_eq!(
        trial.settle(&turned),
        ["iptables INPUT: \"meta nfproto ipv4 tcp dport 80 accept\" -> \"meta nfproto ipv4 tcp dport 80 drop\""]
    );
    for name in ["web", "db", "closed", "mine"] {
        trial.settle(&FirewallRule { name: name.to_owned(), ..super::tests::rule(&[("state", "absent")]) });
    }
    let moved = foreign.replace("; -s 192.0.2.8/32 -j DROP", "");
    assert_eq!(order(&trial).replace("-s 192.0.2.8/32 -j DROP; ", ""), moved);
}

#[test]
fn what_others_ban_in_nftables_stays_before_what_is_accepted() {
    let setup = "nft -f - <<'N'
    table inet fw {
      chain sub { ct state invalid drop; counter drop; }
      chain input {
        type filter hook input priority 0; policy accept;
        ct state established accept
        ip saddr 192.0.2.6 drop
        tcp dport 5432 counter drop comment \"no data\"
        ip saddr 192.0.2.7 drop
        jump sub
      }
    }
N\n";
    let mut trial = Trial::new(Shell::Dash, setup);
    let tcp = |port: &str| rule(&[("backend", "nftables"), ("protocol", "tcp"), ("port", port)]);
    let chain = |trial: &Trial| {
        let text = trial.sh("nft list chain inet fw input");
        let lines =
            text.lines().map(str::trim).filter(|l| l.ends_with("drop") || l.contains('"') || l.starts_with("jump"));
        lines
            .map(|l| l.split([' ']).next().unwrap().to_owned() + if l.contains("netplay") { "!" } else { "" })
            .collect::<Vec<_>>()
    };
    for (port, wanted) in [("80", ["ip", "tcp", "ip", "tcp!", "jump"]), ("5432", ["ip", "tcp!", "tcp", "ip", "jump"])] {
        let rule = tcp(port);
        trial.settle(&rule);
        assert_eq!(chain(&trial), wanted, "{port}");
        let boot = trial.state(&rule).work.unwrap().boot.unwrap();
        trial.setup += &format!("nft flush ruleset; {setup}(\n{}\n)\n", boot.as_str());
        assert_eq!(chain(&trial), wanted, "{port}, after a boot");
    }
}

#[test]
fn a_rule_of_one_family_leaves_the_other() {
    for backend in ["iptables", "nftables"] {
        let mut trial = Trial::new(
            Shell::Dash,
            "nft -f - <<'N'\ntable ip a { chain i { type filter hook input priority 0; policy drop; }; }\nN\n",
        );
        let keys = [("backend", backend), ("protocol", "tcp"), ("port", "80")];
        trial.settle(&rule(&keys));
        let differs = trial.settle(&rule(&[&keys[..], &[("family", "ipv6")]].concat()));
        assert!(differs.iter().any(|d| d.starts_with("ip a i: ") && d.ends_with("-> null")), "{backend}: {differs:?}");
        assert!(!trial.sh("iptables-save").contains("netplay:"), "{backend}");
    }
}

#[test]
fn rules_of_both_kinds_of_iptables_and_of_nft_are_heeded() {
    let setup = format!("{NFT}iptables-legacy -P INPUT DROP; iptables-nft -A INPUT -j DROP\n");
    let mut trial = Trial::new(Shell::Dash, &setup);
    let rule = rule(&[("protocol", "udp"), ("port", "4791"), ("family", "ipv4"), ("backend", "iptables")]);
    let fields: Vec<String> = trial.settle(&rule).iter().map(|c| c.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(fields, ["iptables INPUT", "iptables-legacy INPUT", "inet fw input"]);
    // What filters nothing isn't asked for a rule.
    let mut trial = Trial::new(Shell::Dash, "iptables-legacy -S >&2; nft add table inet fw");
    assert_eq!(trial.settle(&rule).len(), 1);
}

#[test]
fn thousands_of_foreign_rules_stay_as_they_are() {
    let many = |line: &str| {
        format!("{{ echo '*filter'; i=0; while [ $i -lt 2000 ]; do echo \"{line}\"; i=$((i+1)); done; echo COMMIT; }}")
    };
    let line =
        "-A INPUT -s 10.1.$((i/250)).$((i%250))/32 -p tcp -m tcp --dport 22 -m comment --comment foreign$i -j ACCEPT";
    let setup = format!("{} | iptables-nft-restore; iptables -A INPUT -j DROP", many(line));
    let mut trial = Trial::new(Shell::Dash, &setup);
    let saved = "iptables-save -t filter | grep -v -e '^#' -e NETPLAY | sed 's/\\[.*//'";
    let foreign = trial.sh(saved);
    assert_eq!(foreign.lines().count(), 2000 + 6);
    let rule = rule(&[("protocol", "udp"), ("port", "4791"), ("backend", "iptables")]);
    trial.settle(&rule);
    assert_eq!(trial.sh(saved), foreign);
    trial.settle(&super::tests::rule(&[("state", "absent")]));
    assert_eq!(trial.sh(saved), foreign);
}

#[test]
fn the_session_is_not_closed_by_chance() {
    let from = "10.99.0.1 40000 10.99.0.2 2222";
    let link = "ip link add eth0 type veth peer name p; ip addr add 10.99.0.2/24 dev eth0\n";
    let rule = |keys: &[(&'static str, &str)]| rule(&[&[("backend", "iptables")], keys].concat());
    let open = Trial::new(Shell::Dash, link);
    let closes = |trial: &Trial, rule: &FirewallRule| matches!(trial.risk(rule, from), Risk::Link(why) if why.contains("would be"));
    let said = open.risk(&rule(&[("action", "drop")]), from);
    assert_eq!(said, Risk::Link("tcp port 2222 would be closed to 10.99.0.1, which comes in by it".to_owned()));
    assert_eq!(open.risk(&rule(&[("action", "drop")]), ""), Risk::None, "there is no session");
    for (keys, wanted) in [
        (&[("protocol", "tcp"), ("port", "22")][..], false),
        (&[("protocol", "tcp"), ("port", "2000-3000")], true),
        (&[("protocol", "udp")], false),
        (&[("source", "10.98.0.0/16")], false),
        (&[("source", "10.99.0.0/16")], true),
        (&[("interface", "eth1")], false),
        (&[("interface", "eth0")], true),
        (&[("family", "ipv6")], false),
        (&[("direction", "out")], true),
        (&[("direction", "out"), ("protocol", "tcp"), ("port", "22")], false),
        (&[("direction", "out"), ("destination", "10.99.0.1")], true),
    ] {
        let rule = rule(&[&[("action", "reject")], keys].concat());
        assert_eq!(closes(&open, &rule), wanted, "{keys:?}");
    }
    // The one that keeps it open: taken away, or made too narrow.
    let mut kept = Trial::new(Shell::Dash, &format!("{link}iptables -P INPUT DROP\n"));
    let ssh = &[("protocol", "tcp"), ("port", "2222")];
    kept.settle(&rule(ssh));
    assert!(closes(&kept, &rule(&[("state", "absent")])));
    assert!(closes(&kept, &rule(&[&ssh[..], &[("source", "10.98.0.0/16")]].concat())));
    assert!(!closes(&kept, &rule(&[&ssh[..], &[("source", "10.99.0.0/16")]].concat())));
    assert!(closes(&kept, &rule(&[&ssh[..], &[("family", "ipv6")]].concat())), "it doesn't stay in the other family");
    assert!(!closes(&kept, &rule(&[&ssh[..], &[("family", "ipv4")]].concat())));
    let drop = FirewallRule { name: "z".to_owned(), ..rule(&[("action", "drop")]) };
    assert!(!closes(&kept, &drop), "what accepts comes first");
    // Somebody else's rule keeps it open as well.
    let mut kept = Trial::new(
        Shell::Dash,
        &format!(
        "{link}iptables -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
        iptables -A INPUT -i eth0 -p tcp --dport 2222 -m conntrack --ctstate NEW -j ACCEPT; iptables -A INPUT -j DROP\n"
    ),
    );
    kept.settle(&rule(ssh));
    assert!(!closes(&kept, &rule(&[("state", "absent")])));
    // The play may take that away too, so that it is confirmed all the same.
    let about = Risk::Link("it is about tcp port 2222, by which 10.99.0.1 comes in".to_owned());
    assert_eq!(kept.risk(&rule(&[("state", "absent")]), from), about);
    assert_eq!(kept.risk(&rule(&[("protocol", "tcp"), ("port", "22")]), from), about, "another port for the same name");
    assert_eq!(kept.risk(&drop, from), about);
    assert_eq!(kept.risk(&FirewallRule { name: "z".to_owned(), ..rule(&[("protocol", "udp")]) }, from), Risk::None);
}

#[test]
fn what_nobody_manages_is_found_out() {
    let auto = |found: &Found| Backend::of(found, None).map_err(|t| t.message);
    let mut found = Found::default();
    assert_eq!(auto(&found), Err("this host has neither nft nor iptables".to_owned()));
    found.nft = true;
    assert_eq!(auto(&found), Ok(Backend::Nftables));
    found.tables.push(iptables::read("iptables", ""));
    assert_eq!(auto(&found), Ok(Backend::Iptables));
}

#[test]
fn a_lock_that_stays_held_is_told() {
    {
        let shell = Shell::Dash;
        let trial = Trial::new(shell, "iptables-legacy -A INPUT -j DROP");
        let rule = rule(&[("protocol", "udp"), ("port", "4791"), ("backend", "iptables"), ("family", "ipv4")]);
        let state = trial.state(&rule);
        let steps = rule.apply(&state);
        let [Step::Run(script)] = steps.as_slice() else { panic!() };
        let quick = script.as_str().replace("-w 10", "-w 1");
        let held = trial
            .run(&format!("/usr/bin/flock /run/xtables.lock sleep 10 & sleep 0.3\n({quick})\n c=$?; kill $!; exit $c"));
        assert_eq!(held.code, 1, "{shell:?}");
        assert!(held.complaint().contains("xtables.lock"), "{}", held.complaint());
        // It is only waited for.
        let freed = trial.run(&format!("/usr/bin/flock /run/xtables.lock sleep 1 & sleep 0.3\n{}", script.as_str()));
        assert_eq!(freed.code, 0, "{shell:?}: {}", freed.complaint());
    }
}

#[test]
fn the_probe_says_what_it_may_not_see() {
    let output = Output { stdout: b"not root\n".to_vec(), ..Output::default() };
    let why = <Filters as crate::resource::Group>::split(&[""], &[output]).remove(0).unwrap_err();
    assert!(why.message.contains("only root") && why.hint.unwrap().contains("become"), "{}", why.message);
}

#[test]
fn keys_are_read() {
    let list = |texts: &[&str]| crate::resource::trial::strings(texts);
    let ports = |texts: &[&str]| {
        let keys = vec![("name", list(&["x"])), ("protocol", list(&["tcp"])), ("port", list(texts))];
        parse_nodes::<FirewallRule>(keys).map(|r| r.cond.ports).map_err(|e| e.to_string())
    };
    assert_eq!(ports(&["5201", "18515-18530", "5202"]).unwrap(), [(5201, 5202), (18515, 18530)]);
    for wrong in ["0", "65536", "22-21", "ssh", "1,2"] {
        assert!(ports(&[wrong]).is_err(), "{wrong}");
    }
    for key in ["protocol", "port", "source", "destination", "interface", "family"] {
        let wrong =
            parse_nodes::<FirewallRule>(vec![("name", list(&["x"])), (key, list(&[]))]).unwrap_err().to_string();
        assert!(wrong.contains(&format!("`{key}` is empty")), "{wrong}");
    }
    assert_eq!(rule(&[("source", "0.0.0.0/0")]).cond, Cond { v6: Some(false), ..Cond::default() });
}

/// Of what was seen of iptables 1.8.9 and nft 1.0.6: what the `n`th run of a command printed to its standard output.
fn seen(command: &str, n: usize) -> String {
    let text = include_str!("samples/iptables_nft_1.8.9.txt");
    let (_, after) = text.split("$ ").filter_map(|run| run.split_once('\n')).filter(|r| r.0 == command).nth(n).unwrap();
    after.lines().filter_map(|l| l.strip_prefix("OUT: ")).map(|l| format!("{l}\n")).collect()
}

#[test]
fn what_was_seen_of_iptables_and_nft_is_understood() {
    use super::chains::{Fate, Look, Table};
    let fate = |table: &Table, chain: &str, protocol: &str, port: u16| {
        let mut cond = Cond { v6: Some(false), ports: vec![(port, port)], ..Cond::default() };
        cond.protocols.insert(protocol.to_owned());
        table.fate(chain, Look { cond: &cond, comment: "netplay:rocev2", with: true, accepts: true })
    };
    for text in [seen("iptables-save", 0), format!("*filter\n:INPUT ACCEPT [0:0]\n{}", seen("iptables -S INPUT", 0))] {
        let table = iptables::read("iptables", &text);
        assert_eq!(table.chains["INPUT"].rules.len(), 4, "{text}");
        assert_eq!(fate(&table, "INPUT", "udp", 4791), Fate::Ours);
        assert_eq!(fate(&table, "INPUT", "tcp", 5201), Fate::Accepted);
        assert_eq!(fate(&table, "INPUT", "tcp", 18520), Fate::Accepted);
        assert_eq!(fate(&table, "INPUT", "tcp", 22), Fate::Dropped);
        assert_eq!(fate(&table, "OUTPUT", "tcp", 22), Fate::Accepted);
    }
    // nft doesn't tell what is in a `multiport` of iptables, so that nothing is taken to be let in by it.
    let tables = nftables::read(&seen("nft -j list ruleset", 0)).unwrap();
    assert_eq!((tables.len(), tables[0].chains["INPUT"].rules.len()), (1, 4));
    assert_eq!(fate(&tables[0], "INPUT", "tcp", 5201), Fate::Dropped);
    assert_eq!(fate(&tables[0], "INPUT", "udp", 4791), Fate::Accepted);
    let rules =
        nftables::read(&seen("nft -j list ruleset", 0)).unwrap().remove(0).chains.remove("INPUT").unwrap().rules;
    assert_eq!(rules[2].cond.sources, [Net::parse("10.1.2.0/24").unwrap()]);
    // A chain alone comes without its table. Added twice, the rule is there twice.
    let chain = seen("nft -j list chain inet netplay input", 0);
    let whole =
        chain.replacen("{\"chain\"", "{\"table\": {\"family\": \"inet\", \"name\": \"netplay\"}}, {\"chain\"", 1);
    let table = nftables::read(&whole).unwrap().remove(0);
    let rocev2 = rule(&[("protocol", "udp"), ("port", "4791")]);
    let ours = table.chains["input"].rules.iter().filter(|r| r.comment.as_deref() == Some("netplay:rocev2"));
    assert!(ours.clone().all(|r| r.cond == rocev2.cond && r.verdict == Verdict::Accept) && ours.count() == 2);
    assert_eq!(iptables::read("iptables", &seen("iptables-legacy -S", 0)).chains["INPUT"].rules, []);
}

#[test]
fn conditions_that_are_not_compared_are_known_as_such() {
    let of = |text: &str| {
        let table = iptables::read("iptables", &format!("*filter\n-A INPUT {text}\n"));
        table.chains["INPUT"].rules[0].clone()
    };
    for exception in [
        "! -s 10.0.0.0/8 -j DROP",
        "-m recent --set --name SSH --mask 255.255.255.255 --rsource -j DROP",
        "-m recent --rcheck -j DROP",
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP",
        "-m set --match-set bad src -j DROP",
        "-m limit --limit 5/min -j DROP",
        "-s 10.0.0.0/255.0.255.0 -j DROP",
        "-p tcp -m tcp --sport 22 -j DROP",
        "-m comment --comment \"a \\\"-j ACCEPT\" -m mark --mark 0x1 -j DROP",
    ] {
        let rule = of(exception);
        assert!(rule.cond.other && rule.verdict == Verdict::Drop, "{exception}: {rule:?}");
    }
    for plain in ["-j DROP", "-m comment --comment \"-j x\" -j DROP", "-p udp -m udp --dport 1:65535 -j DROP"] {
        let rule = of(plain);
        assert!(!rule.cond.other && rule.verdict == Verdict::Drop, "{plain}: {rule:?}");
    }
    assert_eq!(of("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT").cond.new, Some(false));
    assert_eq!(of("-j LOG --log-prefix \"a b\"").verdict, Verdict::Jump("LOG".to_owned()));
    assert_eq!(of("-g other").verdict, Verdict::Goto("other".to_owned()));
}
