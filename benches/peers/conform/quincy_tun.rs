//! Program for `grosso conform` that runs the coalescer and the segmenter of quincy-tun, a fork of tun-rs.

#[allow(dead_code, reason = "each program has one of the tasks")]
mod frames;
mod go_port;

go_port::program!(quincy_tun);
