//! ESP: what the RFCs say, what others wrote, and what others read.

mod association;
mod headers;
mod literal;
mod published;
mod refusals;
mod replay;
mod round_trip;
mod superframes;
mod tshark;
