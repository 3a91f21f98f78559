//! The checksum loop printed in RFC 1071 section 4.1, and test data.

/// Returns the checksum that the C code in the RFC computes. It is ported statement by statement, except that words are
/// loaded in big-endian order.
pub(crate) fn rfc_1071(data: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    let mut count = data.len();
    let mut addr = 0;
    while count > 1 {
        sum += u64::from(data[addr]) << 8 | u64::from(data[addr + 1]);
        addr += 2;
        count -= 2;
    }
    if count > 0 {
        sum += u64::from(data[addr]) << 8;
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns pseudo-random bytes that are the same in every run (xorshift64*).
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Runs each listed test with the public function and with every backend. Prints a message for a backend that this CPU
/// does not support, and skips it.
#[macro_export]
macro_rules! for_every_backend {
    ($($test:ident)*) => {
        mod public_entry {
            $(#[test] fn $test() { super::$test(grosso_checksum::Sum::of); })*
        }
        $crate::for_backend!(portable Portable: $($test)*);
        $crate::for_backend!(avx2 Avx2: $($test)*);
        $crate::for_backend!(avx512 Avx512: $($test)*);
        $crate::for_backend!(neon Neon: $($test)*);
    };
}

/// Defines the tests for one backend; part of `for_every_backend`.
#[macro_export]
macro_rules! for_backend {
    ($module:ident $backend:ident: $($test:ident)*) => {
        mod $module {
            $(#[test] fn $test() {
                use grosso_checksum::{Backend, of_with};
                if Backend::available().any(|backend| backend == Backend::$backend) {
                    super::$test(|bytes| of_with(Backend::$backend, bytes));
                } else {
                    println!("skipped: this machine has no {}", Backend::$backend);
                }
            })*
        }
    };
}
