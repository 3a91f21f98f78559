//! Payload of a superframe, consumed piece by piece.

use grosso_checksum::Sum;

/// Part of a superframe's payload that has not been consumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload<'a> {
    pub(super) slices: &'a [&'a [u8]],
    pub(super) slice: usize,
    pub(super) offset: usize,
}

impl<'a> Payload<'a> {
    /// Passes the next `len` bytes to `each`, slice by slice.
    #[inline(always)]
    pub(super) fn take(&mut self, len: usize, mut each: impl FnMut(&'a [u8])) {
        match self.take_together(len) {
            Some(bytes) => each(bytes),
            None => self.take_apart(len, each),
        }
    }

    /// Returns the next `len` bytes if they lie in a single slice, as they usually do.
    #[inline(always)]
    fn take_together(&mut self, len: usize) -> Option<&'a [u8]> {
        let slice = self.slices.get(self.slice)?;
        let bytes = slice.get(self.offset..)?.get(..len).filter(|bytes| !bytes.is_empty())?;
        self.offset += len;
        if self.offset == slice.len() {
            self.slice += 1;
            self.offset = 0;
        }
        Some(bytes)
    }

    #[inline]
    fn take_apart(&mut self, mut len: usize, mut each: impl FnMut(&'a [u8])) {
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

    /// Fills `out` with the next bytes.
    pub(super) fn copy(&mut self, out: &mut [u8]) {
        let mut rest = out;
        self.take(rest.len(), |slice| {
            if let Some(target) = rest.split_off_mut(..slice.len()) {
                target.copy_from_slice(slice);
            }
        });
    }

    /// Fills `out` with the next bytes, and sums them in the same pass.
    #[inline]
    pub(super) fn copy_summed(&mut self, out: &mut [u8]) -> Sum {
        match self.take_together(out.len()) {
            Some(bytes) => grosso_checksum::copy(bytes, out),
            None => self.copy_apart(out),
        }
    }

    #[inline(never)]
    fn copy_apart(&mut self, out: &mut [u8]) -> Sum {
        let mut sum = Sum::ZERO;
        let mut at = 0;
        self.take_apart(out.len(), |slice| {
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

    /// Returns the number of bytes left in the current slice.
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
