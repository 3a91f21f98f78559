//! Determines how long a packet may be so that the paths to all of a port's remote endpoints can carry it.

use std::{io, net::IpAddr};

use grosso::tunnel::{
    path_mtu,
    probing::{Finding, Measured, Prober},
};
use grosso_sys::datagram::{EchoSocket, PathMtu, TooBigMessages};

use super::{
    CARRIED_IPV4, CARRIED_IPV6,
    stats::{SocketEvent, SocketStats},
};
use crate::notice::Notice;

/// Paths to the remote endpoints.
#[derive(Debug)]
pub(in crate::live) struct Paths {
    paths: PathMtu,
    remotes: Vec<PathTo>,
    mtu: Option<usize>,
    /// Time of the next query, in nanoseconds.
    look_ns: u64,
    /// Time of the next check for messages and replies, in nanoseconds.
    read_ns: u64,
    /// Socket for ICMPv6 messages. It is needed only for IPv6, where the sender has to fragment packets that exceed the
    /// path MTU.
    messages: Option<Messages>,
    /// Socket for echo requests. If this process may not open it, nothing is probed.
    echoes: Option<EchoSocket>,
    /// Whether packets that routers cannot fragment were sent since the last check.
    sends_long: bool,
    /// Callback that is called when the route to a remote endpoint changes to another link.
    route_notice: Option<Notice>,
}

/// The path to one remote endpoint.
#[derive(Debug)]
struct PathTo {
    address: IpAddr,
    /// Index of the link that the route uses, or `None` before the first query.
    link: Option<u32>,
    /// Last path MTU that the kernel reported, or `None` if it has reported none.
    told: Option<usize>,
    belief: Belief,
    prober: Prober,
}

/// Receiver of ICMPv6 messages that report the path MTU.
#[derive(Debug)]
struct Messages {
    socket: TooBigMessages,
    buffer: Box<[u8; MESSAGE_BYTES]>,
}

/// Information about a path from ICMP messages. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Belief {
    /// Time until which the port records the long packets that it sends. Every message extends it, so that a later
    /// message can quote a recorded packet.
    questioned_until_ns: u64,
    /// Path MTU from a message that quoted a sent packet, and the time at which it expires.
    proven: Option<(usize, u64)>,
}

impl Paths {
    /// Creates the paths from one of this host's addresses to remote addresses of the same family. `probes` enables
    /// probing.
    pub(in crate::live) fn new(
        local: IpAddr,
        remotes: &[IpAddr],
        probes: bool,
        route_notice: Option<Notice>,
    ) -> io::Result<Self> {
        let is_ipv4 = local.is_ipv4();
        // Without the permission to open the socket, the kernel's path MTU is used.
        let messages = if is_ipv4 { None } else { TooBigMessages::open().ok() };
        let messages =
            messages.map(|socket| Messages { socket, buffer: Box::new([0; MESSAGE_BYTES]) });
        let base = if is_ipv4 { CARRIED_IPV4 } else { CARRIED_IPV6 };
        let remote = |address: &IpAddr| PathTo {
            address: *address,
            link: None,
            told: None,
            belief: Belief::default(),
            prober: Prober::new(base),
        };
        let mut known = Self {
            paths: PathMtu::new(is_ipv4)?,
            remotes: remotes.iter().map(remote).collect(),
            mtu: None,
            look_ns: 0,
            read_ns: 0,
            messages,
            echoes: probes.then(|| EchoSocket::open(local).ok()).flatten(),
            sends_long: false,
            route_notice,
        };
        known.look_now();
        Ok(known)
    }

