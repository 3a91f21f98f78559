//! Measures a path that connects two VMs without CPUs, in superframes and short packets per second.
//!
//! The slower of two threads determines the figure: the path, or the drivers. Frames are copied out of one guest's
//! memory and into the other's.

use std::{
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    thread,
    time::{Duration, Instant},
};

use grosso_io::{
    live::{VhostOptions, VhostPort},
    runner::{DataPath, RunOptions},
};
use grosso_testkit::{
    Packet,
    front_end::{
        FROM_GUEST, FrontEnd, GUEST, MERGEABLE, PACKED, SIZE, SLOTS, TO_GUEST, descriptor, regions,
        rings, slot_at,
    },
};
use grosso_vhost::memory::{Memory, RegionPlace};

/// Measures a path for this duration with each length.
pub(super) fn run(lasts: Duration) {
    for (name, len, merges) in [
        ("superframes of 60000 bytes", 60_000, true),
        ("packets of 1514 bytes", 1460, false),
        ("packets of 64 bytes", 10, false),
        ("packets of 64 bytes, examined for joining", 10, true),
    ] {
        let (frames, bytes, seconds) = measure(len, merges, lasts);
        let [rate, bits] = [frames / seconds / 1e6, bytes * 8.0 / seconds / 1e9];
        println!("a path, {name}: {rate:.3} million frames/s, {bits:.2} Gb/s");
    }
}

/// Returns the number of frames and bytes that arrived, and the elapsed seconds.
fn measure(len: usize, merges: bool, lasts: Duration) -> (f64, f64, f64) {
    let folder = std::env::temp_dir().join(format!("grosso-vhost-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let paths = ["a", "b"].map(|name| folder.join(name));
    let [left, right] =
        paths.each_ref().map(|path| VhostPort::open(&VhostOptions::new(path)).expect("a port"));
    let mut options = RunOptions::new(7);
    options.left_to_right.coalesce = merges;
    options.right_to_left.coalesce = merges;
    let path = DataPath::new(left, right, options).expect("a path");
    let handle = path.handle();
    let runs = thread::spawn(move || path.run());
    let wanted = !(MERGEABLE | PACKED);
    let [mut from, mut to] = paths.map(|path| {
        let front = FrontEnd::connect(&path, wanted, &mut || ()).expect("a back end");
        Driver::new(front)
    });
    from.lay_out(FROM_GUEST, &frame(len));
    to.lay_out(TO_GUEST, &vec![0; 66_000]);
    let (start, mut frames, mut bytes) = (Instant::now(), 0_u64, 0_u64);
    while start.elapsed() < lasts {
        for _ in 0..64 {
            from.offer(FROM_GUEST);
            let (more, length) = to.collect(TO_GUEST);
            (frames, bytes) = (frames + more, bytes + length);
            to.offer(TO_GUEST);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(frames > 0, "no frame came through the path");
    handle.stop();
    runs.join().expect("a path").result.expect("a path that ends well");
    // It does no harm if the directory remains.
    let _ = std::fs::remove_dir_all(folder);
    (frames as f64, bytes as f64, seconds)
}

/// Returns a frame with its virtio header.
fn frame(len: usize) -> Vec<u8> {
    let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len);
    if len <= 1460 {
        return [vec![0; 12], whole.build()].concat();
    }
    let (bytes, start, offset) = whole.build_superframe();
    let mut header = vec![1, 1];
    for field in [whole.header_len() as u16, 1448, start as u16, offset as u16, 0] {
        header.extend(field.to_le_bytes());
    }
    [header, bytes].concat()
}

/// A driver that has mapped its VM's memory and prepared its frames in advance.
struct Driver {
    front: FrontEnd,
    memory: Arc<Memory>,
    available: u16,
    used: u16,
}

impl Driver {
    fn new(front: FrontEnd) -> Self {
        let file = || front.memory().try_clone().expect("a descriptor");
        let places = regions().map(|[guest, bytes, user, offset]| RegionPlace {
            guest,
            bytes,
            user,
            offset,
        });
        let memory = Memory::map(&places, &[file(), file()]).expect("memory");
        Self { front, memory, available: 0, used: 0 }
    }

    fn lay_out(&mut self, ring: usize, bytes: &[u8]) {
        let writes = if ring == TO_GUEST { 2 } else { 0 };
        for slot in 0..SLOTS {
            let at = slot_at(ring, slot.into());
            self.front.write(at, bytes);
            let words = (at, bytes.len() as u32, writes, 0);
            self.front.write(GUEST + rings(ring)[0] + 16 * u64::from(slot), &descriptor(words));
        }
    }

    /// Makes all entries available again that the back end has used or that were collected.
    fn offer(&mut self, ring: usize) {
        let [_, available, used] = rings(ring).map(|at| GUEST + at);
        if ring == FROM_GUEST {
            self.used = self.number(used + 2);
        }
        let before = self.available;
        while self.available.wrapping_sub(self.used) < SLOTS {
            let entry = u64::from(self.available % SIZE);
            self.put(available + 4 + 2 * entry, self.available % SLOTS);
            self.available = self.available.wrapping_add(1);
        }
        if before == self.available {
            thread::yield_now();
            return;
        }
        fence(Ordering::Release);
        self.put(available + 2, self.available);
        fence(Ordering::SeqCst);
        let event = self.number(used + 4 + 8 * u64::from(SIZE));
        let new = self.available;
        if new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(before) {
            self.front.kick(ring).expect("a kick");
        }
    }

    /// Returns the number of frames and bytes that have arrived.
    fn collect(&mut self, ring: usize) -> (u64, u64) {
        let [_, _, used] = rings(ring).map(|at| GUEST + at);
        let (now, mut bytes) = (self.number(used + 2), 0);
        fence(Ordering::Acquire);
        let frames = now.wrapping_sub(self.used);
        while self.used != now {
            let mut length = [0; 4];
            let entry = u64::from(self.used % SIZE);
            assert!(self.memory.read(used + 4 + 8 * entry + 4, &mut length));
            bytes += u64::from(u32::from_le_bytes(length)).saturating_sub(12);
            self.used = self.used.wrapping_add(1);
        }
        (frames.into(), bytes)
    }

    fn number(&self, at: u64) -> u16 {
        let mut number = [0; 2];
        assert!(self.memory.read(at, &mut number));
        u16::from_le_bytes(number)
    }

    fn put(&self, at: u64, number: u16) {
        assert!(self.memory.write(at, &number.to_le_bytes()));
    }
}
