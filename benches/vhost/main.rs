//! Benchmarks vhost-user: superframes and short packets per second.
//!
//! *Two endpoints*: one process sends frames and another receives them, each on its own CPU. They are connected by
//! vhost-user, implemented by Grosso or by DPDK's `testpmd` (if it is installed), or by two TAP devices on a kernel
//! bridge (if the user may create them). *A path*: a path with one thread connects two VMs without CPUs, whose drivers
//! share another thread.
//!
//! `cargo bench -p grosso-benches --bench vhost [SECONDS [ROUNDS]]`, by default 3 seconds and 3 rounds. Each round
//! measures all rows one after the other, so that other load on the machine affects all of them.

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
