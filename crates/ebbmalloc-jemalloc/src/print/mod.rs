//! `malloc_stats_print`: the settings and the statistics in words or as JSON, in the shape that jemalloc
//! gives them, so that what reads the one reads the other.
//!
//! All that is printed is read from the tree. Options are letters: `J` for JSON; `g`, `m`, `d`, `a`, `b`,
//! `l` leave out the general part, the merged figures, those of destroyed arenas, those of each arena, of bins, of large
//! classes. jemalloc's `x`, `e` and `h` leave out what is never printed here: mutexes, extents, huge-page slabs.

mod arena;
mod classes;
mod emitter;
mod general;

use crate::node::{Access, Kind, Node, Text, Type};
use crate::tree::{DEPTH, name_to_mib, read_mib};
use core::ffi::CStr;
use core::fmt::{self, Write};
use ebbmalloc_core::base::exact::usize_of;
use ebbmalloc_core::runtime::{control, figures};
use emitter::Emitter;

/// What is left out, and how the rest is written.
#[derive(Clone, Copy)]
struct Options {
    json: bool,
    general: bool,
    merged: bool,
    destroyed: bool,
    unmerged: bool,
    bins: bool,
    large: bool,
}

impl Options {
    fn new(letters: &[u8]) -> Self {
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

/// Prints through `sink`, piece by piece.
pub fn print(sink: &mut dyn FnMut(&CStr), letters: &[u8]) {
    control::make_ready();
    figures::refresh();
    let options = Options::new(letters);
    let mut out = Emitter::new(sink, options.json);
    out.text(format_args!("___ Begin jemalloc statistics ___\n"));
    out.begin();
    out.object("jemalloc");
    if options.general {
        general::print(&mut out);
    }
    figures_in_general(&mut out);
    arenas(&mut out, options);
    out.end_object();
    out.text(format_args!("--- End jemalloc statistics ---\n"));
    out.finish();
}

/// Prints to where the allocator's words go: the program's `malloc_message`, or standard error.
pub fn to_message(letters: &CStr) {
    print(&mut |text| control::message(text), letters.to_bytes());
}

/// A value of the tree, as it is printed.
enum Shown {
    Truth(bool),
    Number(u64),
    Signed(i64),
    Text(&'static CStr),
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truth(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Text(text) => Quoted(text).fmt(f),
        }
    }
}

/// A text as JSON has it.
struct Quoted<'a>(&'a CStr);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for &byte in self.0.to_bytes() {
            match byte {
                b'"' | b'\\' => {
                    f.write_char('\\')?;
                    f.write_char(char::from(byte))?;
                }
                0..0x20 | 0x7f.. => write!(f, "\\u{byte:04x}")?,
                byte => f.write_char(char::from(byte))?,
            }
        }
        f.write_char('"')
    }
}

/// The value of a leaf; `None` if it cannot be read now.
fn shown(node: &Node, mib: &[usize]) -> Option<Shown> {
    let Kind::Leaf { access, value, .. } = node.kind else {
        return None;
    };
    // A text that can be written is read to where its buffer points.
    let is_read = match access {
        Access::Read => true,
        Access::ReadWrite => value != Type::Text,
        Access::Write | Access::Act => false,
    };
    if !is_read {
        return None;
    }
    Some(match value {
        Type::Bool => Shown::Truth(read_mib(mib).ok()?),
        Type::Unsigned => Shown::Number(u64::from(read_mib::<u32>(mib).ok()?)),
        Type::U64 => Shown::Number(read_mib(mib).ok()?),
        Type::Size => Shown::Number(read_mib::<usize>(mib).ok()? as u64),
        Type::I64 => Shown::Signed(read_mib(mib).ok()?),
        Type::SignedSize => Shown::Signed(read_mib::<isize>(mib).ok()? as i64),
        Type::Text => {
            let text = read_mib::<Text>(mib).ok()?;
            // SAFETY: the texts of leaves that can only be read live as long as the process.
            Shown::Text(unsafe { (!text.is_null()).then(|| CStr::from_ptr(text)) }?)
        }
        Type::Pointer | Type::None => return None,
    })
}

