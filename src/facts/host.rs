//! The machine and its operating system: mostly files of /proc and /sys, read in one process.

use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub(super) struct Host;

// `systemd-detect-virt` prints `none` for a machine without a hypervisor.
const ASK: &str = r#"echo "fqdn $(lim 3 hostname -f 2>/dev/null)"
if command -v systemd-detect-virt >/dev/null; then echo "virtual $(systemd-detect-virt)"
else echo "hypervisor $(grep -sm1 -o ' hypervisor' /proc/cpuinfo)"; fi
if [ -d /run/systemd/system ]; then echo 'manager systemd'; elif [ -d /run/openrc ]; then echo 'manager openrc'
elif [ -e /etc/inittab ] && [ -d /etc/init.d ]; then echo 'manager sysvinit'; fi
grep -as '^MemTotal:' /proc/meminfo
echo
grep -asH '' -- /proc/sys/kernel/hostname /proc/sys/kernel/osrelease /proc/sys/kernel/random/boot_id /etc/os-release \
  /usr/lib/os-release /sys/devices/system/cpu/present /sys/devices/system/cpu/online /sys/devices/system/cpu/isolated \
  /sys/devices/system/node/node[0-9]*/cpulist /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/hypervisor/type
exit 0"#;

impl Group for Host {
    /// `host`, `os`, `kernel`, `cpus`, `memory_mib`, `service_manager`.
    type Answer = Value;
    const NAME: &'static str = "facts of the host";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Value, Trouble>> {
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(output: &Output) -> Result<Value, Trouble> {
    let text = output.text();
    let Some((words, files)) = text.split_once("\n\n").filter(|_| output.code == 0) else {
        return Err(Trouble::new(format!("the host didn't say what it is: {}", output.complaint())));
    };
    let words: HashMap<&str, &str> = words.lines().filter_map(|l| l.split_once(' ')).collect();
    let word = |name: &str| words.get(name).copied().filter(|w| !w.is_empty());
    let mut by_path = HashMap::<&str, Vec<&str>>::new();
    for (path, line) in files.lines().filter_map(|l| l.split_once(':')) {
        by_path.entry(path).or_default().push(line);
    }
    let file = |path: &str| by_path.get(path).and_then(|l| l.first()).map(|l| l.trim()).filter(|l| !l.is_empty());

    let hostname = file("/proc/sys/kernel/hostname");
    let virtual_ = match (word("virtual"), words.contains_key("virtual")) {
        (found, true) => found.filter(|v| *v != "none"),
        (_, false) => hypervisor(&file, word("hypervisor").is_some()),
    };
    let release = by_path.get("/etc/os-release").or_else(|| by_path.get("/usr/lib/os-release"));
    let release: HashMap<&str, &str> =
        release.into_iter().flatten().filter_map(|l| l.split_once('=')).map(|(k, v)| (k, unquoted(v))).collect();
    let mut nodes: Vec<(u32, &str)> = by_path
        .iter()
        .filter_map(|(path, lines)| {
            let number = path.strip_prefix("/sys/devices/system/node/node")?.strip_suffix("/cpulist")?;
            Some((number.parse().ok()?, lines.first()?.trim()))
        })
        .collect();
    nodes.sort_unstable();
    let memory = word("MemTotal:").and_then(|m| m.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());

    Ok(json!({
        "host": {
            "name": hostname,
            "fqdn": word("fqdn").or(hostname).filter(|name| name.contains('.')),
            "boot_id": file("/proc/sys/kernel/random/boot_id"),
            "virtual": virtual_,
        },
        "os": { "family": family(&release), "id": release.get("ID"), "version": release.get("VERSION_ID") },
        "kernel": file("/proc/sys/kernel/osrelease"),
        "cpus": {
            "count": file("/sys/devices/system/cpu/present").and_then(count),
            "online": file("/sys/devices/system/cpu/online"),
            "isolated": file("/sys/devices/system/cpu/isolated"),
            "numa": nodes.iter().map(|(node, cpus)| json!({ "node": node, "cpus": cpus })).collect::<Value>(),
        },
        "memory_mib": memory.map(|kib| kib / 1024),
        "service_manager": word("manager"),
    }))
}

/// What runs this machine, where systemd isn't there to say it, by the names that it would use.
fn hypervisor<'a>(file: &impl Fn(&str) -> Option<&'a str>, flag: bool) -> Option<&'a str> {
    let maker = file("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let product = file("/sys/class/dmi/id/product_name").unwrap_or_default();
    let known = [("QEMU", "qemu"), ("KVM", "kvm"), ("VMware", "vmware"), ("innotek", "oracle"), ("Xen", "xen")];
    file("/sys/hypervisor/type")
        .or_else(|| {
            known.iter().find(|(text, _)| maker.contains(text) || product.contains(text)).map(|(_, name)| *name)
        })
        .or_else(|| (maker == "Microsoft Corporation" && product == "Virtual Machine").then_some("microsoft"))
        .or_else(|| flag.then_some("vm-other"))
}

/// The family of a distribution, by os-release(5): its own id, or what it says that it is like.
fn family<'a>(release: &HashMap<&'a str, &'a str>) -> Option<&'a str> {
    let id = release.get("ID").copied();
    let like = release.get("ID_LIKE").copied().unwrap_or_default();
    for word in id.into_iter().chain(like.split_whitespace()) {
        match word {
            "debian" | "ubuntu" => return Some("debian"),
            "rhel" | "fedora" | "centos" | "amzn" => return Some("redhat"),
            "suse" | "sles" | "opensuse" => return Some("suse"),
            _ => {}
        }
    }
    id
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let inner = |quote: char| value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

/// How many CPUs a list of the kernel's has: `0-3,8`.
fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(sum + last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families() {
        let of = |text: &'static str| family(&text.lines().filter_map(|l| l.split_once('=')).collect());
        assert_eq!(of("ID=debian"), Some("debian"));
        assert_eq!(of("ID=pop\nID_LIKE=ubuntu debian"), Some("debian"));
        assert_eq!(of("ID=rocky\nID_LIKE=rhel centos fedora"), Some("redhat"));
        assert_eq!(of("ID=opensuse-leap\nID_LIKE=suse opensuse"), Some("suse"));
        assert_eq!(of("ID=alpine"), Some("alpine"));
        assert_eq!(of(""), None);
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(["0", "0-127", "0-3,8", "", "4-2", "x"].map(count), [Some(1), Some(128), Some(5), None, None, None]);
    }

    #[test]
    fn hypervisors() {
        let of = |maker: &'static str, product: &'static str, flag| {
            let file = |path: &str| match path.rsplit('/').next() {
                Some("sys_vendor") => Some(maker),
                Some("product_name") => Some(product),
                _ => None,
            };
            hypervisor(&file, flag)
        };
        assert_eq!(of("QEMU", "Standard PC (Q35 + ICH9, 2009)", true), Some("qemu"));
        assert_eq!(of("Microsoft Corporation", "Virtual Machine", true), Some("microsoft"));
        assert_eq!(of("Dell Inc.", "PowerEdge R760", false), None);
        assert_eq!(of("Someone", "Something", true), Some("vm-other"));
    }
}
