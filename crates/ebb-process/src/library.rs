//! Finds the library of an allocator that fits a program.
//!
//! Used by `ebb run`, trials, `ebb fix` and `ebb check`. [`resolve`] turns what a user wrote and the program into a
//! [`Choice`]. A library that the loader would refuse or ignore for that program is an error.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ebb_allocators::{Allocator, Choice, Library, splits_in_preload};

use super::carried::{self, NotPlaced};
use super::elf::{Elf, Libc, Machine, libc_of};
use super::inside::is_ebbmalloc;

/// Why an allocator cannot be had for a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// Neither a known name nor a path.
    #[error("allocator \"{name}\" is not known; known are {known}, or the path of a shared object")]
    Unknown {
        /// What was written.
        name: String,
        /// What would have been understood.
        known: String,
    },
    /// No library was found.
    #[error("{name} is not installed: {install}")]
    NotInstalled {
        /// The allocator, or the path that was given.
        name: String,
        /// What to do, as a command where there is one.
        install: String,
    },
    /// Libraries were found, but the program's loader takes none of them.
    #[error("{path} is built for {library}, the program for {program}", path = path.display())]
    DoesNotFit {
        /// The library.
        path: PathBuf,
        /// What the library is made for.
        library: String,
        /// What the program is made for.
        program: String,
    },
    /// The file is no allocator, or cannot be written into `LD_PRELOAD`.
    #[error("{path} {why}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Goes on from its name.
        why: String,
    },
    /// The library that this program carries cannot be written anywhere.
    #[error(transparent)]
    NotPlaced(#[from] NotPlaced),
}

/// The allocator `name`, a known one or the path of a library, for the program `target`.
pub fn resolve(name: &str, target: &Elf) -> Result<Choice, Unresolved> {
    if name.contains('/') {
        return from_path(Path::new(name), target).map(Choice::Library);
    }
    let Some(allocator) = Allocator::from_choice(name) else {
        let known = Allocator::known_names();
        return Err(Unresolved::Unknown { name: name.to_owned(), known });
    };
    if allocator.is_of_libc() {
        return Ok(Choice::System);
    }
    if allocator == Allocator::Ebbmalloc
        && let Some(named) = named(target)
    {
        return named.map(Choice::Library);
    }
    search(allocator, target).map(Choice::Library)
}

fn from_path(path: &Path, target: &Elf) -> Result<Library, Unresolved> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if !path.exists() {
        return Err(Unresolved::NotInstalled {
            name: path.display().to_string(),
            install: "there is no such file".to_owned(),
        });
    }
    check(&path, target)
}

/// The path of an installed libebbmalloc.so for the program `target`: what `EBB_LIB` names, else the first that fits.
pub fn installed(target: &Elf) -> Result<PathBuf, Unresolved> {
    named(target).unwrap_or_else(|| search_folders(Allocator::Ebbmalloc, target)).map(|library| library.path)
}

/// The library that `EBB_LIB` names, if it is set.
fn named(target: &Elf) -> Option<Result<Library, Unresolved>> {
    let path = env::var_os("EBB_LIB").filter(|path| !path.is_empty())?;
    Some(from_path(Path::new(&path), target))
}

/// The first library of `allocator` in the usual places that fits, else the one that this program carries.
fn search(allocator: Allocator, target: &Elf) -> Result<Library, Unresolved> {
    let error = match search_folders(allocator, target) {
        Ok(library) => return Ok(library),
        Err(error) => error,
    };
    match arch(target.machine).filter(|_| allocator == Allocator::Ebbmalloc).and_then(carried::library) {
        Some(carried) => check(&carried.place()?.path, target),
        None => Err(error),
    }
}

