//! Allocators that are compiled into a program, which no preloaded library replaces: Go's heap, a Rust
//! program's jemalloc or mimalloc under names of their own.
//!
//! Found by the symbol table; where a program is stripped, by the texts that these allocators cannot
//! do without. Used by `ebb check` and `ebb why`. It reads the whole file once, in pieces.

use std::fmt;
use std::io::Read;
use std::path::Path;

use ebb_allocators::Allocator;
use ebb_inspect::file::NamedFile;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind, SymbolKind};

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
    /// tcmalloc by its own names.
    Tcmalloc,
    /// rpmalloc by its own names.
    Rpmalloc,
    /// snmalloc by its own names.
    Snmalloc,
}

impl Inside {
    /// The known allocator that it is; none where no library could take its place.
    pub fn allocator(self) -> Option<Allocator> {
        match self {
            Inside::PrefixedJemalloc | Inside::Jemalloc => Some(Allocator::Jemalloc),
            Inside::Mimalloc => Some(Allocator::Mimalloc),
            Inside::Ebbmalloc => Some(Allocator::Ebbmalloc),
            Inside::Tcmalloc => Some(Allocator::Tcmalloc),
            Inside::Go | Inside::Rpmalloc | Inside::Snmalloc => None,
        }
    }

    /// The variable from which it takes its settings, if there is one.
    pub fn settings_variable(self) -> Option<&'static str> {
        match self {
            Inside::PrefixedJemalloc => Some("_RJEM_MALLOC_CONF"),
            Inside::Jemalloc => Some("MALLOC_CONF"),
            // ebbmalloc reads what the preloaded one reads.
            Inside::Go
            | Inside::Mimalloc
            | Inside::Ebbmalloc
            | Inside::Tcmalloc
            | Inside::Rpmalloc
            | Inside::Snmalloc => None,
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Inside::Go => "Go's runtime, which has its own heap",
            Inside::PrefixedJemalloc => "a jemalloc of its own under prefixed names",
            Inside::Jemalloc => "a jemalloc of its own",
            Inside::Mimalloc => "a mimalloc of its own",
            Inside::Ebbmalloc => "an ebbmalloc of its own",
            Inside::Tcmalloc => "a tcmalloc of its own",
            Inside::Rpmalloc => "an rpmalloc of its own",
            Inside::Snmalloc => "an snmalloc of its own",
        })
    }
}

/// The allocator inside the program at `path`, if one is found. That none is found proves nothing
/// about allocators that are not known here.
pub fn inside(path: &Path) -> Option<Inside> {
    let data = ReadCache::new(NamedFile::open(path).ok()?);
    let file = object::File::parse(&data).ok()?;
    if super::runtime::is_go(path) {
        return Some(Inside::Go);
    }
    let mut symbols = file.symbols().peekable();
    let found = if symbols.peek().is_some() {
        symbols
            // A thread's variable is none in that word's sense.
            .filter(|it| it.is_definition() || it.kind() == SymbolKind::Tls)
            .find_map(|symbol| by_any_symbol(symbol.name().ok()?))
    } else {
        by_texts(path)
    };
    found.filter(|inside| *inside != Inside::Mimalloc || !is_idle_in_cpython(&file))
}

/// Whether a mimalloc in `file` is that of a CPython with the global lock: it is there since 3.13, and only
/// `PYTHONMALLOC=mimalloc` uses it. Free-threaded builds always do.
fn is_idle_in_cpython<'a>(file: &impl Object<'a>) -> bool {
    let defines = |name| {
        let mut symbols = file.dynamic_symbols().filter(|it| it.is_definition());
        symbols.any(|symbol| symbol.name() == Ok(name))
    };
    defines("PyMem_SetAllocator") && !defines("_Py_MergeZeroLocalRefcount")
}

