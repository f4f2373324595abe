#![no_main]
#![allow(dead_code, reason = "each target calls one of the functions")]

#[path = "../../tests/it/fuzz.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::vault(data));
