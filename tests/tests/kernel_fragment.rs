//! Tests that fragments are the same as Linux's, byte for byte. A router fragments IPv4 packets, and a host fragments
//! IPv6 packets (rules S60 to S62).

#![cfg(target_os = "linux")]

use grosso::Meta;
use grosso::segment::{FragmentOptions, Fragments, NoFragments};
use grosso_rig::kernel::{Router, Source, seed, skip};
use grosso_testkit::random::Random;
use grosso_testkit::{Packet, oracle};
use grosso_wire::LinkType;

/// Number of packets sent.
const PACKETS: u64 = 600;

#[test]
fn s60_fragments_are_those_of_a_linux_router() {
    let mut router = match Router::new() {
        Ok(router) => router,
        Err(why) => return skip(&why),
    };
    let first = seed(60);
    let (mut cut, mut options, mut pieces) = (0, 0, 0);
    for seed in first..first + PACKETS {
        let mut random = Random::new(seed);
        let packet = packet(&mut random);
        let mtu = *random.choose(&[68, 100, 577, 1006, 1280, 1500, 4352]);
        let kernel = router.forward(packet.clone(), mtu).unwrap();
        let ours = fragments(&hop(&packet), mtu);
        match &ours {
            Ok(fragments) => {
                cut += 1;
                options += usize::from(packet[0] != 0x45);
                pieces += usize::from(packet[6] & 0x3f != 0 || packet[7] != 0);
                assert_eq!(kernel.onward, *fragments, "seed {seed}, mtu {mtu}");
            }
            Err(NoFragments::Whole) => assert_eq!(kernel.onward, [hop(&packet)], "seed {seed}"),
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(cut > 300 && options > 50 && pieces > 50, "{cut} cut, {options}, {pieces}");
}

#[test]
fn s61_df_refuses_where_a_linux_router_answers_with_the_mtu() {
    let mut router = match Router::new() {
        Ok(router) => router,
        Err(why) => return skip(&why),
    };
    let packet = Packet::new().ipv4(|ip| route(ip).df(true)).udp(|udp| udp);
    let packet = packet.payload_len(3000).build();
    let kernel = router.forward(packet.clone(), 1400).unwrap();
    assert_eq!(kernel.onward, Vec::<Vec<u8>>::new());
    let [error] = &kernel.back[..] else { panic!("{:?}", kernel.back) };
    // Type 3, code 4, and the MTU (RFC 1191).
    assert_eq!((&error[20..22], &error[26..28]), (&[3, 4][..], &1400_u16.to_be_bytes()[..]));
    assert_eq!(fragments(&packet, 1400), Err(NoFragments::DontFragment { mtu: 1400 }));
}

#[test]
fn s62_fragments_are_those_of_a_linux_host() {
    let mut source = match Source::new() {
        Ok(source) => source,
        Err(why) => return skip(&why),
    };
    for mtu in [1280, 1281, 1400, 1500, 9000] {
        for len in [mtu - 48, mtu - 47, 2 * mtu, 3 * (mtu - 48) + 5, 30_000, 65_507] {
            let kernel = source.send(len.into(), mtu).unwrap();
            let Some(identification) = kernel[0].get(44..48).filter(|_| kernel.len() > 1) else {
                assert_eq!(fragments(&kernel[0], mtu), Err(NoFragments::Whole));
                continue;
            };
            let identification = u32::from_be_bytes(identification.try_into().unwrap());
            let mut whole = kernel[0][..40].to_vec();
            whole[6] = kernel[0][40];
            kernel.iter().for_each(|fragment| whole.extend(&fragment[48..]));
            let payload_len = (whole.len() - 40) as u16;
            whole[4..6].copy_from_slice(&payload_len.to_be_bytes());
            assert_eq!(fragments_with(&whole, mtu, identification).unwrap(), kernel, "{len} {mtu}");
        }
    }
}

/// Returns a packet with or without options, which may already be a fragment.
fn packet(random: &mut Random) -> Vec<u8> {
    const OPTIONS: [&[u8]; 5] = [
        &[1],
        // Unknown options: the first is copied only into the first fragment, the second into every fragment.
        &[0x1e, 6, 1, 2, 3, 4],
        &[0x9e, 4, 5, 6],
        // Router alert, which is copied into every fragment.
        &[0x94, 4, 0, 0],
        &[0x1e, 2],
    ];
    let mut options = Vec::new();
    if random.one_in(2) {
        (0..random.below(6)).for_each(|_| options.extend(*random.choose(&OPTIONS)));
    }
    let is_piece = random.one_in(4);
    let (offset, more) = (random.below(4000) as u16, random.one_in(2));
    let id = random.bits() as u16;
    let packet = Packet::new().ipv4(|ip| {
        let ip = route(ip).df(false).id(id).options(&options).tos(random.bits() as u8);
        if is_piece { ip.fragment_offset(offset).more_fragments(more) } else { ip }
    });
    let len = random.within(8, 5000) & if is_piece && more { !7 } else { !0 };
    match is_piece {
        true => packet.payload_len(len).build(),
        false => packet.udp(|udp| udp).payload_len(len).build(),
    }
}

fn route(ip: grosso_testkit::headers::Ipv4) -> grosso_testkit::headers::Ipv4 {
    ip.source(Router::SOURCE).destination(Router::DESTINATION).ttl(9)
}

/// Returns the packet as a router forwards it.
fn hop(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[8] -= 1;
    packet[10..12].fill(0);
    let header_len = usize::from(packet[0] & 15) * 4;
    let checksum = oracle::checksum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn fragments(packet: &[u8], mtu: u16) -> Result<Vec<Vec<u8>>, NoFragments> {
    fragments_with(packet, mtu, 0)
}

fn fragments_with(
    packet: &[u8],
    mtu: u16,
    identification: u32,
) -> Result<Vec<Vec<u8>>, NoFragments> {
    let slices = [packet];
    let options = FragmentOptions::new(mtu, identification);
    let mut plan = Fragments::of_packet(&slices, &Meta::default(), LinkType::Raw, &options)?;
    let mut buffer = vec![0xa5; plan.packet_len_max()];
    let mut fragments = Vec::new();
    while let Some(fragment) = plan.write_next(&mut buffer).unwrap() {
        fragments.push(buffer[..fragment.len()].to_vec());
    }
    Ok(fragments)
}
