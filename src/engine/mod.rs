//! Carries plays out: one visit a host and play, in as few executions as the work allows.

pub mod batch;
pub mod reader;
