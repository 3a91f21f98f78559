//! Grosso's own engine as a program that `grosso conform` tests: it violates no law, and merges all packets that may be
//! merged.
//!
//! With the argument `PROGRAM`, this test runs as that program.

#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::{
    io::{self, Read, Write},
    process::Command,
};

use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, checksum::Checksum};
use grosso_wire::{
    Kind, LinkType, Ports, dissect,
    virtio::{
        FLAG_DATA_VALID, FLAG_NEEDS_CHECKSUM, Form, GSO_TCP_IPV4, GSO_TCP_IPV6, GSO_UDP_SEGMENTS,
        HEADER_LEN, Order, VirtioHeader,
    },
};

fn main() {
    // Test runners may pass libtest's options to any test.
    if std::env::args().any(|word| word == PROGRAM) {
        coalesce().expect("standard input and output");
        return;
    }
    let mut judge = Command::new(env!("CARGO_BIN_EXE_grosso"));
    let own = std::env::current_exe().expect("a path");
    let output = judge.args(["conform", "--strict", "--json", "--"]).arg(own).arg(PROGRAM).output();
    let output = output.expect("the command runs");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["faults"], serde_json::json!([]));
    assert_eq!(report["joins"]["made"], report["joins"]["possible"]);
    println!("test the_engine_breaks_no_law_and_joins_all_that_may_be ... ok");
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
