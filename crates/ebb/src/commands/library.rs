//! `ebb library`: a path of libebbmalloc.so for `LD_PRELOAD`, or the library and its header as files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_process::Elf;
use ebb_process::carried::{self, Carried, FILE};
use ebb_process::whole_file;
use serde::Serialize;
use sha2::{Digest, Sha256};

const EXAMPLES: &str = "Examples:
  ebb library --out /usr/local/lib            libebbmalloc.so and ebbmalloc.h
  ebb library --arch aarch64 --out arm64      for another architecture
  LD_PRELOAD=$(ebb library) ./service         without --out: the path of a library";

const HEADER: &str = "ebbmalloc.h";
/// Everybody may read them.
const MODE: u32 = 0o644;

/// The arguments of `ebb library`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Write libebbmalloc.so and ebbmalloc.h into this folder [default: print the path of the library]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Architecture of the library [default: this machine's]
    #[arg(long, value_name = "ARCH", value_parser = ["x86_64", "aarch64"])]
    arch: Option<String>,

    /// Report as one line of JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<PathBuf>,
    arch: String,
    version: Option<String>,
    build_id: Option<String>,
    sha256: String,
    /// Whether it came out of this program; else it was found on this machine.
    carried: bool,
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let arch = args.arch.as_deref().unwrap_or(std::env::consts::ARCH);
    let report = match &args.out {
        Some(folder) => written(arch, folder)?,
        None => found(arch)?,
    };
    if args.json {
        terminal::print_json(&report, false)?;
    } else {
        for path in std::iter::once(&report.path).chain(&report.header) {
            terminal::print(&format!("{}\n", path.display()))?;
        }
    }
    Ok(Exit::Ok)
}

/// Both files in `folder`.
fn written(arch: &str, folder: &Path) -> Result<Report, Failure> {
    let library = library(arch)?;
    fs::create_dir_all(folder).map_err(|error| Failure::at(Exit::NotWritten, folder, error))?;
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        match whole_file::replace(&path, bytes, Some(MODE)) {
            Ok(()) => Ok(path),
            Err(error) => Err(Failure::at(Exit::NotWritten, &path, error)),
        }
    };
    let path = write(FILE, library.bytes)?;
    let header = carried::header().map(|header| write(HEADER, header)).transpose()?;
    Ok(Report { header, ..of_carried(&library, path) })
}

/// The library that `ebb run` takes: an installed one, else ours in the cache.
fn found(arch: &str) -> Result<Report, Failure> {
    if arch == std::env::consts::ARCH {
        let own = Elf::read(Path::new("/proc/self/exe"))
            .map_err(|error| Failure::new(Exit::Internal, format!("/proc/self/exe: {error}")))?;
        match ebb_process::library::installed(&own) {
            Ok(path) => return of_installed(arch, path),
            Err(error) if !carried::has_library(arch) => return Err(error.into()),
            Err(_) => {}
        }
    }
    let library = library(arch)?;
    let path = library.cached().map_err(|error| {
        Failure::new(Exit::NotWritten, error.to_string()).remedy("name a folder for the library: --out DIR")
    })?;
    Ok(of_carried(&library, path))
}

fn library(arch: &str) -> Result<Carried, Failure> {
    carried::library(arch).ok_or_else(|| {
        Failure::new(Exit::Missing, format!("this ebb carries no library for {arch}"))
            .remedy("take a released ebb, or build one with `make static`")
    })
}

fn of_carried(library: &Carried, path: PathBuf) -> Report {
    Report {
        path,
        header: None,
        arch: library.arch.to_owned(),
        version: Some(library.version.to_owned()),
        build_id: library.build_id(),
        sha256: sha256(library.bytes),
        carried: true,
    }
}

fn of_installed(arch: &str, path: PathBuf) -> Result<Report, Failure> {
    let bytes = fs::read(&path).map_err(|error| Failure::at(Exit::Internal, &path, error))?;
    Ok(Report {
        path,
        header: None,
        arch: arch.to_owned(),
        version: carried::version(&bytes),
        build_id: carried::build_id(&bytes),
        sha256: sha256(&bytes),
        carried: false,
    })
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