    /// Returns the length of the longest packet that the links of the routes to all remote endpoints can carry, in
    /// bytes including the IP header.
    pub(in crate::live) fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// Returns the length of the longest packet that reaches every remote endpoint according to this host's routes and
    /// to ICMP. If a probe has shown that longer packets arrive, ICMP is ignored. Over IPv6, a message is used only if
    /// it quoted a sent packet; the kernel's path MTU is used only if the port cannot receive messages. The value
    /// expires after ten minutes (`net.ipv4.route.mtu_expires`).
    pub(in crate::live) fn hint(&self) -> Option<usize> {
        let hint = |remote: &PathTo| match &self.messages {
            Some(_) => remote.carries(),
            None => remote.hint(),
        };
        self.remotes.iter().filter_map(hint).chain(self.mtu).min()
    }

    /// Returns the length of the longest packet that reaches every remote endpoint, if it is proven that longer packets
    /// do not arrive.
    pub(in crate::live) fn proven(&self) -> Option<usize> {
        self.remotes.iter().filter_map(PathTo::proven).min()
    }

    /// Returns whether datagrams must be fragmented to the kernel's path MTU.
    pub(in crate::live) fn is_narrow(&self) -> bool {
        self.messages.is_none() || self.remotes.iter().any(|remote| remote.carries().is_some())
    }

    /// Returns whether long packets must be recorded, because an ICMP message reported that the path does not carry
    /// them.
    pub(in crate::live) fn is_questioned(&self) -> bool {
        self.remotes.iter().any(|remote| remote.belief.questioned_until_ns > 0)
    }

    /// Returns the time of the next check that is due even without traffic, in nanoseconds.
    pub(in crate::live) fn deadline(&self) -> Option<u64> {
        self.echoes.as_ref()?;
        let of_remote = |remote: &PathTo| match remote.prober.is_waiting() {
            true => Some(self.read_ns),
            false => remote.prober.raises_ns().map(|raises_ns| raises_ns.max(self.read_ns)),
        };
        self.remotes.iter().filter_map(of_remote).min()
    }

    /// Queries the path MTU again, reads messages and sends probes, if the intervals for these actions have passed.
    /// Returns whether [`Self::is_narrow`] or [`Self::is_questioned`] changed; `has_sent` returns whether a quoted
    /// packet was sent. `sends_long` specifies whether packets that routers cannot fragment were sent.
    pub(in crate::live) fn look(
        &mut self,
        now_ns: u64,
        has_sent: &dyn Fn(&[u8]) -> bool,
        sends_long: bool,
        stats: &mut SocketStats,
    ) -> bool {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_AGAIN_NS);
            self.look_now();
        }
        self.sends_long |= sends_long;
        if now_ns < self.read_ns {
            return false;
        }
        self.read_ns = now_ns.saturating_add(READ_AGAIN_NS);
        let before = (self.is_narrow(), self.is_questioned());
        self.remotes.iter_mut().for_each(|remote| remote.belief.forget(now_ns));
        if let Some(messages) = &mut self.messages {
            messages.read(now_ns, &mut self.remotes, self.mtu, has_sent, stats);
        }
        self.probe(now_ns, stats);
        before != (self.is_narrow(), self.is_questioned())
    }

    /// Queries the path MTU immediately, because a packet was too long for the last known path MTU.
    pub(in crate::live) fn look_now(&mut self) {
        let Self { paths, remotes, echoes, route_notice, .. } = self;
        let (mut mtu, mut has_moved) = (None, false);
        for remote in &mut *remotes {
            let Ok(route) = paths.of_route(remote.address) else { continue };
            mtu = mtu.into_iter().chain([route.mtu]).min();
            let before = remote.link.replace(route.link);
            has_moved |= before.is_some_and(|before| before != route.link);
        }
        self.mtu = mtu.or(self.mtu);
        if has_moved && let Some(notice) = route_notice {
            notice.send();
        }
        for remote in remotes {
            let told = paths.to(remote.address).ok().or(remote.told);
            if self.messages.is_none() && told != remote.told {
                told.into_iter().for_each(|told| remote.prober.hear(told));
            }
            remote.told = told;
            // The kernel creates the IPv6 fragments, so a path MTU that was found without an ICMP message must be
            // reported to it.
            if remote.address.is_ipv6()
                && let (Some(carries), Some(echoes)) = (remote.carries(), &*echoes)
                && told.is_some_and(|told| told > carries)
                && let Ok(mtu) = u16::try_from(carries)
            {
                // If this fails, the next check tries again.
                let _ = paths.report_mtu(remote.address, mtu, echoes);
            }
        }
    }

    /// Handles replies to probes, and sends the probes that are due.
    fn probe(&mut self, now_ns: u64, stats: &mut SocketStats) {
        let sends_long = core::mem::take(&mut self.sends_long);
        let Self { remotes, echoes: Some(echoes), .. } = self else { return };
        if remotes.iter().any(|remote| remote.prober.is_waiting()) {
            echoes.answers(MESSAGES_MAX, |source, number| {
                let asked = remotes.iter_mut().filter(|remote| remote.address == source);
                asked.for_each(|remote| remote.prober.answered(now_ns, number));
            });
        }
        // No packet longer than this is sent.
        let top = self.mtu.unwrap_or_default().min(u16::MAX.into());
        for remote in remotes {
            for (number, len) in remote.prober.poll(now_ns, top, sends_long).into_iter().flatten() {
                // A request that could not be sent counts as unanswered.
                let _ = echoes.ask(remote.address, number, len);
            }
            if remote.prober.known() == Measured::Whole && !remote.prober.is_questioned() {
                remote.belief.proven = None;
            }
            let Some(finding) = remote.prober.take_finding() else { continue };
            stats.count(finding.into(), 1);
            self.look_ns = now_ns;
        }
    }
}

