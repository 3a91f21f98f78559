//! The program `grosso`. All of it is in the library beside it, where fuzz targets can reach its parsers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    grosso_cli::main()
}
