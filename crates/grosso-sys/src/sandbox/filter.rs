//! Filters that restrict the system calls of a thread.

use std::{collections::BTreeMap, env::consts::ARCH, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::roles::{Limit, Role, Values};

/// Returns whether the kernel supports seccomp, and this crate supports the CPU architecture.
#[must_use]
pub fn is_supported() -> bool {
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: the kernel reads the four bytes of `action`.
    let known = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    known == 0 && TargetArch::try_from(ARCH).is_ok()
}

/// Restricts the calling thread to the system calls of a role, if the kernel supports filters.
pub(super) fn install(role: Role) -> io::Result<()> {
    if !is_supported() {
        return Ok(());
    }
    let [allowed, refused] = [allowed(role), refused(role)].map(|program| {
        program.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
    });
    // The kernel applies the strictest result of all filters.
    for program in [refused?, allowed?].iter().filter(|program| !program.is_empty()) {
        apply_filter(program).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            other => io::Error::other(other.to_string()),
        })?;
    }
    Ok(())
}

type Compiled = Result<BpfProgram, seccompiler::BackendError>;

/// Compiles the filter that traps all calls except the role's.
fn allowed(role: Role) -> Compiled {
    let tables = role.calls().iter().chain(role.refused());
    let mut rules = BTreeMap::new();
    for (number, _) in tables.copied().flatten() {
        rules.insert(*number, Vec::new());
    }
    for limit in role.limits() {
        if let Some(any) = rules.get_mut(&limit.call) {
            *any = limit.rules()?;
        }
    }
    compile(rules, SeccompAction::Trap, SeccompAction::Allow)
}

/// Compiles the filter for calls that fail instead of trapping. The filter is empty if there are no such calls.
fn refused(role: Role) -> Compiled {
    let mut rules: BTreeMap<_, _> =
        role.refused().iter().copied().flatten().map(|(number, _)| (*number, Vec::new())).collect();
    for limit in role.refused_limits() {
        rules.insert(limit.call, limit.rules()?);
    }
    if rules.is_empty() {
        return Ok(BpfProgram::new());
    }
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EACCES as u32))
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Compiled {
    SeccompFilter::new(rules, otherwise, matched, TargetArch::try_from(ARCH)?)?.try_into()
}

impl Limit {
    /// Returns rules that match the values of the limit.
    fn rules(&self) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let rule = |operator, value| {
            let length = SeccompCmpArgLen::Dword;
            SeccompRule::new(vec![SeccompCondition::new(self.argument, length, operator, value)?])
        };
        match &self.values {
            Values::These(values) => {
                values.iter().map(|value| rule(SeccompCmpOp::Eq, *value)).collect()
            }
            Values::Without(bits) => Ok(vec![rule(SeccompCmpOp::MaskedEq(*bits), 0)?]),
            Values::OwnProcess => Ok(vec![rule(SeccompCmpOp::Eq, std::process::id().into())?]),
        }
    }
}
