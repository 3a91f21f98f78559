//! Messages to a service manager (`sd_notify(3)`); without one, nothing happens.

use sd_notify::NotifyState;

/// Says that the paths run.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that the configuration is being read again; [`ready`] follows when it was.
pub fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    // A manager that starts a reload itself (Type=notify-reload) tells it from an older one by the time.
    states.extend(NotifyState::monotonic_usec_now().ok());
    tell(&states);
}

/// Says that something about the paths changed.
pub fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Says that the paths deliver their held packets, and end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // A manager that cannot be reached has gone, and will notice by other means.
    let _ = sd_notify::notify(states);
}
