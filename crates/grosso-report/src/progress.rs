//! Progress bar.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress display for a file, shown only on a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates a bar for `bytes` bytes, or a counter if the number of bytes is unknown.
    pub fn new(bytes: Option<u64>, wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(bytes, target);
        let template = match bytes {
            Some(_) => "{msg}{bar:40} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
            None => "{msg}{spinner} {bytes}  {bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar: Some(bar) }
    }

    /// Creates a bar for `count` lab trials.
    pub fn trials(count: u64, wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(Some(count), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} trials  {eta} left") {
            bar.set_style(style);
        }
        Self { bar: Some(bar) }
    }

    /// Shows the name of the pass before the bar.
    pub fn name(&self, pass: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{pass}  "));
        }
    }

    /// Shows that `bytes` bytes have been read, or that this many trials are complete.
    #[inline]
    pub fn at(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    /// Writes lines above the bar.
    pub fn above(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Removes the bar from the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

const REDRAWS_PER_SECOND: u8 = 10;