/// A name put together, as bytes.
struct Name {
    bytes: [u8; 96],
    length: usize,
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The value of the leaf of that name, 0 where it cannot be read.
fn number(name: fmt::Arguments<'_>) -> u64 {
    match value(name) {
        Some(Shown::Number(number)) => number,
        _ => 0,
    }
}

/// The value of the leaf of that name, if it can be read.
fn value(name: fmt::Arguments<'_>) -> Option<Shown> {
    let mut text = Name {
        bytes: [0; 96],
        length: 0,
    };
    text.write_fmt(name).ok()?;
    let mut mib = [0; DEPTH];
    let depth = name_to_mib(&text.bytes[..text.length], &mut mib).ok()?;
    shown(crate::tree::node(&mib[..depth])?, &mib[..depth])
}

/// Prints the leaves of a group, for JSON and in words alike.
fn group(out: &mut Emitter<'_>, name: &'static str, title: &str) {
    let mut mib = [0; DEPTH];
    let Ok(depth) = name_to_mib(name.as_bytes(), &mut mib) else {
        return;
    };
    let Some(Kind::Group(nodes)) = crate::tree::node(&mib[..depth]).map(|node| &node.kind) else {
        return;
    };
    out.object(name);
    out.text(format_args!("{title}\n"));
    for (index, node) in nodes.iter().enumerate() {
        mib[depth] = index;
        let Some(value) = shown(node, &mib[..=depth]) else {
            continue;
        };
        out.pair(node.name, &value);
        out.text(format_args!("  {name}.{}: {value}", node.name));
        if let Some(now) = general::now_in_force(name, node.name) {
            out.text(format_args!(" ({now}: "));
            if let Some(value) = self::value(format_args!("{now}")) {
                out.text(format_args!("{value}"));
            }
            out.text(format_args!(")"));
        }
        out.text(format_args!("\n"));
    }
    out.end_object();
}

/// The figures of the whole process.
fn figures_in_general(out: &mut Emitter<'_>) {
    const FIGURES: [&str; 10] = [
        "allocated",
        "active",
        "metadata",
        "metadata_edata",
        "metadata_rtree",
        "metadata_thp",
        "resident",
        "mapped",
        "retained",
        "zero_reallocs",
    ];
    let figure = |name| number(format_args!("stats.{name}"));
    out.object("stats");
    for name in FIGURES {
        out.pair(name, &figure(name));
    }
    out.text(format_args!(
        "Allocated: {}, active: {}, metadata: {} (n_thp {}, edata {}, rtree {}), resident: {}, mapped: {}, retained: {}\n",
        figure("allocated"),
        figure("active"),
        figure("metadata"),
        figure("metadata_thp"),
        figure("metadata_edata"),
        figure("metadata_rtree"),
        figure("resident"),
        figure("mapped"),
        figure("retained"),
    ));
    out.text(format_args!(
        "Count of realloc(non-null-ptr, 0) calls: {}\n",
        figure("zero_reallocs")
    ));
    let thread = |name| number(format_args!("stats.background_thread.{name}"));
    out.object("background_thread");
    for name in ["num_threads", "num_runs", "run_interval"] {
        out.pair(name, &thread(name));
    }
    out.end_object();
    out.text(format_args!(
        "Background threads: {}, num_runs: {}, run_interval: {} ns\n",
        thread("num_threads"),
        thread("num_runs"),
        thread("run_interval")
    ));
    out.end_object();
}

fn arenas(out: &mut Emitter<'_>, options: Options) {
    if !(options.merged || options.destroyed || options.unmerged) {
        return;
    }
    let initialized = |index| {
        matches!(
            value(format_args!("arena.{index}.initialized")),
            Some(Shown::Truth(true))
        )
    };
    let count = usize_of(number(format_args!("arenas.narenas")));
    let some = (0..count).filter(|&index| initialized(index)).count();
    out.object("stats.arenas");
    if options.merged && (some > 1 || !options.unmerged) {
        out.text(format_args!("Merged arenas stats:\n"));
        out.object("merged");
        arena::print(out, crate::nodes::ALL_ARENAS, options);
        out.end_object();
    }
    if options.destroyed && initialized(crate::nodes::DESTROYED_ARENAS) {
        out.text(format_args!("Destroyed arenas stats:\n"));
        out.object("destroyed");
        arena::print(out, crate::nodes::DESTROYED_ARENAS, options);
        out.end_object();
    }
    if options.unmerged {
        for index in (0..count).filter(|&index| initialized(index)) {
            out.text(format_args!("arenas[{index}]:\n"));
            out.numbered_object(index);
            arena::print(out, index, options);
            out.end_object();
        }
    }
    out.end_object();
}
