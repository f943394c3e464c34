//! What strict mode knows of blocks: the tags around them (`tag`), how they are found (`locate`), where freed ones wait
//! (`quarantine`), and the line that ends the process (`report`). Requests are `super::strict`.

pub(super) mod early;
pub(super) mod locate;
pub(super) mod quarantine;
pub(super) mod report;
pub(super) mod tag;

use core::sync::atomic::{AtomicBool, Ordering};

/// The setting `check:strict`. Written at boot, before the first block that a thread gets; relaxed.
static STRICT: AtomicBool = AtomicBool::new(false);

/// Whether each block is tagged and checked.
#[inline(always)]
pub fn is_strict() -> bool {
    STRICT.load(Ordering::Relaxed)
}

/// Tags and checks each block from now on. At boot.
pub(super) fn be_strict() {
    tag::draw_secret();
    STRICT.store(true, Ordering::Relaxed);
}
