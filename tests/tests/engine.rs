//! Laws, rules by number, bounds of memory and work: what needs no more than this process.

mod acknowledgments;
mod allocation;
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
mod reassembly_allocation;
mod reassembly_work;
mod reorder;
mod reorder_work;
mod soak;
mod stage_allocation;
mod steering;
mod tiers;
mod tunnel_rules;
mod tunnel_work;
mod udp_rules;
mod vectors;

use grosso_tests::allocator::Counting;

/// It counts for each thread, and so for each test.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
