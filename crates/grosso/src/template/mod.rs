//! A train is a template and laws of variation.
//!
//! Packets of one train have the same headers except for a few fields, and each such field varies
//! by a law: a length is the length, a sequence number advances by the payload, FIN is on the last
//! packet only. Each header's [`HeaderSpec`](grosso_wire::HeaderSpec) states the laws of its fields
//! once, as data; `shape` works them out for one header stack. `compare` asks whether a
//! packet obeys them beside the first packet of a train; `render` applies them, to the whole
//! train (its superframe) or to one packet of it; `alike` to packets that differ in little.
//! Coalescing and segmentation are the two directions of the same table, which is why one undoes
//! the other.

pub(crate) mod alike;
pub(crate) mod compare;
pub(crate) mod render;
pub(crate) mod shape;
