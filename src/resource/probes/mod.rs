//! Groups of questions that several types ask.

pub mod links;
pub mod premise;
pub mod session;
pub mod small;
pub mod whole;
