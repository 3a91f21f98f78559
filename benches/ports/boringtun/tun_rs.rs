//! boringtun's TUN device on tun-rs with its offload, for comparison.

use super::Error;
use parking_lot::Mutex;
use std::io;
use std::os::unix::io::{AsRawFd, RawFd};
use tun_rs::{DeviceBuilder, GROTable, SyncDevice, IDEAL_BATCH_SIZE, VIRTIO_NET_HDR_LEN};

pub struct TunSocket {
    name: String,
    device: SyncDevice,
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
}

struct Reader {
    frame: Vec<u8>,
    packets: Vec<Vec<u8>>,
    lens: Vec<usize>,
    next: usize,
    count: usize,
}

#[derive(Default)]
struct Writer {
    table: GROTable,
    batch: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl AsRawFd for TunSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.device.as_raw_fd()
    }
}

impl TunSocket {
    pub fn new(name: &str) -> Result<Self, Error> {
        let builder = DeviceBuilder::new().name(name).inherit_enable_state();
        let device = builder.with(|linux| {
            linux.offload(true).multi_queue(true);
        });
        Ok(Self {
            name: name.to_owned(),
            device: device.build_sync().map_err(Error::Socket)?,
            reader: Mutex::new(Reader {
                frame: vec![0; VIRTIO_NET_HDR_LEN + 65535],
                packets: vec![vec![0; 2048]; IDEAL_BATCH_SIZE],
                lens: vec![0; IDEAL_BATCH_SIZE],
                next: 0,
                count: 0,
            }),
            writer: Mutex::new(Writer::default()),
        })
    }

    pub fn set_non_blocking(self) -> Result<Self, Error> {
        self.device.set_nonblocking(true).map_err(Error::Socket)?;
        Ok(self)
    }

    pub fn name(&self) -> Result<String, Error> {
        Ok(self.name.clone())
    }

    pub fn mtu(&self) -> Result<usize, Error> {
        let path = format!("/sys/class/net/{}/mtu", self.name);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Ok(text.trim().parse().unwrap_or(1500))
    }

    pub fn write4(&self, src: &[u8]) -> usize {
        let writer = &mut *self.writer.lock();
        let mut packet = writer.spare.pop().unwrap_or_else(|| Vec::with_capacity(1 << 17));
        packet.clear();
        packet.resize(VIRTIO_NET_HDR_LEN, 0);
        packet.extend_from_slice(src);
        writer.batch.push(packet);
        src.len()
    }

    pub fn write6(&self, src: &[u8]) -> usize {
        self.write4(src)
    }

    pub fn flush(&self) {
        let Writer { table, batch, spare } = &mut *self.writer.lock();
        let _ = self.device.send_multiple(table, batch, VIRTIO_NET_HDR_LEN);
        spare.append(batch);
    }

    pub fn has_more(&self) -> bool {
        let reader = self.reader.lock();
        reader.next < reader.count
    }

    pub fn read<'a>(&self, dst: &'a mut [u8]) -> Result<&'a mut [u8], Error> {
        let Reader { frame, packets, lens, next, count } = &mut *self.reader.lock();
        if next == count {
            (*next, *count) = (0, 0);
            *count = self.device.recv_multiple(frame, packets, lens, 0).map_err(Error::IfaceRead)?;
        }
        if *count == 0 {
            return Err(Error::IfaceRead(io::ErrorKind::WouldBlock.into()));
        }
        let len = lens[*next].min(dst.len());
        dst[..len].copy_from_slice(&packets[*next][..len]);
        *next += 1;
        Ok(&mut dst[..len])
    }
}
