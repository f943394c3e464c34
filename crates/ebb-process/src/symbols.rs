//! Names, files and lines of the addresses of a process: from the files that it has mapped, their debug files, and the list
//! that a compiler at run time keeps (`/tmp/perf-PID.map`).
//!
//! Used by `profile`. A file that is not the one that was mapped, by its build id, names nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use addr2line::{Context, demangle_auto};
use ebb_inspect::file::NamedFile;
use ebb_inspect::memory::{Memory as _, Unreadable};
use ebb_inspect::{Mapping, Target};
use gimli::{Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{CompressionFormat, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

/// Debug sections of a file that are read: more would take too much of our own memory.
const MOST_DEBUG_BYTES: u64 = 256 << 20;
/// A longer list of compiled functions is cut.
const MOST_JIT_BYTES: u64 = 64 << 20;
/// The first bytes of a file as it lies in memory, which have its notes.
const HEAD_BYTES: usize = 4096;
/// Functions that are inlined at one address.
const MOST_INLINED: usize = 64;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Line {
    /// Its name; where none is known, the file and the address in it.
    pub function: String,
    /// Its source file.
    pub file: Option<String>,
    /// The line there.
    pub line: u32,
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The name that it had when it was mapped.
    pub path: PathBuf,
    /// Lower-case hexadecimal digits; of the memory, so it is of what runs.
    pub build_id: Option<String>,
    /// Its executable mapping.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// What is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in [`Symbols::modules`].
    pub module: Option<usize>,
    /// The innermost function first; the last is the one that the others are inlined into.
    pub lines: Vec<Line>,
    /// Whether a name was found.
    pub is_named: bool,
}

type Slice = EndianArcSlice<RunTimeEndian>;

/// A function of a symbol table; one without a size, as assemblers write it, has its start as its end.
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

struct Names {
    /// Start in the file, end, and address of what is loaded.
    segments: Vec<(u64, u64, u64)>,
    /// By address.
    symbols: Vec<Symbol>,
    lines: Option<Context<Slice>>,
}

/// Finds names in one process. What the process has mapped is looked at once, so that names can be found when it has ended.
pub struct Symbols {
    target: Arc<Target>,
    mappings: Vec<Mapping>,
    /// Of what runs, by the file's name: an upgrade of the file does not change it.
    build_ids: BTreeMap<PathBuf, String>,
    modules: Vec<Module>,
    names: BTreeMap<PathBuf, Option<Rc<Names>>>,
    /// Functions that were compiled at run time: start, end, name.
    jit: Vec<(u64, u64, String)>,
    notes: Vec<String>,
}

impl Symbols {
    /// Of the process `target`.
    pub fn of(target: &Arc<Target>) -> Result<Self, Unreadable> {
        let mappings = target.mappings()?;
        let build_ids = mappings.iter().filter(|it| it.offset == 0);
        let build_ids = build_ids.filter_map(|it| {
            let mut bytes = [0; HEAD_BYTES];
            let piece = &mut bytes[..usize::try_from(it.len()).ok()?.min(HEAD_BYTES)];
            let path = it.file()?;
            target.memory().copy(&[(it.start, piece.len())], piece).ok()?;
            Some((path.to_owned(), build_id(piece)?))
        });
        let build_ids = build_ids.collect();
        let (modules, names, notes) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (jit, target) = (jit(target), Arc::clone(target));
        Ok(Self { target, mappings, build_ids, modules, names, jit, notes })
    }

    /// The mapped files that addresses were in.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// What could not be read, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What is at the instruction before `return_address`.
    pub fn at(&mut self, return_address: u64) -> Place {
        let address = return_address.saturating_sub(1);
        let index = self.mappings.partition_point(|mapping| mapping.end <= address);
        let mapping = self.mappings.get(index).filter(|mapping| mapping.contains(address));
        let file = mapping.and_then(|mapping| Some((mapping.clone(), mapping.file()?.to_owned())));
        let Some((mapping, path)) = file else {
            let at = self.jit.partition_point(|(start, ..)| *start <= address);
            let found = at.checked_sub(1).map(|at| &self.jit[at]);
            let found = found.filter(|(_, end, _)| address < *end);
            let name = found.map(|(.., name)| name.clone());
            let is_named = name.is_some();
            let function = name.unwrap_or_else(|| format!("{address:#x}"));
            let lines = vec![Line { function, file: None, line: 0 }];
            return Place { module: None, lines, is_named };
        };
        let module = self.module(&mapping, &path);
        let names = self.names(&mapping, module);
        let in_file = address - mapping.start + mapping.offset;
        let lines = names.map(|names| names.lines_of(in_file)).unwrap_or_default();
        let is_named = !lines.is_empty();
        let lines = if is_named {
            lines
        } else {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            vec![Line { function: format!("{name}+{in_file:#x}"), file: None, line: 0 }]
        };
        Place { module: Some(module), lines, is_named }
    }

    fn module(&mut self, mapping: &Mapping, path: &Path) -> usize {
        let known = self.modules.iter().position(|module| module.start == mapping.start);
        known.unwrap_or_else(|| {
            let module = Module {
                path: path.to_owned(),
                build_id: self.build_ids.get(path).cloned(),
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
            };
            self.modules.push(module);
            self.modules.len() - 1
        })
    }

    fn names(&mut self, mapping: &Mapping, module: usize) -> Option<Rc<Names>> {
        let module = &self.modules[module];
        if let Some(known) = self.names.get(&module.path) {
            return known.clone();
        }
        let path = module.path.clone();
        let read = self.read(mapping, module).map(Rc::new);
        if let Err(why) = &read {
            self.notes.push(format!("no names of {}: {why}", path.display()));
        }
        let read = read.ok();
        self.names.insert(path, read.clone());
        read
    }

    fn read(&self, mapping: &Mapping, module: &Module) -> Result<Names, String> {
        let file = self.target.open_mapped(mapping).or_else(|error| {
            // Of a program that was deleted the kernel still has the file.
            let program = format!("/proc/{}/exe", self.target.pid());
            let is_program = self.target.process().exe().is_ok_and(|it| it == module.path);
            let has_ended = !self.target.process().is_alive();
            match (is_program, has_ended) {
                (true, _) => NamedFile::open(Path::new(&program)),
                // It was in no other root than ours, or the build id tells.
                (_, true) => NamedFile::open(&module.path),
                _ => Err(error),
            }
        });
        let data = ReadCache::new(file.map_err(|error| error.to_string())?);
        let object = object::File::parse(&data).map_err(|error| error.to_string())?;
        let own_id = object.build_id().ok().flatten().map(hex);
        if module.build_id.is_some() && own_id != module.build_id {
            return Err("the file was replaced since it was mapped".to_owned());
        }
        let segments = object.segments().map(|it| {
            let (offset, size) = it.file_range();
            (offset, offset.saturating_add(size), it.address())
        });
        let segments = segments.collect();
        let link = object.gnu_debuglink().ok().flatten();
        let link = link.map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        let apart = self.debug_file(module, link.as_deref(), own_id.as_deref());
        let apart = apart.map(ReadCache::new);
        let apart = apart.as_ref().and_then(|data| object::File::parse(data).ok());
        let debug = apart.as_ref().unwrap_or(&object);
        let mut symbols = symbols(debug);
        if symbols.is_empty() {
            symbols = self::symbols(&object);
        }
        Ok(Names { segments, symbols, lines: lines(debug).or_else(|| lines(&object)) })
    }

    /// The separate debug file, in the process's root and in ours.
    fn debug_file(&self, module: &Module, link: Option<&str>, id: Option<&str>) -> Option<NamedFile> {
        let folder = module.path.parent().unwrap_or(Path::new("/"));
        let mut places = Vec::new();
        if let Some((first, rest)) = id.and_then(|id| id.split_at_checked(2)) {
            places.push(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")));
        }
        if let Some(link) = link {
            let under = folder.strip_prefix("/").unwrap_or(folder);
            let folders = [folder.join(".debug"), folder.to_owned(), Path::new("/usr/lib/debug").join(under)];
            places.extend(folders.map(|folder| folder.join(link)));
        }
        let both = places.iter().flat_map(|place| [self.target.path_of(place), place.clone()]);
        both.filter_map(|place| NamedFile::open(&place).ok()).find(|file| {
            let data = ReadCache::new(file);
            let object = object::File::parse(&data);
            object.is_ok_and(|it| it.build_id().ok().flatten().map(hex).as_deref() == id)
        })
    }
}

impl Names {
    fn lines_of(&self, in_file: u64) -> Vec<Line> {
        let segment = self.segments.iter().find(|(from, to, _)| (*from..*to).contains(&in_file));
        // addr2line adds 1.
        let address = segment.and_then(|(from, _, at)| at.checked_add(in_file - from));
        let Some(address) = address.filter(|&it| it < u64::MAX) else { return Vec::new() };
        let mut lines = self.lines.as_ref().map(|it| inlined(it, address)).unwrap_or_default();
        if lines.is_empty() {
            lines.push(Line { function: String::new(), file: None, line: 0 });
        }
        // The debug information may have lines only, or be of another compiler.
        let at = self.symbols.partition_point(|it| it.start <= address);
        let found = at.checked_sub(1).map(|at| &self.symbols[at]);
        let found = found.filter(|it| it.start == it.end || address < it.end);
        for line in lines.iter_mut().filter(|line| line.function.is_empty()) {
            let name = found.map(|it| demangle_auto(it.name.as_str().into(), None).into_owned());
            line.function = name.unwrap_or_default();
        }
        lines.retain(|line| !line.function.is_empty());
        lines
    }
}

fn inlined(context: &Context<Slice>, address: u64) -> Vec<Line> {
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    while let Ok(Some(frame)) = frames.next()
        && lines.len() < MOST_INLINED
    {
        let name = frame.function.as_ref().and_then(|name| name.demangle().ok());
        let at = frame.location.as_ref();
        lines.push(Line {
            function: name.map(|name| name.into_owned()).unwrap_or_default(),
            file: at.and_then(|at| at.file).map(str::to_owned),
            line: at.and_then(|at| at.line).unwrap_or(0),
        });
    }
    lines
}

/// Functions by address.
fn symbols<'data>(object: &impl Object<'data>) -> Vec<Symbol> {
    let all = object.symbols().map(|it| symbol(&it)).chain(object.dynamic_symbols().map(|it| symbol(&it)));
    let mut symbols: Vec<Symbol> = all.flatten().collect();
    symbols.sort_by_key(|it| (it.start, it.end));
    symbols
}

fn symbol<'data>(symbol: &impl ObjectSymbol<'data>) -> Option<Symbol> {
    // An indirect function counts as unknown.
    let is_code = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
    let name = symbol.name().ok().filter(|name| !name.is_empty() && is_code)?;
    let start = symbol.address();
    let end = start.saturating_add(symbol.size());
    symbol.is_definition().then(|| Symbol { start, end, name: name.to_owned() })
}

/// Lines of source; nothing where there are none, or too many.
fn lines<'data>(object: &impl Object<'data>) -> Option<Context<Slice>> {
    object.section_by_name(".debug_info")?;
    let sections = object.sections().filter(|it| it.name().is_ok_and(|it| it.starts_with(".debug_")));
    if sections.fold(0u64, |sum, it| sum.saturating_add(it.size())) > MOST_DEBUG_BYTES {
        return None;
    }
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |id: SectionId| -> Result<Slice, ()> {
        let bytes = object.section_by_name(id.name()).and_then(|it| section(&it));
        Ok(Slice::new(bytes.unwrap_or_default().into(), endian))
    };
    Context::from_dwarf(Dwarf::load(load).ok()?).ok()
}

