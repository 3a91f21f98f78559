//! Configuration files of `grosso run`: an accepted file can run, and an error has its place.

#![no_main]

use grosso_cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| fuzzing::configuration(data));
