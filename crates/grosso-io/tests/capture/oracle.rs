//! Other people's readers and tools.
