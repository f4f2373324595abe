//! `kernel_module` on hosts that have the machine's kernel and none of its modules, as containers do. That modules are really
//! loaded and unloaded is not seen here: these hosts can't.

use crate::harness::{Hosts, Kind};
use crate::outcome::apply;

#[test]
fn what_a_container_has_and_what_it_lacks() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let resources = "  - kernel_module: {name: printk}\n  - kernel_module: {name: no-such-module}\n  \
                     - kernel_module: {name: printk_, state: absent}\n";
    for round in ["changed", "ok"] {
        let outcomes = apply(&hosts, resources, "");
        let of = |address: &str| outcomes.iter().find(|o| o.address == address).unwrap();
        assert_eq!(of("kernel_module:printk").status, "ok", "{outcomes:?}");
        assert_eq!(of("kernel_module:no_such_module").status, "failed", "{outcomes:?}");
        assert!(of("kernel_module:no_such_module").error.contains("modules"), "{outcomes:?}");
        assert_eq!(of("kernel_module:printk_").status, round, "{outcomes:?}");
    }
    assert_eq!(host.sh("cat /etc/modprobe.d/zz-netplay-printk_.conf"), "blacklist printk_\n");
}