impl From<Finding> for SocketEvent {
    fn from(finding: Finding) -> Self {
        match finding {
            Finding::Refuted => Self::PathRefuted,
            Finding::Narrow => Self::PathNarrow,
            Finding::Silent => Self::PathSilent,
        }
    }
}

impl PathTo {
    /// Returns the length of the longest packet that reaches the endpoint, if a probe or a proven message shows that
    /// longer packets do not reach it.
    fn carries(&self) -> Option<usize> {
        let proven = self.belief.proven.map(|(mtu, _)| mtu);
        let probed = match self.prober.known() {
            Measured::Narrow(len) => Some(len),
            Measured::Nothing | Measured::Whole => None,
        };
        [proven, probed].into_iter().flatten().min()
    }

    /// Returns the minimum of [`Self::carries`] and the kernel's path MTU, unless a probe has refuted the kernel's
    /// value.
    fn hint(&self) -> Option<usize> {
        match self.prober.known() {
            Measured::Narrow(len) => Some(self.told.map_or(len, |told| told.min(len))),
            Measured::Whole if !self.prober.is_questioned() => None,
            Measured::Nothing | Measured::Whole => self.told,
        }
    }

    /// Returns the length of the longest packet that reaches the endpoint, if this is certain enough to make senders
    /// send shorter packets. It is certain after a completed search, or after a proven message if the endpoint answers
    /// no probes.
    fn proven(&self) -> Option<usize> {
        match self.prober.known() {
            Measured::Nothing => self.belief.proven.map(|(mtu, _)| mtu),
            Measured::Narrow(_) | Measured::Whole => self.prober.settled(),
        }
    }
}

impl Messages {
    /// Reads the messages that have arrived.
    fn read(
        &mut self,
        now_ns: u64,
        remotes: &mut [PathTo],
        mtu: Option<usize>,
        has_sent: &dyn Fn(&[u8]) -> bool,
        stats: &mut SocketStats,
    ) {
        for _ in 0..MESSAGES_MAX {
            // A socket error does not affect the paths.
            let Ok(Some(message)) = self.socket.next(&mut self.buffer[..]) else { return };
            let Some((address, said, quoted)) = parse(message) else { continue };
            let Some(remote) = remotes.iter_mut().find(|remote| remote.address == address) else {
                continue;
            };
            if mtu.is_some_and(|mtu| said >= mtu) {
                continue;
            }
            let is_proven = has_sent(quoted);
            remote.belief.update(now_ns, said, is_proven);
            remote.prober.hear(said);
            let event = if is_proven { SocketEvent::PathProven } else { SocketEvent::PathUnproven };
            stats.count(event, 1);
        }
    }
}

