//! `grosso config esp`: converts the kernel's security associations to a table in a configuration file.

use std::{
    io::{self, Write},
    path::Path,
};

use grosso_sys::path;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    arguments::ConfigEsp,
    daemon::{
        keys,
        xfrm::{self, EspEnd},
    },
    error::{Exit, Failure},
    form::ReportForm,
    name::{Name, shown},
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
};

/// Reads security associations, writes their keys to a file, and reports the table.
pub(crate) fn esp(options: &ConfigEsp, session: &mut Session) -> Result<Exit, Failure> {
    let pair = read(options)?;
    write_keys(&options.key_file, &pair)?;
    if pair.is_used {
        let note = "these keys have been used before, and the peer rejects sequence numbers that \
                    it has already received; make new keys for both endpoints, or restart both \
                    endpoints with sequence number 0";
        session.talk.note(note.to_owned());
    }
    if pair.policies > 0 {
        let s = if pair.policies == 1 { "y" } else { "ies" };
        let note = format!(
            "{} polic{s} skipped, because ports have no policies: a port encrypts every packet \
             that sel selects, and accepts cleartext only with level = \"use\"",
            pair.policies
        );
        session.talk.note(note);
    }
    let converted =
        Converted { toml: toml(&pair, &options.key_file), key_file: Name::of(&options.key_file) };
    report::print(&converted, &session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

fn read(options: &ConfigEsp) -> Result<EspEnd, Failure> {
    let is_pipe = options.file == Path::new("-");
    let name = if is_pipe { "standard input".to_owned() } else { shown(&options.file) };
    let text = if is_pipe {
        keys::read_secret(io::stdin().lock(), xfrm::BYTES_MAX, &name)
    } else {
        let file = path::open(&options.file).map_err(|error| {
            Failure::environment("environment.read", format!("config esp: {name}: {error}"))
        })?;
        keys::read_secret(file, xfrm::BYTES_MAX, &name)
    }?;
    let text = str::from_utf8(&text).map_err(|_| "the input is empty".to_owned());
    let pair =
        text.and_then(|text| xfrm::pair(text, options.here, options.there, options.shared_key));
    pair.map_err(|what| {
        Failure::input("input.xfrm", format!("config esp: {name}: {what}")).hint(
            "expected the output of `ip xfrm state` without -s: one association per \
             direction, with different keys (or one key and --shared-key)",
        )
    })
}

/// Writes the keys to a new file that only the current user can read.
fn write_keys(path: &Path, pair: &EspEnd) -> Result<(), Failure> {
    let written = path::create_new(path, 0o600).and_then(|mut file| {
        file.write_all(pair.keys.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        let name = shown(path);
        let message = format!("config esp: key file {name}: {error}");
        let failure = Failure::environment("environment.write", message);
        match error.kind() {
            io::ErrorKind::AlreadyExists => {
                failure.hint("choose a new file name; existing key files are not overwritten")
            }
            _ => failure,
        }
    })
}

/// Returns the table as TOML, ready to be appended to a `[[path]]` table.
fn toml(pair: &EspEnd, key_file: &Path) -> String {
    let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    let mut text = "[path.left.esp]\n".to_owned();
    text += &pair.table;
    text += &format!("key-file = {}\n", quoted(key_file));
    text + &format!("sequence-file = {}\n", quoted(&key_file.with_extension("sequence")))
}

/// Table that was converted.
#[derive(Debug, Serialize, JsonSchema)]
struct Converted {
    toml: String,
    key_file: Name,
}

/// Schema of this report.
pub(crate) const CONVERTED: ReportForm =
    ReportForm::of::<Envelope<Converted>>("grosso.config_esp/1");

impl Report for Converted {
    fn form(&self) -> ReportForm {
        CONVERTED
    }

    fn text(&self, _style: Style) -> String {
        self.toml.clone()
    }
}
