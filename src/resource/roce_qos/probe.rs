//! What a host says of an interface's quality of service.
//!
//! Sources: `mlnx_qos` and `cma_roce_*` of mlnx-tools 24.10 (its Python prints with these formats), dcb-pfc(8), dcb-app(8)
//! and dcb-buffer(8) of iproute2 6.1, ethtool(8); sysfs of NVIDIA's driver: `ecn/roce_{np,rp}/enable/PRIORITY`,
//! `ecn/roce_np/cnp_dscp`, `infiniband/DEVICE/tc/1/traffic_class`, which reads `Global tclass=106` and is written `106`.

use crate::resource::{Fragment, Group, Output, Trouble, cards, nic};
use crate::shell::Script;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// The group. An argument is an interface, a blank, and the parts that are asked for.
#[derive(Debug)]
pub(super) struct Qos;

/// What was found of an interface; nothing where there is no such interface.
pub(super) type Found = Option<Seen>;

/// What there is of an interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seen {
    /// The RDMA device that belongs to it.
    pub(super) rdma: Option<String>,
    /// Whether that has no GID of RoCE v2.
    pub(super) roce_off: bool,
    /// Its traffic class for verbs, if the driver has such a file; null if it isn't set.
    pub(super) traffic_class: Option<Json>,
    /// By `np` (the side that is notified of congestion) and `rp` (the side that reacts) and by priority.
    pub(super) ecn: BTreeMap<(String, u8), bool>,
    /// The DSCP of notifications of congestion.
    pub(super) cnp_dscp: Option<u32>,
    /// What the tool for priorities says; nothing where there is none.
    pub(super) port: Option<Result<Port, Trouble>>,
    /// Whether it receives and sends pause frames, where that was asked for ([`crate::resource::nic`] does).
    pub(super) pause: nic::Pauses,
    /// The type of service of RDMA connections.
    pub(super) tos: Option<Result<u32, String>>,
    /// Their RoCE version.
    pub(super) mode: Option<Result<u32, String>>,
}

impl Seen {
    /// What is set, by the names that people know it by.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let list = |on: &[u8]| match on {
            [] => "none".to_owned(),
            on => on.iter().map(u8::to_string).collect::<Vec<_>>().join(","),
        };
        let side = |side: &str| -> Option<Vec<u8>> {
            let all: Vec<_> = self.ecn.iter().filter(|((of, _), _)| of == side).collect();
            (!all.is_empty()).then(|| all.iter().filter(|(_, on)| **on).map(|((_, priority), _)| *priority).collect())
        };
        let port = self.port.as_ref().and_then(|port| port.as_ref().ok());
        let on = |on: bool| if on { "on" } else { "off" };
        let number = |found: &Option<Result<u32, String>>| found.as_ref()?.as_ref().ok().map(u32::to_string);
        let all = [
            ("trust", port.and_then(|p| p.trust.clone())),
            ("PFC", port.and_then(|p| p.pfc.as_deref().map(list))),
            ("ECN (np)", side("np").as_deref().map(list)),
            ("ECN (rp)", side("rp").as_deref().map(list)),
            ("DSCP of CNPs", self.cnp_dscp.map(|n| n.to_string())),
            (
                "traffic class",
                self.traffic_class.as_ref().map(|n| if n.is_null() { "unset".into() } else { n.to_string() }),
            ),
            ("ToS of RDMA CM", number(&self.tos)),
            ("RoCE version of RDMA CM", number(&self.mode)),
            (
                "pause frames",
                self.pause
                    .as_ref()
                    .and_then(|p| p.as_ref().ok())
                    .map(|(rx, tx)| format!("rx {} tx {}", on(*rx), on(*tx))),
            ),
            ("RoCE", self.rdma.as_ref().map(|_| on(!self.roce_off).to_owned())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// What `mlnx_qos` or `dcb` says of a port.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Port {
    /// Whether the firmware controls DCBX, so that a switch may have its way; not known by `dcb`.
    pub(super) by_firmware: bool,
    /// `dscp` or `pcp`.
    pub(super) trust: Option<String>,
    /// The priorities with flow control.
    pub(super) pfc: Option<Vec<u8>>,
    /// Metres.
    pub(super) cable: Option<u32>,
    /// Bytes of each receive buffer.
    pub(super) buffers: Option<Vec<u64>>,
    /// Whether the tool warns of lldpad.
    pub(super) lldpad: bool,
}

impl Group for Qos {
    type Answer = Found;
    const NAME: &'static str = "roce qos";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let fragment = |(interface, parts): (&str, BTreeSet<&str>)| {
            let parts = parts.into_iter().collect::<Vec<_>>().join(" ");
            Script::new().set("i", interface).set("parts", &parts).line(include_str!("probe.sh")).into()
        };
        of_each(args).into_iter().map(fragment).collect()
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let one = |output: Option<&Output>| match output {
            Some(output) if output.code == 0 => Ok(read(&output.text())),
            Some(output) => Err(Trouble::new(format!("the host didn't say what its QoS is: {}", output.complaint()))),
            None => Err(Trouble::new("no answer")),
        };
        let all = of_each(args);
        let place = |arg: &str| all.keys().position(|interface| *interface == interface_of(arg));
        args.iter().map(|arg| one(place(arg).and_then(|at| outputs.get(at)))).collect()
    }
}

