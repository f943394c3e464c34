//! The service as its image runs it: which allocator it has, and what each variant needs to replace it, or why it cannot be
//! tried.

use crate::terminal;
use ebb_allocators::Allocator;
use ebb_process::inside::{Inside, inside};
use ebb_process::root::Root;
use ebb_process::{Elf, MallocSource, Tree, borrowed, environ, libc_of, library};
use ebb_trial::container::Mounted;
use ebb_trial::run::TrialContext;
use ebb_trial::variant::{Prepared, VariantSpec};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The service has been ready: its libraries are loaded.
const LOADED: Duration = Duration::from_secs(2);

/// The service as its image runs it.
pub(super) struct Seen {
    root: Root,
    /// The process with the most memory that a loader prepared, else with the most at all.
    program: PathBuf,
    /// The name that it goes by: that of a link, or of a script.
    name: String,
    elf: Elf,
    source: MallocSource,
    inside: Option<Inside>,
    /// What it was started with.
    pub(super) env: BTreeMap<String, String>,
    /// Whether `source` is in the `LD_PRELOAD` of the process.
    is_preloaded: bool,
}

impl Seen {
    pub(super) fn of(pid: u32) -> Result<Seen, String> {
        let first = i32::try_from(pid).map_err(|error| error.to_string())?;
        let tree = Tree::of(first).map_err(|error| error.to_string())?;
        let anon = tree.sample().held;
        let anon = |pid: i32| anon.iter().find(|it| it.pid == pid).and_then(|it| it.anon);
        let image = |pid: i32| Elf::read(Path::new(&format!("/proc/{pid}/exe")));
        let by_size = |pid: &&i32| (image(**pid).is_ok_and(|elf| !elf.is_static()), anon(**pid).unwrap_or_default());
        let pid = *tree.pids().iter().max_by_key(by_size).ok_or("the service has ended")?;
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let unread = |error: &dyn std::fmt::Display| format!("process {pid} cannot be read: {error}");
        let elf = Elf::read(&exe).map_err(|error| unread(&error))?;
        let program = std::fs::read_link(&exe).map_err(|error| unread(&error))?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let name = name.map_err(|error| unread(&error))?.trim().to_owned();
        let source = ebb_process::started_malloc_source(pid, LOADED).map_err(|error| unread(&error))?;
        let env = environ::at_start(pid).map_err(|error| unread(&error))?;
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let env: BTreeMap<String, String> = env.iter().map(|(key, value)| (text(key), text(value))).collect();
        let root = Root::of(pid);
        let mut preloads = preloads(&env);
        let is_preloaded = preloads.any(|entry| {
            // Without a folder the loader searches for it.
            let here = root.resolve(Path::new(entry));
            here.is_ok_and(|here| source.is(&here))
                || matches!(&source, MallocSource::File(path) if path.file_name() == Some(OsStr::new(entry)))
        });
        drop(preloads);
        Ok(Seen { program, name, elf, source, inside: inside(&exe), env, is_preloaded, root })
    }

    /// The file in the image that has its malloc, unless that is the C library or the program itself.
    pub(super) fn own_library(&self) -> Option<PathBuf> {
        match &self.source {
            MallocSource::File(path) if !self.source.is_libc() => Some(self.root.inside(path)),
            _ => None,
        }
    }

    /// The allocator that it runs on by itself, if the tool knows it.
    fn own(&self) -> Option<Allocator> {
        match &self.source {
            MallocSource::File(path) if !self.source.is_libc() => library::recognise(path, &Elf::read(path).ok()?),
            MallocSource::File(_) => Some(Allocator::Glibc),
            MallocSource::Static | MallocSource::Nobody => None,
        }
    }

    pub(super) fn in_words(&self) -> String {
        let libc = if self.elf.is_static() { "statically linked".to_owned() } else { libc_of(&self.elf).to_string() };
        let (program, machine) = (&self.name, self.elf.machine);
        let malloc = match (self.own_library(), self.inside) {
            (_, Some(inside)) => format!(" has {inside}"),
            (Some(library), None) => {
                let how = if self.is_preloaded { "preloads" } else { "is linked to" };
                format!(" {how} {}", library.display())
            }
            (None, None) => String::new(),
        };
        format!("{program} ({libc}, {machine}){malloc}")
    }

    /// What the image runs on by itself comes first, since the others are compared with that.
    pub(super) fn own_first(&self, mut specs: Vec<VariantSpec>) -> Vec<VariantSpec> {
        let own = self.own().map(Allocator::name);
        let is_own = |spec: &VariantSpec| Some(spec.allocator.as_str()) == own && spec.env.is_empty();
        match (specs.iter().position(is_own), self.own_library()) {
            (Some(at), _) => specs[..=at].rotate_right(1),
            (None, Some(library)) => {
                let (name, allocator) = ("as it is".to_owned(), library.display().to_string());
                specs.insert(0, VariantSpec { name, allocator, ..VariantSpec::default() });
            }
            (None, None) => {}
        }
        specs
    }

