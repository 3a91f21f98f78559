//! Configuration files of `grosso run`: what is read can be run, and what is wrong is said with its place.

#![no_main]

use grosso_cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| fuzzing::configuration(data));
