//! The table of all settings: jemalloc's, by its names, and ebbmalloc's own few.
//!
//! One line per key: its name, the form of its values, its default, and what it does.
//! The mirror `opt.*` is made of this table too, and docs/jemalloc.md is tested against it. The keys that
//! have no mirror come last. After the table come the names that are accepted and ignored.
#![forbid(unsafe_code)]

use crate::size::SMALL_MAX;
use core::ffi::CStr;

/// What the values of a key look like.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// `true` or `false`.
    Truth,
    /// A number between two bounds; with `clips` one beyond becomes the bound.
    Number {
        /// The type in the mirror.
        width: Width,
        /// Least value.
        least: i64,
        /// Greatest value.
        most: u64,
        /// Whether a value beyond becomes the bound.
        clips: bool,
    },
    /// Milliseconds that memory may stay idle; -1 is for ever.
    Decay,
    /// A number of arenas, or `default`.
    Arenas,
    /// One of these words; the value is its place.
    Choice(&'static [&'static CStr]),
    /// Any text; the value is its place among the texts.
    Text(usize),
    /// The logarithm of a value of another key.
    LogOf(Id),
    /// A decimal fraction; the value has 16 bits after the point.
    Ratio,
    /// `on` or `off`.
    OnOff,
    /// Bytes, in whole numbers or with the suffix `k`, `m` or `g`.
    Bytes,
    /// An absolute path in which `%p` is the process id; the value is its place among the texts.
    Path(usize),
}

/// The type of a number in the mirror, in C's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Width {
    Unsigned,
    I64,
    Size,
    SignedSize,
}

/// What a key does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What it does in jemalloc, or as docs/jemalloc.md says.
    Acts,
    /// Nothing, since what it tunes is not here. A key with a mirror that programs read is in [`KEYS`] all the same; of
    /// the others [`IGNORED`] has the names.
    NoCounterpart,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its values look like.
    pub shape: Shape,
    /// Its default.
    pub default: u64,
    /// What it does.
    pub effect: Effect,
}

/// The text of `prof_prefix`.
pub const PROF_PREFIX: usize = 0;
/// The text of `stats_print_opts`.
pub const STATS_PRINT_OPTS: usize = 1;
/// The text of `stats_interval_opts`.
pub const STATS_INTERVAL_OPTS: usize = 2;
/// The text of `stats_file`.
pub const STATS_FILE: usize = 3;
/// The text of `report_file`.
pub const REPORT_FILE: usize = 4;
/// How many texts there are.
pub const TEXTS: usize = 5;

/// The default decay: ebbmalloc's own delay.
pub const OWN_DECAY: u64 = i64::MIN.cast_unsigned();

const MINUS_ONE: u64 = (-1_i64).cast_unsigned();
const MANY: u64 = i64::MAX as u64;

const fn number(width: Width, least: i64, most: u64) -> Shape {
    Shape::Number { width, least, most, clips: false }
}

const fn clipped(width: Width, least: i64, most: u64) -> Shape {
    Shape::Number { width, least, most, clips: true }
}

use Effect::{Acts, NoCounterpart};
use Shape::{Arenas, Choice, Decay, LogOf, Ratio, Text, Truth};
use Width::{I64, SignedSize, Size, Unsigned};

macro_rules! keys {
    ($($id:ident $name:literal $shape:expr, $default:expr, $effect:ident;)+) => {
        /// The settings by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Id { $($id,)+ }

        /// The table. A key's place is its [`Id`].
        pub static KEYS: &[Key] = &[$(Key {
            name: $name,
            shape: $shape,
            default: $default as u64,
            effect: $effect,
        },)+];
    };
}

