//! A host as an inventory writes it: a name or address, maybe with ranges, maybe with a port.
//!
//! The rules are those of ansible-core's `parse_address`: `host:22`, `[fe80::1]:22`, `fe80::1` without a port. What it
//! wouldn't take for a host is a name as it stands, colon and all. Two forms go beyond it, where it fails or makes a
//! name of the brackets: `[fe80::1]` without a port, and `[fe80::1%eth0]:22` with the zone of a link-local address.

use super::hostlist;
use crate::error::{Error, Kind};
use crate::source::Span;
use regex::Regex;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// Labels of letters, digits, `_`, `-` and ranges, that don't begin with `-` nor end with `-` or `_`.
static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let range = r"\[[^\]]*\]";
    let label = format!(r"(?:(?:\w|{range})(?:[\w-]|{range})*)?(?:[^\W_]|{range})");
    Regex::new(&format!(r"^{label}(?:\.{label})*$")).ok()
});

/// A text without its port, and the digits of the port if it ends in one.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let Some((host, port)) = text.rsplit_once(':').filter(|(_, port)| digits(port)) else { return (text, None) };
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if let Some(inner) = bracketed.filter(|h| is_ipv6(h) || (is_hostname(h) && !h.contains(['[', ']']))) {
        return (inner, Some(port));
    }
    // A colon outside of brackets in what is left: an IPv6 address without a port.
    let mut depth = 0i32;
    let open = host.chars().any(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ':' && depth == 0
    });
    if open { (text, None) } else { (host, Some(port)) }
}

fn is_hostname(text: &str) -> bool {
    HOSTNAME.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Whether it is an IPv6 address, maybe with a zone, ranges in place of its numbers allowed.
fn is_ipv6(text: &str) -> bool {
    let mut plain = String::new();
    let mut rest = match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() && !zone.contains(['[', ']', ':']) => address,
        _ => text,
    };
    while let Some((before, after)) = rest.split_once('[') {
        let Some((_, after)) = after.split_once(']') else { return false };
        plain = plain + before + "1";
        rest = after;
    }
    (plain + rest).parse::<Ipv6Addr>().is_ok()
}

/// Splits a host into what may be expanded and its port, by the rules of Ansible.
pub(super) fn split(text: &str) -> (&str, Option<&str>) {
    let alone = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).filter(|t| is_ipv6(t));
    let (host, port) = alone.map_or_else(|| split_port(text), |host| (host, None));
    if is_hostname(host) || is_ipv6(host) {
        (host, port.filter(|p| p.bytes().any(|b| b != b'0')))
    } else {
        (text, None)
    }
}

/// Whether the whole text is one host, with or without a port, and so no list that colons separate.
pub(super) fn is_one(text: &str) -> bool {
    let (host, _) = split_port(text);
    is_hostname(host) || is_ipv6(host)
}

/// The names that a host of an inventory stands for, and the port that all of them have.
///
/// # Errors
/// Those of [`hostlist::expand`], and a port beyond 65535.
pub(super) fn expand(text: &str, place: &Span) -> Result<(Vec<String>, Option<u16>), Error> {
    let (host, port) = split(text);
    let port = match port {
        None => None,
        Some(digits) => match digits.parse::<u16>() {
            Ok(port) => Some(port),
            Err(_) => {
                let at = hostlist::within(place, text, text.len() - digits.len(), text.len());
                return Err(Error::new(Kind::Inventory, format!("a port is at most 65535, not {digits}")).at(&at));
            }
        },
    };
    let names = if hostlist::has_range(host) { hostlist::expand(host, place)? } else { vec![host.to_owned()] };
    Ok((names, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn ports_are_split_as_ansible_does() {
        for (text, host, port) in [
            ("h", "h", None),
            ("h:22", "h", Some("22")),
            ("h.example.com:2222", "h.example.com", Some("2222")),
            ("n[1:3]:22", "n[1:3]", Some("22")),
            ("n[1:3]", "n[1:3]", None),
            ("n[001-128,130]:22", "n[001-128,130]", Some("22")),
            ("10.0.0.1:22", "10.0.0.1", Some("22")),
            ("fe80::1", "fe80::1", None),
            ("[fe80::1]:22", "fe80::1", Some("22")),
            ("[fe80::[1:3]]:22", "fe80::[1:3]", Some("22")),
            ("[h]:22", "h", Some("22")),
            ("h_:22", "h_:22", None),
            ("h:", "h:", None),
            ("user@h:22", "user@h:22", None),
            ("h:0", "h", None),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[fe80::1%eth0]", "fe80::1%eth0", None),
            ("[fe80::1%eth0]:22", "fe80::1%eth0", Some("22")),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[1:3]", "[1:3]", None),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1", None),
            ("n_1_a:22", "n_1_a", Some("22")),
        ] {
            assert_eq!(split(text), (host, port), "{text}");
        }
        assert!(is_one("a") && is_one("fe80::1") && is_one("a:22") && !is_one("a:b") && !is_one("a:!b"));
        let source = Source::new("h", "a:70000");
        assert!(expand("a:70000", &Span::start(&source)).unwrap_err().to_string().contains("h:1:3"));
    }
}
