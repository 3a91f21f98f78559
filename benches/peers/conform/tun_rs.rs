//! Program for `grosso conform` that runs the coalescer and the segmenter of tun-rs.

#[allow(dead_code, reason = "each program has one of the tasks")]
mod frames;
mod go_port;

go_port::program!(tun_rs);
