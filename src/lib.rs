//! netplay: a declarative configuration engine for the network of AI and HPC clusters.

pub mod cli;
pub mod commands;
pub mod engine;
pub mod error;
pub mod event;
pub mod facts;
pub mod finding;
pub mod graph;
pub mod hostlist;
pub mod inventory;
pub mod logs;
pub mod plan;
pub mod playbook;
pub mod report;
pub mod resource;
pub mod secret;
pub mod shell;
pub mod source;
pub mod transport;
pub mod verify;
pub mod yaml;
