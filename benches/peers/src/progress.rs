//! A progress bar for interactive use.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a progress bar for this number of rows. It is hidden if standard error is not a terminal.
pub(crate) fn bar(rows: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} rows  {eta} left  {msg}");
    let bar = ProgressBar::new(rows as u64);
    bar.set_style(style.expect("a template without errors"));
    bar.enable_steady_tick(REDRAWN_EVERY);
    bar
}

const REDRAWN_EVERY: Duration = Duration::from_secs(1);
