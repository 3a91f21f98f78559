//! Writes the initial corpus of every fuzz target, made by the test kit: `seeds DIRECTORY`.

use std::{fs, io, path::Path};

use grosso::meta::{Gso, Meta};
use grosso_io::capture::{CaptureWriter, Format, Offload, PacketMeta, WriterOptions};
use grosso_testkit::{
    Traffic,
    oracle::Link,
    random::Random,
    stack::{Place, Stack},
};

/// Inputs for each target.
const SEEDS: u64 = 200;

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let directory = Path::new(&directory);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        write(directory, "dissect", seed, &dissect(seed, &mut random))?;
        write(directory, "capture", seed, &capture(seed, &mut random))?;
        write(directory, "coalesce", seed, &coalesce(&mut random))?;
        write(directory, "reassemble", seed, &random.bytes(120))?;
        write(directory, "decapsulate", seed, &random.bytes(30))?;
        write(directory, "esp", seed, &random.bytes(60))?;
        write(directory, "segment", seed, &random.bytes(40))?;
        write(directory, "virtio", seed, &random.bytes(40))?;
        write(directory, "expand", seed, &random.bytes(80))?;
        write(directory, "path", seed, &random.bytes(60))?;
        write(directory, "path_mtu", seed, &random.bytes(12))?;
    }
    Ok(())
}

fn write(directory: &Path, target: &str, seed: u64, bytes: &[u8]) -> io::Result<()> {
    let directory = directory.join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(format!("seed-{seed}")), bytes)
}

/// The link type, the ports, and a frame of a random stack.
fn dissect(seed: u64, random: &mut Random) -> Vec<u8> {
    let stacks = Stack::all();
    let stack = &stacks[seed as usize * 7 % stacks.len()];
    let raw = u8::from(stack.link() == Link::Ip);
    let payload = random.below(64);
    let frame = stack.packet(&Place::default()).payload_len(payload).build();
    [&[raw, 0][..], &frame].concat()
}

/// A small capture of either format, with superframes.
fn capture(seed: u64, random: &mut Random) -> Vec<u8> {
    let format = if seed.is_multiple_of(2) { Format::Pcap } else { Format::Pcapng };
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(format));
    for frame in Traffic::new(seed).take(random.within(1, 4)) {
        let gso = Gso::every(100).filter(|_| random.one_in(2));
        let offload = Some(Offload::new(&Meta { gso, ..Meta::default() }));
        let meta =
            PacketMeta { timestamp_ns: Some(random.bits() >> 3), offload, ..PacketMeta::default() };
        // Short packets let the fuzzer find the headers.
        let frame = &frame[..frame.len().min(120)];
        writer.write_packet(&meta, frame).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything")
}

/// Wide limits and a list of actions, most of which continue a train.
fn coalesce(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(7);
    bytes[1] |= 1;
    for _ in 0..random.within(4, 60) {
        // The next segment of the first flow, or anything.
        let action = if random.percent(70) { 0 } else { random.bits() as u8 };
        bytes.push(action);
    }
    bytes
}
