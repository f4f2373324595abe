//! The machine and its operating system: mostly files of /proc and /sys, read in one process.

use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub(super) struct Host;

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// `host`, `os`, `kernel`, `cpus`, `memory_mib`, `service_manager`.
    pub(super) values: Value,
    /// Why what is written to the root doesn't survive a reboot, if it doesn't.
    fleeting: Option<&'static str>,
}

impl Found {
    /// Why nothing lasts here, if it is so.
    pub(super) fn fleeting(&self) -> Option<&'static str> {
        self.fleeting
    }

    /// That nothing lasts here, if it is so.
    pub(super) fn root_warning(&self) -> Option<String> {
        self.fleeting.map(|why| {
            format!("what is written to this host's root doesn't survive a reboot ({why}): make what is to last in its image")
        })
    }
}

// `systemd-detect-virt` prints `none` for a machine without a hypervisor. The upper layer of an overlay is often in a
// place that can't be seen from here.
const ASK: &str = r#"NL='
'
echo "fqdn $(lim 3 hostname -f 2>/dev/null)"
if command -v systemd-detect-virt >/dev/null; then echo "virtual $(systemd-detect-virt)"
else echo "hypervisor $(grep -sm1 -o ' hypervisor' /proc/cpuinfo)"; fi
if [ -d /run/systemd/system ]; then echo 'manager systemd'; elif [ -d /run/openrc ]; then echo 'manager openrc'
elif [ -e /etc/inittab ] && [ -d /etc/init.d ]; then echo 'manager sysvinit'; fi
m=$(grep -sE '^([^ ]+ ){4}/ ' /proc/self/mountinfo); m=${m##*"$NL"}
echo "root $m"
case $m in *' - overlay '*upperdir=*) u=${m##*upperdir=}; u=${u%%,*}; [ ! -d "$u" ] || echo "upper $(stat -f -c %T -- "$u")" ;; esac
grep -as '^MemTotal:' /proc/meminfo
echo
grep -asH '' -- /proc/sys/kernel/hostname /proc/sys/kernel/osrelease /proc/sys/kernel/random/boot_id /etc/os-release \
  /usr/lib/os-release /sys/devices/system/cpu/present /sys/devices/system/cpu/online /sys/devices/system/cpu/isolated \
  /sys/devices/system/node/node[0-9]*/cpulist /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/hypervisor/type
exit 0"#;

impl Group for Host {
    type Answer = Found;
    const NAME: &'static str = "facts of the host";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(output: &Output) -> Result<Found, Trouble> {
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
    let (root_persistent, fleeting) = root(word("root").unwrap_or_default(), word("upper"));
    let mut nodes: Vec<(u32, &str)> = by_path
        .iter()
        .filter_map(|(path, lines)| {
            let number = path.strip_prefix("/sys/devices/system/node/node")?.strip_suffix("/cpulist")?;
            Some((number.parse().ok()?, lines.first()?.trim()))
        })
        .collect();
    nodes.sort_unstable();
    let memory = word("MemTotal:").and_then(|m| m.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());

    let values = json!({
        "host": {
            "name": hostname,
            "fqdn": word("fqdn").or(hostname).filter(|name| name.contains('.')),
            "boot_id": file("/proc/sys/kernel/random/boot_id"),
            "virtual": virtual_,
            "root_persistent": root_persistent,
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
    });
    Ok(Found { values, fleeting })
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

/// Whether what is written to the root is still there after a reboot, if that can be told, and why not: from the last
/// line of /proc/self/mountinfo that is mounted there (proc(5)), and the file system of an overlay's upper layer.
fn root(line: &str, upper: Option<&str>) -> (Option<bool>, Option<&'static str>) {
    let Some((mount, rest)) = line.split_once(" - ") else { return (None, None) };
    let mut rest = rest.split_whitespace();
    let (kind, source, options) = (rest.next(), rest.next().unwrap_or_default(), rest.next().unwrap_or_default());
    let has = |options: &str, name: &str| options.split(',').any(|o| o == name || o.starts_with(&format!("{name}=")));
    let read_only = has(mount.split_whitespace().nth(5).unwrap_or_default(), "ro") || has(options, "ro");
    let lost = |why| (Some(false), Some(why));
    match kind {
        Some("tmpfs" | "ramfs" | "rootfs") => lost("it is in memory"),
        Some("squashfs" | "erofs" | "iso9660" | "cramfs") => lost("it is a read-only image"),
        Some("nfs" | "nfs4") if read_only => lost("it is NFS, read-only"),
        Some("overlay") => match upper {
            Some("tmpfs" | "ramfs") => lost("it is an overlay that keeps changes in memory"),
            Some(_) => (Some(true), None),
            None if !has(options, "upperdir") => lost("it is a read-only overlay"),
            None => (None, None),
        },
        _ if source.starts_with("/dev/ram") || source.starts_with("/dev/zram") => lost("it is in memory"),
        Some(_) => (Some(true), None),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts() {
        let of = |line: &str, upper: Option<&str>| root(line, upper).0;
        assert_eq!(of("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw", None), Some(true));
        assert_eq!(of("27 1 0:2 / / rw - tmpfs tmpfs rw,size=8g", None), Some(false));
        assert_eq!(of("27 1 0:2 / / rw - rootfs rootfs rw", None), Some(false));
        assert_eq!(of("27 1 0:50 /img / ro,relatime shared:1 - nfs4 srv:/img rw,vers=4.2", None), Some(false));
        assert_eq!(of("27 1 0:50 /img / rw,relatime shared:1 - nfs4 srv:/img rw,vers=4.2", None), Some(true));
        let overlay =
            "27 1 0:30 / / rw - overlay overlay rw,lowerdir=/run/rootfsbase,upperdir=/run/overlayfs,workdir=/w";
        assert_eq!(of(overlay, Some("tmpfs")), Some(false));
        assert_eq!(of(overlay, Some("ext2/ext3")), Some(true));
        assert_eq!(of(overlay, None), None);
        assert_eq!(of("27 1 0:30 / / ro - overlay overlay ro,lowerdir=/a:/b", None), Some(false));
        assert_eq!(of("27 1 1:0 / / rw - ext4 /dev/ram0 rw", None), Some(false));
        assert_eq!(of("", None), None);
    }

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