keys! {
    Abort "abort" Truth, false, NoCounterpart;
    AbortConf "abort_conf" Truth, false, Acts;
    CacheOblivious "cache_oblivious" Truth, false, NoCounterpart;
    TrustMadvise "trust_madvise" Truth, false, NoCounterpart;
    ConfirmConf "confirm_conf" Truth, false, Acts;
    Retain "retain" Truth, true, Acts;
    Dss "dss" Choice(&[c"disabled", c"primary", c"secondary"]), 0, NoCounterpart;
    Narenas "narenas" Arenas, 0, Acts;
    PercpuArena "percpu_arena" Choice(&[c"disabled", c"percpu", c"phycpu"]), 0, Acts;
    OversizeThreshold "oversize_threshold" number(Size, 0, MANY), 0, Acts;
    BackgroundThread "background_thread" Truth, true, Acts;
    MaxBackgroundThreads "max_background_threads" clipped(Size, 1, 4096), 4, NoCounterpart;
    DirtyDecayMs "dirty_decay_ms" Decay, OWN_DECAY, Acts;
    MuzzyDecayMs "muzzy_decay_ms" Decay, 0, NoCounterpart;
    StatsPrint "stats_print" Truth, false, Acts;
    StatsPrintOpts "stats_print_opts" Text(STATS_PRINT_OPTS), 0, Acts;
    StatsInterval "stats_interval" number(I64, -1, MANY), MINUS_ONE, Acts;
    StatsIntervalOpts "stats_interval_opts" Text(STATS_INTERVAL_OPTS), 0, Acts;
    Junk "junk" Choice(&[c"false", c"true", c"alloc", c"free"]), 0, Acts;
    Zero "zero" Truth, false, Acts;
    Xmalloc "xmalloc" Truth, false, Acts;
    InfallibleNew "experimental_infallible_new" Truth, false, Acts;
    Tcache "tcache" Truth, true, Acts;
    TcacheMax "tcache_max" clipped(Size, 0, SMALL_MAX as u64), SMALL_MAX as u64, Acts;
    TcacheNslotsSmallMin "tcache_nslots_small_min" clipped(Unsigned, 1, 2048), 1, NoCounterpart;
    TcacheNslotsSmallMax "tcache_nslots_small_max" clipped(Unsigned, 1, 2048), 2047, NoCounterpart;
    TcacheNslotsLarge "tcache_nslots_large" clipped(Unsigned, 1, 2048), 1, NoCounterpart;
    LgTcacheNslotsMul "lg_tcache_nslots_mul" number(SignedSize, -16, 16), 1, NoCounterpart;
    TcacheGcIncrBytes "tcache_gc_incr_bytes" clipped(Size, 1024, MANY), 65536, NoCounterpart;
    TcacheGcDelayBytes "tcache_gc_delay_bytes" number(Size, 0, MANY), 0, NoCounterpart;
    LgTcacheFlushSmallDiv "lg_tcache_flush_small_div" clipped(Unsigned, 1, 16), 1, NoCounterpart;
    LgTcacheFlushLargeDiv "lg_tcache_flush_large_div" clipped(Unsigned, 1, 16), 1, NoCounterpart;
    Thp "thp" Choice(&[c"default", c"always", c"never", c"auto"]), 3, Acts;
    MetadataThp "metadata_thp" Choice(&[c"disabled", c"auto", c"always"]), 0, Acts;
    LgExtentMaxActiveFit "lg_extent_max_active_fit" number(Size, 0, 64), 6, NoCounterpart;
    MutexMaxSpin "mutex_max_spin" number(I64, -1, MANY), 100, NoCounterpart;
    ZeroRealloc "zero_realloc" Choice(&[c"free", c"alloc", c"abort"]), 0, Acts;
    Prof "prof" Truth, false, Acts;
    ProfPrefix "prof_prefix" Text(PROF_PREFIX), 0, Acts;
    ProfActive "prof_active" Truth, true, Acts;
    ProfThreadActiveInit "prof_thread_active_init" Truth, true, Acts;
    ProfBtMax "prof_bt_max" clipped(Unsigned, 1, 1024), 128, Acts;
    LgProfSample "lg_prof_sample" clipped(Size, 0, 63), 19, Acts;
    LgProfInterval "lg_prof_interval" number(SignedSize, -1, 63), MINUS_ONE, Acts;
    ProfGdump "prof_gdump" Truth, false, Acts;
    ProfFinal "prof_final" Truth, false, Acts;
    ProfLeak "prof_leak" Truth, false, Acts;
    ProfLeakError "prof_leak_error" Truth, false, Acts;
    ProfAccum "prof_accum" Truth, false, Acts;
    Hpa "hpa" Truth, false, NoCounterpart;
    LgTcacheMax "lg_tcache_max" LogOf(Id::TcacheMax), 0, Acts;
    NarenasRatio "narenas_ratio" Ratio, 0, Acts;
    Purge "purge" Shape::OnOff, true, Acts;
    MemoryPrice "memory_price" Shape::Bytes, crate::arena::delay::BYTES_PER_CORE, Acts;
    StatsFile "stats_file" Shape::Path(STATS_FILE), 0, Acts;
    Python "python" Shape::OnOff, true, Acts;
    Check "check" Choice(&[c"default", c"strict", c"off"]), 0, Acts;
    Profile "profile" Shape::OnOff, false, Acts;
    ReportFile "report_file" Shape::Path(REPORT_FILE), 0, Acts;
}