/// The allocator inside the mapped library or program at `path`, if one is found: by its symbols, else by the texts of
/// its constants. These are searched as far as `budget` goes, in bytes for all files.
pub fn in_library(path: &Path, budget: &mut u64) -> Result<Option<Inside>, &'static str> {
    let unreadable = "it cannot be read";
    let data = ReadCache::new(NamedFile::open(path).map_err(|_| unreadable)?);
    let Ok(file) = object::File::parse(&data) else {
        // Mapped to be executed, and no program: code that another program made.
        return Ok(None);
    };
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let named = symbols
        .filter(|it| it.is_definition() || it.kind() == SymbolKind::Tls)
        .filter_map(|symbol| by_any_symbol(symbol.name().ok()?))
        // A prefixed jemalloc has the unprefixed names as well.
        .max_by_key(|inside| *inside == Inside::PrefixedJemalloc);
    if named.is_some() {
        return Ok(named);
    }
    let constants = file.sections().filter(|it| {
        matches!(it.kind(), SectionKind::ReadOnlyData | SectionKind::ReadOnlyString | SectionKind::ReadOnlyDataWithRel)
    });
    let mut found = None;
    for section in constants {
        *budget =
            budget.checked_sub(section.size()).ok_or("the process's libraries are too large to search all of them")?;
        let Ok(bytes) = section.data() else {
            return Err(unreadable);
        };
        let here = TEXTS.iter().position(|(text, _)| memchr::memmem::find(bytes, text).is_some());
        found = [found, here].into_iter().flatten().min();
    }
    Ok(found.map(|at| TEXTS[at].1))
}

/// Also by names that a program could have that calls an allocator of its own.
fn by_any_symbol(name: &str) -> Option<Inside> {
    match name {
        "tc_malloc" | "TCMallocInternalMalloc" => Some(Inside::Tcmalloc),
        "rpmalloc" | "rpmalloc_initialize" => Some(Inside::Rpmalloc),
        "sn_malloc" | "sn_rust_alloc" => Some(Inside::Snmalloc),
        // Under a prefix of its own.
        _ if name.ends_with("_mallctlbymib") && name != "_rjem_mallctlbymib" => Some(Inside::Jemalloc),
        _ => by_symbol(name),
    }
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
const TEXTS: [(&[u8], Inside); 5] = [
    // First, since ebbmalloc has messages in jemalloc's words.
    (b"ebbmalloc: stats_file: cannot create ", Inside::Ebbmalloc),
    (b"_RJEM_MALLOC_CONF", Inside::PrefixedJemalloc),
    (b"<jemalloc>: ", Inside::Jemalloc),
    (b"mimalloc: warning: ", Inside::Mimalloc),
    (b"tcmalloc: large alloc ", Inside::Tcmalloc),
];
const PIECE_BYTES: usize = 1 << 20;

fn by_texts(path: &Path) -> Option<Inside> {
    let longest = TEXTS.iter().map(|(text, _)| text.len()).max().unwrap_or(0);
    let mut file = NamedFile::open(path).ok()?;
    let mut found = [false; TEXTS.len()];
    let mut piece = Vec::with_capacity(PIECE_BYTES + longest);
    loop {
        let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).ok()?;
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

    /// Compiles `code` to a program whose names are in its dynamic symbol table.
    fn program(folder: &Path, code: &str) -> std::path::PathBuf {
        let path = folder.join("program");
        std::fs::write(folder.join("code.c"), code).unwrap();
        let mut cc = std::process::Command::new("cc");
        cc.arg("-rdynamic").arg(folder.join("code.c"));
        assert!(cc.arg("-o").arg(&path).status().unwrap().success());
        path
    }

    #[test]
    fn the_mimalloc_in_a_cpython_counts_only_without_the_global_lock() {
        let folder = tempfile::tempdir().unwrap();
        let mimalloc = "void *mi_malloc(void) { return 0; } int main(void) { return 0; }";
        let python = format!("{mimalloc} void PyMem_SetAllocator(void) {{}}");
        let free_threaded = format!("{python} void _Py_MergeZeroLocalRefcount(void) {{}}");
        for (code, found) in
            [(mimalloc, Some(Inside::Mimalloc)), (&python, None), (&free_threaded, Some(Inside::Mimalloc))]
        {
            assert_eq!(inside(&program(folder.path(), code)), found, "{code}");
        }
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
