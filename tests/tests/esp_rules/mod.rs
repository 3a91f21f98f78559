//! Tests ESP against the RFCs, published packets, and tshark.

mod association;
mod headers;
mod literal;
mod published;
mod refusals;
mod replay;
mod round_trip;
mod selectors;
mod superframes;
mod tshark;
