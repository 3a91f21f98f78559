//! The CPU time of each role in a trial, and the TCP counters.

use std::{io, time::Duration};

use grosso_sys::{
    path::kernel,
    scheduling::{cpu_time, kernel_threads},
};
use rustix::process::Pid;

/// The threads of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// The thread that sends.
    pub sender: Pid,
    /// The thread that forwards the packets; `None` if the kernel forwards them.
    pub path: Option<Pid>,
    /// The thread that receives.
    pub receiver: Pid,
}

/// CPU time that each thread spent on a trial.
///
/// The kernel processes most packets in the thread that sent them, so the data path's time includes time in the
/// receiver's network stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct CpuSeconds {
    /// CPU time of the sender's thread.
    pub sender: f64,
    /// CPU time of the data path's thread.
    pub path: f64,
    /// CPU time of the receiver's thread.
    pub receiver: f64,
    /// CPU time of kernel threads that process packets on the same CPUs, if these threads are visible.
    pub kernel: f64,
}

impl CpuSeconds {
    /// Returns the total CPU time of all threads.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.sender + self.path + self.receiver + self.kernel
    }

    /// Returns the CPU time spent since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            sender: self.sender - earlier.sender,
            path: self.path - earlier.path,
            receiver: self.receiver - earlier.receiver,
            kernel: self.kernel - earlier.kernel,
        }
    }
}

/// A meter for the CPU time of threads.
#[derive(Debug)]
pub struct CpuMeter {
    threads: Threads,
    kernel: Vec<Pid>,
}

impl CpuMeter {
    /// Creates a meter for the threads of a trial on these CPUs. `poller` is the kernel thread that reads the
    /// receiver's packets from its device, if there is one.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted.
    pub fn new(threads: Threads, processors: &[usize], poller: Option<Pid>) -> io::Result<Self> {
        let mut kernel = Vec::from_iter(poller);
        for processor in processors {
            let found = kernel_threads(&format!("ksoftirqd/{processor}"))?;
            let threads = found.into_iter().map(|(thread, _)| thread).next();
            kernel.extend(threads.filter(|thread| !kernel.contains(thread)));
        }
        Ok(Self { threads, kernel })
    }

    /// Returns the CPU time spent so far.
    ///
    /// # Errors
    /// Fails if a thread has ended, or if the kernel does not account CPU time.
    pub fn read(&self) -> io::Result<CpuSeconds> {
        let seconds = |thread| cpu_time(thread).map(|account| account.running.as_secs_f64());
        let mut kernel = Duration::ZERO;
        for thread in &self.kernel {
            kernel += cpu_time(*thread)?.running;
        }
        Ok(CpuSeconds {
            sender: seconds(self.threads.sender)?,
            path: self.threads.path.map_or(Ok(0.0), seconds)?,
            receiver: seconds(self.threads.receiver)?,
            kernel: kernel.as_secs_f64(),
        })
    }
}

/// TCP counters of a host (`/proc/net/snmp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Number of segments received.
    pub received: u64,
    /// Number of segments sent, not counting retransmissions.
    pub sent: u64,
    /// Number of segments retransmitted.
    pub retransmitted: u64,
    /// Number of segments received with a wrong checksum.
    pub checksum_errors: u64,
    /// Number of retransmission timeouts (`TCPTimeouts` in `/proc/net/netstat`). Before a timeout, the sender is silent
    /// for at least 200 ms, and before each further timeout for twice as long.
    pub timeouts: u64,
}

impl TcpCounters {
    /// Reads the counters of the calling thread's network namespace.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted or has no TCP counters.
    pub fn read() -> io::Result<Self> {
        let text = kernel::read("/proc/thread-self/net/snmp")?;
        let more = kernel::read("/proc/thread-self/net/netstat")?;
        Self::parse(&text, &more).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "no TCP counters in /proc/net/snmp")
        })
    }

    fn parse(snmp: &str, netstat: &str) -> Option<Self> {
        let tables = [(snmp, "Tcp: "), (netstat, "TcpExt: ")];
        let value =
            |wanted| tables.into_iter().find_map(|(text, table)| counter(text, table, wanted));
        Some(Self {
            received: value("InSegs")?,
            sent: value("OutSegs")?,
            retransmitted: value("RetransSegs")?,
            checksum_errors: value("InCsumErrors")?,
            timeouts: value("TCPTimeouts")?,
        })
    }
}

/// Returns the value of a counter in a table of `/proc/net/snmp`. The tables have the names on one line and the values
/// on the next.
fn counter(text: &str, table: &str, wanted: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut both = names.split(' ').zip(values.split(' '));
    both.find(|(name, _)| *name == wanted)?.1.parse().ok()
}

/// Returns the number of datagrams that sockets in the calling thread's network namespace dropped for lack of buffer
/// space (`/proc/net/snmp`, `/proc/net/snmp6`).
///
/// # Errors
/// Fails if `/proc` is not mounted or has no UDP counters.
pub(crate) fn udp_receive_buffer_errors(over_ipv6: bool) -> io::Result<u64> {
    let read = |file: &str| kernel::read(format!("/proc/thread-self/net/{file}"));
    let value = if over_ipv6 {
        let text = read("snmp6")?;
        let value = text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
        value.and_then(|value| value.trim().parse().ok())
    } else {
        counter(&read("snmp")?, "Udp: ", "RcvbufErrors")
    };
    value.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "no UDP counters in /proc/net/snmp")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Tcp: MaxConn InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n\
                    Tcp: -1 20 10 3 0 5 7\nUdp: InSegs\nUdp: 9\n";
        let more = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 4 2\nIpExt: InOctets\nIpExt: 8\n";
        let (received, sent, retransmitted) = (20, 10, 3);
        let (checksum_errors, timeouts) = (7, 2);
        let counters = TcpCounters { received, sent, retransmitted, checksum_errors, timeouts };
        assert_eq!(TcpCounters::parse(text, more), Some(counters));
        assert_eq!(TcpCounters::parse("Tcp: InSegs\nTcp: 1\n", more), None);
        assert_eq!(TcpCounters::parse(text, ""), None);
        assert_eq!(counter(text, "Udp: ", "InSegs"), Some(9));
        assert_eq!(counter(text, "Udp: ", "RcvbufErrors"), None);
    }
}
