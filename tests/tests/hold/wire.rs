//! How long trains get.
