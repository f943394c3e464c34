//! The settings that a jemalloc in a process really has.
//!
//! Decay from its arenas, which need no symbols; how it was asked from its own variables where these have
//! names: in most Rust programs, which have it inside under prefixed names, and in programs that link it
//! statically. Whether a thread gives pages back is seen by the thread itself, which a fork loses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;

use crate::image::Image;
use crate::memory::{Reader, Unreadable, unless_torn};
use crate::space::Space;
use crate::target::Target;

use super::layout::Layout;
use super::locate::{recognise, version};

/// A jemalloc and the settings in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Settings {
    /// The file that it is part of.
    pub file: PathBuf,
    /// What its names begin with: `je_`, or `_rjem_je_` in Rust programs; none in a stripped file.
    pub prefix: Option<String>,
    /// How long freed pages stay, in milliseconds; -1 for ever.
    pub dirty_decay_ms: i64,
    /// How long pages stay that were returned lazily.
    pub muzzy_decay_ms: Option<i64>,
    /// Whether a thread of its own gives pages back; else only the program's own requests do.
    pub background_thread: Option<bool>,
    /// Whether such a thread was requested; where it was and none runs, a fork has lost it.
    pub background_thread_asked: Option<bool>,
    /// Arenas that it was asked to have; it may have more.
    pub narenas: Option<u32>,
}

/// The variable that every jemalloc since 5.0 has.
const MARK: &str = "opt_dirty_decay_ms";
/// jemalloc names its threads so.
const BACKGROUND_THREAD: &str = "jemalloc_bg_thd";

/// The jemallocs of `target`: those whose variables have symbols, and those in files of that name.
pub fn of_process(target: &Target) -> Result<Vec<Settings>, Unreadable> {
    let mappings = target.mappings()?;
    let space = Space { memory: target.memory(), mappings: &mappings };
    let files: BTreeSet<&Path> =
        mappings.iter().filter(|mapping| mapping.executable).filter_map(|mapping| mapping.file()).collect();
    let mut found = Vec::new();
    for file in files {
        let Some(image) = Image::of(target, &mappings, file) else {
            continue;
        };
        found.extend(of_file(target, file, &image, space)?);
    }
    Ok(found)
}

/// The settings of the jemalloc in the mapped file `file`; `None` where it has none, or one that cannot be told.
pub fn of_file(target: &Target, file: &Path, image: &Image, space: Space<'_>) -> Result<Option<Settings>, Unreadable> {
    let thread = has_background_thread(target);
    if let Some(asked) = of_variables(image, &mut space.reader())? {
        return Ok(Some(Settings {
            file: file.to_owned(),
            // The thread itself may not have begun yet.
            background_thread: asked.background_thread.or(thread),
            ..asked
        }));
    }
    let is_named = file.file_name().is_some_and(|name| name.to_string_lossy().contains(Allocator::Jemalloc.name()));
    if !is_named {
        return Ok(None);
    }
    let version = version(image);
    let found = recognise(space, image.data(), version.as_deref())?;
    let Some((layout, arena)) = found.and_then(|(layout, found)| Some((layout, *found.arenas.get(&0)?))) else {
        return Ok(None);
    };
    let (dirty, muzzy) = of_arena(&mut space.reader(), layout, arena)?;
    Ok(dirty.map(|dirty_decay_ms| Settings {
        file: file.to_owned(),
        dirty_decay_ms,
        muzzy_decay_ms: muzzy,
        background_thread: thread,
        ..Settings::default()
    }))
}

/// How long `arena` keeps pages: the decay times of dirty and of muzzy ones.
pub fn of_arena(
    reader: &mut Reader<'_>,
    layout: &Layout,
    arena: u64,
) -> Result<(Option<i64>, Option<i64>), Unreadable> {
    let mut ms = |field: u64| {
        let word = unless_torn(reader.word(arena.saturating_add(field)))?;
        Ok(word.map(u64::cast_signed))
    };
    let fields = &layout.arena;
    Ok((ms(fields.dirty_decay_ms)?, ms(fields.muzzy_decay_ms)?))
}

/// What the variables of `image` say, where they have names; the file is left out.
pub fn of_variables(image: &Image, reader: &mut Reader<'_>) -> Result<Option<Settings>, Unreadable> {
    let variables = image.variables(|name| name.contains("opt_"));
    let variables: BTreeMap<String, u64> = variables.into_iter().collect();
    let Some(prefix) = variables.keys().find_map(|name| name.strip_suffix(MARK)) else {
        return Ok(None);
    };
    let at = |name: &str| variables.get(&format!("{prefix}{name}")).copied();
    let mut word = |name| if_there(at(name).map(|address| reader.word(address)));
    let Some(dirty_decay_ms) = word(MARK)? else {
        return Ok(None);
    };
    let muzzy_decay_ms = word("opt_muzzy_decay_ms")?;
    let narenas = if_there(at("opt_narenas").map(|address| reader.int(address)))?;
    let mut byte = [0];
    let background = at("opt_background_thread");
    let background = if_there(background.map(|address| reader.bytes(address, &mut byte)))?;
    let background = background.map(|()| byte[0] != 0);
    Ok(Some(Settings {
        prefix: Some(prefix.to_owned()),
        dirty_decay_ms: dirty_decay_ms.cast_signed(),
        muzzy_decay_ms: muzzy_decay_ms.map(u64::cast_signed),
        background_thread: background,
        background_thread_asked: background,
        narenas,
        ..Settings::default()
    }))
}

/// Whether one of jemalloc's own threads runs; `None` where the threads cannot be listed.
pub fn has_background_thread(target: &Target) -> Option<bool> {
    let mut tasks = target.process().tasks().ok()?;
    Some(tasks.any(|task| {
        let name = task.ok().and_then(|task| task.stat().ok());
        name.is_some_and(|stat| stat.comm == BACKGROUND_THREAD)
    }))
}

/// A variable that has no symbol, or lies on a page that is not there, is not known.
fn if_there<T>(read: Option<Result<T, Unreadable>>) -> Result<Option<T>, Unreadable> {
    Ok(read.map(unless_torn).transpose()?.flatten())
}
