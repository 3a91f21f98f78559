//! The program `grosso`. All of its code is in the library, where fuzz targets can reach its parsers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    grosso_cli::main()
}
