//! Files and connections that a role never needs, taken away by Landlock where the kernel has it.

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetError, RulesetStatus,
};

use super::roles::Role;

/// The newest kernel interface that is asked for; an older one takes away what it can.
const INTERFACE: ABI = ABI::V5;

/// Takes away what the role never needs, from the calling thread. Returns whether the kernel did.
pub(super) fn restrict(role: Role) -> io::Result<bool> {
    let refused = |error: RulesetError| io::Error::other(error.to_string());
    let rules = match role {
        Role::Opener => Ruleset::default().handle_access(never_opened()),
        _ => Ruleset::default()
            .handle_access(AccessFs::from_all(INTERFACE))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(INTERFACE))),
    };
    // No rule follows that would permit some of it.
    let status = rules.and_then(|rules| rules.create()?.restrict_self()).map_err(refused)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Deeds of no thread: programs that are executed, devices, links and folders that come or go.
fn never_opened() -> BitFlags<AccessFs> {
    AccessFs::Execute
        | AccessFs::MakeBlock
        | AccessFs::MakeChar
        | AccessFs::MakeSym
        | AccessFs::RemoveDir
        | AccessFs::Refer
}
