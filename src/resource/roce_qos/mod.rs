//! `roce_qos`: what a RoCE fabric asks of a port: trust, PFC, ECN, types of service, pause frames and buffers.
//!
//! None of it survives a boot or the reload of the driver, so that what sets it is also kept for `netplay-reapply`.

mod probe;
mod wanted;

use self::probe::{Every, Port, Qos, Seen};
use self::wanted::Wanted;
use super::probes::links::{LinkList, interface};
use super::probes::session::SessionEnds;
use super::reapply::{Kept, Reapply};
use super::spec::{Key, Spec};
use super::{
    Answers, Change, Claim, FileDiff, Need, Obstacle, Question, Reading, Resource, Risk, Stale, Step, Trouble,
};
use super::{kernel_module, nic};
use crate::error::Error;
use serde_json::{Value as Json, json};

/// What is wanted of an interface; what isn't given stays as it is.
#[derive(Debug)]
pub struct RoceQos {
    interface: String,
    wanted: Wanted,
    kept: Reapply,
    image: bool,
}

/// Asks what all interfaces with an RDMA device have.
pub fn survey() -> Question {
    Question::of::<Every>("")
}

/// An interface, and names of settings with their values in words.
pub type Surveyed = (String, Vec<(&'static str, String)>);

/// What they have, as far as there is something that tells it.
///
/// # Errors
/// The host didn't say.
pub fn surveyed(answers: &Answers) -> Result<Vec<Surveyed>, Trouble> {
    Ok(answers.get::<Every>("")?.iter().map(|(interface, seen)| (interface.clone(), seen.settings())).collect())
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    /// Nothing in an image.
    live: Option<Seen>,
    boot: Kept,
    risk: Risk,
    /// Whether the port is InfiniBand.
    infiniband: bool,
}

/// Asks for the priorities with flow control of an interface.
pub(super) fn ask_pfc(interface: &str) -> Question {
    Question::of::<Qos>(format!("{interface} qos"))
}

/// The answer: none where nothing tells any.
///
/// # Errors
/// The host didn't answer.
pub(super) fn pfc(answers: &Answers, interface: &str) -> Result<Vec<u8>, Trouble> {
    let seen = answers.get::<Qos>(&format!("{interface} qos"))?;
    Ok(match seen {
        Some(Seen { port: Some(Ok(Port { pfc: Some(pfc), .. })), .. }) => pfc.clone(),
        _ => Vec::new(),
    })
}

/// One setting: what is wanted, and what there is or why that can't be known or set.
struct Row {
    field: &'static str,
    wanted: Json,
    found: Result<Json, Trouble>,
}

/// Where files of this type stand among those that are run at boot: behind those of `nic`, which set a port up anew.
const ORDER: u8 = 70;

impl RoceQos {
    fn question(&self) -> String {
        format!("{} {}", self.interface, self.wanted.parts())
    }

    /// All that is wanted, with what there is.
    fn rows(&self, seen: &Seen) -> Vec<Row> {
        let (wanted, interface) = (&self.wanted, &self.interface);
        let mut rows = Vec::new();
        let mut row = |field, wanted, found| rows.push(Row { field, wanted, found });
        let no_tool = || {
            Trouble::new("neither mlnx_qos nor dcb is on this host")
                .hint("install mlnx-tools (of DOCA or OFED), or iproute2 5.11 or newer")
        };
        let port = |of: &dyn Fn(&Port) -> Option<Json>, what: &str| match &seen.port {
            None => Err(no_tool()),
            Some(Err(why)) if why.hint.is_some() => Err(why.clone()),
            Some(Err(why)) => {
                Err(why.clone().hint(format!("does the driver of {interface} have DCB? `ethtool -i {interface}`")))
            }
            Some(Ok(port)) => of(port).ok_or_else(|| {
                Trouble::new(format!("{what} of {interface} can't be set: its driver or the tool doesn't have it"))
            }),
        };
        let asked = wanted.of_port() || wanted.buffers.is_some();
        if let (true, Some(Ok(Port { by_firmware: true, .. }))) = (asked, &seen.port) {
            // A switch could have its way over DCBX otherwise.
            row("dcbx", "os".into(), Ok("firmware".into()));
        }
        if let Some(trust) = wanted.trust {
            row("trust", trust.into(), port(&|p| p.trust.clone().map(Json::from), "the trust"));
        }
        if let Some(pfc) = &wanted.pfc {
            row("pfc", json!(pfc), port(&|p| p.pfc.as_ref().map(|l| json!(l)), "PFC"));
        }
        if let Some(cable) = wanted.cable {
            row("cable_length", cable.into(), port(&|p| p.cable.map(Json::from), "the cable's length"));
        }
        if let Some(buffers) = &wanted.buffers {
            row("buffer_size", json!(buffers), port(&|p| p.buffers.as_ref().map(|l| json!(l)), "the receive buffers"));
        }
        let no_ecn = |found: Option<Json>| {
            found.ok_or_else(|| {
                Trouble::new(format!("the driver has no settings of ECN for {interface} in /sys/class/net/{interface}/ecn"))
                    .hint("NVIDIA's driver (DOCA or OFED) has them; with the kernel's own one they are parameters of the firmware: ROCE_CC_PRIO_MASK_P1, CNP_DSCP_P1")
            })
        };
        if let Some(ecn) = &wanted.ecn {
            let on = |side: &str| -> Vec<u8> {
                seen.ecn.iter().filter(|((s, _), on)| s == side && **on).map(|((_, p), _)| *p).collect()
            };
            let (np, rp) = (on("np"), on("rp"));
            let found = if np == rp { json!(np) } else { json!({ "np": np, "rp": rp }) };
            row("ecn", json!(ecn), no_ecn((!seen.ecn.is_empty()).then_some(found)));
        }
        if let Some(dscp) = wanted.cnp_dscp {
            row("cnp_dscp", dscp.into(), no_ecn(seen.cnp_dscp.map(Json::from)));
        }
        let of_cm = |said: &Option<Result<u32, String>>| match (&seen.rdma, said) {
            (None, _) => Err(Trouble::new(format!("no RDMA device belongs to {interface}"))
                .hint("its driver has to be loaded (mlx5_ib); of a bond or VLAN, name the port below it")),
            (Some(_), None) => Ok(Json::Null),
            (Some(_), Some(Ok(value))) => Ok((*value).into()),
            (Some(device), Some(Err(said))) => Err(Trouble::new(format!("RDMA connections of {device}: {said}"))
                .hint("`kernel_module: {name: rdma_cm}` loads what is asked")),
        };
        if let Some(tos) = wanted.tos {
            row("tos", tos.into(), of_cm(&seen.tos));
            if let Some(class) = &seen.traffic_class {
                row("traffic_class", tos.into(), Ok(class.clone()));
            }
        }
        if let Some(version) = wanted.rdma_cm {
            row("rdma_cm", version.into(), of_cm(&seen.mode));
        }
        if let Some(on) = wanted.pause {
            let found = match &seen.pause {
                None => Err(Trouble::new("ethtool isn't on this host").hint("install the package ethtool")),
                Some(Ok((rx, tx))) if rx == tx => Ok((*rx).into()),
                Some(Ok((rx, tx))) => Ok(json!({ "rx": rx, "tx": tx })),
                // A device without pause frames sends none.
                Some(Err(_)) if !on => Ok(false.into()),
                Some(Err(said)) => Err(Trouble::new(format!("{interface} has no pause frames: {said}"))),
            };
            row("pause", on.into(), found);
        }
        rows
    }

    /// What differs, of what is known.
    fn differing(&self, seen: &Seen) -> Vec<(&'static str, Json, Json)> {
        let rows = self.rows(seen).into_iter();
        rows.filter_map(|row| Some((row.field, row.found.ok()?, row.wanted)).filter(|(_, f, w)| f != w)).collect()
    }
}

impl Resource for RoceQos {
    type State = State;
    const TYPE: &'static str = "roce_qos";
    const SUMMARY: &'static str =
        "What a RoCE fabric asks of a port: trust, PFC, ECN, types of service, pause, buffers";
    const TOUCHES: &'static str = "\
        The port's settings, by `mlnx_qos` or, where that isn't there, by `dcb`; ECN below `/sys/class/net/INTERFACE/ecn`; the \
        type of service and the version of RDMA connections by `cma_roce_tos` and `cma_roce_mode` or in configfs, that of \
        verbs in `/sys/class/infiniband/DEVICE/tc/1/traffic_class` where the driver has it (programs for which it hasn't \
        take their own, such as `NCCL_IB_TC`); pause frames by `ethtool`. A file in `/etc/netplay/reapply.d`, which \
        `netplay-reapply.service` runs, sets all of it again after a boot or the reload of a driver. Where the firmware \
        controls DCBX, a switch could have its way: it is given to the host. The switch has to be set likewise.";
    const KEYS: &'static [Key] = &[
        Key::required("interface", "string", "The port: an interface of a network card, not a bond or VLAN on it."),
        Key::optional(
            "trust",
            "dscp | pcp",
            "What tells a packet's priority: its DSCP, or the VLAN's priority (PCP). DSCP means a priority of DSCP / 8, \
             unless somebody has mapped it otherwise.",
        ),
        Key::optional(
            "pfc",
            "list of integers",
            "The priorities with flow control (PFC), and no others: `[3]`; `[]` for none.",
        ),
        Key::optional(
            "ecn",
            "list of integers",
            "The priorities for which congestion is notified and reacted to (ECN), and no others.",
        ),
        Key::optional("cnp_dscp", "integer", "The DSCP of the packets that notify of congestion, 0 to 63: 48."),
        Key::optional(
            "tos",
            "integer",
            "The type of service of RDMA connections, 0 to 255: the DSCP times 4, and 2 for ECN. 106 is DSCP 26.",
        ),
        Key::optional("rdma_cm", "1 | 2", "The RoCE version of RDMA connections."),
        Key::optional(
            "pause",
            "boolean",
            "Whether the port sends and heeds pause frames, which stop all priorities. PFC and pause exclude each other.",
        ),
        Key::optional(
            "cable_length",
            "integer",
            "Metres of cable, for the thresholds of the buffers. It goes with `pfc`.",
        ),
        Key::optional(
            "buffer_size",
            "list of 8 integers",
            "Bytes of each receive buffer, as the device reads them back.",
        ),
        Reapply::PERSIST,
        Key::refused("state", "a port always has such settings; give those that are wanted"),
    ];
    const EXAMPLE: &'static str = "\
- name: lossless RoCE on the fabric
  roce_qos:
    interface: ens1f0np0
    trust: dscp
    pfc: [3]
    ecn: [3]
    cnp_dscp: 48
    tos: 106
    rdma_cm: 2
    pause: false
";

    fn parse(spec: &Spec<'_>) -> Result<RoceQos, Error> {
        let interface = interface(spec, "interface")?;
        let wanted = Wanted::parse(spec)?;
        let ask = if wanted.of_port() || wanted.buffers.is_some() { "ask" } else { "" };
        let script = wanted.script(&interface, ask, |_| true);
        let kept = Reapply::of(spec, ORDER, Self::TYPE, &interface, &script)?;
        Ok(RoceQos { interface, wanted, kept, image: spec.image })
    }

    fn identity(&self) -> String {
        self.interface.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        let pause = self.wanted.pause.map(|_| Claim::new("pause frames of", &*self.interface));
        [Claim::new("qos", &*self.interface), self.kept.claim()].into_iter().chain(pause).collect()
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        let lossless = self.wanted.lossless().then(|| Need::Without(Claim::new(nic::PAUSES, &*self.interface)));
        // A new MTU or new rings make the driver lay its buffers out anew.
        let modules = ["mlx5_core", "mlx5_ib", "rdma_cm"].map(|m| Need::After(Claim::new(kernel_module::KIND, m)));
        let port = ["mtu", "nic"].map(|kind| Need::After(Claim::new(kind, &*self.interface)));
        modules.into_iter().chain(port).chain(lossless).collect()
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = self.kept.questions();
        if !self.image {
            questions.extend([Question::of::<Qos>(self.question()), LinkList::ask()]);
            questions.extend(self.wanted.of_pause().then(|| nic::ask_pauses(&self.interface)));
            questions.extend(self.wanted.pause.map(|_| SessionEnds::ask()));
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let boot = self.kept.read(answers)?;
        if self.image {
            return Ok(Reading::State(State { live: None, boot, risk: Risk::None, infiniband: false }));
        }
        let links = answers.get::<LinkList>("")?;
        let Some(seen) = answers.get::<Qos>(&self.question())? else {
            return Ok(Reading::NotYet(links.missing(&self.interface)));
        };
        let mut seen = seen.clone();
        if self.wanted.of_pause() {
            seen.pause = nic::pauses(answers, &self.interface)?;
        }
        let risk = match (self.wanted.pause, links.get(&self.interface)) {
            (Some(_), Some(link)) => answers.get::<SessionEnds>("")?.risk(links, link),
            _ => Risk::None,
        };
        let infiniband = links.get(&self.interface).is_some_and(|link| link.kind == "infiniband");
        Ok(Reading::State(State { live: Some(seen), boot, risk, infiniband }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let differing = now.live.iter().flat_map(|seen| self.differing(seen));
        let live = differing.map(|(field, found, wanted)| Change::now(field, found, wanted));
        live.chain(now.boot.change()).collect()
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let differing: Vec<&str> = now.live.iter().flat_map(|seen| self.differing(seen)).map(|(f, ..)| f).collect();
        let mut steps = Vec::new();
        if !differing.is_empty() {
            let dcbx = if differing.contains(&"dcbx") { "os" } else { "" };
            steps.push(Step::Run(self.wanted.script(&self.interface, dcbx, |field| differing.contains(&field))));
        }
        let possible = |seen: &Seen| self.rows(seen).iter().all(|row| row.found.is_ok());
        steps.extend(now.boot.steps(now.live.as_ref().is_none_or(possible)));
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        now.boot.files()
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let Some(seen) = &now.live else { return now.boot.obstacle() };
        if now.infiniband {
            let message =
                format!("{} is an InfiniBand port, which loses nothing and has no such settings", self.interface);
            let hint = "leave it out (`when: port.kind != 'infiniband'`), or set LINK_TYPE to ETH by `mlxconfig`";
            return Some(Obstacle::stops(Trouble::new(message).hint(hint)));
        }
        if let (true, None, Some(Ok((rx, tx)))) = (self.wanted.lossless(), self.wanted.pause, &seen.pause)
            && (*rx || *tx)
        {
            let message = format!("pause frames are on for {}, and exclude PFC on one port", self.interface);
            return Some(Obstacle::stops(Trouble::new(message).hint("`pause: false` switches them off")));
        }
        if let (Some(true), Some(Ok(Port { pfc: Some(pfc), .. }))) = (self.wanted.pause, &seen.port)
            && !pfc.is_empty()
            && self.wanted.pfc.is_none()
        {
            let message = format!("PFC is on for {}, and excludes pause frames on one port", self.interface);
            return Some(Obstacle::stops(Trouble::new(message).hint("`pfc: []` switches it off")));
        }
        // What can be set is set.
        let unset = self.rows(seen).into_iter().find_map(|row| row.found.err());
        unset.map(Obstacle::lasts).or_else(|| now.boot.obstacle())
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = now.boot.warnings();
        if let Some(Seen { port: Some(Ok(Port { lldpad: true, .. })), .. }) = &now.live {
            warnings.push("lldpad runs on this host and may overwrite these settings: stop and disable it".to_owned());
        }
        if let Some(Seen { rdma: Some(device), roce_off: true, .. }) = &now.live {
            warnings.push(format!(
                "RoCE is off on {device}, so that this has no effect before it is on: `netplay facts` tells what it lacks \
                 (`rdma[].roce.lacks`)"
            ));
        }
        warnings
    }

    fn risk(&self, now: &State) -> Risk {
        let pause = now.live.iter().flat_map(|seen| self.differing(seen)).any(|(field, ..)| field == "pause");
        if pause { now.risk.clone() } else { Risk::None }
    }
}