impl Belief {
    /// Removes expired information.
    fn forget(&mut self, now_ns: u64) {
        if self.questioned_until_ns <= now_ns {
            self.questioned_until_ns = 0;
        }
        self.proven = self.proven.filter(|(_, until_ns)| now_ns < *until_ns);
    }

    /// Handles a message that reports a path MTU of `said` bytes.
    fn update(&mut self, now_ns: u64, said: usize, is_proven: bool) {
        self.questioned_until_ns = now_ns.saturating_add(QUESTIONED_NS);
        if is_proven {
            let mtu = self.proven.map_or(said, |(mtu, _)| mtu.min(said));
            self.proven = Some((mtu, now_ns.saturating_add(PROVEN_NS)));
        }
    }
}

/// Parses a message. Returns the destination of the packet that the message quotes, the reported MTU, and the quoted
/// packet itself, starting with the IP header.
fn parse(message: &[u8]) -> Option<(IpAddr, usize, &[u8])> {
    let (destination, said, quoted) = path_mtu::read_v6(message)?;
    Some((destination.into(), usize::try_from(said).ok()?.max(CARRIED_IPV6), quoted))
}

/// Interval between path MTU queries, in nanoseconds. A query takes about ten system calls per path.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// Interval between checks for messages and replies, in nanoseconds. A check takes one system call if there is nothing
/// to read.
const READ_AGAIN_NS: u64 = 10_000_000;
/// Maximum number of messages read at once. The kernel keeps further messages in the socket's buffer.
const MESSAGES_MAX: usize = 64;
/// Number of bytes read from a message: its header, the headers of the quoted packet and the compared bytes.
const MESSAGE_BYTES: usize = 256;
/// Time in nanoseconds to record long packets after a message. It is long enough for several retransmissions.
const QUESTIONED_NS: u64 = 10_000_000_000;
/// Lifetime of a proven message in nanoseconds, the same as in the kernel (`net.ipv6.route.mtu_expires`).
const PROVEN_NS: u64 = 600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_what_is_proven_is_believed_and_not_for_ever() {
        let mut belief = Belief::default();
        belief.update(SECOND, 1280, false);
        assert_eq!((belief.proven, belief.questioned_until_ns), (None, 11 * SECOND));
        belief.update(2 * SECOND, 1400, true);
        belief.update(3 * SECOND, 1450, true);
        assert_eq!(belief.proven, Some((1400, 603 * SECOND)));
        belief.forget(13 * SECOND);
        assert_eq!((belief.proven, belief.questioned_until_ns), (Some((1400, 603 * SECOND)), 0));
        belief.forget(603 * SECOND);
        assert_eq!(belief, Belief::default());
    }

    #[test]
    fn a_message_names_a_path_and_broken_ones_are_none() {
        let remote: IpAddr = "2001:db8::2".parse().unwrap();
        let IpAddr::V6(address) = remote else { unreachable!() };
        let quoted = [&[0x60; 24][..], &address.octets(), &[5; 30]].concat();
        let message = |mtu: u32| [&[2, 0, 0, 0], &mtu.to_be_bytes()[..], &quoted].concat();
        assert_eq!(parse(&message(1400)), Some((remote, 1400, &quoted[..])));
        assert_eq!(parse(&message(68)), Some((remote, CARRIED_IPV6, &quoted[..])));
        (0..48).for_each(|len| assert_eq!(parse(&message(1400)[..len]), None, "{len}"));
    }
}
