//! The tests on real hosts: sshd, network namespaces and systemd as `tests/lab/lab` makes them.
//!
//! They are built with the feature `lab` only, so that a plain `cargo test` doesn't pass them by.
//! `tests/run` starts a lab and runs them; by hand it is
//! `tests/lab/lab up --fleet 70 --hidden 2 --sysd 4 --slurm; cargo test --features lab --test lab`.
//! Those that need a kernel of their own have a feature too: `lab up --vm 1` and `--features vm`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod breaks;
mod check;
mod confirm;
mod content;
mod drain;
mod engine;
mod faults;
mod firewall;
mod harness;
mod ifcfg;
mod irq_affinity;
mod itself;
mod kernel_module;
mod kubernetes;
mod logs;
#[cfg(feature = "vm")]
mod machine;
mod mlxconfig;
mod mtu;
mod nic;
mod openssh;
mod outcome;
mod output;
mod owners;
mod package;
mod provisioning;
mod reboot;
mod roce_qos;
mod service;
mod sessions;
mod slurm;
mod state;
mod sysctl;
mod told;
mod transport;
mod vault;
mod verify;
