//! Reports for Grosso's commands and libraries. A report is a single value that can be printed as text or as JSON, and
//! its JSON has a schema.
//!
//! | module | job |
//! |---|---|
//! | [`report`] | the parts that all reports share (tool, input, output), and the printing of a report |
//! | [`schema`] | the names and versions of the JSON forms, and their JSON Schema |
//! | [`error`] | failures with code, position, hint and exit code |
//! | [`diagnostic`] | errors in text that the user wrote: line, column, likely correction |
//! | [`needs`] | sets of Linux capabilities |
//! | [`console`], [`style`], [`progress`] | notes, hints, colors and the progress bar on standard error |
//! | [`page`] | self-contained HTML pages with charts |
//! | [`name`] | untrusted text, escaped for a terminal |
//! | [`units`] | bytes, times, percentages and counts, formatted for people |
//!
//! ```
//! use grosso_report::{
//!     report::{Envelope, Report},
//!     schema::ReportForm,
//!     style::Style,
//! };
//! use schemars::JsonSchema;
//! use serde::Serialize;
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Count {
//!     packets: u64,
//! }
//!
//! impl Report for Count {
//!     fn form(&self) -> ReportForm {
//!         ReportForm::of::<Envelope<Self>>("example.count/1")
//!     }
//!
//!     fn text(&self, style: Style) -> String {
//!         format!("{}\n", style.strong(&grosso_report::units::count(self.packets, "packet")))
//!     }
//! }
//!
//! let count = Count { packets: 2 };
//! assert_eq!(count.text(Style { color: false }), "2 packets\n");
//! ```
//!
//! The report types themselves are defined in `grosso-analysis` (captures), `grosso-conform`, `grosso-daemon` (tunnels,
//! counters) and `grosso-lab`. The command `grosso` (`grosso-cli`) prints them. `docs/json.md` describes the JSON and
//! the exit codes.
#![forbid(unsafe_code)]

pub mod console;
pub mod diagnostic;
pub mod error;
pub mod name;
pub mod needs;
pub mod page;
pub mod progress;
pub mod report;
pub mod schema;
pub mod style;
pub mod units;

/// Placeholder whose doc test is the example in `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
