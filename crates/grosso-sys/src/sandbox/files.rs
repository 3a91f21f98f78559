//! Uses Landlock to deny access to files, connections and signals that a role never needs.

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::roles::Role;

/// Newest Landlock version that is requested. An older kernel enforces the restrictions that it supports.
const INTERFACE: ABI = ABI::V6;

/// Restricts the calling thread to the files, connections and signals that the role needs. A thread of [`Role::Files`]
/// keeps the right to create and write files in `directories`. Returns whether the kernel has Landlock.
pub(super) fn restrict(role: Role, directories: &[PathBuf]) -> io::Result<bool> {
    let refused = |error: RulesetError| io::Error::other(error.to_string());
    let rules = match role {
        // A configuration reload looks for abstract sockets of other programs that use the same keys.
        Role::Opener => Ruleset::default()
            .handle_access(never_opened())
            .and_then(|rules| rules.scope(Scope::Signal)),
        _ => Ruleset::default()
            .handle_access(AccessFs::from_all(INTERFACE))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(INTERFACE)))
            .and_then(|rules| rules.scope(Scope::from_all(INTERFACE))),
    };
    let rules = rules.and_then(Ruleset::create).map_err(refused)?;
    let rules = match role {
        Role::Files => rules
            .add_rules(path_beneath_rules(directories, made_and_written()))
            .and_then(|rules| rules.add_rules(path_beneath_rules(READ, AccessFs::ReadFile))),
        _ => Ok(rules),
    };
    let status = rules.and_then(|rules| rules.restrict_self()).map_err(refused)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Returns the access rights that are needed to create and write a capture's files.
fn made_and_written() -> BitFlags<AccessFs> {
    AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::Truncate
}

/// Files that may be read: attributes of interfaces, and the time zone, because file names may contain the time.
const READ: [&str; 3] = ["/sys", "/etc/localtime", "/usr/share/zoneinfo"];

/// Returns the access rights that no thread needs: executing programs, creating devices and links, and creating and
/// removing directories.
fn never_opened() -> BitFlags<AccessFs> {
    AccessFs::Execute
        | AccessFs::MakeBlock
        | AccessFs::MakeChar
        | AccessFs::MakeSym
        | AccessFs::RemoveDir
        | AccessFs::Refer
}
