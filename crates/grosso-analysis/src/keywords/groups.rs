//! Options shared by several commands.

use super::Options;
use crate::{
    capture::Target,
    error::Failure,
    evidence::Given,
    fragments::Waiting,
    replay::{Batch, Bounds, HoldTime, Repair, Rules},
    slowdown::Connections,
    units::parse_time,
    values::{
        FORMATS, MAX_SIZE, MTU, OVERLAPS, POSITIVE, ROWS, choose, parse_flows, parse_memory,
        parse_order, parse_pseudowire, parse_rows, parse_tunnel_port, tunnel_ports, whole,
    },
};

/// Takes the options that describe the wire, except for the MTU.
pub(super) fn sizes(options: &mut Options) -> Result<Given, Failure> {
    let mss = options.one("mss", whole(POSITIVE))?;
    let uso_size = options.one("uso-size", whole(POSITIVE))?;
    Ok(Given { mss, mtu: None, uso_size, ports: ports(options)? })
}

/// Takes the options that describe the wire.
pub(super) fn given(options: &mut Options) -> Result<Given, Failure> {
    let mtu = options.one("mtu", whole(MTU))?;
    Given { mtu, ..sizes(options)? }.checked()
}

/// Takes the UDP ports of tunnels, and the format of L2TPv3 sessions.
pub(super) fn ports(options: &mut Options) -> Result<grosso_wire::Ports, Failure> {
    let named = options.each("port", parse_tunnel_port)?;
    let l2tp = options.one("l2tp", parse_pseudowire)?;
    tunnel_ports(&named, l2tp).map_err(|why| Failure::usage("usage", why))
}

/// Takes the merge rules.
pub(super) fn rules(options: &mut Options) -> Result<Rules, Failure> {
    Ok(Rules {
        profile: options.one_from("profile", Rules::PROFILE, text)?,
        batch: options.one_from("batch", Rules::BATCH, Batch::parse)?,
        hold: options.one("hold", HoldTime::parse)?,
        reorder: options.one("reorder", Repair::parse)?,
        bounds: bounds(options)?,
    })
}

/// Takes the options that override a profile's limits.
pub(super) fn bounds(options: &mut Options) -> Result<Bounds, Failure> {
    Ok(Bounds {
        max_size: options.one("max-size", whole(MAX_SIZE))?,
        max_segs: options.one("max-segs", whole(POSITIVE))?,
        flows: options.one("max-flows", parse_flows)?,
        tunnels: options.one("tunnels", whole(0..=u8::MAX))?,
        no_udp: options.flag("no-udp")?,
        round_trip: options.one("round-trip", parse_time)?,
    })
}

/// Takes the limits on incomplete datagrams.
pub(super) fn waiting(options: &mut Options) -> Result<Waiting, Failure> {
    Ok(Waiting {
        timeout: options.one_from("timeout", Waiting::TIMEOUT, parse_time)?,
        overlap: options.one_from("overlap", Waiting::OVERLAP, |text| choose(OVERLAPS, text))?,
        memory: options.one_from("memory", Waiting::MEMORY, parse_memory)?,
        distance: options.one_from("distance", Waiting::DISTANCE, whole(0..=u32::MAX))?,
    })
}

/// Takes the flow table options, and returns an empty flow table.
pub(super) fn connections(options: &mut Options) -> Result<Connections, Failure> {
    let mut connections = Connections::default();
    let limit = options.one_or("flows", ROWS, parse_rows)?;
    let order = options.one("sort", parse_order)?;
    match (limit, order) {
        (Some(limit), order) => connections.list_flows(order.unwrap_or_default(), limit),
        (None, Some(_)) => return Err(options.wrong("sort", "needs --flows")),
        (None, None) => {}
    }
    Ok(connections)
}

/// Takes the output file and its format.
pub(super) fn target(options: &mut Options) -> Result<Target, Failure> {
    let path = options.one("write", text)?.map(Into::into);
    let format = options.one("format", |text| choose(FORMATS, text))?;
    match (&path, format) {
        (None, Some(_)) => Err(options.wrong("format", "needs --write")),
        _ => Ok(Target { path, format }),
    }
}

/// Parses a value that may be any string.
pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use grosso::Profile;

    use super::*;

    #[test]
    fn options_that_were_not_passed_have_the_defaults_of_the_library() {
        let mut none = Options::new("reassemble", &[]);
        assert_eq!(rules(&mut none).unwrap(), Rules::default());
        assert_eq!(Rules::PROFILE, Profile::default().name);
        let (taken, default) = (waiting(&mut none).unwrap(), Waiting::default());
        assert_eq!(format!("{taken:?}"), format!("{default:?}"));
    }
}
