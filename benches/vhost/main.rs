//! Machines over vhost-user: superframes and short packets a second.
//!
//! *Two ends*: one process gives frames and another one takes them, each on a processor of its own. They meet over
//! vhost-user, as Grosso or as DPDK's `testpmd`, where that is installed; and over two TAP devices on a bridge of the
//! kernel, for who may make those. *A path*: two machines without processors, joined by a path, which has one thread,
//! and both drivers another.
//!
//! `cargo bench -p grosso-benches --bench vhost [SECONDS [ROUNDS]]`, with 3 seconds and 3 rounds where none are said.
//! The rows of a round follow each other, so that what else the machine does meets all of them.

#[cfg(target_os = "linux")]
mod dpdk;
#[cfg(target_os = "linux")]
mod ends;
#[cfg(target_os = "linux")]
mod path;
#[cfg(target_os = "linux")]
mod rows;

fn main() {
    #[cfg(target_os = "linux")]
    {
        let words: Vec<String> =
            std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
        match words.split_first() {
            Some((word, rest)) if word == ends::WORD => ends::run(rest),
            _ => rows::run(&words),
        }
    }
}
