//! Paths to the other ends, and the packet length that fits on all of them.

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

/// Paths to the other ends.
#[derive(Debug)]
pub(in crate::live) struct Paths {
    paths: PathMtu,
    remotes: Vec<PathTo>,
    mtu: Option<usize>,
    /// Time of the next query, and of the next look for messages and answers, in nanoseconds.
    look_ns: u64,
    read_ns: u64,
    /// Of IPv6, where the sender has to fragment what is longer than the path.
    messages: Option<Messages>,
    /// Without the right to open it, nothing is probed.
    echoes: Option<EchoSocket>,
    /// Whether packets were sent since the last look that no router fragments.
    sends_long: bool,
    /// Notification that the route to a remote endpoint now uses another link.
    route_notice: Option<Notice>,
}

/// The path to one other end.
#[derive(Debug)]
struct PathTo {
    address: IpAddr,
    /// Index of the link of its route; `None` before the first query.
    link: Option<u32>,
    /// The longest packet that reaches it, as the kernel was told.
    told: Option<usize>,
    belief: Belief,
    prober: Prober,
}

/// Messages of ICMPv6 about the paths.
#[derive(Debug)]
struct Messages {
    socket: TooBigMessages,
    buffer: Box<[u8; MESSAGE_BYTES]>,
}

/// State of what was said of a path. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Belief {
    /// Time until which long packets are recorded, because a message quoted no recorded packet.
    questioned_until_ns: u64,
    /// The longest packet that reaches the other end, as a message said that quoted one of those sent, and the end of
    /// that time.
    proven: Option<(usize, u64)>,
}

