//! A port that uses an inherited descriptor of a TUN or TAP device: `fd:N`.

use std::io;

use grosso::features::Features;
use grosso_io::live::Opening;
use grosso_sys::tun::Layer;

use super::{
    kind::{HostSettings, PortDevice, PortKind},
    tap::{HasQueue, QueueSettings, expand_acks, persist, terminates, vnet_hdr},
};
use crate::{error::Failure, refusal};

/// A queue of a TUN or TAP device that another program opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedDevice {
    number: i32,
    queue: QueueSettings,
}

pub(super) const KIND: PortKind<PassedDevice> = PortKind {
    word: "fd",
    forms: &["fd:NUMBER"],
    examples: "`fd:3`",
    meaning: "a queue of a TUN or TAP device that another program opened and passed to Grosso",
    parse: |number| match number.parse() {
        Ok(number @ 3..) => Ok(PassedDevice { number, queue: QueueSettings::default() }),
        _ => Err(format!("\"fd:{number}\": expected a descriptor number of at least 3")),
    },
    settings: &[persist(), vnet_hdr(), terminates(), expand_acks()],
};

impl HasQueue for PassedDevice {
    fn queue_mut(&mut self) -> &mut QueueSettings {
        &mut self.queue
    }
}

impl PortDevice for PassedDevice {
    fn spelling(&self) -> String {
        format!("fd:{}", self.number)
    }

    fn opening(&self, features: Features) -> Option<Opening> {
        Some(Opening::Passed { number: self.number, options: self.queue.options(features) })
    }

    fn refusal(&self, command: &str, _: usize, error: &io::Error) -> Option<Failure> {
        refusal::passed(command, &self.spelling(), error)
    }

    fn check(&self) -> Result<(), String> {
        self.queue.host.check()
    }

    fn layer(&self) -> Option<Layer> {
        None
    }

    fn host(&self) -> Option<&HostSettings> {
        Some(&self.queue.host)
    }
}
