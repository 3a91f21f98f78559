//! Tests fragmentation, ESP and tunnels as ports that wrap other ports, over wires in memory.

mod bad_wire;
mod ends;
mod esp;
mod every_kind;
mod formats;
mod forwarding;
mod fragmentation;
mod loops;
mod path_mtu;
mod tunnel;
