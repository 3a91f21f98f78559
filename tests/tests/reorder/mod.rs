//! Tests the repair of reordering: `receive-profiles` section 2.2.
//!
//! | module | property |
//! |---|---|
//! | [`states`] | every row of the state machine |
//! | [`bounds`] | memory and time, for any sender |
//! | [`properties`] | any order, any loss, any duplicate: every packet is delivered once, and soon |
//! | [`connection`] | the packets of these tests |

mod bounds;
mod connection;
mod properties;
mod states;
