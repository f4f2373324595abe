//! Groups of questions that several types ask.

pub mod line;
pub mod links;
pub mod premise;
pub mod session;
pub mod small;
pub mod whole;
