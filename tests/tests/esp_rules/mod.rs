//! ESP against the RFCs, against published packets, and against tshark.

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
