//! Filters in tcpdump syntax, compiled by libpcap.

use std::{cell::RefCell, io, rc::Rc};

use grosso_capture::Select;
#[cfg(target_os = "linux")]
use grosso_sys::pcap::{NotCompiled, Program};
use grosso_wire::LinkType;

use crate::{error::Failure, name::harmless};

/// Filter expression, which is compiled once for each link type that occurs in the captures.
pub(crate) struct Filter {
    text: String,
    command: String,
    /// Link type that the user specified.
    forced: Option<u32>,
    programs: Vec<(u32, Program)>,
    fault: Rc<RefCell<Option<Failure>>>,
}

impl Filter {
    pub(crate) fn new(text: &str, command: &str, forced: Option<LinkType>) -> Self {
        Self {
            text: text.into(),
            command: command.into(),
            forced: forced.map(LinkType::to_pcap),
            programs: Vec::new(),
            fault: Rc::default(),
        }
    }

    /// Returns the shared cell that holds the failure if filtering stops.
    pub(crate) fn fault(&self) -> Rc<RefCell<Option<Failure>>> {
        Rc::clone(&self.fault)
    }

    /// Compiles the expression for a link type.
    ///
    /// # Errors
    /// Fails if the expression is invalid, or if libpcap cannot be loaded.
    pub(crate) fn prepare(&mut self, link_type: u32) -> Result<(), Failure> {
        let link_type = self.forced.unwrap_or(link_type);
        if self.programs.iter().all(|(link, _)| *link != link_type) {
            let program = compile(&self.text, &self.command, link_type)?;
            self.programs.push((link_type, program));
        }
        Ok(())
    }

    /// Returns a function that decides whether a packet matches the filter.
    pub(crate) fn select(mut self) -> Select {
        Box::new(move |packet| {
            let link_type = self.forced.unwrap_or(packet.description.link_type);
            if let Err(failure) = self.prepare(link_type) {
                *self.fault.borrow_mut() = Some(failure);
                return Err(io::Error::other("the filter"));
            }
            let program = self.programs.iter().find(|(link, _)| *link == link_type);
            let original = packet.original_len;
            Ok(program.is_some_and(|(_, program)| program.passes(packet.data, original)))
        })
    }
}

/// Compiles a filter expression for one link type.
///
/// # Errors
/// Fails if the expression is invalid, or if libpcap cannot be loaded.
#[cfg(target_os = "linux")]
pub fn compile(text: &str, command: &str, link_type: u32) -> Result<Program, Failure> {
    Program::compile(text, link_type).map_err(|error| match error {
        NotCompiled::Absent(why) => {
            let message = format!("{command}: filters need libpcap, which cannot be loaded: {why}");
            let hint = "sudo apt install libpcap0.8 (Debian, Ubuntu), sudo dnf install libpcap (Fedora), \
                        sudo apk add libpcap (Alpine)";
            Failure::environment("environment.libpcap", message).hint(hint)
        }
        NotCompiled::Expression(why) => {
            let message = format!("{command}: filter '{}': {why}", harmless(text));
            Failure::usage("usage.filter", message).hint("man pcap-filter describes the syntax")
        }
    })
}

/// Stand-in for a compiled filter on systems without libpcap. It has no variants, because no filter can be compiled
/// there.
#[cfg(not(target_os = "linux"))]
pub(crate) enum Program {}

#[cfg(not(target_os = "linux"))]
impl Program {
    fn passes(&self, _data: &[u8], _original_len: u32) -> bool {
        match *self {}
    }
}

#[cfg(not(target_os = "linux"))]
fn compile(text: &str, command: &str, _link_type: u32) -> Result<Program, Failure> {
    let message = format!("{command}: filter expressions work only on Linux: '{}'", harmless(text));
    let hint =
        "filter the capture with tcpdump first: tcpdump -r FILE -w - EXPRESSION | grosso COMMAND -";
    Err(Failure::environment("environment.not_linux", message).hint(hint))
}
