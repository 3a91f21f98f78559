//! Sends messages to a service manager (`sd_notify(3)`). If there is no manager, nothing is sent.

use sd_notify::NotifyState;

/// Reports that the paths are running.
pub fn ready(status: &str) {
    notify_manager(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the configuration is being reloaded; [`ready`] follows afterwards.
pub fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    // A manager that starts a reload itself (Type=notify-reload) uses the timestamp to distinguish this report from an
    // older one.
    states.extend(NotifyState::monotonic_usec_now().ok());
    notify_manager(&states);
}

/// Reports that something about the paths changed.
pub fn status(status: &str) {
    notify_manager(&[NotifyState::Status(status)]);
}

/// Reports that the program is stopping: the paths deliver their held packets, and end.
pub fn stopping() {
    notify_manager(&[NotifyState::Stopping]);
}

fn notify_manager(states: &[NotifyState<'_>]) {
    // A manager that cannot be reached has exited, and will determine the state itself when it starts again.
    let _ = sd_notify::notify(states);
}
