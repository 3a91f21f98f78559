//! Measures how fast captures are read, copied and written on this machine.
//!
//! `cargo run --release -p grosso-capture --example capture_throughput [MEGABYTES]` writes temporary files of that size
//! (512 by default) and reads them back from the page cache.

#![allow(clippy::disallowed_methods, reason = "an example for other programs")]

use std::error::Error;
use std::io;
use std::time::Instant;

use grosso_capture::{
    CaptureError, CaptureReader, CaptureWriter, Entry, Format, PacketMeta, WriterOptions,
};

/// Number of runs. Only the fastest one is shown, because background load can only slow a run down.
const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(512), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("capture");
    println!("{:8} {:>6} {:>7} {:>12} {:>8}", "format", "bytes", "job", "packets/s", "GB/s");
    for format in [Format::Pcap, Format::Pcapng] {
        for packet_bytes in [64, 1500, 65_226] {
            let packets = megabytes * 1_000_000 / packet_bytes;
            let data = vec![0x42; packet_bytes];
            let show = |job: &str, seconds: f64| {
                let rate = packets as f64 / seconds;
                let gigabytes = rate * packet_bytes as f64 / 1e9;
                println!("{format:8} {packet_bytes:>6} {job:>7} {rate:>12.0} {gigabytes:>8.2}");
            };
            show(
                "write",
                best(|| {
                    let mut writer = CaptureWriter::new(io::sink(), WriterOptions::new(format));
                    write(&mut writer, packets, &data)?;
                    writer.finish().map(drop)
                })?,
            );
            let mut writer = CaptureWriter::create(&path, WriterOptions::new(format))?;
            write(&mut writer, packets, &data)?;
            writer.finish()?;
            show(
                "read",
                best(|| {
                    let mut reader = CaptureReader::open(&path)?;
                    let mut bytes = 0;
                    while let Some(entry) = reader.next()? {
                        if let Entry::Packet(packet) = entry {
                            bytes += packet.data.len();
                        }
                    }
                    assert_eq!(bytes, packets * packet_bytes);
                    Ok(())
                })?,
            );
            show(
                "copy",
                best(|| {
                    let mut reader = CaptureReader::open(&path)?;
                    let mut writer = CaptureWriter::new(io::sink(), WriterOptions::like(&reader));
                    while let Some(entry) = reader.next()? {
                        writer.copy(&entry)?;
                    }
                    writer.finish().map(drop)
                })?,
            );
        }
    }
    Ok(())
}

fn write<W: io::Write>(
    writer: &mut CaptureWriter<W>,
    packets: usize,
    data: &[u8],
) -> Result<(), CaptureError> {
    for number in 0..packets as u64 {
        let meta = PacketMeta { timestamp_ns: Some(number), ..PacketMeta::default() };
        writer.write_packet(&meta, data)?;
    }
    Ok(())
}

fn best(mut job: impl FnMut() -> Result<(), CaptureError>) -> Result<f64, CaptureError> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        job()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}
