//! The end of the process.

use super::hooks::hooks;
use super::instance::HEAP;
use super::profile::dumps;
use super::state::State;
use super::stats::stats;
use super::{conf, in_force, publish};

/// At the end of the process (the face's destructor): prints what was asked for, and looks for wrong frees that no flush
/// has met.
pub fn finish() {
    last_words();
    dumps::at_exit();
    // In the child of a fork without handlers locks may be held by threads that it does not have, and a slow path must
    // come first.
    if HEAP.os.is_alive_here()
        && let Some(own) = State::now().cache()
    {
        HEAP.check_cache(own);
    }
}

/// The last figures, and in words what was asked for.
fn last_words() {
    if in_force::is(conf::Id::StatsPrint) {
        let options = in_force::text(conf::keys::STATS_PRINT_OPTS);
        (hooks().print_statistics)(options.unwrap_or_default());
        stats();
    } else if publish::has_file() {
        stats();
    }
}
