//! The extension module of the Python package, written in Rust. It provides reports as JSON and tables as Arrow
//! streams.
//!
//! | module | job |
//! |---|---|
//! | `stream` | tables that a separate thread reads, as streams of record batches |
//! | `words` | conversion of arguments from the package's Python code to calls of the library |
#![deny(unsafe_code)]

mod stream;
mod words;

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use grosso_report::error::Failure;
use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// Analyzes packet captures taken on hosts with offloads. Called by the package's Python code.
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
    // A panic becomes a failure, as in the command-line program.
    let run = move || panic::catch_unwind(|| words::call(&words, &flag).report());
    let bug = || Failure::internal("internal error: please report it with the lines above");
    thread::spawn(move || tell.send(run().unwrap_or_else(|_| Err(bug()))));
    let (_, ended) = wait(py, told, &interrupted)?;
    ended.map_err(|error| exception(py, &error))
}

/// Waits for the next message from a thread, and returns it along with the receiver. While it waits, other Python
/// threads can run, and Ctrl-C is handled.
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
                return Err(PyRuntimeError::new_err("a Grosso thread ended without an answer"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    interrupted.store(true, Ordering::Relaxed);
                    return Err(outlast(py, told).err().unwrap_or(raised));
                }
            }
        }
    }
}

/// Waits for an interrupted thread to end, so that the caller never sees a file that the thread is still writing.
///
/// # Errors
///
/// Fails immediately on a second Ctrl-C.
fn outlast<T: Send>(py: Python<'_>, told: Receiver<T>) -> PyResult<()> {
    let mut told = told;
    loop {
        let (message, same) = py.detach(move || (told.recv_timeout(LOOK), told));
        told = same;
        match message {
            // The sender is the last thing that the thread drops.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}

/// Returns the Python exception for a failure.
fn exception(py: Python<'_>, error: &Failure) -> PyErr {
    let made = || {
        let class = py.import("grosso._error")?.getattr("Error")?;
        class.call_method1("of", (error.json(),))
    };
    made().map_or_else(|raised| raised, PyErr::from_value)
}

/// Interval between checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