/// The first library of `allocator` in the usual places that fits; where there are only others, why the first of those
/// does not.
fn search_folders(allocator: Allocator, target: &Elf) -> Result<Library, Unresolved> {
    let mut refusal = None;
    for folder in folders(allocator, target) {
        for soname in allocator.sonames() {
            let path = folder.join(soname);
            if !path.is_file() {
                continue;
            }
            match check(&path, target) {
                Ok(library) => {
                    return Ok(Library { allocator: Some(allocator), ..library });
                }
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
    }
    Err(refusal.unwrap_or_else(|| not_installed(allocator)))
}

/// As `uname -m` has it, for the architectures that ebbmalloc is built for.
fn arch(machine: Machine) -> Option<&'static str> {
    match machine.to_string().as_str() {
        "x86-64" => Some("x86_64"),
        "arm64" => Some("aarch64"),
        _ => None,
    }
}

fn not_installed(allocator: Allocator) -> Unresolved {
    let install = if allocator == Allocator::Ebbmalloc {
        "this ebb carries none; build it with `cargo build --release -p ebbmalloc-c`, or set EBB_LIB to the path of \
         libebbmalloc.so"
            .to_owned()
    } else {
        allocator.packages().install_command()
    };
    Unresolved::NotInstalled { name: allocator.to_string(), install }
}

/// Whether the loader of `target` will take the file, and it is an allocator.
fn check(path: &Path, target: &Elf) -> Result<Library, Unresolved> {
    let unusable = |why: &str| Unresolved::Unusable { path: path.to_owned(), why: why.to_owned() };
    let elf = Elf::read(path).map_err(|error| unusable(&format!("cannot be used: {error}")))?;
    if elf.machine != target.machine {
        return Err(Unresolved::DoesNotFit {
            path: path.to_owned(),
            library: elf.machine.to_string(),
            program: target.machine.to_string(),
        });
    }
    if !elf.loadable || elf.interpreter.is_some() && elf.soname.is_none() {
        return Err(unusable("is a program, not a shared object"));
    }
    if !elf.defines.malloc {
        return Err(unusable("does not define malloc, so it is not an allocator"));
    }
    let (library, program) = (libc_of(&elf), libc_of(target));
    if library != Libc::Any && library != program {
        return Err(Unresolved::DoesNotFit {
            path: path.to_owned(),
            library: library.to_string(),
            program: program.to_string(),
        });
    }
    if splits_in_preload(path) {
        return Err(unusable(
            "its path contains a space or a colon, which separate paths in LD_PRELOAD: link it elsewhere",
        ));
    }
    Ok(Library { path: path.to_owned(), allocator: recognise(path, &elf) })
}

/// Which known allocator a library is. Its own functions tell best; a file may be renamed.
pub fn recognise(path: &Path, elf: &Elf) -> Option<Allocator> {
    if elf.defines.mimalloc {
        return Some(Allocator::Mimalloc);
    }
    if elf.defines.tcmalloc {
        return Some(Allocator::Tcmalloc);
    }
    // ebbmalloc answers jemalloc's mallctl too, and is installed under jemalloc's name for programs that are linked to it.
    if is_ebbmalloc(path, elf) {
        return Some(Allocator::Ebbmalloc);
    }
    let name = path.file_name()?.to_str()?;
    Allocator::from_file_name(elf.soname.as_deref().unwrap_or(name))
        .or_else(|| Allocator::from_file_name(name))
        .or_else(|| elf.defines.jemalloc.then_some(Allocator::Jemalloc))
}

/// Where libraries of `allocator` for `target` may lie, the likeliest first.
fn folders(allocator: Allocator, target: &Elf) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if allocator == Allocator::Ebbmalloc {
        folders.extend(beside_this_program());
    }
    if let Some(paths) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&paths).filter(|path| path.is_absolute()));
    }
    folders.extend(system_folders(target));
    // A program for another libc than the system's: what is here serves to say what does not fit.
    if libc_of(target) == Libc::Musl {
        for root in ["/usr/lib", "/lib"] {
            folders.extend(glibc_multiarch(target.machine).map(|name| Path::new(root).join(name)));
        }
    }
    folders
}

/// Where distributions keep the libraries of programs like `target`.
pub fn system_folders(target: &Elf) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/usr/local/lib")];
    if let Some(triplet) = multiarch(target) {
        for root in ["/usr/local/lib", "/usr/lib", "/lib"] {
            folders.push(Path::new(root).join(&triplet));
        }
    }
    for root in ["/usr/lib64", "/lib64", "/usr/lib", "/lib"] {
        folders.push(PathBuf::from(root));
    }
    folders
}

/// Folders in which an installation or a build keeps libebbmalloc.so, seen from this program. A build
/// for debugging has an optimised one next door, which is the one to judge by.
fn beside_this_program() -> Vec<PathBuf> {
    let Some(own) = env::current_exe().ok().and_then(|path| fs::canonicalize(path).ok()) else {
        return Vec::new();
    };
    let mut folders = Vec::new();
    for folder in own.ancestors().skip(1).take(2) {
        if folder.ends_with("debug") {
            folders.push(folder.with_file_name("release"));
        }
        folders.push(folder.to_owned());
        folders.push(folder.join("lib"));
        folders.push(folder.join("lib/ebb"));
    }
    folders
}

/// Debian's folder for libraries of that architecture and libc.
fn multiarch(target: &Elf) -> Option<String> {
    let glibc = glibc_multiarch(target.machine)?;
    Some(match libc_of(target) {
        Libc::Musl => glibc.replace("-gnu", "-musl"),
        _ => glibc.to_owned(),
    })
}

fn glibc_multiarch(machine: Machine) -> Option<&'static str> {
    Some(match machine.to_string().as_str() {
        "x86-64" => "x86_64-linux-gnu",
        "x32" => "x86_64-linux-gnux32",
        "i386" => "i386-linux-gnu",
        "arm64" => "aarch64-linux-gnu",
        "arm" => "arm-linux-gnueabihf",
        "riscv64" => "riscv64-linux-gnu",
        "ppc64le" => "powerpc64le-linux-gnu",
        "s390x" => "s390x-linux-gnu",
        "loongarch64" => "loongarch64-linux-gnu",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Elf {
        Elf::read(&env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = resolve("hoard", &own()).unwrap_err();
        assert!(error.to_string().contains("ebbmalloc, jemalloc"), "{error}");
        assert!(matches!(error, Unresolved::Unknown { .. }));
    }

    #[test]
    fn the_systems_own_needs_no_library() {
        assert!(resolve("glibc", &own()).unwrap().library().is_none());
    }

    #[test]
    fn a_file_that_is_not_there_is_missing() {
        let error = resolve("/no/such/libjemalloc.so.2", &own()).unwrap_err();
        assert!(matches!(error, Unresolved::NotInstalled { .. }), "{error}");
    }

    #[test]
    fn a_library_for_another_architecture_does_not_fit() {
        let mut other = own();
        other.machine.machine = object::elf::EM_RISCV.0;
        let libc = crate::malloc_source(std::process::id() as i32).unwrap();
        let crate::MallocSource::File(libc) = libc else {
            panic!("a file");
        };
        let error = resolve(libc.to_str().unwrap(), &other).unwrap_err();
        assert!(matches!(&error, Unresolved::DoesNotFit { program, .. } if program == "riscv64"));
    }

    #[test]
    fn an_allocator_no_package_has_is_told_how_to_build() {
        let error = not_installed(Allocator::Ebbmalloc);
        assert!(error.to_string().contains("cargo build"), "{error}");
    }
}
