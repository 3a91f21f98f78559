//! Tests segmentation rule by rule: `linux-offloads` section 3.

mod device;
mod fragments;
mod general;
mod partial;
mod tunnel;
