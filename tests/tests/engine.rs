//! Tests of the numbered rules that need only this process.

mod acknowledgments;
mod batches;
mod checksum_rules;
mod decapsulation_rules;
mod encapsulation_rules;
mod esp_rules;
mod expansion;
mod fragment_rules;
mod gro_rules;
mod gso_rules;
mod guarded_bugs;
mod hold;
mod kernel_cases;
mod layout;
mod pitfalls;
mod prediction;
mod profiles;
mod properties;
mod reorder;
mod steering;
mod tunnel_rules;
mod udp_rules;
mod vectors;

use grosso_rig::allocator::Counting;

/// The allocator counts per thread, and therefore per test.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
