//! What is asked of a port, and the script that sets it.

use crate::error::Error;
use crate::resource::spec::{Spec, int};
use crate::shell::Script;
use crate::yaml::Node;
use std::ops::RangeInclusive;

/// What isn't given stays as it is.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) trust: Option<&'static str>,
    pub(super) pfc: Option<Vec<u8>>,
    pub(super) ecn: Option<Vec<u8>>,
    pub(super) cnp_dscp: Option<u32>,
    pub(super) tos: Option<u32>,
    pub(super) rdma_cm: Option<u32>,
    pub(super) pause: Option<bool>,
    pub(super) cable: Option<u32>,
    pub(super) buffers: Option<Vec<u64>>,
}

impl Wanted {
    /// Reads the keys.
    ///
    /// # Errors
    /// A value that can't be, nothing to set, or what excludes each other.
    pub(super) fn parse(spec: &Spec<'_>) -> Result<Wanted, Error> {
        // Whoever has got one number wrong is told of all others at once.
        let mut wrong = Vec::new();
        let small = |key: &str, range: RangeInclusive<i64>, wrong: &mut Vec<Error>| {
            let number = kept(spec.int(key, range), wrong);
            number.and_then(|n| u32::try_from(n).ok())
        };
        let wanted = Wanted {
            trust: kept(spec.choice("trust", &["dscp", "pcp"]), &mut wrong),
            pfc: kept(priorities(spec, "pfc"), &mut wrong),
            ecn: kept(priorities(spec, "ecn"), &mut wrong),
            cnp_dscp: small("cnp_dscp", 0..=63, &mut wrong),
            tos: small("tos", 0..=255, &mut wrong),
            rdma_cm: small("rdma_cm", 1..=2, &mut wrong),
            pause: kept(spec.bool("pause"), &mut wrong),
            cable: small("cable_length", 1..=65_535, &mut wrong),
            buffers: kept(buffers(spec), &mut wrong),
        };
        if let Some(error) = Error::all(wrong) {
            return Err(error);
        }
        if let (true, Some(true), Some(node)) = (wanted.lossless(), wanted.pause, spec.get("pause")) {
            return Err(Error::playbook(&node.span, "PFC and pause frames exclude each other on one port")
                .hint("`pause: false` with PFC; or `pfc: []` with pause frames"));
        }
        if let (None, Some(node)) = (&wanted.pfc, spec.get("cable_length")) {
            return Err(Error::playbook(&node.span, "`cable_length` goes with `pfc`")
                .hint("the tool sets both at once, and would switch PFC off"));
        }
        if !wanted.of_port()
            && wanted.buffers.is_none()
            && [wanted.cnp_dscp, wanted.tos, wanted.rdma_cm] == [None; 3]
            && wanted.ecn.is_none()
            && wanted.pause.is_none()
        {
            return Err(Error::playbook(&spec.node.span, "`roce_qos` is given nothing to set")
                .hint("give `trust`, `pfc`, `ecn`, `cnp_dscp`, `tos`, `rdma_cm`, `pause` or `buffer_size`"));
        }
        Ok(wanted)
    }

    /// Whether the tool for priorities has something to do.
    pub(super) fn of_port(&self) -> bool {
        self.trust.is_some() || self.pfc.is_some() || self.cable.is_some()
    }

