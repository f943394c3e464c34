//! Follows what a loader is asked to preload to its file, inside the root of the process or image.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use ebb_allocators::preload_entries;
use ebb_deploy::check::library::{Entry, EntryFile, Object};
use ebb_inspect::file::NamedFile;
use ebb_process::elf::Elf;
use ebb_process::library::{recognise, system_folders};
use ebb_process::root::Root;

/// Of a file that lists libraries or folders.
const MOST_TEXT_BYTES: u64 = 1 << 20;

/// Looks files up as the loader of one program does.
pub(super) struct Loader<'a> {
    /// Where paths start.
    pub(super) root: &'a Root,
    pub(super) program: &'a Elf,
    pub(super) library_path: Option<&'a OsStr>,
    /// Where relative paths start, inside the root.
    pub(super) folder: &'a Path,
}

impl<'a> Loader<'a> {
    /// The loader of a program about which only its file is known.
    pub(super) fn of(root: &'a Root, program: &'a Elf) -> Self {
        Self { root, program, library_path: None, folder: Path::new("/") }
    }

    pub(super) fn preload(&self, value: &OsStr) -> Vec<Entry> {
        preload_entries(value).map(|entry| self.entry(&entry.to_string_lossy())).collect()
    }

    /// The entries of the root's `/etc/ld.so.preload`.
    pub(super) fn system_preload(&self) -> Vec<Entry> {
        let text = self
            .root
            .resolve(Path::new("/etc/ld.so.preload"))
            .and_then(|path| NamedFile::read_text(&path, MOST_TEXT_BYTES))
            .unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split('#').next())
            .flat_map(|line| line.split([' ', '\t', ':', ',']))
            .filter(|entry| !entry.is_empty())
            .map(|entry| self.entry(entry))
            .collect()
    }

    pub(super) fn entry(&self, text: &str) -> Entry {
        let found = self.spellings(text).into_iter().find_map(|spelling| self.locate(&spelling));
        let read = |path: PathBuf| match Elf::read(&path) {
            Err(error) => EntryFile::Unusable(error.to_string()),
            Ok(elf) => {
                let missing = self.missing(&elf, &path);
                let allocator = recognise(&path, &elf);
                EntryFile::Object(Box::new(Object { path, elf, allocator, missing }))
            }
        };
        let file = found.map_or(EntryFile::Missing, read);
        Entry { text: text.to_owned(), file }
    }

    /// The loader's own variable for the folder of libraries has another value on every distribution.
    fn spellings(&self, text: &str) -> Vec<String> {
        if !text.contains("$LIB") && !text.contains("${LIB}") {
            return vec![text.to_owned()];
        }
        let folders = self.system_folders();
        let names = folders.iter().filter_map(|folder| folder.strip_prefix("/usr").ok()?.to_str());
        names
            .map(|name| {
                let name = name.trim_start_matches('/');
                text.replace("${LIB}", name).replace("$LIB", name)
            })
            .collect()
    }

    fn locate(&self, name: &str) -> Option<PathBuf> {
        if name.contains('/') {
            return self.root.resolve(&self.folder.join(name)).ok();
        }
        let own = self.library_path.into_iter().flat_map(std::env::split_paths);
        let mut folders = own.chain(self.system_folders());
        folders.find_map(|folder| self.root.resolve(&folder.join(name)).ok())
    }

    fn missing(&self, elf: &Elf, path: &Path) -> Vec<String> {
        let beside = path.parent();
        let is_there =
            |name: &&String| self.locate(name).is_some() || beside.is_some_and(|folder| folder.join(name).exists());
        elf.needed.iter().filter(|name| !is_there(name)).cloned().collect()
    }

    /// The folders that `/etc/ld.so.conf.d` adds in front.
    fn system_folders(&self) -> Vec<PathBuf> {
        let configured = self.root.resolve(Path::new("/etc/ld.so.conf.d")).and_then(fs::read_dir);
        let files = configured.into_iter().flatten().flatten();
        let mut folders = Vec::new();
        for text in files.filter_map(|file| NamedFile::read_text(&file.path(), MOST_TEXT_BYTES).ok()) {
            let lines = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
            folders.extend(lines.map(PathBuf::from));
        }
        folders.extend(system_folders(self.program));
        folders
    }
}
