//! Whether RoCE is really on, and what it hangs on where it isn't. It is on where a port has a GID of RoCE v2: all else only
//! allows it.

use crate::resource::mlxconfig;
use serde_json::Value;
use std::collections::HashMap;

/// The first thing that a port lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacks {
    /// The port is InfiniBand: firmware's LINK_TYPE.
    LinkType,
    /// Firmware's ROCE_CONTROL disables it.
    RoceControl,
    /// The driver has it off: devlink's `enable_roce`.
    EnableRoce,
    /// Nothing is known to forbid it, and there is no GID of RoCE v2.
    Gid,
}

/// What is known of a device without RoCE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Why {
    /// ROCE_CONTROL disables it.
    firmware: Option<bool>,
    /// `enable_roce` is off.
    driver: Option<bool>,
}

impl Lacks {
    /// Its word in the facts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Lacks::LinkType => "link_type",
            Lacks::RoceControl => "roce_control",
            Lacks::EnableRoce => "enable_roce",
            Lacks::Gid => "gid",
        }
    }
}

impl Why {
    /// Reads `devlink -j dev param show`, then for each device `== firmware NAME ADDRESS` and the table of its tool.
    pub(super) fn read(text: &str) -> HashMap<String, Why> {
        let mut parts = text.split("== firmware ");
        let devlink: Value = serde_json::from_str(parts.next().unwrap_or_default()).unwrap_or_default();
        let device = |part: &str| {
            let (head, table) = part.split_once('\n')?;
            let (name, address) = head.split_once(' ')?;
            // devlink-dev(8): `{"param": {"pci/0000:86:00.0": [{"name": "enable_roce", "values": [{"value": true}]}]}}`
            let parameters = devlink["param"][format!("pci/{address}")].as_array();
            let enable = parameters.and_then(|all| all.iter().find(|p| p["name"] == "enable_roce"));
            let driver = enable.and_then(|p| p["values"][0]["value"].as_bool()).map(|on| !on);
            Some((name.to_owned(), Why { firmware: mlxconfig::disables_roce(table, address), driver }))
        };
        parts.filter_map(device).collect()
    }

    /// What it lacks: the firmware is asked before the driver, which can't have what that doesn't allow.
    pub(super) fn lacks(&self) -> Lacks {
        match (self.firmware, self.driver) {
            (Some(true), _) => Lacks::RoceControl,
            (_, Some(true)) => Lacks::EnableRoce,
            _ => Lacks::Gid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_hangs_on() {
        let of = |devlink: &str, current: &str| {
            let table = "Configurations:   Default   Current   Next Boot\n        ROCE_CONTROL   ROCE_ENABLE(2)   CURRENT   ROCE_ENABLE(2)\n";
            let text = format!("{devlink}\n== firmware mlx5_0 0000:86:00.0\n{}", table.replace("CURRENT", current));
            Why::read(&text)["mlx5_0"].lacks()
        };
        let devlink = |value| {
            format!(
                r#"{{"param":{{"pci/0000:86:00.0":[{{"name":"enable_sriov","type":"generic","values":[]}},{{"name":"enable_roce","type":"generic","values":[{{"cmode":"driverinit","value":{value}}}]}}]}}}}"#
            )
        };
        assert_eq!(of(&devlink(true), "ROCE_DISABLE(1)"), Lacks::RoceControl);
        assert_eq!(of(&devlink(false), "DEVICE_DEFAULT(0)"), Lacks::EnableRoce);
        assert_eq!(of(&devlink(true), "ROCE_ENABLE(2)"), Lacks::Gid);
        assert_eq!(of("", "ROCE_ENABLE(2)"), Lacks::Gid);
        // No tool, no devlink.
        assert_eq!(Why::read("\n== firmware mlx5_0 0000:86:00.0\n")["mlx5_0"], Why::default());
        assert!(Why::read("").is_empty());
    }
}
