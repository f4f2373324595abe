//! Names of kernel parameters: how they are written, and which file below `/proc/sys` each of them is.

use crate::resource::Trouble;
use std::fmt::{self, Write as _};

/// A kernel parameter, as its path below `/proc/sys`: `net/ipv4/conf/eth0.100/rp_filter`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Parameter(String);

/// What can only be written: each write does something, and there is no value to read back.
const TRIGGERS: [&str; 6] = [
    "fs/binfmt_misc/register",
    "net/ipv4/route/flush",
    "net/ipv6/route/flush",
    "vm/compact_memory",
    "vm/drop_caches",
    "vm/stat_refresh",
];

/// Folders that have one folder for each interface, and in it all parameters.
const OF_INTERFACES: [&str; 5] =
    ["net/ipv4/conf", "net/ipv4/neigh", "net/ipv6/conf", "net/ipv6/neigh", "net/mpls/conf"];

/// What begins like this comes with a kernel module. The names are those of the kernel's Documentation/admin-guide/sysctl
/// and Documentation/networking.
const MODULES: [(&str, &str); 14] = [
    ("dev/cdrom/", "cdrom"),
    ("dev/raid/", "md_mod"),
    ("fs/fuse/", "fuse"),
    ("fs/nfs/", "nfs or lockd"),
    ("net/bridge/", "br_netfilter"),
    ("net/ipv4/vs/", "ip_vs"),
    ("net/iw_cm/", "iw_cm"),
    ("net/mpls/", "mpls_router"),
    ("net/netfilter/nf_conntrack", "nf_conntrack"),
    ("net/rdma_ucm/", "rdma_ucm"),
    ("net/rds/", "rds"),
    ("net/sctp/", "sctp"),
    ("net/smc/", "smc"),
    ("sunrpc/", "sunrpc"),
];

impl Parameter {
    /// Reads a name with dots (`net.ipv4.conf.eth0/100.rp_filter`) or with slashes
    /// (`net/ipv4/conf/eth0.100/rp_filter`): what comes first of the two divides, and the other one stands for it.
    pub(super) fn parse(text: &str) -> Result<Parameter, Trouble> {
        let wrong = |why: &str| Trouble::new(format!("`{text}` is no kernel parameter: {why}"));
        if let Some(rest) = text.strip_prefix("/proc/sys/") {
            return Err(wrong("it is a file").hint(format!("write `{}`", rest.replace('/', "."))));
        }
        if text.contains(['*', '?', '[', ']']) {
            return Err(wrong("it is a pattern").hint("name each parameter, since each is read back"));
        }
        if let Some(rest) = text.strip_prefix('-') {
            return Err(wrong("it begins with a dash").hint(format!("write `{rest}` and `ignore_missing: true`")));
        }
        if let Some(c) = text.chars().find(|c| !c.is_ascii_graphic() || "=\\#;'\"`".contains(*c)) {
            return Err(wrong(&format!("it can't have {c:?} in it")));
        }
        let path = swap(text);
        let parts: Vec<&str> = path.split('/').collect();
        if parts.len() < 2 || parts[0].contains('.') || parts.iter().any(|p| matches!(*p, "" | "." | "..")) {
            return Err(wrong("a name is parts with dots between them").hint("write it like `net.core.rmem_max`"));
        }
        if TRIGGERS.contains(&path.as_str()) {
            return Err(Trouble::new(format!("`{text}` does something when it is written and has no value to keep"))
                .hint(format!("use `command: {{cmd: \"echo 1 >/proc/sys/{path}\", changed_when: false}}`")));
        }
        if parts.len() > 5 && OF_INTERFACES.contains(&parts[..3].join("/").as_str()) {
            let (interface, last) = (parts[3..parts.len() - 1].join("/"), parts[parts.len() - 1]);
            return Err(wrong("an interface's dot is written as a slash there")
                .hint(format!("write `{}.{interface}.{last}`", parts[..3].join("."))));
        }
        Ok(Parameter(path))
    }

    /// Its path below `/proc/sys`.
    pub(super) fn path(&self) -> &str {
        &self.0
    }