fn section<'data>(section: &impl ObjectSection<'data>) -> Option<Vec<u8>> {
    let data = section.compressed_data().ok()?;
    match data.format {
        CompressionFormat::None => Some(data.data.to_owned()),
        CompressionFormat::Zlib => {
            let mut bytes = Vec::new();
            let decoder = flate2::read::ZlibDecoder::new(data.data);
            decoder.take(MOST_DEBUG_BYTES).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build id in the first bytes of an ELF file as it lies in memory.
fn build_id(bytes: &[u8]) -> Option<String> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    header.program_headers(endian, bytes).ok()?.iter().find_map(|segment| {
        let mut notes = segment.notes(endian, bytes).ok().flatten()?;
        while let Ok(Some(note)) = notes.next() {
            if note.name() == object::elf::ELF_NOTE_GNU && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID {
                return Some(hex(note.desc()));
            }
        }
        None
    })
}

/// What the process's compiler at run time says it has made: "start size name" in hexadecimal digits.
fn jit(target: &Target) -> Vec<(u64, u64, String)> {
    // By its number in its own container.
    let own = target.process().status().ok().and_then(|it| it.nspid?.last().copied());
    let own = own.unwrap_or(target.pid());
    let path = target.path_of(Path::new(&format!("/tmp/perf-{own}.map")));
    let mut text = Vec::new();
    // Another user could have put it there.
    let owner = |path: &Path| Some(std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).ok()?));
    let of_process = owner(Path::new(&format!("/proc/{}", target.pid())));
    if owner(&path) != of_process {
        return Vec::new();
    }
    let file = NamedFile::open(path.as_ref()).map(|file| file.take(MOST_JIT_BYTES));
    if file.and_then(|mut file| file.read_to_end(&mut text)).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    let entry = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
        let (start, size) = (number()?, number()?);
        Some((start, start.checked_add(size)?, parts.next()?.to_owned()))
    };
    let mut list: Vec<_> = text.lines().filter_map(entry).collect();
    // Of code that was written over, the newest.
    list.reverse();
    list.sort_by_key(|(start, ..)| *start);
    list.dedup_by_key(|(start, ..)| *start);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_have_names_and_what_is_nowhere_has_its_address() {
        let own = Arc::new(Target::open(i32::try_from(std::process::id()).unwrap()).unwrap());
        let mut symbols = Symbols::of(&own).unwrap();
        let place = symbols.at(build_id as *const () as u64 + 1);
        assert!(place.is_named, "{:?}", symbols.notes());
        let last = place.lines.last().unwrap();
        assert!(last.function.ends_with("symbols::build_id"), "{place:?}");
        assert!(last.file.as_ref().is_some_and(|it| it.ends_with("symbols.rs")), "{place:?}");
        let module = &symbols.modules()[place.module.unwrap()];
        assert_eq!(Some(module.path.clone()), std::env::current_exe().ok());
        let nowhere = symbols.at(0x11);
        assert_eq!((nowhere.module, nowhere.is_named), (None, false));
        assert_eq!(nowhere.lines[0].function, "0x10");
    }
}
