//! Tests that measure memory and work. This package is compiled with optimization, unlike the package of the other
//! tests (ADR 0196).

mod allocation;
mod reassembly_allocation;
mod reassembly_work;
mod reorder_work;
mod soak;
mod stage_allocation;
mod tiers;
mod tunnel_work;

use grosso_rig::allocator::Counting;

/// The allocator counts per thread, and therefore per test.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