    pub(super) fn parts(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.of_port().then_some("qos"));
        parts.extend(self.buffers.is_some().then_some("buffer"));
        parts.extend((self.tos.is_some() || self.rdma_cm.is_some()).then_some("cm"));
        parts.join(" ")
    }

    /// Whether something depends on what pause frames are.
    pub(super) fn of_pause(&self) -> bool {
        self.pause.is_some() || self.lossless()
    }

    pub(super) fn lossless(&self) -> bool {
        self.pfc.as_ref().is_some_and(|pfc| !pfc.is_empty())
    }

    /// The script that sets the fields for which `which` holds.
    pub(super) fn script(&self, interface: &str, dcbx: &str, which: impl Fn(&str) -> bool) -> Script {
        let bits = |list: &Vec<u8>| {
            let bits: Vec<&str> = (0u8..8).map(|p| if list.contains(&p) { "1" } else { "0" }).collect();
            bits.join(",")
        };
        let number = |field: &str, value: Option<u32>| value.filter(|_| which(field)).map(|n| n.to_string());
        // mlnx_qos sets both at once, and takes a list that isn't given for an empty one.
        let pfc = which("pfc") || (which("cable_length") && self.cable.is_some());
        let sizes = |list: &Vec<u64>| list.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let word = |value: Option<String>| value.unwrap_or_default();
        Script::new()
            .set("i", interface)
            .set("dcbx", dcbx)
            .set("trust", self.trust.filter(|_| which("trust")).unwrap_or_default())
            .set("pfc", &word(self.pfc.as_ref().filter(|_| pfc).map(bits)))
            .set("cable", &word(number("cable_length", self.cable)))
            .set("buffers", &word(self.buffers.as_ref().filter(|_| which("buffer_size")).map(sizes)))
            .set("ecn", &word(self.ecn.as_ref().filter(|_| which("ecn")).map(bits)))
            .set("cnp", &word(number("cnp_dscp", self.cnp_dscp)))
            .set("tos", &word(number("tos", self.tos).or_else(|| number("traffic_class", self.tos))))
            .set("cm", &word(number("rdma_cm", self.rdma_cm)))
            .set("pause", self.pause.filter(|_| which("pause")).map_or("", |on| if on { "on" } else { "off" }))
            .line(include_str!("apply.sh"))
    }
}

/// What a key gives, with its error among the others.
fn kept<T>(found: Result<Option<T>, Error>, wrong: &mut Vec<Error>) -> Option<T> {
    found.map_err(|error| wrong.push(error)).ok().flatten()
}

/// A list of priorities, sorted.
fn priorities(spec: &Spec<'_>, key: &str) -> Result<Option<Vec<u8>>, Error> {
    let Some(node) = spec.get(key) else { return Ok(None) };
    let one = |n: &Node| int(key, n, 0..=7).map(|p| u8::try_from(p).unwrap_or_default());
    let mut list =
        node.as_seq().unwrap_or(std::slice::from_ref(node)).iter().map(one).collect::<Result<Vec<_>, _>>()?;
    list.sort_unstable();
    list.dedup();
    Ok(Some(list))
}

/// The sizes of the eight receive buffers.
fn buffers(spec: &Spec<'_>) -> Result<Option<Vec<u64>>, Error> {
    let Some(node) = spec.get("buffer_size") else { return Ok(None) };
    let items = node.as_seq().filter(|items| items.len() == 8).ok_or_else(|| {
        Error::playbook(&node.span, "`buffer_size` takes a list of 8 sizes, one a buffer")
            .hint("`mlnx_qos -i INTERFACE` shows those that there are")
    })?;
    let one = |n: &Node| int("buffer_size", n, 0..=i64::from(u32::MAX)).map(|b| u64::try_from(b).unwrap_or_default());
    items.iter().map(one).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;

    /// A stand-in for ethtool says what the real one said of a device without pause frames.
    #[test]
    fn pause_frames_that_a_device_lacks_are_off() {
        let sample = include_str!("../nic/samples/ethtool_6.1.txt");
        let refused = "76 ethtool -A eth0 rx on tx on\nnetlink error: Operation not supported\n";
        assert!(sample.contains(refused));
        let setup = "mount -t tmpfs x /usr/local/sbin; printf '#!/bin/sh\necho \"netlink error: Operation not supported\" >&2; exit 76\n' \
                     >/usr/local/sbin/ethtool; chmod 755 /usr/local/sbin/ethtool";
        for shell in Shell::ALL {
            let set = |pause| {
                let wanted = Wanted { pause: Some(pause), ..Wanted::default() };
                let output = shell.run_in_net(setup, wanted.script("lo", "", |_| true).as_str());
                (output.code, output.text().into_owned())
            };
            assert_eq!(set(false), (0, String::new()), "{shell:?}");
            let said = "ethtool -A lo rx on tx on failed: netlink error: Operation not supported\n";
            assert_eq!(set(true), (1, said.to_owned()), "{shell:?}");
        }
    }
}
