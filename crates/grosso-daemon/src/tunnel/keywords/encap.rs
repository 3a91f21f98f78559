//! Keywords for FOU and GUE, the optional UDP encapsulation of tunnel types that do not otherwise use UDP.

use grosso::tunnel::Carrier;

use super::{
    Description, Form, Keyword, Value, Words, switched_off,
    udp::{PORT, destination, set_destination},
};
use crate::tunnel::{
    description::{SOURCE_PORTS, default_udp},
    kind::IN_UDP,
};

/// Rows of these keywords. `encap` is the first row, because the other rows change the carrier that `encap` sets.
pub(super) const ROWS: &[Keyword] = &[
    Keyword::new(
        "encap",
        "[encap fou|gue]",
        IN_UDP,
        Form::Choice(&["fou", "gue", "none"]),
        |tunnel, value| {
            let mut udp = default_udp();
            // As in Linux, an endpoint that accepts GUE accepts remote checksum offload; the option must be protected
            // (rule C54).
            udp.remote_checksum.receive = *value == Value::Choice("gue");
            tunnel.endpoint.carrier = match value {
                Value::Choice("fou") => Carrier::Udp(udp),
                Value::Choice("gue") => Carrier::Gue(udp),
                _ => return,
            };
            tunnel.endpoint.encapsulation_limit = None;
        },
        |tunnel| match &tunnel.endpoint.carrier {
            Carrier::Ip => None,
            Carrier::Udp(_) => Some(Value::Choice("fou")),
            Carrier::Gue(_) | Carrier::DirectGue(_) => Some(Value::Choice("gue")),
        },
    )
    .check(|tunnel, _, _| match tunnel.endpoint.udp() {
        Some(udp) if udp.destination == 0 => {
            Err("encap-dport is missing: encap fou has no default port".to_owned())
        }
        _ => Ok(()),
    }),
    Keyword::new(
        "encap-variant",
        "[encap-variant 0|1]",
        IN_UDP,
        Form::Number(0, 1, &[]),
        |tunnel, value| {
            if let (Carrier::Gue(udp), Value::Number(1)) = (&tunnel.endpoint.carrier, value) {
                // Variant 1 has no header that could carry remote checksum offload.
                let mut udp = udp.clone();
                udp.remote_checksum.receive = false;
                tunnel.endpoint.carrier = Carrier::DirectGue(udp);
            }
        },
        |tunnel| match tunnel.endpoint.carrier {
            Carrier::DirectGue(_) => Some(Value::Number(1)),
            _ => None,
        },
    )
    .grosso_only("GUE variant 1")
    .check(|tunnel, _, _| match tunnel.endpoint.carrier {
        Carrier::Udp(_) => Err("encap-variant needs encap gue, not encap fou".to_owned()),
        Carrier::DirectGue(_) if tunnel.kind.is_gre() => {
            let kind = tunnel.kind.name();
            Err(format!("encap-variant 1 carries IP packets only, not {kind}"))
        }
        _ => Ok(()),
    }),
    Keyword::new(
        "encap-sport",
        "[encap-sport P: auto]",
        IN_UDP,
        Form::Number(1, 65535, &["auto"]),
        |tunnel, value| {
            if let Some(udp) = tunnel.udp_mut() {
                udp.source = value.number().map_or(SOURCE_PORTS, |port| port..=port);
            }
        },
        |tunnel| {
            let source = &tunnel.endpoint.udp()?.source;
            let is_one = source.start() == source.end();
            Some(if is_one {
                Value::Number((*source.start()).into())
            } else {
                Value::Choice("auto")
            })
        },
    )
    .check(|tunnel, _, _| needs_encap("encap-sport", tunnel)),
    Keyword::new(
        "encap-dport",
        "[encap-dport P: 6080 for gue]",
        IN_UDP,
        PORT,
        set_destination,
        destination,
    )
    .check(|tunnel, _, _| needs_encap("encap-dport", tunnel)),
    Keyword::new(
        "encap-csum",
        "[[no]encap-csum: on]",
        IN_UDP,
        Form::Switch,
        set_checksum,
        |tunnel| match tunnel.endpoint.remote.is_ipv4() {
            true => Some(Value::Switch(tunnel.endpoint.udp()?.checksum)),
            false => None,
        },
    )
    .check(|tunnel, value, _| match value.is_on() {
        true => needs_encap("encap-csum", tunnel),
        false => Ok(()),
    }),
    Keyword::new(
        "encap-csum6",
        "[[no]encap-csum6: on]",
        IN_UDP,
        Form::Switch,
        |tunnel, value| {
            if tunnel.endpoint.remote.is_ipv6() {
                set_checksum(tunnel, value);
            }
        },
        |tunnel| match tunnel.endpoint.remote.is_ipv6() {
            true => Some(Value::Switch(tunnel.endpoint.udp()?.checksum)),
            false => None,
        },
    )
    .synonyms(&["encap-udp6-csum"]),
    Keyword::new(
        "encap-remcsum",
        "[encap-remcsum]",
        IN_UDP,
        Form::Switch,
        |tunnel, value| {
            if let Some(udp) = tunnel.udp_mut() {
                udp.remote_checksum.transmit = value.is_on();
            }
        },
        |tunnel| match &tunnel.endpoint.carrier {
            Carrier::Gue(udp) => Some(Value::Switch(udp.remote_checksum.transmit)),
            _ => None,
        },
    )
    .check(check_offload),
    Keyword::new(
        "encap-remcsumpartial",
        "[noencap-remcsumpartial]",
        IN_UDP,
        Form::Switch,
        |tunnel, value| {
            if let Carrier::Gue(udp) = &mut tunnel.endpoint.carrier {
                udp.remote_checksum.complete = !value.is_on();
            }
        },
        |tunnel| switched_off(!tunnel.endpoint.udp()?.remote_checksum.complete),
    )
    .grosso_only("complete remote checksums"),
];

fn set_checksum(tunnel: &mut Description, value: &Value) {
    let is_over_ipv6 = tunnel.endpoint.remote.is_ipv6();
    let is_gue = matches!(tunnel.endpoint.carrier, Carrier::Gue(_));
    if let Some(udp) = tunnel.udp_mut() {
        udp.checksum = value.is_on();
        udp.ipv6_without_checksum = is_over_ipv6 && !value.is_on();
        udp.remote_checksum.receive = is_gue && value.is_on();
    }
}

fn needs_encap(name: &str, tunnel: &Description) -> Result<(), String> {
    match tunnel.endpoint.carrier {
        Carrier::Ip => Err(format!("{name} needs encap fou or encap gue")),
        _ => Ok(()),
    }
}

fn check_offload(tunnel: &Description, value: &Value, _: &Words) -> Result<(), String> {
    if !value.is_on() {
        return Ok(());
    }
    needs_encap("encap-remcsum", tunnel)?;
    let without_header = match tunnel.endpoint.carrier {
        Carrier::Udp(_) => Some("encap fou"),
        Carrier::DirectGue(_) => Some("encap-variant 1"),
        _ => None,
    };
    if let Some(what) = without_header {
        return Err(format!("encap-remcsum requires a GUE header, and {what} has none"));
    }
    if tunnel.endpoint.udp().is_some_and(|udp| !udp.checksum) {
        return Err(
            "noencap-csum and encap-remcsum cannot be combined: neither the inner nor the \
             outer packet would have a checksum"
                .to_owned(),
        );
    }
    Ok(())
}
