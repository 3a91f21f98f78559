//! Paths to the other ends, and the packet length that fits on all of them.

use std::{io, net::IpAddr};

use grosso_sys::datagram::{PathMtu, TooBigMessages};
use grosso_wire::{icmp, ipv6};

use super::stats::{SocketEvent, SocketStats};

/// Path MTU to the other ends.
#[derive(Debug)]
pub(in crate::live) struct Paths {
    paths: PathMtu,
    remotes: Vec<IpAddr>,
    mtu: Option<usize>,
    hint: Option<usize>,
    /// Time of the next query, in nanoseconds.
    look_ns: u64,
    /// Of IPv6, where the sender has to fragment what is longer than the path.
    messages: Option<Messages>,
}

/// Messages of ICMPv6 about the paths, and whether to believe them.
#[derive(Debug)]
struct Messages {
    socket: TooBigMessages,
    buffer: Box<[u8; MESSAGE_BYTES]>,
    /// Time of the next look, in nanoseconds.
    look_ns: u64,
    belief: Belief,
}

/// State of what was said of the paths. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Belief {
    /// End of the time in which long packets are remembered, because there was a message that quoted none of them.
    questioned_until_ns: u64,
    /// The longest packet of which it is proven that it reaches all other ends, and the end of that time.
    proven: Option<(usize, u64)>,
}

impl Paths {
    /// Paths to these addresses, all of one family.
    pub(in crate::live) fn new(remotes: &[IpAddr], is_ipv4: bool) -> io::Result<Self> {
        let (paths, remotes) = (PathMtu::new(is_ipv4)?, remotes.to_vec());
        // Without the right to open it, what the kernel was told is followed.
        let messages = if is_ipv4 { None } else { TooBigMessages::open().ok() };
        let messages = messages.map(|socket| Messages {
            socket,
            buffer: Box::new([0; MESSAGE_BYTES]),
            look_ns: 0,
            belief: Belief::default(),
        });
        let mut known = Self { paths, remotes, mtu: None, hint: None, look_ns: 0, messages };
        known.look_now();
        Ok(known)
    }

    /// The longest packet that leaves towards every other end, in bytes from its IP header on: a
    /// fact of this host.
    pub(in crate::live) fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// The longest packet that reaches every other end, as far as this host knows and ICMP says: over IPv6 if the
    /// message quoted a packet that was sent, otherwise whatever the kernel was told. It forgets that after ten minutes
    /// (`net.ipv4.route.mtu_expires`).
    pub(in crate::live) fn hint(&self) -> Option<usize> {
        let Some(messages) = &self.messages else { return self.hint };
        let proven = messages.belief.proven.map(|(mtu, _)| mtu);
        [self.mtu, proven].into_iter().flatten().min()
    }

    /// Whether datagrams have to leave in fragments of what the kernel was told of the path.
    pub(in crate::live) fn is_narrow(&self) -> bool {
        self.messages.as_ref().is_none_or(|messages| messages.belief.proven.is_some())
    }

    /// Whether long packets are to be remembered, because somebody said that the path does not carry them.
    pub(in crate::live) fn is_questioned(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| messages.belief.questioned_until_ns > 0)
    }

    /// Queries the path MTU again and reads messages, if the intervals have passed. Says whether
    /// [`Self::is_narrow`] or [`Self::is_questioned`] changed; `has_sent` says whether a quoted packet was sent.
    pub(in crate::live) fn look(
        &mut self,
        now_ns: u64,
        has_sent: &dyn Fn(&[u8]) -> bool,
        stats: &mut SocketStats,
    ) -> bool {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_AGAIN_NS);
            self.look_now();
        }
        let before = (self.is_narrow(), self.is_questioned());
        if let Some(messages) = &mut self.messages
            && now_ns >= messages.look_ns
        {
            messages.look_ns = now_ns.saturating_add(READ_AGAIN_NS);
            messages.read(now_ns, &self.remotes, self.mtu, has_sent, stats);
        }
        before != (self.is_narrow(), self.is_questioned())
    }

    /// Queries the path MTU again at once, because a packet was too long for the last known one.
    pub(in crate::live) fn look_now(&mut self) {
        let Self { paths, remotes, .. } = self;
        let of_routes = remotes.iter().filter_map(|remote| paths.of_route(*remote).ok()).min();
        let hints = remotes.iter().filter_map(|remote| paths.to(*remote).ok()).min();
        (self.mtu, self.hint) = (of_routes.or(self.mtu), hints.or(self.hint));
    }
}

