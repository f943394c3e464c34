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
    let machine = target.machine.to_string();
    match path_architecture(text).filter(|folder| *folder != machine) {
        Some(folder) => {
            let what = format!("{text} does not exist: its path is for {folder}, the program is for {machine}");
            Finding::new(Id::ArchitecturePath, what)
        }
        None => Finding::new(Id::LibraryMissing, format!("{text} does not exist")),
    }
}

fn object_refusal(text: &str, object: &Object, target: &Target) -> Option<Finding> {
    let elf = &object.elf;
    let (machine, libc) = (&target.machine, libc_of(elf));
    let (id, what) = if elf.machine != *machine {
        let what = format!("{text} is built for {}, the program for {machine}", elf.machine);
        (Id::WrongArchitecture, what)
    } else if !elf.loadable || elf.interpreter.is_some() && elf.soname.is_none() {
        (Id::LibraryUnusable, format!("{text} is a program, not a shared object"))
    } else if libc != Libc::Any && libc != target.libc {
        let what = format!("{text} is built for {libc}, the program for {}", target.libc);
        (Id::WrongLibc, what)
    } else if let Some(page) = target.page_bytes.filter(|&page| page > elf.segment_alignment) {
        let what = format!(
            "{text} is built for pages of {} KiB; the kernel's pages have {} KiB",
            elf.segment_alignment >> 10,
            page >> 10
        );
        (Id::PageSize, what)
    } else if let Some(needed) = object.missing.first() {
        (Id::MissingDependency, format!("{text} needs {needed}, which does not exist"))
    } else if !elf.defines.malloc {
        let what = format!("{text} does not define malloc, so it is not an allocator");
        (Id::LibraryUnusable, what)
    } else {
        return None;
    };
    Some(Finding::new(id, what))
}

/// What is true of the library wherever it is used: worth a note.
pub fn notes(entry: &Entry) -> Option<Finding> {
    let EntryFile::Object(object) = &entry.file else { return None };
    let machine = object.elf.machine.to_string();
    // Kernels with larger pages exist there; the size that jemalloc was built for is a constant in its code.
    if object.allocator != Some(Allocator::Jemalloc) || !["arm64", "ppc64le"].contains(&&*machine) {
        return None;
    }
    let text = &entry.text;
    let what =
        format!("{text} is a jemalloc for {machine}: a build for 4 KiB pages aborts on kernels with larger ones");
    Some(Finding::new(Id::PageSizeBound, what))
}

/// That the library cannot be loaded once the program runs, where that is so.
pub fn static_tls(entry: &Entry) -> Option<Finding> {
    let EntryFile::Object(object) = &entry.file else { return None };
    let bytes = object.elf.static_tls_bytes.filter(|bytes| *bytes > LATE_STATIC_TLS_BYTES)?;
    let text = &entry.text;
    let what = format!(
        "{text} needs {bytes} bytes of static thread-local storage; glibc keeps {LATE_STATIC_TLS_BYTES} for libraries that are loaded late"
    );
    Some(Finding::new(Id::StaticTls, what))
}

/// Whether only a shell could make a path of it.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '~', '`']) || text.contains("$(")
}

/// The architecture in a path such as `/usr/lib/x86_64-linux-gnu/x.so`, by our name for it.
pub fn path_architecture(path: &str) -> Option<&'static str> {
    path.split('/').find_map(|part| {
        Some(match part.split_once("-linux-")?.0 {
            "x86_64" => "x86-64",
            "aarch64" => "arm64",
            "powerpc64le" => "ppc64le",
            "i386" => "i386",
            "arm" => "arm",
            "riscv64" => "riscv64",
            "s390x" => "s390x",
            "loongarch64" => "loongarch64",
            _ => return None,
        })
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

    #[test]
    fn each_reason_has_its_name() {
        let musl = Target { libc: Libc::Musl, ..target() };
        let large = Target { page_bytes: Some(0x10000), ..target() };
        let mut silent = elf(&[]);
        silent.defines.malloc = false;
        let mut other = elf(&[]);
        other.machine.machine = 183;
        for (elf, missing, target, id) in [
            (elf(&["libc.so.6"]), &[][..], target(), None),
            (elf(&[]), &[], target(), None),
            (elf(&["libc.so.6"]), &[], musl.clone(), Some(Id::WrongLibc)),
            // It needs no libc.
            (elf(&[]), &[], musl, None),
            (elf(&[]), &[], large, Some(Id::PageSize)),
            (elf(&[]), &["libunwind.so.8"], target(), Some(Id::MissingDependency)),
            (silent, &[], target(), Some(Id::LibraryUnusable)),
            (other, &[], target(), Some(Id::WrongArchitecture)),
        ] {
            let entry = entry(elf, missing);
            assert_eq!(refusal(&entry, &target).map(|it| it.id), id, "{entry:?} {target:?}");
        }
    }

    #[test]
    fn a_missing_path_of_another_architecture_is_told_apart() {
        for (text, id) in [
            ("/usr/lib/libjemalloc.so.2", Id::LibraryMissing),
            ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", Id::LibraryMissing),
            ("/usr/lib/aarch64-linux-gnu/libjemalloc.so.2", Id::ArchitecturePath),
            ("/usr/lib/*/libjemalloc.so.2", Id::NotExpanded),
        ] {
            let missing = Entry { text: text.to_owned(), file: EntryFile::Missing };
            assert_eq!(refusal(&missing, &target()).map(|it| it.id), Some(id), "{text}");
        }
    }

    #[test]
    fn static_storage_counts_from_what_glibc_keeps() {
        for (static_tls_bytes, id) in [(Some(2632), Some(Id::StaticTls)), (Some(8), None), (None, None)] {
            let elf = Elf { static_tls_bytes, ..elf(&[]) };
            assert_eq!(static_tls(&entry(elf, &[])).map(|it| it.id), id);
        }
    }
}
