//! The `grosso` program. All of its code is in the library, so that fuzz targets can call its parsers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    grosso_cli::main()
}
