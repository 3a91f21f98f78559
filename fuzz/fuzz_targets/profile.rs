//! Profiles: what is read, written and read again is the same.

#![no_main]

use grosso_cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| fuzzing::profile(data));
