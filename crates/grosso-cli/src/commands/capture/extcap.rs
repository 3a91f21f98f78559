//! `grosso extcap`: makes this host's interfaces available to Wireshark as capture sources, through Wireshark's extcap
//! protocol.

use std::{ffi::OsString, path::Path};

use grosso_capture::SNAPLEN_DEFAULT;
use grosso_wire::LinkType;

use super::{
    device::{LiveFilter, link_type},
    list,
};
use crate::{
    arguments::{Extcap, PacketsOf},
    commands,
    commands::Command,
    error::{Exit, Failure},
    name::shown,
    needs::Needs,
    report::{self, Place},
    session::Session,
};

/// Answers Wireshark's requests, or captures on its behalf.
pub(in crate::commands) fn run(options: &Extcap, session: &mut Session) -> Result<Exit, Failure> {
    if options.extcap_interfaces {
        return print_sentences(&sources()?);
    }
    let source = ExtcapSource::find(options.extcap_interface.as_deref().unwrap_or_default())?;
    if let (true, Some(pipe)) = (options.capture, &options.fifo) {
        // Wireshark treats any other output as an error.
        session.talk.quiet = true;
        let Command::Capture(capture) = source.command(pipe, options)? else {
            return Err(Failure::internal("extcap: no operation selected"));
        };
        return super::run(&capture, session);
    }
    if let Some(text) = &options.extcap_capture_filter {
        LiveFilter::compile(text, source.link_type)?;
    }
    match (options.extcap_dlts, options.extcap_config) {
        (true, _) => print_sentences(&source.dlt()),
        (_, true) => print_sentences(&config()),
        _ => Ok(Exit::Yes),
    }
}

/// Returns the capabilities needed to capture.
pub(in crate::commands) fn needs(_: &Extcap) -> Needs {
    Needs::of(&["net_raw"])
}

fn print_sentences(sentences: &str) -> Result<Exit, Failure> {
    report::put(sentences, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Returns the extcap lines that describe all sources.
fn sources() -> Result<String, Failure> {
    let mut text = format!("extcap {{version={}}}\n", env!("CARGO_PKG_VERSION"));
    let links = list::links()?.into_iter();
    for link in links.filter(|link| link_type(link.hardware_type).is_some()) {
        let name = link.name;
        text += &format!("interface {{value={PREFIX}{name}}}{{display=Grosso: {name}}}\n");
    }
    Ok(text)
}

/// Returns the extcap lines that describe a source's options.
fn config() -> String {
    format!(
        "arg {{number=0}}{{call=--packets}}{{display=Packets}}{{type=selector}}{{tooltip=Capture \
         packets as on the wire, or as this host's stack and tcpdump see them}}\nvalue \
         {{arg=0}}{{value=wire}}{{display=As on the wire: superframes split, checksums \
         complete}}{{default=true}}\nvalue {{arg=0}}{{value=host}}{{display=As this host sees \
         them, with offload metadata}}\narg {{number=1}}{{call=--snaplen}}{{display=Maximum \
         bytes per \
         packet}}{{type=integer}}{{range=1,{SNAPLEN_DEFAULT}}}{{default={SNAPLEN_DEFAULT}}}\n"
    )
}

/// Capture source for one interface.
struct ExtcapSource {
    interface: String,
    link_type: LinkType,
}

impl ExtcapSource {
    fn find(value: &str) -> Result<Self, Failure> {
        let interface = value.strip_prefix(PREFIX).unwrap_or(value);
        let found = list::links()?.into_iter().find(|link| link.name.as_str() == interface);
        let link_type = found.and_then(|link| link_type(link.hardware_type));
        let Some(link_type) = link_type else {
            let message = format!("extcap: unknown capture source {value}");
            return Err(Failure::environment("environment.no_interface", message)
                .hint("grosso --extcap-interfaces lists the capture sources"));
        };
        Ok(Self { interface: interface.into(), link_type })
    }

    /// Returns the extcap line that describes the link type.
    fn dlt(&self) -> String {
        let name = if self.link_type == LinkType::Ethernet { "EN10MB" } else { "RAW" };
        let (number, display) = (self.link_type.to_pcap(), self.link_type);
        format!("dlt {{number={number}}}{{name={name}}}{{display={display}}}\n")
    }

    /// Returns the command that captures this interface into a pipe.
    fn command(&self, pipe: &Path, options: &Extcap) -> Result<Command, Failure> {
        let snaplen = options.snaplen.to_string();
        let words = ["grosso", "capture", "-i", &self.interface, "-s", &snaplen, "-w"];
        let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
        words.push(pipe.into());
        if options.packets == PacketsOf::Wire {
            words.push("--wire".into());
        }
        if let Some(text) = &options.extcap_capture_filter {
            words.extend(["-f".into(), text.into()]);
        }
        let parsed = commands::parse(&words);
        let parsed = parsed.map_err(|error| {
            let why = error.to_string();
            Failure::usage("usage", format!("extcap: {}: {}", shown(pipe), why.trim_end()))
        })?;
        Ok(parsed.command)
    }
}

/// Prefix of a source's name, which distinguishes it from Wireshark's own source for the same interface.
const PREFIX: &str = "grosso-";
