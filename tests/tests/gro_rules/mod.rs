//! Tests TCP receive coalescing rule by rule: `linux-offloads` section 1.

mod link;
mod network;
mod order;
mod reasons;
mod superframe;
mod tcp;
mod time;
