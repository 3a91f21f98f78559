//! The running kernel as an oracle, which shows how Linux treats frames.
//!
//! [`GroOracle`] passes a vector of frames to the kernel's GRO and returns what it delivers; [`GsoOracle`] passes it a
//! superframe and returns the packets on the wire. Both run in their own network namespaces, change nothing outside
//! them, and need no other program.
//!
//! The oracles need root. Without it, run the tests inside a user namespace (`unshare -Urm cargo test ...`):
//! [`GsoOracle`] works there; [`GroOracle`] does not, because keeping a vector together needs real-time priority or
//! `gro_flush_timeout`, which the kernel grants only to real root.
//!
//! The kernel's behavior depends on its version (rules G14a, G34a, G34b, G63): a test of such a rule checks
//! [`release`] first. A test whose oracle cannot start calls [`skip`], which prints the reason:
//!
//! ```no_run
//! use grosso_rig::kernel::{GroOracle, skip};
//!
//! match GroOracle::new() {
//!     Ok(mut oracle) => println!("{:?}", oracle.coalesce(&[vec![0; 60]])),
//!     Err(why) => skip(&why),
//! }
//! ```

use std::env;
use std::fs;
use std::time::Duration;

use grosso_sys::interface::Control;
use grosso_sys::namespace;

mod capabilities;
mod gro;
mod gso;
mod host;
mod replay;
mod router;
mod source;
mod virtio;
mod worker;

pub use capabilities::{Capability, capabilities};
pub use gro::{Batching, Delivered, FRAMES_MAX, GroOptions, GroOracle, most_frequent};
pub use gso::GsoOracle;
pub use host::Host;
pub use replay::{dump, seed};
pub use router::{Forwarded, Router};
pub use source::Source;
pub use virtio::{TunnelOffsets, VirtioHeader};

/// Maximum MTU of the oracles' devices; superframes may be longer.
const MTU_BYTES: u16 = 65_000;
/// Maximum length of a frame that is read back: the limit in rule G60, plus the link-layer header and the virtio
/// header.
const FRAME_BYTES_MAX: usize = 524_280 + 18 + 24;
/// Time without a packet after which no more packets are expected. The kernel's own timer in the oracle is 2 ms.
const QUIET: Duration = Duration::from_millis(20);

/// Environment variable that turns a skipped test into a failure, for CI as root, where every test must run.
const SKIP_NOTHING: &str = "GROSSO_SKIP_NOTHING";

/// Prints that the calling test is skipped, and why.
///
/// # Panics
///
/// Panics if `GROSSO_SKIP_NOTHING` is set, so that a broken oracle is not mistaken for a missing privilege.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(
        env::var_os(SKIP_NOTHING).is_none(),
        "{SKIP_NOTHING} is set, but a test would be skipped: {why}"
    );
}

/// Checks whether the oracles can run on this system.
///
/// # Errors
///
/// Fails with the text to print after `skipped:`, which contains the name of the oracle and the system's error.
pub fn probe() -> Result<(), String> {
    GroOracle::new().map_err(|why| format!("cannot test the kernel's GRO: {why}"))?;
    GsoOracle::new().map_err(|why| format!("cannot test the kernel's GSO: {why}"))?;
    Ok(())
}

/// Returns the running kernel's major and minor version.
pub fn release() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next())
}

/// Moves the calling thread into a new network namespace in which the kernel sends nothing by itself.
fn isolate() -> Result<Control, String> {
    namespace::isolate_thread_network()
        .map_err(|error| format!("cannot create a network namespace: {error}"))?;
    // Without these settings, the kernel would send neighbor discovery packets, and netfilter would inspect bridged
    // frames. A kernel without IPv6 or bridge netfilter does not have these files and needs no change.
    for (path, value) in [
        ("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"),
        ("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"),
        ("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"),
        ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0"),
        ("/proc/sys/net/bridge/bridge-nf-call-arptables", "0"),
    ] {
        let _ = fs::write(path, value);
    }
    Control::new().map_err(|error| format!("cannot open a control socket: {error}"))
}
