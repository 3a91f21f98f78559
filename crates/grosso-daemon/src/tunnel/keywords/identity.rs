//! Keywords for the network identifier and the mode.

use grosso::tunnel::Header;

use super::{Form, Keyword, Value};
use crate::tunnel::kind::{BARE, WITH_PORT};

pub(super) const ROWS: &[Keyword] = &[
    Keyword::new(
        "id",
        "id N",
        WITH_PORT,
        Form::Number(0, IDENTIFIER_MAX, &[]),
        |tunnel, value| match &mut tunnel.endpoint.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                *identifier = value.number().unwrap_or_default();
            }
            _ => {}
        },
        |tunnel| match &tunnel.endpoint.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                Some(Value::Number((*identifier).into()))
            }
            _ => None,
        },
    )
    .synonyms(&["vni"])
    .required("the network identifier (VNI)"),
    Keyword::new(
        "mode",
        "[mode M: any]",
        BARE,
        Form::Choice(&["any", "ipip", "ip6ip", "ip6ip6", "ipip6"]),
        |tunnel, value| {
            let found = tunnel.kind.modes().iter().find(|(mode, _)| *value == Value::Choice(mode));
            tunnel.endpoint.version = found.and_then(|(_, version)| *version);
        },
        |tunnel| Some(Value::Choice(tunnel.mode())),
    )
    .check(|tunnel, value, _| {
        let modes = || tunnel.kind.modes().iter().map(|(mode, _)| *mode);
        if modes().any(|mode| *value == Value::Choice(mode)) {
            return Ok(());
        }
        let (kind, modes) = (tunnel.kind.name(), modes().collect::<Vec<_>>().join(", "));
        Err(format!("mode {value} does not apply to {kind}; expected {modes}"))
    }),
];

/// The largest network identifier of VXLAN and Geneve.
const IDENTIFIER_MAX: u64 = 0xff_ffff;
