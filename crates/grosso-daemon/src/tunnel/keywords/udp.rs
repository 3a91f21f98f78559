//! Keywords for the UDP header of VXLAN and Geneve.

use grosso::tunnel::Header;

use super::{Description, Form, Keyword, Kind, Value, switched_off, switched_on};
use crate::tunnel::kind::WITH_PORT;

pub(super) const ROWS: &[Keyword] = &[
    Keyword::new(
        "srcport",
        "[srcport LOW HIGH: 49152 65535]",
        WITH_PORT,
        Form::Ports,
        |tunnel, value| {
            if let (Some(udp), Value::Ports(low, high)) = (tunnel.udp_mut(), value) {
                udp.source = *low..=*high;
            }
        },
        |tunnel| {
            let source = &tunnel.endpoint.udp()?.source;
            Some(Value::Ports(*source.start(), *source.end()))
        },
    )
    .synonyms(&["port"]),
    Keyword::new(
        "dstport",
        "[dstport P: 4789, 4790 with gpe, 6081]",
        WITH_PORT,
        PORT,
        set_destination,
        destination,
    ),
    Keyword::new(
        "udpcsum",
        "[[no]udpcsum: on]",
        WITH_PORT,
        Form::Switch,
        |tunnel, value| {
            let is_over_ipv4 = tunnel.endpoint.remote.is_ipv4();
            if let Some(udp) = tunnel.udp_mut().filter(|_| is_over_ipv4) {
                udp.checksum = value.is_on();
            }
        },
        |tunnel| match tunnel.endpoint.remote.is_ipv4() {
            true => Some(Value::Switch(tunnel.endpoint.udp()?.checksum)),
            false => None,
        },
    )
    .check(|tunnel, value, words| {
        let is_zero = words.switch("udp6zerocsumtx") == Some(true);
        if tunnel.endpoint.remote.is_ipv6() && !value.is_on() && !is_zero {
            return Err(
                "option `noudpcsum` applies only to IPv4; for IPv6 use udp6zerocsumtx".to_owned()
            );
        }
        Ok(())
    }),
    Keyword::new(
        "udp6zerocsumtx",
        "[[no]udp6zerocsumtx]",
        WITH_PORT,
        Form::Switch,
        |tunnel, value| {
            let is_over_ipv6 = tunnel.endpoint.remote.is_ipv6();
            if let Some(udp) = tunnel.udp_mut().filter(|_| is_over_ipv6) {
                udp.checksum = !value.is_on();
            }
        },
        |tunnel| match tunnel.endpoint.remote.is_ipv6() {
            true => Some(Value::Switch(!tunnel.endpoint.udp()?.checksum)),
            false => None,
        },
    )
    .check(|tunnel, value, _| check_over_ipv6("udp6zerocsumtx", tunnel, value)),
    Keyword::new(
        "udp6zerocsumrx",
        "[[no]udp6zerocsumrx]",
        WITH_PORT,
        Form::Switch,
        |tunnel, value| {
            if let Some(udp) = tunnel.udp_mut() {
                udp.ipv6_without_checksum = value.is_on();
            }
        },
        |tunnel| match tunnel.endpoint.remote.is_ipv6() {
            true => Some(Value::Switch(tunnel.endpoint.udp()?.ipv6_without_checksum)),
            false => None,
        },
    )
    .check(|tunnel, value, _| check_over_ipv6("udp6zerocsumrx", tunnel, value)),
    Keyword::new(
        "remcsumtx",
        "[remcsumtx]",
        &[Kind::Vxlan],
        Form::Switch,
        |tunnel, value| {
            if let Some(udp) = tunnel.udp_mut() {
                udp.remote_checksum.transmit = value.is_on();
            }
        },
        |tunnel| switched_on(tunnel.endpoint.udp()?.remote_checksum.transmit),
    )
    .check(|tunnel, value, _| check_offload("remcsumtx", tunnel, value)),
    Keyword::new(
        "remcsumrx",
        "[remcsumrx]",
        &[Kind::Vxlan],
        Form::Switch,
        |tunnel, value| {
            if let Some(udp) = tunnel.udp_mut() {
                udp.remote_checksum.receive = value.is_on();
            }
        },
        |tunnel| switched_on(tunnel.endpoint.udp()?.remote_checksum.receive),
    )
    .check(|tunnel, value, _| check_offload("remcsumrx", tunnel, value)),
    Keyword::new(
        "remcsumpartial",
        "[noremcsumpartial]",
        &[Kind::Vxlan],
        Form::Switch,
        |tunnel, value| {
            if let Some(udp) = tunnel.udp_mut() {
                udp.remote_checksum.complete = !value.is_on();
            }
        },
        |tunnel| switched_off(!tunnel.endpoint.udp()?.remote_checksum.complete),
    )
    .grosso_only("complete remote checksums")
    .check(|tunnel, _, _| match tunnel.endpoint.udp() {
        Some(udp) if udp.remote_checksum.complete && !udp.remote_checksum.receive => {
            Err("noremcsumpartial needs remcsumrx".to_owned())
        }
        _ => Ok(()),
    }),
];

pub(super) fn set_destination(tunnel: &mut Description, value: &Value) {
    if let (Some(udp), Some(port)) = (tunnel.udp_mut(), value.number()) {
        udp.destination = port;
    }
}

pub(super) fn destination(tunnel: &Description) -> Option<Value> {
    Some(Value::Number(tunnel.endpoint.udp()?.destination.into()))
}

fn check_over_ipv6(name: &str, tunnel: &Description, value: &Value) -> Result<(), String> {
    if value.is_on() && tunnel.endpoint.remote.is_ipv4() {
        return Err(format!("option `{name}` applies only to IPv6; for IPv4 use noudpcsum"));
    }
    Ok(())
}

/// Checks that a tunnel with remote checksum offload has the header field and a checksum.
fn check_offload(name: &str, tunnel: &Description, value: &Value) -> Result<(), String> {
    if !value.is_on() {
        return Ok(());
    }
    if matches!(tunnel.endpoint.header, Header::Vxlan { generic_protocol: true, .. }) {
        return Err(format!("gpe and {name} cannot be combined: they use the same header field"));
    }
    if tunnel.endpoint.udp().is_some_and(|udp| !udp.checksum) {
        let off = if tunnel.endpoint.remote.is_ipv4() { "noudpcsum" } else { "udp6zerocsumtx" };
        return Err(format!(
            "{off} and {name} cannot be combined: neither the inner nor the outer packet would \
             have a checksum"
        ));
    }
    Ok(())
}

/// A port number.
pub(super) const PORT: Form = Form::Number(1, 65535, &[]);
