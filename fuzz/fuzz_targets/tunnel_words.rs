//! The words of tunnels: what is read, written as words or as a file, and read again is the same.

#![no_main]

use grosso_cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| fuzzing::tunnel(data));
