//! Units that the session may hang on, and the files that they read.

/// Whether a file says how the host is reached: what makes it take effect may cut the session off.
pub(crate) fn says_how_it_is_reached(path: &str) -> bool {
    const FOLDERS: &[&str] = &[
        "/etc/NetworkManager/",
        "/etc/firewalld/",
        "/etc/iptables/",
        "/etc/netplan/",
        "/etc/network/",
        "/etc/nftables.d/",
        "/etc/pam.d/",
        "/etc/ssh/",
        "/etc/sysconfig/network-scripts/",
        "/etc/sysconfig/network/",
        "/etc/systemd/network/",
        "/etc/ufw/",
    ];
    const FILES: &[&str] =
        &["/etc/nftables.conf", "/etc/sysconfig/ip6tables", "/etc/sysconfig/iptables", "/etc/sysconfig/nftables.conf"];
    FILES.contains(&path) || FOLDERS.iter().any(|folder| path.starts_with(folder))
}

fn stem(id: &str) -> &str {
    let name = id.rsplit_once('.').map_or(id, |(stem, _)| stem);
    name.split('@').next().unwrap_or(name)
}

/// Whether it is a unit of sshd's.
pub(super) fn lets_in(id: &str) -> bool {
    matches!(stem(id), "ssh" | "sshd")
}

/// What a restart, reload or stop of a unit may do to the session, in words that follow its name.
pub(super) fn of(id: &str) -> Option<&'static str> {
    const LINKS: &[&str] = &[
        "NetworkManager",
        "connman",
        "dhcpcd",
        "frr",
        "ifup",
        "iwd",
        "netplan",
        "network",
        "networking",
        "openibd",
        "openvpn",
        "openvswitch",
        "openvswitch-switch",
        "ovs-vswitchd",
        "systemd-networkd",
        "teamd",
        "wg-quick",
        "wicked",
        "wickedd",
        "wpa_supplicant",
    ];
    const RULES: &[&str] = &["firewalld", "ip6tables", "iptables", "netfilter-persistent", "nftables", "ufw"];
    let name = stem(id);
    if LINKS.contains(&name) {
        Some("takes interfaces down or sets them anew")
    } else if RULES.contains(&name) {
        Some("drops or replaces the rules that let the session in")
    } else if lets_in(id) {
        Some("lets nobody in if it doesn't come back")
    } else {
        None
    }
}
