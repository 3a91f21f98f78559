//! Builds capture files field by field, without using the tested code.

use grosso_capture::ByteOrder;

/// A file under construction in one byte order.
pub(crate) struct File {
    pub(crate) order: ByteOrder,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    pub(crate) fn new(order: ByteOrder) -> Self {
        Self { order, bytes: Vec::new() }
    }

    pub(crate) fn pcap(order: ByteOrder, magic: u32, link_type: u32) -> Self {
        let mut file = Self::new(order);
        file.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(link_type);
        file
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        match self.order {
            ByteOrder::Little => self.bytes.extend(value.to_le_bytes()),
            ByteOrder::Big => self.bytes.extend(value.to_be_bytes()),
        }
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        match self.order {
            ByteOrder::Little => self.bytes.extend(value.to_le_bytes()),
            ByteOrder::Big => self.bytes.extend(value.to_be_bytes()),
        }
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        match self.order {
            ByteOrder::Little => self.bytes.extend(value.to_le_bytes()),
            ByteOrder::Big => self.bytes.extend(value.to_be_bytes()),
        }
        self
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn pad(&mut self) -> &mut Self {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self
    }

    pub(crate) fn record(
        &mut self,
        seconds: u32,
        fraction: u32,
        data: &[u8],
        original: u32,
    ) -> &mut Self {
        self.u32(seconds).u32(fraction).u32(data.len() as u32).u32(original).raw(data)
    }

    pub(crate) fn option(&mut self, code: u16, value: &[u8]) -> &mut Self {
        self.u16(code).u16(value.len() as u16).raw(value).pad()
    }

    pub(crate) fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.u32(kind).u32(0);
        body(self);
        self.pad();
        let length = (self.bytes.len() - start + 4) as u32;
        self.u32(length);
        let bytes = match self.order {
            ByteOrder::Little => length.to_le_bytes(),
            ByteOrder::Big => length.to_be_bytes(),
        };
        self.bytes[start + 4..start + 8].copy_from_slice(&bytes);
        self
    }

    pub(crate) fn section(&mut self, options: impl FnOnce(&mut Self)) -> &mut Self {
        self.block(0x0a0d_0d0a, |block| {
            block.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
            options(block);
        })
    }

    pub(crate) fn interface(
        &mut self,
        link_type: u16,
        snaplen: u32,
        options: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.block(1, |block| {
            block.u16(link_type).u16(0).u32(snaplen);
            options(block);
        })
    }

    pub(crate) fn packet(
        &mut self,
        interface: u32,
        ticks: u64,
        data: &[u8],
        original: u32,
        options: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.block(6, |block| {
            block.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
            block.u32(data.len() as u32).u32(original).raw(data).pad();
            options(block);
        })
    }
}

/// Returns a pcapng file that uses every feature: a section in each byte order, interfaces with different time units,
/// all packet blocks, names, statistics, secrets, and custom and unknown blocks and options.
pub(crate) fn everything(order: ByteOrder) -> Vec<u8> {
    let mut file = File::new(order);
    section_of_everything(&mut file);
    file.order = match order {
        ByteOrder::Little => ByteOrder::Big,
        ByteOrder::Big => ByteOrder::Little,
    };
    section_of_everything(&mut file);
    file.bytes
}

fn section_of_everything(file: &mut File) {
    file.section(|block| {
        block.option(1, b"taken for a test").option(2, b"hardware").option(4, b"hand");
        block.option(0x8123, b"unknown").option(0, b"");
    });
    file.interface(1, 262_144, |block| {
        block.option(2, b"eth0").option(9, &[9]).option(0, b"");
    });
    file.block(4, |block| {
        block.u16(1).u16(9).raw(b"\x0a\0\0\x01host\0").pad().u32(0);
    });
    file.packet(0, 1_700_000_000_123_456_789, b"first", 5, |_| {});
    file.interface(101, 0, |block| {
        block.option(2, b"tun0");
    });
    file.interface(1, 64, |block| {
        block.option(9, &[0x80 | 20]).option(14, &[0; 8]).option(0, b"");
    });
    file.packet(1, 1_700_000_000_123_456, &[7; 61], 1514, |block| {
        block.option(1, "größer".as_bytes());
        block.u16(2).u16(4).u32(0x0000_0201);
        block.option(3, &[2, 1, 2, 3, 4]).option(2989, b"\0\0\x01\x02other");
        block.option(2991, b"\0\0\x01\x02secret").option(0, b"");
    });
    file.packet(2, (1_700_000_000 << 20) + 99, b"", 0, |_| {});
    file.block(3, |block| {
        block.u32(4).raw(b"simp");
    });
    file.block(2, |block| {
        block.u16(1).u16(3).u32(1).u32(2).u32(6).u32(60).raw(b"older!").pad();
    });
    file.block(10, |block| {
        block.u32(0x544c_534b).u32(3).raw(b"key").pad();
    });
    file.block(0x0bad, |block| {
        block.u32(32_473).raw(b"custom");
    });
    file.block(0x7777_7777, |block| {
        block.raw(b"who knows what this is");
    });
    file.block(5, |block| {
        block.u32(0).u32(1).u32(2).u16(4).u16(8).u64(99);
    });
}
