//! The settings in force, for the thread that asks. Written at boot, by the thread that boots; until then they
//! are the defaults, which are valid at any time.

use super::conf::keys::{KEYS, TEXTS};
use super::conf::{Id, Options, Source};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Room for a text with its final NUL; what does not fit is cut.
const TEXT_BYTES: usize = 512;

/// By the key's place. Relaxed: each is a value of its own.
static NUMBERS: [AtomicU64; KEYS.len()] = {
    let mut numbers = [const { AtomicU64::new(0) }; KEYS.len()];
    let mut place = 0;
    while place < numbers.len() {
        numbers[place] = AtomicU64::new(KEYS[place].default);
        place += 1;
    }
    numbers
};

static SET: [Room; TEXTS] = [const { Room::EMPTY }; TEXTS];
static SOURCES: [Room; Source::ALL.len()] = [const { Room::EMPTY }; Source::ALL.len()];

/// A text, with a NUL after it.
struct Room {
    /// Its length and one more, or 0 while there is none. Written once, with release, after the
    /// bytes; the acquire loads of those who ask pair with that.
    length: AtomicUsize,
    bytes: UnsafeCell<[u8; TEXT_BYTES]>,
}

// SAFETY: the bytes are written before `length`, by the one thread that boots, and only read after.
unsafe impl Sync for Room {}

impl Room {
    #[allow(clippy::declare_interior_mutable_const)] // Each use is a fresh copy, as wanted.
    const EMPTY: Self = Self { length: AtomicUsize::new(0), bytes: UnsafeCell::new([0; TEXT_BYTES]) };

    /// Keeps a text. Once, at boot.
    fn keep(&self, text: &[u8]) {
        let length = text.len().min(TEXT_BYTES - 1);
        // SAFETY: no thread reads before the store below.
        unsafe { (&mut (*self.bytes.get()))[..length].copy_from_slice(&text[..length]) };
        self.length.store(length + 1, Ordering::Release);
    }

    fn text(&self) -> Option<&'static CStr>
    where
        Self: 'static,
    {
        match self.length.load(Ordering::Acquire) {
            0 => None,
            // SAFETY: written before the length, and never again; rooms are static.
            length => unsafe {
                let bytes: &'static [u8; TEXT_BYTES] = &*self.bytes.get();
                CStr::from_bytes_with_nul(&bytes[..length]).ok()
            },
        }
    }
}

/// Puts settings into force; `texts` are the texts that they were read from.
pub(super) fn install(options: &Options<'_>, texts: &[Option<&[u8]>]) {
    for (room, text) in SOURCES.iter().zip(texts) {
        if let Some(text) = text {
            room.keep(text);
        }
    }
    for (number, new) in NUMBERS.iter().zip(options.numbers) {
        number.store(new, Ordering::Relaxed);
    }
    for (room, text) in SET.iter().zip(options.texts) {
        if let Some(text) = text {
            room.keep(text);
        }
    }
}

/// Whether something is switched on.
pub fn is(id: Id) -> bool {
    number(id) != 0
}

/// A number, or the place of a word among those to choose from.
pub fn number(id: Id) -> u64 {
    NUMBERS[id as usize].load(Ordering::Relaxed)
}

/// The number at a key's place.
pub fn number_at(place: usize) -> u64 {
    NUMBERS[place].load(Ordering::Relaxed)
}

/// One of the texts, by its place; `None` where it is not set.
pub fn text(place: usize) -> Option<&'static CStr> {
    SET[place].text()
}

/// The text that settings were read from, if there was one.
pub fn source(source: Source) -> Option<&'static CStr> {
    SOURCES[source as usize].text()
}
