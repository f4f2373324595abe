//! The root file system, and whether what is written to it lasts.

use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;

/// Whether what is written to the root is still there after a reboot. The group has one argument, the empty one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// Nothing where that can't be told.
    pub(super) persistent: Option<bool>,
    /// Why not, if it isn't.
    pub(super) fleeting: Option<&'static str>,
    /// The same of what is mounted for `/var/lib/netplay`, if that is another file system.
    pub(super) forgetful: Option<&'static str>,
}

// The upper layer of an overlay is often in a place that can't be seen from here. Then the same of what is mounted for
// netplay's own folder, if anything is.
const ASK: &str = r#"about() {
  m=$(grep -sE "^([^ ]+ ){4}$1 " /proc/self/mountinfo | tail -n 1)
  printf '%s\n' "$m"; u=
  case $m in *' - overlay '*upperdir=*) u=${m##*upperdir=}; u=${u%%,*}; [ -d "$u" ] && u=$(stat -f -c %T -- "$u") || u= ;; esac
  printf '%s\n' "$u"
}
about /; about '(/var|/var/lib|/var/lib/netplay)'
exit 0"#;

impl Group for Root {
    type Answer = Root;
    const NAME: &'static str = "the root file system";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Root, Trouble>> {
        let text = outputs.first().map(Output::text).unwrap_or_default();
        let mut lines = text.lines();
        let mut next = || judge(lines.next().unwrap_or_default(), lines.next().filter(|l| !l.is_empty()));
        let (root, state) = (next(), next());
        vec![Ok(Root { forgetful: state.fleeting, ..root }); args.len()]
    }
}

/// From the last line of /proc/self/mountinfo that is mounted there (proc(5)), and the file system of an overlay's upper
/// layer.
fn judge(line: &str, upper: Option<&str>) -> Root {
    let Some((mount, rest)) = line.split_once(" - ") else { return Root::default() };
    let mut rest = rest.split_whitespace();
    let (kind, source, options) = (rest.next(), rest.next().unwrap_or_default(), rest.next().unwrap_or_default());
    let has = |options: &str, name: &str| options.split(',').any(|o| o == name || o.starts_with(&format!("{name}=")));
    let read_only = has(mount.split_whitespace().nth(5).unwrap_or_default(), "ro") || has(options, "ro");
    let lost = |why| Root { persistent: Some(false), fleeting: Some(why), forgetful: None };
    let lasts = Root { persistent: Some(true), ..Root::default() };
    match kind {
        Some("tmpfs" | "ramfs" | "rootfs") => lost("it is in memory"),
        Some("squashfs" | "erofs" | "iso9660" | "cramfs") => lost("it is a read-only image"),
        Some("nfs" | "nfs4") if read_only => lost("it is NFS, read-only"),
        Some("overlay") => match upper {
            Some("tmpfs" | "ramfs") => lost("it is an overlay that keeps changes in memory"),
            Some(_) => lasts,
            None if !has(options, "upperdir") => lost("it is a read-only overlay"),
            None => Root::default(),
        },
        _ if source.starts_with("/dev/ram") || source.starts_with("/dev/zram") => lost("it is in memory"),
        Some(_) => lasts,
        None => Root::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts() {
        let of = |line: &str, upper: Option<&str>| judge(line, upper).persistent;
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
}
