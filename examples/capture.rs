//! A capture tool: all traffic routed to its device is written to a capture file, with superframes split into wire
//! packets.
//!
//! Usage: `capture DEVICE FILE.pcap [PACKETS]`, and then, for example, `ip link set DEVICE up` and `ip route add ...
//! dev DEVICE`.
use std::{
    env,
    error::Error,
    fs::File,
    io::{BufWriter, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use grosso_tun::{Tun, TunOptions};

/// Returns the header of a pcap file with nanosecond timestamps, in the machine's byte order.
fn header() -> Vec<u8> {
    let mut header = 0xa1b2_3c4d_u32.to_ne_bytes().to_vec();
    header.extend([2_u16, 4].into_iter().flat_map(u16::to_ne_bytes));
    // Time zone, accuracy, maximum packet length, and link type (raw IP).
    header.extend([0_u32, 0, 65_535, 101].into_iter().flat_map(u32::to_ne_bytes));
    header
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let (device, file, most) = match &words[..] {
        [device, file] => (device, file, u64::MAX),
        [device, file, most] => (device, file, most.parse()?),
        _ => return Err("capture DEVICE FILE.pcap [PACKETS]".into()),
    };
    let mut tun: Tun = Tun::open(device, &TunOptions::new())?;
    let mut file = BufWriter::new(File::create(file)?);
    file.write_all(&header())?;
    println!("{} is there", tun.name());
    let mut packets = 0;
    while packets < most {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let mut written = Ok(());
        tun.recv(|packet, _| {
            if packets == most || written.is_err() {
                return;
            }
            packets += 1;
            let len = packet.len() as u32;
            let record = [now.as_secs() as u32, now.subsec_nanos(), len, len];
            let record: Vec<u8> = record.into_iter().flat_map(u32::to_ne_bytes).collect();
            written = file.write_all(&record).and_then(|()| file.write_all(packet));
        })?;
        written?;
        // Without this, programs that read the file would see incomplete packets.
        file.flush()?;
    }
    println!("{packets} packets");
    Ok(())
}
