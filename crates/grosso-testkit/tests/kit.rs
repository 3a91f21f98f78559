//! The test kit beside other programs, and beside itself.

mod oracle;
mod packet;
mod tshark;
mod workloads;