/// Keys of jemalloc's that are accepted with any value and ignored, with a blank between two: a table of them takes more room.
pub static IGNORED: &str = "\
    bin_shards calloc_madvise_threshold debug_double_free_max_scan disable_large_size_classes \
    experimental_hpa_enforce_hugify experimental_hpa_max_purge_nhp \
    experimental_hpa_start_huge_if_thp_always experimental_tcache_gc hpa_dirty_mult \
    hpa_hugification_threshold hpa_hugification_threshold_ratio hpa_hugify_delay_ms hpa_hugify_style \
    hpa_hugify_sync hpa_min_purge_delay_ms hpa_min_purge_interval_ms hpa_purge_threshold \
    hpa_purge_threshold_ratio hpa_sec_batch_fill_extra hpa_sec_bytes_after_flush hpa_sec_max_alloc \
    hpa_sec_max_bytes hpa_sec_nshards hpa_slab_max_alloc huge_arena_pac_thp lg_san_uaf_align \
    process_madvise_max_batch prof_log prof_pid_namespace prof_recent_alloc_max prof_stats \
    prof_sys_thread_name prof_time_resolution prof_unbias san_guard_large san_guard_small slab_sizes \
    tcache_ncached_max utrace";

/// How many keys, from the first, have a mirror in `opt.*`.
pub const MIRRORED: usize = Id::LgTcacheMax as usize;

impl Id {
    /// The key itself.
    pub fn key(self) -> &'static Key {
        &KEYS[self as usize]
    }
}

/// The place of the key of that name.
pub fn find(name: &[u8]) -> Option<usize> {
    KEYS.iter().position(|key| key.name.as_bytes() == name)
}

/// Whether a key of that name is accepted and ignored.
pub fn is_ignored(name: &[u8]) -> bool {
    IGNORED.split(' ').any(|key| key.as_bytes() == name)
}

/// The longest key that is looked at.
const LONGEST: usize = 48;

/// The known key that is closest to `name`, if it is close: no more than a third of its letters away.
pub fn nearest(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() || name.len() > LONGEST {
        return None;
    }
    let (distance, key) = KEYS
        .iter()
        .map(|key| key.name)
        .chain(IGNORED.split(' '))
        .filter(|key| key.len() <= LONGEST)
        .map(|key| (distance(name, key.as_bytes()), key))
        .min()?;
    (distance <= name.len().max(3) / 3).then_some(key)
}

/// Letters to insert, leave out or replace (Levenshtein's distance), over one row of the table.
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut row = [0; LONGEST + 1];
    for (at, cell) in row.iter_mut().enumerate() {
        *cell = at;
    }
    for (at, letter) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
