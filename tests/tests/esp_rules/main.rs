//! ESP: what the RFCs say, what others wrote, and what others read.

mod association;
mod published;
mod round_trip;
mod tshark;