fn interface_of(arg: &str) -> &str {
    arg.split(' ').next().unwrap_or_default()
}

/// What is asked of each interface: several resources may ask for parts of the same one, which is read once.
fn of_each<'a>(args: &[&'a str]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut all = BTreeMap::<&str, BTreeSet<&str>>::new();
    for arg in args {
        all.entry(interface_of(arg)).or_default().extend(arg.split(' ').skip(1).filter(|part| !part.is_empty()));
    }
    all
}

/// The group that asks the same of all interfaces with an RDMA device, at once. It has one argument, the empty one.
pub(super) struct Every;

impl Group for Every {
    type Answer = Vec<(String, Seen)>;
    const NAME: &'static str = "roce qos of all";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        let script = Script::new()
            .line(cards::CARDS)
            .line("qos() {\ni=$1 parts='qos cm'\necho \"=== $i\"\n(")
            .line(include_str!("probe.sh"))
            .line(")\ncommand -v ethtool >/dev/null || return 0")
            .line(r#"o=$(lim 20 ethtool -a "$i" 2>&1); printf '== pause %s\n%s\n' $? "$o""#)
            .line("}\nset --")
            .line(r#"for n in /sys/class/net/*; do [ ! -d "$n/device/infiniband" ] || set -- "$@" "${n##*/}"; done"#)
            .line(r#"[ $# -eq 0 ] || each qos "$@""#);
        vec![script.into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Vec<(String, Seen)>, Trouble>> {
        let one = |output: &Output| match output.code {
            0 => Ok(read_every(&output.text())),
            _ => Err(Trouble::new(format!("the host didn't say what its QoS is: {}", output.complaint()))),
        };
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), one)).collect()
    }
}

fn read_every(text: &str) -> Vec<(String, Seen)> {
    let blocks = format!("\n{text}");
    let block = |block: &str| {
        let (name, said) = block.split_once('\n')?;
        Some((name.to_owned(), read(said)?))
    };
    blocks.split("\n=== ").skip(1).filter_map(block).collect()
}

fn read(text: &str) -> Found {
    let mut seen = Seen::default();
    let mut parts: BTreeMap<&str, (i32, Vec<&str>)> = BTreeMap::new();
    let mut part: Option<&str> = None;
    for line in text.lines() {
        if line == "absent" && part.is_none() {
            return None;
        }
        if let Some((name, code)) = line.strip_prefix("== ").and_then(|l| l.split_once(' ')) {
            parts.insert(name, (code.parse().unwrap_or(255), Vec::new()));
            part = Some(name);
        } else if let Some((_, lines)) = part.and_then(|name| parts.get_mut(name)) {
            lines.push(line);
        } else if let Some(name) = line.strip_prefix("rdma ") {
            seen.rdma = Some(name.to_owned());
        } else if line == "off" {
            seen.roce_off = true;
        } else if line == "tc" {
            seen.traffic_class = Some(Json::Null);
        }
    }
    let said = |name: &str| parts.get(name).map(|(code, lines)| (*code, lines.as_slice()));
    for (path, value) in said("files").unwrap_or_default().1.iter().filter_map(|line| line.rsplit_once(':')) {
        file(&mut seen, path, value.trim());
    }
    seen.port = said("mlnx_qos").map(|(code, lines)| mlnx_qos(code, lines));
    if let Some((code, lines)) = said("pfc").or(said("buffer")) {
        seen.port = Some(match code {
            0 => Ok(dcb(said("pfc"), said("app"), said("buffer"))),
            _ => Err(silent("dcb", code, lines)),
        });
    }
    seen.pause = said("pause").map(|(code, lines)| nic::pauses_said(code, lines));
    seen.tos = said("tos").map(|(code, lines)| number(code, lines, |word| word.parse().ok()));
    seen.mode = said("mode").map(|(code, lines)| {
        number(code, lines, |word| match word {
            "RoCE v2" => Some(2),
            "IB/RoCE v1" => Some(1),
            _ => None,
        })
    });
    Some(seen)
}

/// A file of sysfs.
fn file(seen: &mut Seen, path: &str, value: &str) {
    let mut words = path.rsplit('/');
    match (words.next(), words.next(), words.next()) {
        (Some("cnp_dscp"), ..) => seen.cnp_dscp = value.parse().ok(),
        (Some(priority), Some("enable"), Some(side)) => {
            if let (Ok(priority), Some(side)) = (priority.parse(), side.strip_prefix("roce_")) {
                seen.ecn.insert((side.to_owned(), priority), value == "1");
            }
        }
        // Further lines are rules for some connections only.
        (Some("traffic_class"), ..) => {
            if let Some(class) = value.strip_prefix("Global tclass=").and_then(|n| n.parse::<u32>().ok()) {
                seen.traffic_class = Some(class.into());
            }
        }
        _ => {}
    }
}

/// The last line that says something.
fn last(lines: &[&str]) -> String {
    let line = lines.iter().rev().map(|l| l.trim()).find(|l| !l.is_empty());
    line.unwrap_or("nothing").to_owned()
}

/// Why a tool told nothing.
fn silent(tool: &str, code: i32, lines: &[&str]) -> Trouble {
    match code {
        124 | 137 | 143 => Trouble::new(format!("`{tool}` didn't answer within 20 s"))
            .hint("look for the card's driver in the host's dmesg, and whether another tool holds the card"),
        _ => Trouble::new(format!("`{tool}` says: {} (exit code {code})", last(lines))),
    }
}

/// What a tool prints that prints one value.
fn number(code: i32, lines: &[&str], read: impl Fn(&str) -> Option<u32>) -> Result<u32, String> {
    let line = last(lines);
    read(&line).filter(|_| code == 0).ok_or(line)
}

/// `mlnx_qos -i X`. Warnings and what isn't supported come first, and any of the lines may be missing.
fn mlnx_qos(code: i32, lines: &[&str]) -> Result<Port, Trouble> {
    let lldpad = lines.iter().any(|line| line.contains("WARNING: lldpad"));
    if code != 0 {
        return Err(silent("mlnx_qos", code, lines));
    }
    let mut port = Port { lldpad, ..Port::default() };
    for line in lines.iter().map(|line| line.trim()) {
        if let Some((key, value)) = line.split_once(": ") {
            match key {
                "DCBX mode" => port.by_firmware = value.starts_with("Firmware"),
                "Priority trust state" => port.trust = Some(value.to_owned()).filter(|v| v == "dscp" || v == "pcp"),
                "Receive buffer size (bytes)" => {
                    let sizes: Vec<u64> = value.split(',').map_while(|n| n.trim().parse().ok()).collect();
                    port.buffers = Some(sizes).filter(|s| s.len() == 8);
                }
                "Cable len" => port.cable = value.trim().parse().ok(),
                _ => {}
            }
        } else if let Some(row) = line.strip_prefix("enabled ") {
            let cells: Vec<&str> = row.split_whitespace().collect();
            port.pfc = (cells.len() == 8).then(|| priorities(cells.iter().map(|cell| *cell == "1")));
        }
    }
    Ok(port)
}

fn priorities(on: impl Iterator<Item = bool>) -> Vec<u8> {
    (0u8..8).zip(on).filter(|(_, on)| *on).map(|(priority, _)| priority).collect()
}

/// What the commands of `dcb -j` print; one that fails leaves its part unknown.
fn dcb(pfc: Option<(i32, &[&str])>, app: Option<(i32, &[&str])>, buffer: Option<(i32, &[&str])>) -> Port {
    let json = |said: Option<(i32, &[&str])>| -> Json {
        let (_, lines) = said.filter(|(code, _)| *code == 0).unwrap_or_default();
        serde_json::from_str(&lines.join("\n")).unwrap_or_default()
    };
    let (pfc, buffer) = (json(pfc), json(buffer));
    // Without an entry there is no output at all in some versions.
    let trust = app.filter(|(code, _)| *code == 0).map(|said| match json(Some(said))["dscp_prio"].as_array() {
        Some(entries) if !entries.is_empty() => "dscp",
        _ => "pcp",
    });
    let list = |node: &Json| node.as_array().filter(|a| a.len() == 8).cloned();
    Port {
        trust: trust.map(str::to_owned),
        pfc: list(&pfc["prio_pfc"]).map(|all| priorities(all.iter().map(|on| on == &Json::Bool(true)))),
        cable: pfc["delay"].as_u64().and_then(|n| u32::try_from(n).ok()),
        buffers: list(&buffer["buffer_size"]).and_then(|all| all.iter().map(Json::as_u64).collect()),
        ..Port::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;

    const SAMPLE: &str = include_str!("samples/mlnx_qos.txt");

    fn port(code: i32, text: &str) -> Result<Port, Trouble> {
        mlnx_qos(code, &text.lines().collect::<Vec<_>>())
    }

    #[test]
    fn what_mlnx_qos_prints() {
        let whole = Port {
            by_firmware: false,
            trust: Some("dscp".to_owned()),
            pfc: Some(vec![3]),
            cable: Some(10),
            buffers: Some(vec![130_944, 130_944, 0, 0, 0, 0, 0, 0]),
            lldpad: false,
        };
        assert_eq!(port(0, SAMPLE).unwrap(), whole);
        let newer =
            SAMPLE.replace(",max_buffer_size=", ",total_size=").replace("dscp2prio", "default priority:\ndscp2prio");
        assert_eq!(port(0, &newer).unwrap(), whole);
        let warned = format!(
            "****** WARNING: lldpad service is running and may overwrite your settings ******\n\n{}",
            SAMPLE.replace("OS controlled", "Firmware controlled")
        );
        assert_eq!(port(0, &warned).unwrap(), Port { by_firmware: true, lldpad: true, ..whole.clone() });
        let less: String = SAMPLE
            .lines()
            .filter(|l| !l.starts_with("Receive") && !l.contains("buffer") && !l.starts_with("DCBX"))
            .map(|l| {
                if l.starts_with("Priority trust") {
                    "Priority trust state: none\n".to_owned()
                } else {
                    format!("{l}\n")
                }
            })
            .collect();
        let less = format!(
            "Priority trust state is not supported on your system\nBuffers commands are not supported on your system\n{less}"
        );
        assert_eq!(port(0, &less).unwrap(), Port { trust: None, buffers: None, ..whole });
        let told =
            port(1, "****** WARNING: lldpad service is running\n\nETS features are not supported on your system\n");
        assert_eq!(
            told.unwrap_err().message,
            "`mlnx_qos` says: ETS features are not supported on your system (exit code 1)"
        );
        assert_eq!(port(124, "").unwrap_err().message, "`mlnx_qos` didn't answer within 20 s");
    }

    #[test]
    fn what_dcb_prints() {
        let pfc = include_str!("samples/dcb_pfc.json");
        let of = |app: (i32, &str)| {
            dcb(
                Some((0, &[pfc.trim()])),
                Some((app.0, &[app.1])),
                Some((1, &["Attribute read: Operation not supported"])),
            )
        };
        let wanted = |trust: Option<&str>| Port {
            trust: trust.map(str::to_owned),
            pfc: Some(vec![3]),
            cable: Some(4096),
            ..Port::default()
        };
        assert_eq!(of((0, "{\"dscp_prio\":[[26,3],[48,6]]}")), wanted(Some("dscp")));
        assert_eq!(of((0, "{}")), wanted(Some("pcp")));
        assert_eq!(of((0, "")), wanted(Some("pcp")));
        assert_eq!(of((1, "Attribute read: Operation not supported")), wanted(None));
        let buffer =
            ["{\"total_size\":262016,\"prio_buffer\":[0,0,0,1,0,0,0,0],\"buffer_size\":[130944,130944,0,0,0,0,0,0]}"];
        assert_eq!(dcb(None, None, Some((0, &buffer))).buffers.unwrap()[..3], [130_944, 130_944, 0]);
    }

    #[test]
    fn a_traffic_class_reads_otherwise_than_it_is_written() {
        let of = |lines: &str| read(&format!("rdma mlx5_0\n{lines}")).unwrap().traffic_class;
        let path = "/sys/class/infiniband/mlx5_0/tc/1/traffic_class";
        assert_eq!(
            of(&format!("tc\n== files 0\n{path}:Global tclass=106\n{path}:tclass=96 src_ip=10.0.0.1\n")),
            Some(106.into())
        );
        assert_eq!(of("tc\n"), Some(Json::Null));
        assert_eq!(of(""), None);
    }

    #[test]
    fn each_interface_is_read_once_whoever_asks() {
        let args = ["eth1 qos cm", "eth2 buffer", "eth1 qos", "eth3 "];
        let asked: Vec<(&str, String)> = of_each(&args)
            .into_iter()
            .map(|(interface, parts)| (interface, parts.into_iter().collect::<Vec<_>>().join(" ")))
            .collect();
        assert_eq!(asked, [("eth1", "cm qos".to_owned()), ("eth2", "buffer".to_owned()), ("eth3", String::new())]);
        assert_eq!(Qos::compose(&args).len(), 3);
        let output = |text: &str| Output { stdout: text.into(), ..Output::default() };
        let outputs = [output("rdma mlx5_1\n"), output("rdma mlx5_2\n"), output("absent\n")];
        let device = |found: Result<Found, Trouble>| found.unwrap().and_then(|seen| seen.rdma).unwrap_or_default();
        let devices: Vec<String> = Qos::split(&args, &outputs).into_iter().map(device).collect();
        assert_eq!(devices, ["mlx5_1", "mlx5_2", "mlx5_1", ""]);
    }

    /// Against a **simulated** /sys, and a modprobe that knows each module or none.
    #[test]
    fn what_no_module_can_make_is_known_before() {
        let setup = |knows: bool| {
            format!(
                "for d in /sys /usr/local/sbin; do mount -t tmpfs simulated $d; done
                 mkdir -p /sys/class/net/eth1/device/infiniband/mlx5_0
                 cd /usr/local/sbin; printf '#!/bin/sh\nexit {}\n' >modprobe; chmod 755 modprobe; cd /",
                i32::from(!knows)
            )
        };
        for shell in Shell::ALL {
            let seen = |knows: bool| {
                let script = Qos::compose(&["eth1 cm"]).remove(0).script;
                let output = shell.run_in_net(&setup(knows), script.as_str());
                Qos::split(&["eth1 cm"], &[output]).remove(0).unwrap().unwrap()
            };
            // Busybox has a modprobe of its own, which knows none here.
            if shell != Shell::Busybox {
                assert_eq!((seen(true).tos, seen(true).mode), (None, None), "{shell:?}");
            }
            let why = "there is no /sys/kernel/config/rdma_cm, and this kernel has no module rdma_cm".to_owned();
            assert_eq!((seen(false).tos, seen(false).mode), (Some(Err(why.clone())), Some(Err(why))), "{shell:?}");
        }
    }
}
