//! `grosso profiles`: lists the built-in profiles, or prints one in the format of a profile file.

use std::path::Path;

use grosso_analysis::reports::profiles;
pub(super) use grosso_analysis::reports::profiles::{LIST, ONE};

use crate::{
    arguments::{Profiles, ProfilesCommand},
    error::{Exit, Failure},
    profile,
    report::{self, Place},
    session::Session,
};

/// Runs the command.
pub(crate) fn run(options: &Profiles, session: &mut Session) -> Result<Exit, Failure> {
    match &options.command {
        None => report::print(&profiles::list(), &session.talk, Place::Standard)?,
        Some(ProfilesCommand::Show(options)) => {
            let profile = profile::find(&options.profile, Path::new(""))?;
            report::print(&profiles::one(&profile), &session.talk, Place::Standard)?;
        }
    }
    Ok(Exit::Yes)
}
