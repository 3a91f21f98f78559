//! The engine compared with the running kernel.

mod kernel_coalesce;
mod kernel_delivery;
mod kernel_differential;
mod kernel_fragment;
mod kernel_gro;
mod kernel_reassembly;
mod kernel_segment;
mod virtio_rules;