impl Paths {
    /// Paths from an address of this host to these, all of one family, which are probed or not.
    pub(in crate::live) fn new(
        local: IpAddr,
        remotes: &[IpAddr],
        probes: bool,
        route_notice: Option<Notice>,
    ) -> io::Result<Self> {
        let is_ipv4 = local.is_ipv4();
        // Without the right to open it, what the kernel was told is followed.
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

    /// The longest packet that leaves towards every other end, in bytes from its IP header on: a
    /// fact of this host.
    pub(in crate::live) fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// The longest packet that reaches every other end, as far as this host knows and ICMP says, unless a probe has
    /// shown that longer ones do: over IPv6 if the message quoted a packet that was sent, otherwise whatever the kernel
    /// was told. It forgets that after ten minutes (`net.ipv4.route.mtu_expires`).
    pub(in crate::live) fn hint(&self) -> Option<usize> {
        let hint = |remote: &PathTo| match &self.messages {
            Some(_) => remote.carries(),
            None => remote.hint(),
        };
        self.remotes.iter().filter_map(hint).chain(self.mtu).min()
    }

    /// The longest packet that reaches every other end, if it is proven that longer ones do not.
    pub(in crate::live) fn proven(&self) -> Option<usize> {
        self.remotes.iter().filter_map(PathTo::proven).min()
    }

    /// Returns whether datagrams must be fragmented to the kernel's path MTU.
    pub(in crate::live) fn is_narrow(&self) -> bool {
        self.messages.is_none() || self.remotes.iter().any(|remote| remote.carries().is_some())
    }

    /// Whether long packets are to be remembered, because somebody said that the path does not carry them.
    pub(in crate::live) fn is_questioned(&self) -> bool {
        self.remotes.iter().any(|remote| remote.belief.questioned_until_ns > 0)
    }

    /// Time of the next look that cannot wait for traffic, in nanoseconds.
    pub(in crate::live) fn deadline(&self) -> Option<u64> {
        self.echoes.as_ref()?;
        let of_remote = |remote: &PathTo| match remote.prober.is_waiting() {
            true => Some(self.read_ns),
            false => remote.prober.raises_ns().map(|raises_ns| raises_ns.max(self.read_ns)),
        };
        self.remotes.iter().filter_map(of_remote).min()
    }

    /// Queries the path MTU again, reads messages and probes, if the intervals have passed. Says whether
    /// [`Self::is_narrow`] or [`Self::is_questioned`] changed; `has_sent` says whether a quoted packet was sent, and
    /// `sends_long` whether packets were sent that no router fragments.
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

    /// Queries the path MTU again at once, because a packet was too long for the last known one.
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
            // What was found out without a message has to be told to the kernel, which makes the fragments of IPv6.
            if remote.address.is_ipv6()
                && let (Some(carries), Some(echoes)) = (remote.carries(), &*echoes)
                && told.is_some_and(|told| told > carries)
                && let Ok(mtu) = u16::try_from(carries)
            {
                // The next check sets it again.
                let _ = paths.tell(remote.address, mtu, echoes);
            }
        }
    }

    /// Takes answers to probes, and sends those that are due.
    fn probe(&mut self, now_ns: u64, stats: &mut SocketStats) {
        let sends_long = core::mem::take(&mut self.sends_long);
        let Self { remotes, echoes: Some(echoes), .. } = self else { return };
        if remotes.iter().any(|remote| remote.prober.is_waiting()) {
            echoes.answers(MESSAGES_MAX, |source, number| {
                let asked = remotes.iter_mut().filter(|remote| remote.address == source);
                asked.for_each(|remote| remote.prober.answered(now_ns, number));
            });
        }
        // No packet is longer.
        let top = self.mtu.unwrap_or_default().min(u16::MAX.into());
        for remote in remotes {
            for (number, len) in remote.prober.poll(now_ns, top, sends_long).into_iter().flatten() {
                // A request that does not leave is one that is not answered.
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
    /// The longest packet that reaches it, if a probe or a message with its proof says that longer ones do not.
    fn carries(&self) -> Option<usize> {
        let proven = self.belief.proven.map(|(mtu, _)| mtu);
        let probed = match self.prober.known() {
            Measured::Narrow(len) => Some(len),
            Measured::Nothing | Measured::Whole => None,
        };
        [proven, probed].into_iter().flatten().min()
    }

    /// The same or what the kernel was told, unless a probe has shown that it is not so.
    fn hint(&self) -> Option<usize> {
        match self.prober.known() {
            Measured::Narrow(len) => Some(self.told.map_or(len, |told| told.min(len))),
            Measured::Whole if !self.prober.is_questioned() => None,
            Measured::Nothing | Measured::Whole => self.told,
        }
    }

    /// The longest packet that reaches it, if that is sure enough to make senders send less: the end of a search, or,
    /// if the other end answers no probes, a message with its proof.
    fn proven(&self) -> Option<usize> {
        match self.prober.known() {
            Measured::Nothing => self.belief.proven.map(|(mtu, _)| mtu),
            Measured::Narrow(_) | Measured::Whole => self.prober.settled(),
        }
    }
}

impl Messages {
    /// Reads the messages that came.
    fn read(
        &mut self,
        now_ns: u64,
        remotes: &mut [PathTo],
        mtu: Option<usize>,
        has_sent: &dyn Fn(&[u8]) -> bool,
        stats: &mut SocketStats,
    ) {
        for _ in 0..MESSAGES_MAX {
            // An error of the socket says nothing of the paths.
            let Ok(Some(message)) = self.socket.next(&mut self.buffer[..]) else { return };
            let Some((address, said, quoted)) = parse(message) else { continue };
            let Some(remote) = remotes.iter_mut().find(|remote| remote.address == address) else {
                continue;
            };
            if mtu.is_some_and(|mtu| said >= mtu) {
                continue;
            }
            let is_proven = has_sent(quoted);
            remote.belief.hear(now_ns, said, is_proven);
            remote.prober.hear(said);
            let event = if is_proven { SocketEvent::PathProven } else { SocketEvent::PathUnproven };
            stats.count(event, 1);
        }
    }
}

impl Belief {
    /// Ends what is over.
    fn forget(&mut self, now_ns: u64) {
        if self.questioned_until_ns <= now_ns {
            self.questioned_until_ns = 0;
        }
        self.proven = self.proven.filter(|(_, until_ns)| now_ns < *until_ns);
    }

    /// A message that no packet longer than `said` bytes reaches another end.
    fn hear(&mut self, now_ns: u64, said: usize, is_proven: bool) {
        self.questioned_until_ns = now_ns.saturating_add(QUESTIONED_NS);
        if is_proven {
            let mtu = self.proven.map_or(said, |(mtu, _)| mtu.min(said));
            self.proven = Some((mtu, now_ns.saturating_add(PROVEN_NS)));
        }
    }
}

/// The other end of the packet that a message quotes, the length that it names, and the quoted packet from its IP
/// header on.
fn parse(message: &[u8]) -> Option<(IpAddr, usize, &[u8])> {
    let (destination, said, quoted) = path_mtu::read_v6(message)?;
    Some((destination.into(), usize::try_from(said).ok()?.max(CARRIED_IPV6), quoted))
}

/// Interval between queries of the path MTU, in nanoseconds. A query takes some ten system calls a
/// path.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// Interval between looks for messages and answers, in nanoseconds. A look is one system call if there is none.
const READ_AGAIN_NS: u64 = 10_000_000;
/// Messages that are read at once. Of more, the kernel keeps what the socket's buffer holds.
const MESSAGES_MAX: usize = 64;
/// Bytes of a message that are read: its header, the headers of the quoted packet and the bytes that are compared.
const MESSAGE_BYTES: usize = 256;
/// Time for which long packets are remembered after a message, in nanoseconds: that of several retransmissions.
const QUESTIONED_NS: u64 = 10_000_000_000;
/// Time for which a message is believed, in nanoseconds: that of the kernel (`net.ipv6.route.mtu_expires`).
const PROVEN_NS: u64 = 600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_what_is_proven_is_believed_and_not_for_ever() {
        let mut belief = Belief::default();
        belief.hear(SECOND, 1280, false);
        assert_eq!((belief.proven, belief.questioned_until_ns), (None, 11 * SECOND));
        belief.hear(2 * SECOND, 1400, true);
        belief.hear(3 * SECOND, 1450, true);
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
