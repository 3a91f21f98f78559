//! Names of header stacks in tables. Each name is formatted only once.

use grosso_wire::{Kind, Stack};

use super::Headers;
use crate::headers::{Transport, addresses, ports, protocol};

/// Names of the header stacks that have occurred.
#[derive(Default)]
pub(crate) struct StackNames {
    known: Vec<(Vec<Kind>, String)>,
    last: usize,
}

impl StackNames {
    /// Returns the headers of a packet that is `len` bytes long on its link.
    pub(crate) fn headers(&mut self, data: &[u8], len: usize, stack: &Stack) -> Headers<'_> {
        let transport = Transport::of(stack, len);
        Headers {
            addresses: addresses(data, stack),
            ports: transport.map(|transport| ports(data, &transport)),
            payload: transport.map(|transport| transport.payload as u32),
            protocol: Some(self.of(stack)),
        }
    }

    fn of(&mut self, stack: &Stack) -> &str {
        let is_it = |kinds: &[Kind]| {
            kinds.iter().copied().eq(stack.layers().iter().map(|layer| layer.kind))
        };
        if !self.known.get(self.last).is_some_and(|(kinds, _)| is_it(kinds)) {
            let found = self.known.iter().position(|(kinds, _)| is_it(kinds));
            self.last = found.unwrap_or_else(|| self.learn(stack));
        }
        &self.known[self.last].1
    }

    fn learn(&mut self, stack: &Stack) -> usize {
        if self.known.len() >= STACKS_MAX {
            self.known.clear();
        }
        let kinds = stack.layers().iter().map(|layer| layer.kind).collect();
        self.known.push((kinds, protocol(stack)));
        self.known.len() - 1
    }
}

/// Number of header stacks whose names are cached. The cache is cleared when another one is added.
const STACKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use grosso_wire::Layer;

    use super::*;

    #[test]
    fn more_stacks_than_are_cached_still_have_names() {
        let mut known = StackNames::default();
        let kinds = [Kind::Ipv4, Kind::Ipv6, Kind::Udp];
        for number in 0..3usize.pow(5) {
            let mut stack = Stack::new(0);
            (0..5).for_each(|at| {
                let kind = kinds[number / 3usize.pow(at) % 3];
                stack.push(Layer { kind, offset: 0, len: 0 });
            });
            assert_eq!(known.of(&stack), protocol(&stack));
            assert!(known.known.len() <= STACKS_MAX);
        }
    }
}
