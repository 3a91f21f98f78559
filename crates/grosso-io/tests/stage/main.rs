//! Fragments and ESP as ports around ports, over wires in memory.

mod ends;
mod fragmentation;
mod secured;
