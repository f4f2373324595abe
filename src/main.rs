//! The `netplay` program.

fn main() {}
