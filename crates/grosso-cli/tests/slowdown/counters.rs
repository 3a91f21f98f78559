//! Reads counters of the sender's and the receiver's kernels. They show which faults a stream had.

use std::{collections::HashMap, process::Command};

use grosso_sys::namespace::NetworkNamespace;

use super::{output, situations::MANY};

/// Kernel counters that were read after a stream ended.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sender: HashMap<String, u64>,
    receiver: HashMap<String, u64>,
    /// Percentage of the sender's busy time during which the receive window limited it.
    window_percent: f64,
}

impl Counters {
    pub(super) fn read(sender: &NetworkNamespace, receiver: &NetworkNamespace) -> Self {
        let sockets = output(sender, Command::new("ss").args(["-tinaH"]));
        // For example `rwnd_limited:48ms(92.3%)`; absent if it is zero.
        let limited = sockets.split_once("rwnd_limited:").and_then(|(_, rest)| {
            let (percent, _) = rest.split_once('(')?.1.split_once("%)")?;
            percent.parse().ok()
        });
        Self {
            sender: sender.run(read_counters).unwrap(),
            receiver: receiver.run(read_counters).unwrap(),
            window_percent: limited.unwrap_or(0.0),
        }
    }

    /// Returns the number of retransmitted segments.
    pub(super) fn retransmitted(&self) -> u64 {
        value(&self.sender, "RetransSegs")
    }

    /// Returns the number of retransmission timeouts.
    pub(super) fn timeouts(&self) -> u64 {
        value(&self.sender, "TCPTimeouts")
    }

    /// Returns the number of ICMP messages of type 3 that the sender received.
    pub(super) fn unreachable(&self) -> u64 {
        value(&self.sender, "InType3")
    }

    /// Returns the number of segments that reached the receiver after a gap.
    pub(super) fn out_of_order(&self) -> u64 {
        value(&self.receiver, "TCPOFOQueue")
    }

    /// Returns the number of segments that the receiver reported as received twice.
    pub(super) fn received_twice(&self) -> u64 {
        value(&self.receiver, "TCPDSACKOldSent")
    }

    pub(super) fn zero_windows(&self) -> u64 {
        value(&self.receiver, "TCPToZeroWindowAdv")
    }

    /// Returns the number of damaged segments at the receiver.
    pub(super) fn damaged(&self) -> u64 {
        value(&self.receiver, "InCsumErrors")
    }

    pub(super) fn is_window_limited(&self) -> bool {
        self.window_percent > 10.0
    }

    pub(super) fn is_mostly_window_limited(&self) -> bool {
        self.window_percent >= 60.0
    }

    /// Returns whether packets were lost, with few unnecessary retransmissions.
    pub(super) fn is_loss(&self) -> bool {
        let (needed, unneeded) = (self.retransmitted(), self.received_twice());
        needed >= MANY && unneeded * 4 <= needed && self.out_of_order() >= MANY
    }

    /// Returns whether nothing was lost, reordered, repeated or damaged, and the window stayed open.
    pub(super) fn is_clean(&self) -> bool {
        let at_receiver =
            [self.out_of_order(), self.received_twice(), self.zero_windows(), self.damaged()];
        self.retransmitted() == 0 && at_receiver == [0; 4]
    }

    /// Returns whether the stream was clean, and the receive window did not limit it.
    pub(super) fn is_free(&self) -> bool {
        self.is_clean() && !self.is_window_limited()
    }
}

fn value(counters: &HashMap<String, u64>, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// Returns the nonzero counters of this thread's network namespace.
fn read_counters() -> HashMap<String, u64> {
    let mut counters = HashMap::new();
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let is_read = |line: &&str| line.starts_with("Tcp") || line.starts_with("IcmpMsg:");
        let lines: Vec<_> = text.lines().filter(is_read).collect();
        for pair in lines.chunks_exact(2) {
            let [names, values] = [pair[0], pair[1]].map(|line| line.split_whitespace().skip(1));
            let counted = names.zip(values).filter(|(_, value)| *value != "0");
            let number = |value: &str| value.parse().unwrap_or(0);
            counters.extend(counted.map(|(name, value)| (name.to_owned(), number(value))));
        }
    }
    counters
}
