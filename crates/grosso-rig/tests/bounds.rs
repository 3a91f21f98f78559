//! Tests that measure memory and work. Unlike the package with the other tests, this package is compiled with
//! optimization (ADR 0196).

mod allocation;
mod reassembly_allocation;
mod reassembly_work;
mod reorder_work;
mod soak;
mod stage_allocation;
mod tiers;
mod tunnel_work;

use grosso_rig::allocator::Counting;

/// Allocator that counts per thread, and therefore per test.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
