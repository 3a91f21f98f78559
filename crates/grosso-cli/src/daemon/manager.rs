//! What a service manager is told (`sd_notify(3)`); nothing happens where there is none.

use sd_notify::NotifyState;

/// The paths run.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is read again; [`ready`] says that it was.
pub(crate) fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    // A manager that starts a reload of itself (Type=notify-reload) tells its own from an older one by the time.
    states.extend(NotifyState::monotonic_usec_now().ok());
    tell(&states);
}

/// Something about the paths changed.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// The paths deliver what they hold, and end.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // A manager that cannot be told has gone, and will notice by other means.
    let _ = sd_notify::notify(states);
}