impl Messages {
    /// Reads the messages that came.
    fn read(
        &mut self,
        now_ns: u64,
        remotes: &[IpAddr],
        mtu: Option<usize>,
        has_sent: &dyn Fn(&[u8]) -> bool,
        stats: &mut SocketStats,
    ) {
        self.belief.forget(now_ns);
        for _ in 0..MESSAGES_MAX {
            // An error of the socket says nothing of the paths.
            let Ok(Some(message)) = self.socket.next(&mut self.buffer[..]) else { return };
            let Some((said, quoted)) = parse(message, remotes) else { continue };
            if mtu.is_some_and(|mtu| said >= mtu) {
                continue;
            }
            let is_proven = has_sent(quoted);
            self.belief.hear(now_ns, said, is_proven);
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

/// The length that a message names, and what it quotes of a packet to one of these addresses, from its IP header on.
fn parse<'a>(message: &'a [u8], remotes: &[IpAddr]) -> Option<(usize, &'a [u8])> {
    let (header, quoted) = message.split_at_checked(icmp::HEADER_LEN)?;
    let destination = quoted.get(ipv6::field::DESTINATION)?.first_chunk::<16>()?;
    let said = u32::from_be_bytes(*header.last_chunk()?);
    let is_ours = remotes.contains(&IpAddr::from(*destination));
    is_ours.then_some((usize::try_from(said).ok()?.max(MTU_MIN), quoted))
}

/// Interval between queries of the path MTU, in nanoseconds. A query takes some ten system calls a
/// path.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// Interval between looks for messages, in nanoseconds. A look is one system call if there is none.
const READ_AGAIN_NS: u64 = 10_000_000;
/// Messages that are read at once. Of more, the kernel keeps what the socket's buffer holds.
const MESSAGES_MAX: usize = 64;
/// Bytes that are read of a message: its header, the headers of the quoted packet and what is compared of it.
const MESSAGE_BYTES: usize = 256;
/// Time for which long packets are remembered after a message, in nanoseconds: that of several retransmissions.
const QUESTIONED_NS: u64 = 10_000_000_000;
/// Time for which a message is believed, in nanoseconds: that of the kernel (`net.ipv6.route.mtu_expires`).
const PROVEN_NS: u64 = 600_000_000_000;
/// Bytes that every link of IPv6 carries (RFC 8200 section 5).
const MTU_MIN: usize = 1280;

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
    fn messages_about_others_and_broken_ones_are_none() {
        let remote: IpAddr = "2001:db8::2".parse().unwrap();
        let IpAddr::V6(address) = remote else { unreachable!() };
        let quoted = [&[0x60; 24][..], &address.octets(), &[5; 30]].concat();
        let message = |mtu: u32| [&[2, 0, 0, 0], &mtu.to_be_bytes()[..], &quoted].concat();
        assert_eq!(parse(&message(1400), &[remote]), Some((1400, &quoted[..])));
        assert_eq!(parse(&message(68), &[remote]), Some((MTU_MIN, &quoted[..])));
        assert_eq!(parse(&message(1400), &["2001:db8::3".parse().unwrap()]), None);
        (0..48).for_each(|len| assert_eq!(parse(&message(1400)[..len], &[remote]), None, "{len}"));
    }
}
