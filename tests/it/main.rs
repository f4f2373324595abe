//! The one integration binary.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, helpers included")]

mod architecture;
mod cases;
mod command_line;
mod content;
mod docs;
mod fuzz;
#[path = "../../src/report/tests/junit_rules.rs"]
mod junit_rules;
mod vault;
