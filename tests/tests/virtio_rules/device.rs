//! Tests section 6.4: operations on a TUN or TAP device.

use std::io::{self, IoSlice};

use grosso_rig::kernel::{VirtioHeader, release};
use grosso_sys::{
    interface::InterfaceName,
    tun::{Offloads, TunBuilder},
};

use super::{Case, isolated, observer, read_all, shown, taken, tap, tcp4, udp4};

#[test]
fn v30_the_matrix_of_offloads() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let all = [
            Offloads::CHECKSUM,
            Offloads::TCP_IPV4,
            Offloads::TCP_IPV6,
            Offloads::TCP_ECN,
            Offloads::UDP,
            Offloads::UDP_TUNNEL,
            Offloads::UDP_TUNNEL_CHECKSUM,
        ];
        if release() < (6, 17) {
            println!("skipped: the matrix of offloads wants Linux 6.17");
            return Ok(());
        }
        for bits in 0..1_u32 << all.len() {
            let chosen = all.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0);
            let offloads = chosen.fold(Offloads::NONE, |sum, (_, offload)| sum | *offload);
            let has = |offload| offloads.contains(offload);
            let tcp = has(Offloads::TCP_IPV4) || has(Offloads::TCP_IPV6);
            let allowed = bits == 0
                || has(Offloads::CHECKSUM)
                    && (tcp || !has(Offloads::TCP_ECN))
                    && (tcp || has(Offloads::UDP) || !has(Offloads::UDP_TUNNEL))
                    && (has(Offloads::UDP_TUNNEL) || !has(Offloads::UDP_TUNNEL_CHECKSUM));
            let takes = taken(tap.set_offloads(offloads).map(|()| 0));
            assert_eq!(takes, allowed, "{offloads:?}");
        }
        Ok(())
    });
}

#[test]
fn v30_writes_are_taken_whatever_the_reader_takes() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        tap.set_offloads(Offloads::NONE)?;
        for packet in [tcp4(), udp4()] {
            assert!(Case::superframe(packet.payload_len(3000), 1000).kernel_takes(&tap));
        }
        Ok(())
    });
}

#[test]
fn v31_a_header_of_any_length_from_10_on_and_what_is_beyond_the_known_is_skipped() {
    isolated(|control| {
        let tap = tap(control, "tap0")?;
        let observer = observer(&tap)?;
        let case = Case::superframe(tcp4().payload_len(3000), 1000);
        for bytes in 0..=u8::MAX {
            let set = taken(tap.set_header_bytes(bytes).map(|()| 0));
            assert_eq!(set, bytes >= 10, "{bytes}");
            if !set {
                continue;
            }
            let mut header = case.header.to_bytes().to_vec();
            header.resize(usize::from(bytes).max(VirtioHeader::TUNNEL_BYTES), 0xa5);
            header.truncate(bytes.into());
            tap.write(&[&header, &case.frame[..]].concat())?;
            let [(_, frame)] = shown(&observer)?.try_into().unwrap();
            assert_eq!(frame, case.frame, "{bytes}");
        }
        Ok(())
    });
}

#[test]
fn v32_napi_takes_what_is_written_and_fragments_have_a_limit() {
    isolated(|control| {
        let name = InterfaceName::new("napi0")?;
        let builder = TunBuilder::tap(name).virtio_header(true).nonblocking(true).napi(true);
        let tap = match builder.clone().napi_fragments(true).open() {
            Ok(tap) => tap,
            Err(error) if error.raw_os_error() == Some(1) => {
                grosso_rig::kernel::skip("IFF_NAPI_FRAGS wants real root");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        control.set_up(&name, true)?;
        let observer = observer(&tap)?;
        let frame = tcp4().payload_len(1000).build();
        let header = [0; VirtioHeader::BYTES];
        // The virtio header is read first; `count` is the linear part and up to 17 fragments.
        let vectors = |count: usize| {
            let mut parts = vec![IoSlice::new(&header)];
            let (linear, rest) = frame.split_at(frame.len() - (count - 1));
            parts.push(IoSlice::new(linear));
            parts.extend(rest.chunks(1).map(IoSlice::new));
            tap.write_vectored(&parts)
        };
        let most = (2..64).take_while(|count| vectors(*count).is_ok()).last();
        let refused = vectors(most.unwrap_or(1) + 1).unwrap_err();
        // EMSGSIZE: MAX_SKB_FRAGS and the linear part.
        assert_eq!((most, refused.raw_os_error()), (Some(18), Some(90)));
        let frames = shown(&observer)?;
        assert!(!frames.is_empty() && frames.iter().all(|(_, shown)| *shown == frame));
        let tun = TunBuilder::tun(InterfaceName::new("napi1")?).napi(true).napi_fragments(true);
        let refused: io::Result<_> = tun.open();
        assert_eq!(refused.err().and_then(|error| error.raw_os_error()), Some(22), "TAP only");
        assert!(read_all(&tap)?.is_empty());
        Ok(())
    });
}
