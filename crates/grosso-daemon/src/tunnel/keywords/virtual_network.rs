//! Keywords for the VXLAN and Geneve headers.

use grosso::tunnel::Header;

use super::{Form, Keyword, Kind, Value, switched_on};

pub(super) const ROWS: &[Keyword] = &[
    Keyword::new(
        "gbp",
        "[gbp [N]]",
        &[Kind::Vxlan],
        Form::SwitchOrNumber(0xffff),
        |tunnel, value| {
            if let Header::Vxlan { policy, .. } = &mut tunnel.endpoint.header {
                *policy = if value.is_on() { Some(0) } else { value.number() };
            }
        },
        |tunnel| match &tunnel.endpoint.header {
            Header::Vxlan { policy: Some(0), .. } => Some(Value::Switch(true)),
            Header::Vxlan { policy, .. } => Some(Value::Number((*policy)?.into())),
            _ => None,
        },
    ),
    Keyword::new(
        "gpe",
        "[gpe]",
        &[Kind::Vxlan],
        Form::Switch,
        |tunnel, value| {
            if let Header::Vxlan { generic_protocol, .. } = &mut tunnel.endpoint.header {
                *generic_protocol = value.is_on();
            }
        },
        |tunnel| match &tunnel.endpoint.header {
            Header::Vxlan { generic_protocol, .. } => switched_on(*generic_protocol),
            _ => None,
        },
    )
    .check(|tunnel, _, _| match &tunnel.endpoint.header {
        Header::Vxlan { policy: Some(_), generic_protocol: true, .. } => {
            Err("gbp and gpe cannot be combined".to_owned())
        }
        _ => Ok(()),
    }),
    Keyword::new(
        "innerprotoinherit",
        "[innerprotoinherit]",
        &[Kind::Geneve],
        Form::Switch,
        |tunnel, value| {
            if let Header::Geneve { inherit_protocol, .. } = &mut tunnel.endpoint.header {
                *inherit_protocol = value.is_on();
            }
        },
        |tunnel| match &tunnel.endpoint.header {
            Header::Geneve { inherit_protocol, .. } => switched_on(*inherit_protocol),
            _ => None,
        },
    ),
    Keyword::new(
        "geneve_opts",
        "[geneve_opts CLASS:TYPE:DATA,...]",
        &[Kind::Geneve],
        Form::Options,
        |tunnel, value| {
            if let (Header::Geneve { options, .. }, Value::Options(configured)) =
                (&mut tunnel.endpoint.header, value)
            {
                options.clone_from(configured);
            }
        },
        |tunnel| match &tunnel.endpoint.header {
            Header::Geneve { options, .. } if !options.is_empty() => {
                Some(Value::Options(options.clone()))
            }
            _ => None,
        },
    ),
];
