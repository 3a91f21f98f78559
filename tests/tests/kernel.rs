//! Tests that compare the engine with the running kernel.

mod kernel_coalesce;
mod kernel_delivery;
mod kernel_differential;
mod kernel_fragment;
mod kernel_gro;
mod kernel_reassembly;
mod kernel_segment;
mod virtio_rules;
