//! Tests of the kit: comparisons with other programs, and of its parts with each other.

mod oracle;
mod packet;
mod tshark;
mod workloads;
