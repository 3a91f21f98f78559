//! The part of the Python package that is Rust: reports as JSON, and tables as streams of Arrow.
//!
//! | module | job |
//! |---|---|
//! | `stream` | a reading in a thread of its own, as a stream of record batches |
#![deny(unsafe_code)]

mod stream;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use grosso_cli::library::{self, Error};
use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// Captures with offloads.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<stream::Rows>()?;
    module.add_function(wrap_pyfunction!(report, module)?)
}

/// Runs a command, and returns its report as JSON.
#[pyfunction]
fn report(py: Python<'_>, words: Vec<String>) -> PyResult<String> {
    let interrupted = Arc::<AtomicBool>::default();
    let (tell, told) = mpsc::channel();
    let flag = Arc::clone(&interrupted);
    thread::spawn(move || tell.send(library::report(&words, &flag)));
    let (_, ended) = wait(py, told, &interrupted)?;
    ended.map_err(|error| exception(py, &error))
}

/// Waits for the next message of a thread, while Python goes on and Ctrl-C is heard. Gives the receiver back.
fn wait<T: Send>(
    py: Python<'_>,
    told: Receiver<T>,
    interrupted: &AtomicBool,
) -> PyResult<(Receiver<T>, T)> {
    let mut told = told;
    loop {
        let (message, same) = py.detach(move || (told.recv_timeout(LOOK), told));
        told = same;
        match message {
            Ok(message) => return Ok((told, message)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a thread of grosso ended without an answer"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    // The thread ends by itself: at the next packet, or when a pipe that is silent speaks.
                    interrupted.store(true, Ordering::Relaxed);
                    return Err(raised);
                }
            }
        }
    }
}

/// The exception for a failure.
fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let made = || {
        let class = py.import("grosso._error")?.getattr("Error")?;
        class.call_method1("of", (error.json(),))
    };
    made().map_or_else(|raised| raised, PyErr::from_value)
}

/// The time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