    pub(super) fn resolve(&self, spec: VariantSpec, trial: &TrialContext, folder: &Path) -> Prepared {
        let service = &trial.workload.service.env;
        let setting = |name: &str| {
            let of_image = || self.env.get(name);
            spec.env.get(name).or_else(|| service.get(name)).or_else(of_image).cloned()
        };
        let decay = ebb_allocators::decay(&spec.allocator, setting);
        let mut prepared = Prepared { decay, ..Prepared::as_it_is(spec) };
        if let Err(reason) = self.give(&mut prepared, folder) {
            prepared.unavailable = Some(reason);
        }
        prepared
    }

    /// Finds the library of a variant; the error says why it cannot be tried.
    fn give(&self, prepared: &mut Prepared, folder: &Path) -> Result<(), String> {
        let program = &self.name;
        if prepared.spec.beside.is_some() {
            return Err("a library beside the allocator cannot be tried in an image".to_owned());
        }
        if prepared.spec.linked {
            return Ok(());
        }
        if self.elf.is_static() {
            return Err(match self.inside {
                Some(inside) => format!("{program} is statically linked and has {inside}, so nothing can be preloaded"),
                None => format!("{program} is statically linked, so nothing can be preloaded"),
            });
        }
        if let Some(inside) = self.inside {
            return Err(format!("{program} has {inside}, which no preload replaces"));
        }
        let own = self.own_library();
        if own.as_deref() == Some(&self.program) {
            return Err(format!("{program} defines malloc itself, which no preload replaces"));
        }
        let name = prepared.spec.allocator.clone();
        let allocator = Allocator::from_choice(&name);
        let is_libc = allocator.is_some_and(Allocator::is_of_libc);
        let is_own = |own: &PathBuf| Path::new(&name) == own || (allocator.is_some() && allocator == self.own());
        if let Some(library) = own.clone().filter(is_own) {
            (prepared.library, prepared.is_own) = (Some(library), true);
            return Ok(());
        }
        if let (true, Some(own), false) = (is_libc, &own, self.is_preloaded) {
            let own = own.display();
            return Err(format!("{program} is linked to {own}, so the C library's malloc is not used"));
        }
        // What the image preloads is not asked any more if it is an allocator; the rest stays.
        if self.env.contains_key("LD_PRELOAD") {
            let is_other = |entry: &&str| {
                let file = Path::new(entry).file_name().unwrap_or_default();
                Allocator::from_file_name(&file.to_string_lossy()).is_none()
            };
            let kept: Vec<&str> = preloads(&self.env).filter(is_other).collect();
            prepared.preloads = Some(kept.join(":"));
        }
        if is_libc {
            return Ok(());
        }
        let of_image = allocator
            .filter(|it| *it != Allocator::Ebbmalloc)
            .and_then(|it| borrowed::in_root(it, &self.elf, &self.root));
        prepared.library = match of_image {
            Some(library) => Some(library),
            None => {
                let mounted = Mounted::library(self.of_machine(&name, folder)?);
                let library = mounted.to.clone();
                prepared.mounts.push(mounted);
                Some(library)
            }
        };
        Ok(())
    }

    /// A copy of a library of this machine that the image's loader takes.
    fn of_machine(&self, name: &str, folder: &Path) -> Result<PathBuf, String> {
        let choice = library::resolve(name, &self.elf)
            .map_err(|error| format!("the image has none, and on this machine {error}"))?;
        let found = choice.library().ok_or("it has no library")?;
        if let Some(reason) = borrowed::missing(&found.path, &self.elf, &self.root) {
            return Err(reason);
        }
        terminal::note_carried(&found.path);
        let file = match found.path.file_name() {
            Some(name) if !found.path.starts_with("/proc") => name.to_owned(),
            _ => ebb_process::carried::FILE.into(),
        };
        let copy = folder.join(file);
        // Other users of the container read it.
        std::fs::copy(&found.path, &copy)
            .and_then(|_| std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644)))
            .map_err(|error| format!("{}: {error}", copy.display()))?;
        Ok(copy)
    }
}

/// The entries of `LD_PRELOAD`.
fn preloads(env: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    let text = env.get("LD_PRELOAD").map(String::as_str).unwrap_or_default();
    text.split([':', ' ']).filter(|entry| !entry.is_empty())
}
