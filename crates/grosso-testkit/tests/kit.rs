//! The test kit compared with other programs, and with itself.

mod oracle;
mod packet;
mod tshark;
mod workloads;
