//! Slow, literal oracles that compute the expected results as plainly as possible. They share no code with the product.

mod flow;
mod merge;
mod parse;
mod segment;
mod sum;
mod verify;

pub use flow::{Flow, flow_of, flow_of_parsed};
pub use merge::{Rules, Train, join, trains};
pub use parse::{
    ESP_PORT, FOU_PORT, GENEVE_PORT, GUE_PORT, L2TP_COOKIE_LEN, Layer, Lengths, Link, Parsed, Stop,
    VXLAN_GPE_PORT, VXLAN_PORT, parse,
};
pub use segment::{Description, Refusal, segment};
pub use sum::{add, checksum, pseudo_header, sum};
pub use verify::{State, Verdict, is_right, verify};
