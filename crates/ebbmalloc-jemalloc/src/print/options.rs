//! The letters of `malloc_stats_print`.

/// The parts left out, and how the rest is written.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub(super) json: bool,
    pub(super) general: bool,
    pub(super) merged: bool,
    pub(super) destroyed: bool,
    pub(super) unmerged: bool,
    pub(super) bins: bool,
    pub(super) large: bool,
}

impl Options {
    pub(super) fn new(letters: &[u8]) -> Self {
        let absent = |letter| !letters.contains(&letter);
        Self {
            json: !absent(b'J'),
            general: absent(b'g'),
            merged: absent(b'm'),
            destroyed: absent(b'd'),
            unmerged: absent(b'a'),
            bins: absent(b'b'),
            large: absent(b'l'),
        }
    }
}
