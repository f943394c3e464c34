//! Which file serves a process's `malloc`, and the name of the allocator in it.

use std::path::{Path, PathBuf};

use ebb_process::inside::{Inside, inside};
use ebb_process::root::Root;
use ebb_process::snapshot::Allocator;
use ebb_process::{Elf, MallocSource, Unreadable, charge, malloc_source};

/// What is in charge of a process's `malloc`, by name.
pub(super) fn in_charge(pid: i32, program: Option<&str>) -> Result<Allocator, Unreadable> {
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
            Allocator {
                name: Some(name_of(seen, &name, is_program)),
                file: Some(name.display().to_string()),
            }
        }
        MallocSource::Static => Allocator { name: None, file: program.map(str::to_owned) },
        MallocSource::Nobody => Allocator::default(),
    })
}

/// The name of the allocator in the file that is read at `seen` and called `path`.
fn name_of(seen: &Path, path: &Path, is_program: bool) -> String {
    let file = path.file_name().map_or_else(String::new, |name| {
        name.to_string_lossy().trim_end_matches(" (deleted)").to_owned()
    });
    let elf = Elf::read(seen);
    // A program brings its allocator inside, by whatever names.
    let recognised = elf.as_ref().ok().filter(|_| !is_program);
    let recognised = recognised.and_then(|elf| ebb_allocators::recognise(seen, elf));
    if let Some(known) = recognised.or_else(|| ebb_allocators::by_file_name(&file)) {
        return known.name.to_owned();
    }
    let defines = elf.map(|elf| elf.defines).unwrap_or_default();
    match () {
        () if defines.jemalloc => "jemalloc".to_owned(),
        () if defines.mimalloc => "mimalloc".to_owned(),
        () if defines.tcmalloc => "tcmalloc".to_owned(),
        () if is_program => inside(seen).and_then(Inside::allocator).map_or(file, str::to_owned),
        () if file.starts_with("ld-musl") || file.starts_with("libc.musl") => "musl".to_owned(),
        () if file == "libc.so" => "musl".to_owned(),
        () if file.starts_with("libc.so") || file.starts_with("libc-2") => "glibc".to_owned(),
        () => file,
    }
}
