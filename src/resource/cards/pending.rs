//! What was set on a card and waits for a boot, as it is noted on the host: `/var/lib/netplay/pending/CARD`, a line for each
//! parameter.
//!
//! A card whose next value is as wanted and whose current one isn't waits for a boot, once. Some firmware never shows what
//! was set as current, and without a note each run would ask for another reboot. The note says what was current and which
//! boot it was: if another one runs now and nothing has changed, that is told, and no reboot is asked for any more.

use crate::resource::Effect;

/// Where the notes are.
pub(in crate::resource) const FOLDER: &str = "/var/lib/netplay/pending";

/// What loads a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resource) enum Loads {
    Reboot,
    PowerCycle,
    /// A power cycle, and there was one.
    Cycled,
}

/// A line of a note: what was set, when, and what was current then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::resource) struct Mark {
    pub(in crate::resource) parameter: String,
    pub(in crate::resource) wanted: String,
    /// Nothing where the card doesn't tell.
    pub(in crate::resource) was: Option<String>,
    boot: String,
    pub(in crate::resource) loads: Loads,
}

/// What there is to say of a value that is set for the next boot and isn't current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resource) enum Standing {
    /// It takes effect then; whether that is noted already.
    Waits { effect: Effect, noted: bool },
    /// There was a boot since, of which nothing came; what would have loaded it.
    NotApplied(Loads),
}

impl Mark {
    /// Reads a line; nothing if it isn't whole.
    pub(super) fn read(line: &str) -> Option<Mark> {
        let [parameter, wanted, was, boot, loads] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        Some(Mark {
            parameter: parameter.to_owned(),
            wanted: wanted.to_owned(),
            was: Some(was.to_owned()).filter(|was| was != "-"),
            boot: boot.to_owned(),
            loads: match loads {
                "power_cycle" => Loads::PowerCycle,
                "cycled" => Loads::Cycled,
                _ => Loads::Reboot,
            },
        })
    }
}

/// The line of what is set now: the host adds the boot and what loads it.
pub(in crate::resource) fn new_line(parameter: &str, wanted: &str, was: Option<&str>) -> String {
    format!("{parameter} {wanted} {}", was.unwrap_or("-"))
}

/// Judges a value that is set for the next boot and isn't current, by what is noted of its card. `is` says whether what was
/// noted as wanted is what is wanted now.
pub(in crate::resource) fn standing(
    marks: &[Mark],
    boot: &str,
    parameter: &str,
    is: impl Fn(&str) -> bool,
    current: Option<&str>,
) -> Standing {
    let noted = marks.iter().find(|m| m.parameter == parameter && is(&m.wanted) && m.was.as_deref() == current);
    match noted {
        // That there was a warm boot since is no reason to think that there was a power cycle.
        Some(Mark { loads: Loads::PowerCycle, .. }) => Standing::Waits { effect: Effect::PowerCycle, noted: true },
        Some(mark) if mark.boot != boot => Standing::NotApplied(mark.loads),
        _ => Standing::Waits { effect: Effect::Reboot, noted: noted.is_some() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_is_asked_for_once() {
        let mark = Mark::read("NUM_OF_VFS 16 0 boot-a reboot").unwrap();
        let of = |marks: &[Mark], boot, current| standing(marks, boot, "NUM_OF_VFS", |w| w == "16", current);
        let waits = |noted| Standing::Waits { effect: Effect::Reboot, noted };
        assert_eq!(of(&[], "boot-a", Some("0")), waits(false));
        assert_eq!(of(std::slice::from_ref(&mark), "boot-a", Some("0")), waits(true));
        assert_eq!(of(std::slice::from_ref(&mark), "boot-b", Some("0")), Standing::NotApplied(Loads::Reboot));
        // Something did change since: the note is of another time.
        assert_eq!(of(std::slice::from_ref(&mark), "boot-b", Some("8")), waits(false));
        let cycle = Mark::read("NUM_OF_VFS 16 - boot-a power_cycle").unwrap();
        assert_eq!(cycle.was, None);
        assert_eq!(
            of(std::slice::from_ref(&cycle), "boot-a", None),
            Standing::Waits { effect: Effect::PowerCycle, noted: true }
        );
        assert_eq!(
            of(&[cycle], "boot-b", None),
            Standing::Waits { effect: Effect::PowerCycle, noted: true },
            "a warm boot is none"
        );
        let cycled = Mark::read("NUM_OF_VFS 16 - boot-a cycled").unwrap();
        assert_eq!(of(&[cycled], "boot-b", None), Standing::NotApplied(Loads::Cycled));
        assert_eq!(Mark::read("NUM_OF_VFS 16 0"), None);
    }
}
