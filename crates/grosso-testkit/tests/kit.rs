//! Tests of the test kit, which compare it with other programs and its parts with each other.

mod oracle;
mod packet;
mod tshark;
mod workloads;
