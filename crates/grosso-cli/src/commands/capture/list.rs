//! `grosso capture -D`: lists the interfaces, with the numbers that `-i` accepts.

use grosso_sys::netlink::{Link, Netlink};
use schemars::JsonSchema;
use serde::Serialize;

use super::device::{ANY, LOOPBACK, link_type};
use crate::{
    device,
    error::{Exit, Failure},
    form::ReportForm,
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
};

/// Interfaces of this host.
#[derive(Serialize, JsonSchema)]
pub(super) struct Listing {
    interfaces: Vec<Listed>,
}

/// Interface in the list.
#[derive(Serialize, JsonSchema)]
struct Listed {
    /// Number that `-i` accepts.
    number: usize,
    name: String,
    up: bool,
    running: bool,
    loopback: bool,
    mtu: Option<u32>,
    /// Link type of the interface's packets; `null` if these packets cannot be parsed, and for the entry that stands
    /// for all interfaces.
    link_type: Option<String>,
}

/// Prints the list.
pub(super) fn run(session: &mut Session) -> Result<Exit, Failure> {
    let interfaces = links()?.into_iter().enumerate().map(|(place, link)| Listed {
        number: place + 1,
        name: link.name.to_string(),
        up: link.up,
        running: is_running(&link),
        loopback: is_loopback(&link),
        mtu: Some(link.mtu),
        link_type: link_type(link.hardware_type).map(|link_type| link_type.to_string()),
    });
    let mut interfaces: Vec<Listed> = interfaces.collect();
    interfaces.push(Listed {
        number: interfaces.len() + 1,
        name: ANY.into(),
        up: true,
        running: true,
        loopback: false,
        mtu: None,
        link_type: None,
    });
    let listing = Listing { interfaces };
    report::print(&listing, &session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Returns the name of the interface that the user selected, either by name or by number.
pub(super) fn named(asked: &str) -> Result<String, Failure> {
    let Ok(number) = asked.parse::<usize>() else { return Ok(asked.into()) };
    let links = links()?;
    if links.iter().any(|link| link.name.as_str() == asked) {
        return Ok(asked.into());
    }
    let place = number.checked_sub(1).filter(|place| *place <= links.len());
    let Some(place) = place else {
        let message = format!("capture: no interface has number {number}");
        return Err(Failure::environment("environment.no_interface", message)
            .hint("grosso capture -D lists the interfaces"));
    };
    Ok(links.get(place).map_or_else(|| ANY.into(), |link| link.name.to_string()))
}

/// Returns the interfaces: running ones first, then loopback, then those that are down.
pub(super) fn links() -> Result<Vec<Link>, Failure> {
    // The request needs no privileges, so any user can list the interfaces.
    let links = Netlink::new().and_then(|netlink| netlink.links());
    let mut links = links
        .map_err(|error| device::refused("capture", "listing the interfaces", "net_raw", &error))?;
    links.sort_by_key(|link| (!is_running(link), is_loopback(link), link.index));
    Ok(links)
}

fn is_running(link: &Link) -> bool {
    link.up && link.carrier
}

fn is_loopback(link: &Link) -> bool {
    link.hardware_type == LOOPBACK
}

impl Listing {
    /// Schema of this report.
    pub(super) const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.interfaces/1");
}

impl Report for Listing {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, _style: Style) -> String {
        self.interfaces.iter().map(Listed::line).collect()
    }
}

impl Listed {
    /// Returns the line in tcpdump's format, with the link type appended.
    fn line(&self) -> String {
        let words = [("Up", self.up), ("Running", self.running), ("Loopback", self.loopback)];
        let words: Vec<&str> =
            words.into_iter().filter_map(|(word, is_so)| is_so.then_some(word)).collect();
        let state = if words.is_empty() { "none".into() } else { words.join(", ") };
        let about = match (&self.link_type, self.mtu) {
            (Some(link_type), Some(mtu)) => format!("{link_type}, mtu {mtu}"),
            (None, Some(_)) => "unsupported link type".into(),
            _ => "all interfaces, each with its own link type".into(),
        };
        format!("{}.{} [{state}] {about}\n", self.number, self.name)
    }
}
