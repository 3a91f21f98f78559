//! Detection of the vector extensions that the CPU has and the operating system enables, without the standard library.

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

use super::Backend;

/// Returns the widest backend that the CPU supports and whose registers the operating system saves.
pub(super) fn detect() -> Backend {
    if __cpuid(0).eax < FEATURES_LEAF {
        return Backend::Portable;
    }
    let basic = __cpuid(1).ecx;
    if basic & OSXSAVE == 0 || basic & AVX == 0 {
        return Backend::Portable;
    }
    // SAFETY: OSXSAVE means that the instruction exists and that the operating system enabled it.
    let saved = unsafe { _xgetbv(0) };
    let extended = __cpuid_count(FEATURES_LEAF, 0).ebx;
    if saved & SAVED_YMM != SAVED_YMM || extended & AVX2 == 0 {
        Backend::Portable
    } else if saved & SAVED_ZMM != SAVED_ZMM || extended & AVX512 != AVX512 {
        Backend::Avx2
    } else {
        Backend::Avx512
    }
}

/// CPUID leaf for structured extended features.
const FEATURES_LEAF: u32 = 7;

/// OSXSAVE bit of leaf 1, ECX.
const OSXSAVE: u32 = 1 << 27;
/// AVX bit of leaf 1, ECX.
const AVX: u32 = 1 << 28;

/// AVX2 bit of leaf 7, EBX.
const AVX2: u32 = 1 << 5;
/// Bits of leaf 7, EBX: AVX512F and AVX512BW.
const AVX512: u32 = 1 << 16 | 1 << 30;

/// Bits of XCR0 for the SSE and AVX state.
const SAVED_YMM: u64 = 0b110;
/// Bits of XCR0 for the SSE and AVX state, and for the mask registers and both halves of the 512-bit registers.
const SAVED_ZMM: u64 = 0b1110_0110;
