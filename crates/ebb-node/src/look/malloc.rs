//! Which file serves a process's `malloc`, and the name of the allocator in it.

use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;
use ebb_process::inside::{Inside, inside};
use ebb_process::root::Root;
use ebb_process::snapshot;
use ebb_process::{Elf, MallocSource, Unreadable, charge, library, malloc_source};

/// What is in charge of a process's `malloc`, by name.
pub(super) fn in_charge(pid: i32, program: Option<&str>) -> Result<snapshot::Allocator, Unreadable> {
    let source = malloc_source(pid)?;
    // What runs, also where it was replaced on disk.
    let running = PathBuf::from(format!("/proc/{pid}/exe"));
    let is_program = source.is(&running);
    Ok(match source {
        MallocSource::File(path) => {
            let seen = if is_program { &running } else { &path };
            // A file that was deleted is opened by its mapping.
            let name = match std::fs::read_link(&path) {
                Ok(name) if path.starts_with("/proc") => charge::name_when_mapped(&name),
                _ => Root::of(pid).inside(&path),
            };
            snapshot::Allocator { name: Some(name_of(seen, &name, is_program)), file: Some(name.display().to_string()) }
        }
        MallocSource::Static => snapshot::Allocator { name: None, file: program.map(str::to_owned) },
        MallocSource::Nobody => snapshot::Allocator::default(),
    })
}

/// The name of the allocator in the file that is read at `seen` and called `path`.
fn name_of(seen: &Path, path: &Path, is_program: bool) -> String {
    let file = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    let elf = Elf::read(seen);
    // A program brings its allocator inside, by whatever names.
    let recognised = elf.as_ref().ok().filter(|_| !is_program);
    let recognised = recognised.and_then(|elf| library::recognise(seen, elf));
    if let Some(known) = recognised.or_else(|| Allocator::from_file_name(&file)) {
        return known.to_string();
    }
    let defines = elf.map(|elf| elf.defines).unwrap_or_default();
    let known = match () {
        () if defines.jemalloc => Some(Allocator::Jemalloc),
        () if defines.mimalloc => Some(Allocator::Mimalloc),
        () if defines.tcmalloc => Some(Allocator::Tcmalloc),
        () if is_program => inside(seen).and_then(Inside::allocator),
        () if file.starts_with("ld-musl") || file.starts_with("libc.musl") => Some(Allocator::Musl),
        () if file == "libc.so" => Some(Allocator::Musl),
        () if file.starts_with("libc.so") || file.starts_with("libc-2") => Some(Allocator::Glibc),
        () => None,
    };
    known.map_or(file, |known| known.to_string())
}
