//! What the loader does with a library that it is asked to preload into a program. Pure.
//!
//! Shared by the checks of processes, of unpacked images and of Dockerfiles.

use std::path::PathBuf;

use ebb_allocators::Allocator;
use ebb_process::elf::{Elf, Libc, Machine, libc_of};

use super::finding::{Finding, Id};

/// What glibc keeps for objects that are loaded later and want static thread-local storage
/// (`rtld.optional_static_tls`).
const LATE_STATIC_TLS_BYTES: u64 = 512;

/// What counts about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its architecture.
    pub machine: Machine,
    /// Its libc.
    pub libc: Libc,
    /// The page size of the kernel that runs it, where that is known.
    pub page_bytes: Option<u64>,
}

impl Target {
    /// The program with these facts, on a kernel with pages of `page_bytes`.
    pub fn of(elf: &Elf, page_bytes: Option<u64>) -> Self {
        Self { machine: elf.machine, libc: libc_of(elf), page_bytes }
    }
}

/// One name that the loader is asked to preload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry as written.
    pub text: String,
    /// What it leads to.
    pub file: EntryFile,
}

/// What a name in `LD_PRELOAD` leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryFile {
    /// No such file.
    Missing,
    /// A file that is no shared object, and why.
    Unusable(String),
    /// A shared object.
    Object(Box<Object>),
}

/// A shared object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it lies, as we can open it.
    pub path: PathBuf,
    /// Its facts.
    pub elf: Elf,
    /// The known allocator that it is.
    pub allocator: Option<Allocator>,
    /// What it needs and is not there.
    pub missing: Vec<String>,
}

/// Why the loader of `target` does not put `entry` in charge, as far as the files tell.
pub fn refusal(entry: &Entry, target: &Target) -> Option<Finding> {
    let text = &entry.text;
    if is_pattern(text) {
        let what = format!("LD_PRELOAD is \"{text}\", which the loader takes literally");
        return Some(Finding::new(Id::NotExpanded, what));
    }
    match &entry.file {
        EntryFile::Missing => Some(missing(text, target)),
        EntryFile::Unusable(why) => {
            Some(Finding::new(Id::LibraryUnusable, format!("{text} cannot be preloaded: {why}")))
        }
        EntryFile::Object(object) => object_refusal(text, object, target),
    }
}

fn missing(text: &str, target: &Target) -> Finding {
    match path_architecture(text) {
        Some(folder) if folder != target.machine.to_string() => Finding::new(
            Id::ArchitecturePath,
            format!(
                "{text} does not exist: its path is for {folder}, the program is for {}",
                target.machine
            ),
        ),
        _ => Finding::new(Id::LibraryMissing, format!("{text} does not exist")),
    }
}

fn object_refusal(text: &str, object: &Object, target: &Target) -> Option<Finding> {
    let elf = &object.elf;
    let found = |id, what: String| Some(Finding::new(id, what));
    if elf.machine != target.machine {
        return found(
            Id::WrongArchitecture,
            format!("{text} is built for {}, the program for {}", elf.machine, target.machine),
        );
    }
    if !elf.loadable || elf.interpreter.is_some() && elf.soname.is_none() {
        return found(Id::LibraryUnusable, format!("{text} is a program, not a shared object"));
    }
    let libc = libc_of(elf);
    if libc != Libc::Any && libc != target.libc {
        return found(
            Id::WrongLibc,
            format!("{text} is built for {libc}, the program for {}", target.libc),
        );
    }
    if let Some(page) = target.page_bytes.filter(|&page| page > elf.segment_alignment) {
        return found(
            Id::PageSize,
            format!(
                "{text} is built for pages of {} KiB; the kernel's pages have {} KiB",
                elf.segment_alignment >> 10,
                page >> 10
            ),
        );
    }
    if let Some(needed) = object.missing.first() {
        return found(
            Id::MissingDependency,
            format!("{text} needs {needed}, which does not exist"),
        );
    }
    if !elf.defines.malloc {
        return found(
            Id::LibraryUnusable,
            format!("{text} does not define malloc, so it is not an allocator"),
        );
    }
    None
}

/// What is true of the library wherever it is used: worth a note.
pub fn notes(entry: &Entry) -> Vec<Finding> {
    let EntryFile::Object(object) = &entry.file else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    let machine = object.elf.machine.to_string();
    // Kernels with larger pages exist there; the size that jemalloc was built for is a constant in its code.
    if object.allocator == Some(Allocator::Jemalloc)
        && matches!(machine.as_str(), "arm64" | "ppc64le")
    {
        notes.push(Finding::new(
            Id::PageSizeBound,
            format!(
                "{} is a jemalloc for {machine}: a build for 4 KiB pages aborts on kernels with larger ones",
                entry.text
            ),
        ));
    }
    notes
}

