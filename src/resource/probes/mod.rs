//! Groups of questions that several types ask.

pub mod small;
pub mod whole;
