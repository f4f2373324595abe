//! The `netplay` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    netplay::cli::main(std::env::args_os())
}
