//! A port with fragmentation and, if configured at run time, ESP.

use std::{fmt, io};

use super::{EspOptions, EspStage, Fragmentation, FragmentationOptions};
use crate::{delegate_port, port::Port};

/// A port with fragmentation, which may be wrapped in ESP.
pub enum Stages<P: Port> {
    /// Without ESP.
    Clear(Box<Fragmentation<P>>),
    /// With ESP.
    Esp(Box<EspStage<Fragmentation<P>>>),
}

/// Evaluates an expression for the port, whether or not it has ESP.
macro_rules! of_either {
    ($stages:expr, $port:ident => $act:expr) => {
        match $stages {
            Stages::Clear($port) => $act,
            Stages::Esp($port) => $act,
        }
    };
}

impl<P: Port> Stages<P> {
    /// Wraps a port in the stages that the options request. On Linux, ESP keys are locked in memory.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if the options contradict each other, or any error from `mlock(2)`.
    pub fn new(
        port: P,
        fragments: &FragmentationOptions,
        esp: Option<EspOptions>,
    ) -> io::Result<Self> {
        let port = Fragmentation::new(port, fragments)?;
        let Some(esp) = esp else { return Ok(Self::Clear(Box::new(port))) };
        let esp_stage = EspStage::new(port, esp);
        let esp_stage =
            esp_stage.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        for (start, bytes) in esp_stage.secrets() {
            grosso_sys::secret::lock(start, bytes).map_err(unlocked)?;
        }
        Ok(Self::Esp(Box::new(esp_stage)))
    }
}

/// Adds a remedy to the message of an error from `mlock(2)`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn unlocked(error: io::Error) -> io::Error {
    let what = format!("cannot lock keys in memory (see ulimit -l, LimitMEMLOCK=): {error}");
    io::Error::new(error.kind(), what)
}

impl<P: Port + fmt::Debug> fmt::Debug for Stages<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear(port) => write!(formatter, "Clear({:?})", port.inner()),
            Self::Esp(port) => write!(formatter, "Esp({:?})", port.inner().inner()),
        }
    }
}

impl<P: Port> Port for Stages<P> {
    delegate_port!(of_either!: link, device, receive, recycle, transmit, flush, deadline);
    delegate_port!(of_either!: descriptors, path_mtu, counters, is_finished);
}
