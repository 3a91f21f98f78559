//! How a data path ends.
