//! Keywords for the outer IP header and the path MTU.

use grosso::tunnel::{Carrier, DontFragment, Dscp, TimeToLive};
use grosso_io::stage::{MTU_MIN_IPV4, MTU_MIN_IPV6};

use super::{Form, Keyword, Kind, Value, switched_off, switched_on};
use crate::tunnel::{
    description::TTL,
    kind::{OVER_IPV4, OVER_IPV6, WITH_PORT},
};

pub(super) const ROWS: &[Keyword] = &[
    Keyword::new(
        "ttl",
        "[ttl N|inherit: 64]",
        &Kind::ALL,
        Form::Number(1, 255, &["inherit", "auto"]),
        |tunnel, value| {
            tunnel.endpoint.ttl = match value {
                Value::Choice("inherit") => TimeToLive::Inherit,
                value => TimeToLive::Fixed(value.number().unwrap_or(TTL)),
            };
        },
        |tunnel| match tunnel.endpoint.ttl {
            TimeToLive::Fixed(ttl) => Some(Value::Number(ttl.into())),
            TimeToLive::Inherit => Some(Value::Choice("inherit")),
        },
    )
    .synonyms(&["hoplimit", "hlim"]),
    Keyword::new(
        "tos",
        "[tos N|inherit: inherit]",
        &Kind::ALL,
        Form::Number(0, 255, &["inherit"]),
        |tunnel, value| {
            tunnel.endpoint.dscp = match value.number::<u8>() {
                Some(KERNEL_INHERIT) | None => Dscp::Inherit,
                Some(tos) => Dscp::Fixed(tos >> 2),
            };
        },
        |tunnel| match tunnel.endpoint.dscp {
            Dscp::Fixed(dscp) => Some(Value::Number(u64::from(dscp) << 2)),
            Dscp::Inherit => Some(Value::Choice("inherit")),
        },
    )
    .synonyms(&["dsfield", "tclass"])
    .hexadecimal()
    .check(|_, value, _| match value.number::<u8>() {
        Some(tos) if tos != KERNEL_INHERIT && tos & 3 != 0 => Err(format!(
            "tos {tos:#04x}: the two lowest bits must be 0, because ECN is copied from the packet \
             (RFC 6040)"
        )),
        _ => Ok(()),
    }),
    Keyword::new(
        "flowlabel",
        "[flowlabel N]",
        &Kind::ALL,
        Form::Number(0, FLOW_LABEL_MAX, &[]),
        |tunnel, value| tunnel.endpoint.flow_label = value.number(),
        |tunnel| Some(Value::Number(tunnel.endpoint.flow_label?.into())),
    )
    .synonyms(&["flow"])
    .hexadecimal()
    .check(|tunnel, value, _| match (tunnel.endpoint.remote, value.number::<u32>()) {
        (remote, Some(label)) if remote.is_ipv4() => Err(format!(
            "option `flowlabel {label:#x}` applies only to IPv6, but remote is {remote}"
        )),
        _ => Ok(()),
    }),
    Keyword::new(
        "encaplimit",
        "[encaplimit N|none: 4]",
        OVER_IPV6,
        Form::Number(0, 255, &["none"]),
        |tunnel, value| tunnel.endpoint.encapsulation_limit = value.number(),
        |tunnel| {
            let limit = tunnel.endpoint.encapsulation_limit;
            Some(limit.map_or(Value::Choice("none"), |limit| Value::Number(limit.into())))
        },
    )
    .synonyms(&["elim"])
    .check(|tunnel, value, _| match (&tunnel.endpoint.carrier, value.number::<u8>()) {
        (Carrier::Ip, _) | (_, None) => Ok(()),
        (_, Some(limit)) => {
            Err(format!("encaplimit {limit} cannot be combined with encap; use encaplimit none"))
        }
    }),
    Keyword::new(
        "df",
        "[df set|unset|inherit: unset]",
        WITH_PORT,
        Form::Choice(&["set", "unset", "inherit"]),
        |tunnel, value| {
            tunnel.endpoint.dont_fragment = match value {
                Value::Choice("unset") => DontFragment::Unset,
                Value::Choice("inherit") => DontFragment::Inherit,
                _ => DontFragment::Set,
            };
        },
        |tunnel| match tunnel.endpoint.dont_fragment {
            _ if tunnel.endpoint.remote.is_ipv6() => None,
            DontFragment::Set => Some(Value::Choice("set")),
            DontFragment::Inherit => Some(Value::Choice("inherit")),
            _ => Some(Value::Choice("unset")),
        },
    )
    .check(|tunnel, value, _| match tunnel.endpoint.remote {
        remote if remote.is_ipv6() => {
            Err(format!("option `df {value}` applies only to IPv4, but remote is {remote}"))
        }
        _ => Ok(()),
    }),
    Keyword::new(
        "pmtudisc",
        "[nopmtudisc]",
        OVER_IPV4,
        Form::Switch,
        |tunnel, value| {
            tunnel.probes = value.is_on();
            // As in Linux: if the inner packet must not be fragmented, neither must the outer one.
            tunnel.endpoint.dont_fragment =
                if value.is_on() { DontFragment::Set } else { DontFragment::Inherit };
        },
        |tunnel| Some(Value::Switch(tunnel.endpoint.dont_fragment == DontFragment::Set)),
    ),
    Keyword::new(
        "ignore-df",
        "[ignore-df]",
        &[Kind::Gre, Kind::Gretap],
        Form::Switch,
        |tunnel, value| {
            if value.is_on() && tunnel.endpoint.dont_fragment == DontFragment::Inherit {
                tunnel.endpoint.dont_fragment = DontFragment::Ignored;
            }
        },
        |tunnel| switched_on(tunnel.endpoint.dont_fragment == DontFragment::Ignored),
    )
    .check(|tunnel, value, _| match tunnel.endpoint.dont_fragment {
        DontFragment::Set if value.is_on() => {
            Err("ignore-df and pmtudisc cannot be combined; pass nopmtudisc".to_owned())
        }
        _ => Ok(()),
    }),
    Keyword::new(
        "probe",
        "[[no]probe: on unless nopmtudisc]",
        &Kind::ALL,
        Form::Switch,
        |tunnel, value| tunnel.probes = value.is_on(),
        |tunnel| switched_off(tunnel.probes),
    )
    .check(|_, value, words| match words.switch("pmtudisc") {
        Some(false) if value.is_on() => Err("probe and nopmtudisc cannot be combined".to_owned()),
        _ => Ok(()),
    }),
    Keyword::new(
        "mtu-min",
        "[mtu-min BYTES: from the device's MTU]",
        &Kind::ALL,
        Form::Number(576, u16::MAX as u64, &[]),
        |tunnel, value| tunnel.mtu_min = value.number(),
        |tunnel| Some(Value::Number(tunnel.mtu_min?.into())),
    )
    .grosso_only("a minimum path MTU")
    .check(|tunnel, _, _| {
        // The minimum leaves room for the requirements of the outer protocol.
        let remote = tunnel.endpoint.remote;
        let least = if remote.is_ipv4() { MTU_MIN_IPV4 } else { MTU_MIN_IPV6 };
        match tunnel.mtu_min {
            Some(mtu) if usize::from(mtu) < least => {
                Err(format!("mtu-min {mtu}: the minimum for {remote} is {least}"))
            }
            _ => Ok(()),
        }
    }),
];

/// The kernel encodes `tos inherit` as this value.
const KERNEL_INHERIT: u8 = 1;
const FLOW_LABEL_MAX: u64 = 0xf_ffff;
