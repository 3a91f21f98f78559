//! Requests to the server of counters: the first answer is the last, whatever follows.

#![no_main]

use grosso_cli::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, request)) = data.split_first() else { return };
    fuzzing::request(request, kind & 1 != 0);
});