    /// The file that holds its value.
    pub(super) fn file(&self) -> String {
        format!("/proc/sys/{}", self.0)
    }

    /// The kernel modules that may bring it.
    pub(super) fn modules(&self) -> impl Iterator<Item = &'static str> + use<> {
        let found = MODULES.iter().find(|(prefix, _)| self.0.starts_with(prefix));
        found.into_iter().flat_map(|(_, names)| names.split(" or "))
    }

    /// Why it may be missing on a host.
    pub(super) fn missing(&self) -> String {
        let parts: Vec<&str> = self.0.split('/').collect();
        if parts.len() == 5 && OF_INTERFACES.contains(&parts[..3].join("/").as_str()) {
            let family = if parts[1] == "ipv6" { ", or it has no IPv6" } else { "" };
            return format!("the host has no interface {}{family}; `ignore_missing: true` lets it pass", parts[3]);
        }
        match MODULES.iter().find(|(prefix, _)| self.0.starts_with(prefix)) {
            Some((_, module)) => {
                format!(
                    "it comes with the kernel module {module}: load that by `kernel_module`, or let it pass by `ignore_missing: true`"
                )
            }
            None => "check its spelling; a module may bring it, and containers lack some; `ignore_missing: true` lets \
                     that pass"
                .to_owned(),
        }
    }
}

/// With dots, as systemd-sysctl and procps both read it.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| f.write_char(turned(c)))
    }
}

/// The path of a name in a boot file, by systemd's rule (sysctl-util.c, `sysctl_normalize`): if its first divider is a
/// dot, dots and slashes change places.
pub(super) fn normalize(name: &str) -> String {
    swap(name).split('/').filter(|p| !p.is_empty() && *p != ".").collect::<Vec<_>>().join("/")
}

fn swap(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'.' => turn(name),
        _ => name.to_owned(),
    }
}

fn turn(name: &str) -> String {
    name.chars().map(turned).collect()
}

fn turned(c: char) -> char {
    match c {
        '.' => '/',
        '/' => '.',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings_of_one_parameter() {
        for text in ["net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"] {
            let parameter = Parameter::parse(text).unwrap();
            assert_eq!(parameter.path(), "net/ipv4/conf/eth0.100/rp_filter");
            assert_eq!(parameter.to_string(), "net.ipv4.conf.eth0/100.rp_filter");
        }
        assert_eq!(normalize("net..core/rmem_max"), "net/core.rmem_max");
        assert_eq!(normalize("/net/core//rmem_max/"), "net/core/rmem_max");
    }

    #[test]
    fn what_is_refused_has_a_remedy() {
        for (text, hint) in [
            ("/proc/sys/net/core/rmem_max", "net.core.rmem_max"),
            ("net.ipv4.conf.*.rp_filter", "each"),
            ("-net.core.rmem_max", "ignore_missing"),
            ("vm.drop_caches", "echo 1 >/proc/sys/vm/drop_caches"),
            ("net/ipv4/route/flush", "command"),
            ("net.ipv4.conf.eth0.100.rp_filter", "net.ipv4.conf.eth0/100.rp_filter"),
            ("rmem_max", "net.core.rmem_max"),
            ("net..rmem_max", "net.core.rmem_max"),
            ("net.core/../x", "net.core.rmem_max"),
            ("net.core.", "net.core.rmem_max"),
        ] {
            let trouble = Parameter::parse(text).unwrap_err();
            assert!(trouble.hint.as_ref().is_some_and(|h| h.contains(hint)), "{text}: {trouble:?}");
        }
        for text in ["", "net core", "net.core=1", "net.core.\n", "net.core.é", "net.\\x", "#net.core.x"] {
            assert!(Parameter::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(text in "[a-z0-9_./:@+%~-]{1,24}") {
            if let Ok(parameter) = Parameter::parse(&text) {
                prop_assert_eq!(normalize(&parameter.to_string()), parameter.path());
                prop_assert_eq!(Parameter::parse(&parameter.to_string()).unwrap(), parameter.clone());
                prop_assert!(!parameter.file().contains("/../") && parameter.file().starts_with("/proc/sys/"));
            }
        }
    }
}
