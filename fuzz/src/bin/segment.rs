#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| grosso_fuzz::targets::segment::run(data));
