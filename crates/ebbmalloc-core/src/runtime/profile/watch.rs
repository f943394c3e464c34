//! Which threads the profile watches, by its settings.

use super::super::conf::Options;
use super::super::observer;
use super::super::profile_settings::{self as settings, is_active, thread_active_init};

/// At boot: puts the settings into force.
pub(crate) fn configure(options: &Options<'_>) {
    settings::configure(options);
    if settings::is_by_settings() {
        follow();
    }
}

/// Threads are observed for the profile while they are to be sampled without having asked.
pub(crate) fn follow() {
    if is_active() && thread_active_init() {
        observer::observe_everyone(observer::PROFILE);
    } else {
        observer::leave_everyone(observer::PROFILE);
    }
}
