//! Allocators that are compiled into a program, which no preloaded library replaces: Go's heap, a Rust
//! program's jemalloc or mimalloc under names of their own.
//!
//! Found by the symbol table; where a program is stripped, by the texts that these allocators cannot
//! do without. Used by `ebb check` and `ebb why`. It reads the whole file once, in pieces.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use super::elf::Elf;

/// An allocator that a program brings in its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inside {
    /// Go's runtime, which maps its heap itself.
    Go,
    /// jemalloc under prefixed names: `_rjem_malloc` and the like, as Rust crates build it.
    PrefixedJemalloc,
    /// jemalloc, called by its own `malloc` of the program.
    Jemalloc,
    /// mimalloc by its own names.
    Mimalloc,
    /// ebbmalloc, by its crate or its archive.
    Ebbmalloc,
}

impl Inside {
    /// The known allocator that it is; none where no library could take its place.
    pub fn allocator(self) -> Option<&'static str> {
        match self {
            Inside::PrefixedJemalloc | Inside::Jemalloc => Some("jemalloc"),
            Inside::Mimalloc => Some("mimalloc"),
            Inside::Ebbmalloc => Some("ebbmalloc"),
            Inside::Go => None,
        }
    }

    /// The variable from which it takes its settings, if there is one.
    pub fn settings_variable(self) -> Option<&'static str> {
        match self {
            Inside::PrefixedJemalloc => Some("_RJEM_MALLOC_CONF"),
            Inside::Jemalloc => Some("MALLOC_CONF"),
            // ebbmalloc reads what the preloaded one reads.
            Inside::Go | Inside::Mimalloc | Inside::Ebbmalloc => None,
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Inside::Go => "Go's runtime, which has a heap of its own",
            Inside::PrefixedJemalloc => "a jemalloc of its own under prefixed names",
            Inside::Jemalloc => "a jemalloc of its own",
            Inside::Mimalloc => "a mimalloc of its own",
            Inside::Ebbmalloc => "an ebbmalloc of its own",
        })
    }
}

/// The allocator inside the program at `path`, if one is found. That none is found proves nothing
/// about allocators that are not known here.
pub fn inside(path: &Path) -> Option<Inside> {
    let data = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&data).ok()?;
    if super::runtime::is_go(path) {
        return Some(Inside::Go);
    }
    let mut symbols = file.symbols().peekable();
    if symbols.peek().is_some() {
        return symbols
            // A thread's variable is none in that word's sense.
            .filter(|it| it.is_definition() || it.kind() == SymbolKind::Tls)
            .find_map(|symbol| by_symbol(symbol.name().ok()?));
    }
    by_texts(path)
}

/// Whether the library at `path`, whose facts are `elf`, is ebbmalloc, whatever its file is called.
pub fn is_ebbmalloc(path: &Path, elf: &Elf) -> bool {
    // It has jemalloc's interface, so that no other library needs to be read.
    elf.defines.jemalloc && inside(path) == Some(Inside::Ebbmalloc)
}

fn by_symbol(name: &str) -> Option<Inside> {
    match name {
        "_rjem_malloc" | "_rjem_mallocx" => Some(Inside::PrefixedJemalloc),
        // Built without a prefix it has its own names for what is internal alone.
        "je_malloc" | "je_mallocx" | "je_arenas" => Some(Inside::Jemalloc),
        "ebbmalloc_thread_word" => Some(Inside::Ebbmalloc),
        "mi_malloc" | "_mi_malloc_generic" => Some(Inside::Mimalloc),
        _ => None,
    }
}

/// What jemalloc and mimalloc write before each message, the variable of the prefixed build, a message of ebbmalloc's.
const TEXTS: [(&[u8], Inside); 4] = [
    // First, since ebbmalloc has messages in jemalloc's words.
    (b"ebbmalloc: stats_file: cannot create ", Inside::Ebbmalloc),
    (b"_RJEM_MALLOC_CONF", Inside::PrefixedJemalloc),
    (b"<jemalloc>: ", Inside::Jemalloc),
    (b"mimalloc: warning: ", Inside::Mimalloc),
];
const PIECE_BYTES: usize = 1 << 20;

fn by_texts(path: &Path) -> Option<Inside> {
    let longest = TEXTS.iter().map(|(text, _)| text.len()).max().unwrap_or(0);
    let mut file = File::open(path).ok()?;
    let mut found = [false; TEXTS.len()];
    let mut piece = Vec::with_capacity(PIECE_BYTES + longest);
    loop {
        let read = file
            .by_ref()
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut piece)
            .ok()?;
        for (place, (text, _)) in found.iter_mut().zip(TEXTS) {
            *place |= memchr::memmem::find(&piece, text).is_some();
        }
        if read == 0 {
            break;
        }
        // A text may lie across the end of a piece.
        piece.drain(..piece.len().saturating_sub(longest));
    }
    // In the order of the table: a prefixed jemalloc has the messages, too.
    let first = found.iter().position(|&found| found)?;
    Some(TEXTS[first].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_has_none() {
        assert_eq!(inside(Path::new("/bin/sh")), None);
        assert_eq!(inside(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn a_text_across_the_border_of_two_pieces_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut bytes = vec![0; PIECE_BYTES - 5];
        bytes.extend_from_slice(b"<jemalloc>: Invalid conf pair");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(by_texts(&path), Some(Inside::Jemalloc));
        bytes.extend_from_slice(b"_RJEM_MALLOC_CONF");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(by_texts(&path), Some(Inside::PrefixedJemalloc));
    }
}