/// That the library cannot be loaded once the program runs, where that is so.
pub fn static_tls(entry: &Entry) -> Option<Finding> {
    let EntryFile::Object(object) = &entry.file else {
        return None;
    };
    let bytes = object.elf.static_tls_bytes?;
    (bytes > LATE_STATIC_TLS_BYTES).then(|| {
        Finding::new(
            Id::StaticTls,
            format!(
                "{} needs {bytes} bytes of static thread-local storage; glibc keeps {LATE_STATIC_TLS_BYTES} for libraries that are loaded late",
                entry.text
            ),
        )
    })
}

/// Whether only a shell could make a path of it.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '~', '`']) || text.contains("$(")
}

/// The architecture in a path such as `/usr/lib/x86_64-linux-gnu/x.so`, by our name for it.
pub fn path_architecture(path: &str) -> Option<&'static str> {
    const FOLDERS: [(&str, &str); 8] = [
        ("x86_64-linux-", "x86-64"),
        ("aarch64-linux-", "arm64"),
        ("i386-linux-", "i386"),
        ("arm-linux-", "arm"),
        ("riscv64-linux-", "riscv64"),
        ("powerpc64le-linux-", "ppc64le"),
        ("s390x-linux-", "s390x"),
        ("loongarch64-linux-", "loongarch64"),
    ];
    path.split('/').find_map(|part| {
        let (_, name) = FOLDERS.iter().find(|(start, _)| part.starts_with(start))?;
        Some(*name)
    })
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The known allocator that an entry names.
pub fn allocator_of(entry: &str) -> Option<Allocator> {
    let name = file_name(entry);
    Allocator::from_file_name(name).or_else(|| Allocator::from_choice(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::elf::Defines;

    fn elf(needed: &[&str]) -> Elf {
        Elf {
            machine: Machine { machine: 62, bits: 64, little_endian: true },
            loadable: true,
            interpreter: None,
            needed: needed.iter().map(|name| (*name).to_owned()).collect(),
            soname: None,
            defines: Defines { malloc: true, ..Defines::default() },
            static_tls_bytes: None,
            segment_alignment: 0x1000,
        }
    }

    fn entry(elf: Elf, missing: &[&str]) -> Entry {
        Entry {
            text: "/l/liba.so".to_owned(),
            file: EntryFile::Object(Box::new(Object {
                path: "/l/liba.so".into(),
                elf,
                allocator: None,
                missing: missing.iter().map(|name| (*name).to_owned()).collect(),
            })),
        }
    }

    fn target() -> Target {
        Target { machine: elf(&[]).machine, libc: Libc::Glibc, page_bytes: Some(0x1000) }
    }

    fn id(entry: &Entry, target: &Target) -> Option<Id> {
        refusal(entry, target).map(|finding| finding.id)
    }

    #[test]
    fn a_library_that_fits_is_not_refused() {
        assert_eq!(id(&entry(elf(&["libc.so.6"]), &[]), &target()), None);
        assert_eq!(id(&entry(elf(&[]), &[]), &target()), None);
    }

    #[test]
    fn each_reason_has_its_name() {
        let musl = Target { libc: Libc::Musl, ..target() };
        assert_eq!(id(&entry(elf(&["libc.so.6"]), &[]), &musl), Some(Id::WrongLibc));
        assert_eq!(id(&entry(elf(&[]), &[]), &musl), None, "it needs no libc");
        let large = Target { page_bytes: Some(0x10000), ..target() };
        assert_eq!(id(&entry(elf(&[]), &[]), &large), Some(Id::PageSize));
        assert_eq!(
            id(&entry(elf(&[]), &["libunwind.so.8"]), &target()),
            Some(Id::MissingDependency)
        );
        let mut silent = elf(&[]);
        silent.defines.malloc = false;
        assert_eq!(id(&entry(silent, &[]), &target()), Some(Id::LibraryUnusable));
        let mut other = elf(&[]);
        other.machine.machine = 183;
        assert_eq!(id(&entry(other, &[]), &target()), Some(Id::WrongArchitecture));
    }

    #[test]
    fn a_missing_path_of_another_architecture_is_told_apart() {
        let missing = |text: &str| Entry { text: text.to_owned(), file: EntryFile::Missing };
        let id = |text| id(&missing(text), &target());
        assert_eq!(id("/usr/lib/libjemalloc.so.2"), Some(Id::LibraryMissing));
        assert_eq!(id("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"), Some(Id::LibraryMissing));
        assert_eq!(id("/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"), Some(Id::ArchitecturePath));
        assert_eq!(id("/usr/lib/*/libjemalloc.so.2"), Some(Id::NotExpanded));
    }

    #[test]
    fn static_storage_counts_from_what_glibc_keeps() {
        let with = |bytes| {
            let mut elf = elf(&[]);
            elf.static_tls_bytes = bytes;
            static_tls(&entry(elf, &[])).map(|finding| finding.id)
        };
        assert_eq!(with(Some(2632)), Some(Id::StaticTls));
        assert_eq!(with(Some(8)), None);
        assert_eq!(with(None), None);
    }
}
