//! Position of the payload of a superframe, and its consumption piece by piece.

use grosso_checksum::Sum;

/// The part of a superframe's payload that was not consumed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload<'a> {
    pub(super) slices: &'a [&'a [u8]],
    pub(super) slice: usize,
    pub(super) offset: usize,
}

impl<'a> Payload<'a> {
    /// Hands out the next `len` bytes, slice by slice.
    #[inline]
    pub(super) fn take(&mut self, mut len: usize, mut each: impl FnMut(&'a [u8])) {
        while len > 0 {
            let Some(slice) = self.slices.get(self.slice) else { return };
            let rest = slice.get(self.offset..).unwrap_or_default();
            let taken = rest.len().min(len);
            if taken > 0 {
                each(&rest[..taken]);
            }
            len -= taken;
            self.offset += taken;
            if self.offset >= slice.len() {
                self.slice += 1;
                self.offset = 0;
            }
        }
    }

    #[inline]
    pub(super) fn copy(&mut self, out: &mut [u8]) -> Sum {
        let mut sum = Sum::ZERO;
        let mut at = 0;
        self.take(out.len(), |slice| {
            if let Some(target) = out.get_mut(at..at + slice.len()) {
                sum = sum.append(at, grosso_checksum::copy(slice, target));
            }
            at += slice.len();
        });
        sum
    }

    /// Sums the next `len` bytes.
    pub(super) fn sum(&mut self, len: usize) -> Sum {
        let (mut sum, mut summed) = (Sum::ZERO, 0);
        self.take(len, |slice| {
            sum = sum.append(summed, Sum::of(slice));
            summed += slice.len();
        });
        sum
    }

    /// Bytes up to the end of the slice that is next.
    pub(super) fn slice_len(&self) -> usize {
        let mut ahead = *self;
        loop {
            match ahead.slices.get(ahead.slice) {
                Some(slice) if slice.len() > ahead.offset => return slice.len() - ahead.offset,
                Some(_) => ahead = Self { slice: ahead.slice + 1, offset: 0, ..ahead },
                None => return 0,
            }
        }
    }
}
