//! What becomes of a sender whose acknowledgments are merged, counted, or kept.

pub mod model;
