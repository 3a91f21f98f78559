//! `grosso tunnel`: manages tunnels, each of which runs in its own process.

mod add;
mod process;
mod show;

use std::io;

use grosso_sys::{
    interface::{Control, InterfaceName},
    netlink::Netlink,
};

use self::process::Process;
use crate::{
    arguments::{ExportFormat, Tunnel, TunnelExport, TunnelName, TunnelStart, TunnelUp},
    daemon::{config::Config, definition, tunnel_end::unprobed},
    device::refused,
    error::{Exit, Failure},
    needs::Needs,
    report,
    session::Session,
    tunnel::{Definition, TunnelFiles, export},
};

/// Runs one of the `tunnel` commands.
pub(crate) fn run(action: &Tunnel, session: &mut Session) -> Result<Exit, Failure> {
    match action {
        Tunnel::Add(options) => add::run(options, session),
        Tunnel::Del(options) => remove(options, session),
        Tunnel::Up(options) => up(options, session),
        Tunnel::Down(options) => down(options, session),
        Tunnel::Show(options) => show::run(options, session),
        Tunnel::Export(options) => print_export(options, session),
    }
}

/// Returns the capabilities needed for `tunnel up`. The other commands need none.
pub(crate) fn needs(action: &Tunnel) -> Needs {
    let Tunnel::Up(options) = action else { return Needs::NONE };
    let config = TunnelFiles::find("tunnel up", &options.name)
        .and_then(|files| Config::read(&files.definition()));
    config.map_or(Needs::NONE, |config| config.needs())
}

fn up(options: &TunnelUp, session: &mut Session) -> Result<Exit, Failure> {
    let command = "tunnel up";
    let place = TunnelFiles::find(command, &options.name)?;
    let definition = definition::read(&place.definition())?;
    if let Process::Running(number) = Process::of(&place) {
        session.talk.note(format!("{} is already up, in process {number}", place.name));
        return show::headline(&place, &definition, session).map(|()| Exit::Yes);
    }
    begin(command, &place, &definition, &options.start, session)
}

/// Starts a tunnel's process, or runs the tunnel in this process.
fn begin(
    command: &str,
    place: &TunnelFiles,
    definition: &Definition,
    how: &TunnelStart,
    session: &mut Session,
) -> Result<Exit, Failure> {
    if how.foreground {
        return process::stay(command, place, session);
    }
    process::start(command, place, how.user.as_deref())?;
    // The background process does not print notes, so they are printed here.
    unprobed(&definition.description).into_iter().for_each(|note| session.talk.note(note));
    show::headline(place, definition, session)?;
    if session.talk.verbose {
        session.talk.remark(&format!("log: {}", place.log().display()));
    }
    Ok(Exit::Yes)
}

fn down(options: &TunnelName, session: &mut Session) -> Result<Exit, Failure> {
    let place = TunnelFiles::find("tunnel down", &options.name)?;
    let told = stopped_definition(&place, session);
    if !process::stop("tunnel down", &place)? {
        session.talk.note(format!("{} is already down", place.name));
    }
    show::end(&place, told.as_ref(), session).map(|()| Exit::Yes)
}

fn remove(options: &TunnelName, session: &mut Session) -> Result<Exit, Failure> {
    let command = "tunnel del";
    let place = TunnelFiles::find(command, &options.name)?;
    let told = stopped_definition(&place, session);
    process::stop(command, &place)?;
    if !remove_device(command, &place.name)? {
        let name = &place.name;
        session.talk.note(format!(
            "device {name} does not exist; if it was renamed, delete it: sudo ip link del NAME"
        ));
    }
    place.remove().map_err(|error| {
        let message = format!("{command}: {}: {error}", place.definition().display());
        Failure::environment("environment.write", message)
    })?;
    show::end(&place, told.as_ref(), session).map(|()| Exit::Yes)
}

/// Returns the definition of a tunnel that is to be stopped, if the report needs it. A damaged definition does not
/// prevent the tunnel from being stopped.
fn stopped_definition(place: &TunnelFiles, session: &mut Session) -> Option<Definition> {
    if !session.talk.json {
        return None;
    }
    let read = definition::read(&place.definition());
    read.map_err(|failure| session.talk.note(failure.message)).ok()
}

/// Removes a device. Returns whether it existed.
fn remove_device(command: &str, name: &str) -> Result<bool, Failure> {
    let removed = InterfaceName::new(name).and_then(|name| {
        let Ok(index) = Control::new()?.index(&name) else { return Ok(false) };
        Netlink::new()?.delete_link(index).map(|()| true)
    });
    let failed =
        |error: io::Error| refused(command, &format!("removing {name}"), "net_admin", &error);
    removed.map_err(failed)
}

fn print_export(options: &TunnelExport, session: &mut Session) -> Result<Exit, Failure> {
    if session.talk.json {
        let message = "tunnel export: --json does not apply, because the output is a \
                       configuration for another program";
        let hint = format!("omit --json, or use grosso tunnel show {} --json", options.name);
        return Err(Failure::usage("usage.json", message).hint(hint));
    }
    let place = TunnelFiles::find("tunnel export", &options.name)?;
    let definition = definition::read(&place.definition())?;
    let exported = match options.format {
        ExportFormat::Ip => export::ip(&definition),
        ExportFormat::Networkd => export::networkd(&definition),
        ExportFormat::Toml => export::Exported { text: definition.to_toml(), notes: Vec::new() },
    };
    exported.notes.into_iter().for_each(|note| session.talk.note(note));
    report::put(&exported.text, report::Place::Standard)?;
    Ok(Exit::Yes)
}
