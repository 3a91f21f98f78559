//! Tests Grosso's own engine with `grosso conform`: it violates no law in any task, and merges all packets that may be
//! merged.
//!
//! With the argument `PROGRAM`, this test runs as that program; the next argument is the task.

#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::{
    io::{self, Read, Write},
    process::Command,
};

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile,
    checksum::Checksum,
    reassemble::{Outcome, Reassembler, ReassemblyMode, ReassemblyRules},
    segment::{Outgoing, Segments},
};
use grosso_wire::{
    Kind, LinkType, Ports, dissect,
    virtio::{
        FLAG_DATA_VALID, FLAG_NEEDS_CHECKSUM, Form, GSO_TCP_IPV4, GSO_TCP_IPV6, GSO_UDP_SEGMENTS,
        HEADER_LEN, Order, VirtioHeader,
    },
};

fn main() {
    // Test runners may pass libtest's options to any test.
    let mut words = std::env::args().skip_while(|word| word != PROGRAM).skip(1);
    match words.next().as_deref() {
        None => TASKS.into_iter().for_each(examine),
        Some("segment") => each_poll(segment).expect("standard input and output"),
        Some("reassemble") => each_poll(reassemble).expect("standard input and output"),
        Some(_) => coalesce().expect("standard input and output"),
    }
}

fn examine(task: &str) {
    let mut judge = Command::new(env!("CARGO_BIN_EXE_grosso"));
    let own = std::env::current_exe().expect("a path");
    judge
        .args(["conform", "--strict", "--json", "--task", task, "--"])
        .arg(own)
        .args([PROGRAM, task]);
    let output = judge.output().expect("the command runs");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["faults"], serde_json::json!([]));
    assert!(report["vectors"]["right"].as_u64() > Some(20), "{report}");
    assert_eq!(report["joins"]["made"], report["joins"]["possible"]);
    println!("test the_engine_breaks_no_law_of_{task} ... ok");
}

/// Passes the records of each poll to `work`, and writes the packets that it returns. These have no virtio header.
fn each_poll(work: impl Fn(&[Vec<u8>]) -> Vec<Vec<u8>>) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::BufWriter::new(io::stdout().lock()));
    let (mut records, mut length) = (Vec::new(), [0; 4]);
    while input.read_exact(&mut length).is_ok() {
        let mut record = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut record)?;
        if !record.is_empty() {
            records.push(record);
            continue;
        }
        for packet in work(&records) {
            output.write_all(&((HEADER_LEN + packet.len()) as u32).to_le_bytes())?;
            output.write_all(&[0; HEADER_LEN])?;
            output.write_all(&packet)?;
        }
        output.write_all(&[0; 4])?;
        output.flush()?;
        records.clear();
    }
    Ok(())
}

fn segment(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for record in records {
        let (header, frame) = record.split_at(HEADER_LEN);
        let (header, _) =
            VirtioHeader::parse(header, Form::Short, Order::Little).expect("a header");
        let stack = dissect(frame, LinkType::Ethernet, &Ports::ASSIGNED);
        let meta =
            grosso::vnet::understand(&header, frame, LinkType::Ethernet, &stack, Form::Short);
        let (slices, meta) = ([frame], meta.expect("a superframe"));
        let segments =
            Segments::new(&slices, &meta, LinkType::Ethernet, &Ports::ASSIGNED, Outgoing::COMPLETE);
        let mut segments = segments.expect("a superframe");
        let mut buffer = vec![0; segments.packet_len_max()];
        while let Some(segment) = segments.write_next(&mut buffer).expect("room") {
            packets.push(buffer[..segment.len()].to_vec());
        }
    }
    packets
}

fn reassemble(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let rules = ReassemblyRules::new(ReassemblyMode::Coalesce);
    let reassembler = Reassembler::new(rules, LinkType::Ethernet, Ports::ASSIGNED, 1);
    let mut reassembler = reassembler.expect("rules that fit together");
    let mut datagrams = Vec::new();
    let mut sink = |outcome: Outcome<'_, &[u8]>| {
        if let Outcome::Datagram(datagram) = outcome {
            let mut whole = Vec::new();
            datagram.copy_to(&mut whole);
            datagrams.push(whole);
        }
    };
    for record in records {
        reassembler.push(Frame::new(&record[HEADER_LEN..]), 0, &mut sink);
    }
    datagrams
}

/// Merges the packets that it reads, poll by poll.
fn coalesce() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::BufWriter::new(io::stdout().lock()));
    let options = CoalesceOptions::new(LinkType::Ethernet, 1).profile(Profile::linux());
    let mut coalescer = Coalescer::new(options);
    let mut length = [0; 4];
    while input.read_exact(&mut length).is_ok() {
        let mut record = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut record)?;
        let mut records = Vec::new();
        let mut sink = |delivery: Delivery<'_, Vec<u8>>| put(&delivery, &mut records);
        if record.is_empty() {
            coalescer.poll_end(0, &mut sink);
            records.extend([0; 4]);
        } else {
            coalescer.push(Frame::new(record.split_off(HEADER_LEN)), 0, &mut sink);
        }
        output.write_all(&records)?;
        if record.is_empty() {
            output.flush()?;
        }
    }
    Ok(())
}

/// Appends the record of a delivered frame.
fn put(delivery: &Delivery<'_, Vec<u8>>, records: &mut Vec<u8>) {
    let mut frame = Vec::new();
    delivery.copy_to(&mut frame);
    let mut header = [0; HEADER_LEN];
    described(&frame, &delivery.meta)
        .emit(Form::Short, Order::Little, &mut header)
        .expect("room for a header");
    records.extend(((HEADER_LEN + frame.len()) as u32).to_le_bytes());
    records.extend(header);
    records.extend(frame);
}

fn described(frame: &[u8], meta: &Meta) -> VirtioHeader {
    let mut header = VirtioHeader::default();
    match meta.checksum {
        Checksum::Partial { start, offset } => {
            header.flags = FLAG_NEEDS_CHECKSUM;
            (header.checksum_start, header.checksum_offset) = (start, offset);
        }
        Checksum::Unnecessary { .. } => header.flags = FLAG_DATA_VALID,
        Checksum::None | Checksum::Complete { .. } => {}
    }
    if let Some(size) = meta.gso.and_then(|gso| gso.size()) {
        let stack = dissect(frame, LinkType::Ethernet, &Ports::ASSIGNED);
        let is_over_ipv6 = stack.layers().iter().rev().find_map(|layer| match layer.kind {
            Kind::Ipv4 => Some(false),
            Kind::Ipv6 => Some(true),
            _ => None,
        });
        header.gso_size = size;
        header.gso_type = match (stack.last().map(|last| last.kind), is_over_ipv6) {
            (Some(Kind::Udp), _) => GSO_UDP_SEGMENTS,
            (_, Some(true)) => GSO_TCP_IPV6,
            _ => GSO_TCP_IPV4,
        };
    }
    header
}

const PROGRAM: &str = "as-a-program";
const TASKS: [&str; 3] = ["coalesce", "segment", "reassemble"];
