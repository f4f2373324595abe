//! netplay: a declarative configuration engine for the network of AI and HPC clusters.

pub mod error;
pub mod source;
pub mod transport;
pub mod yaml;
