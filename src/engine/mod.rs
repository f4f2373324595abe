//! Carries plays out: one visit a host and play, in as few executions as the work allows.

pub mod batch;
pub mod boot;
pub mod exam;
mod execution;
pub mod guard;
pub mod host;
mod pool;
pub mod reader;
mod rights;
mod rolling;
mod round;
pub mod run;
pub mod visit;

#[cfg(test)]
mod tests;
