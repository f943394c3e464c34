//! What kind of program or shared object a file is: architecture, libc, needed objects, and which
//! allocator's names it defines.
//!
//! Used to find a library that fits a program, to refuse what the loader would ignore, and to tell
//! from outside which object a process takes its `malloc` from. The file is read in pieces, so a
//! browser of 200 MB costs as little as `ls`.

use std::fmt;
use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;
use ebb_inspect::file::NamedFile;
use object::elf;
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};
use object::{Object as _, ObjectSymbol as _};

/// `DF_STATIC_TLS` of `DT_FLAGS`.
const DF_STATIC_TLS: u64 = 0x10;

/// The C library that a program or a shared object is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library.
    Glibc,
    /// musl, as on Alpine.
    Musl,
    /// None: the object needs no C library and fits every one of them.
    Any,
    /// Another one, by the name of its loader or library.
    Other(String),
}

impl fmt::Display for Libc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A C library has the name of its malloc.
            Libc::Glibc => out.write_str(Allocator::Glibc.name()),
            Libc::Musl => out.write_str(Allocator::Musl.name()),
            Libc::Any => out.write_str("any libc"),
            Libc::Other(name) => out.write_str(name),
        }
    }
}

/// Processor, word size and byte order: all three must be equal for a library to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// `e_machine` of the ELF header.
    pub machine: u16,
    /// 32 or 64.
    pub bits: u8,
    /// Byte order.
    pub little_endian: bool,
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (elf::Machine(self.machine), self.bits) {
            (elf::EM_X86_64, 64) => "x86-64",
            (elf::EM_X86_64, _) => "x32",
            (elf::EM_386, _) => "i386",
            (elf::EM_AARCH64, _) => "arm64",
            (elf::EM_ARM, _) => "arm",
            (elf::EM_RISCV, 64) => "riscv64",
            (elf::EM_PPC64, _) if self.little_endian => "ppc64le",
            (elf::EM_PPC64, _) => "ppc64",
            (elf::EM_S390, _) => "s390x",
            (elf::EM_LOONGARCH, _) => "loongarch64",
            _ => {
                return write!(out, "ELF machine {} ({} bits)", self.machine, self.bits);
            }
        };
        out.write_str(name)
    }
}

/// Which allocators' names a file's dynamic symbol table defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defines {
    /// `malloc` itself: the object can be in charge.
    pub malloc: bool,
    /// `mallctl` (jemalloc).
    pub jemalloc: bool,
    /// `mi_malloc` (mimalloc).
    pub mimalloc: bool,
    /// `tc_malloc` (gperftools' tcmalloc).
    pub tcmalloc: bool,
    /// The list of loaded objects, which debuggers read: the object is a loader.
    pub loaded_objects: bool,
}

/// glibc's loader has a `r_debug` of this name.
pub(crate) const GLIBC_LOADED_OBJECTS: &str = "_r_debug";
/// musl's has a pointer to one.
pub(crate) const MUSL_LOADED_OBJECTS: &str = "_dl_debug_addr";

/// The facts of one ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// Architecture.
    pub machine: Machine,
    /// Whether it is a program or a position independent one or a shared object (`ET_EXEC`, `ET_DYN`).
    pub loadable: bool,
    /// The loader it asks for (`PT_INTERP`); a program without one is statically linked.
    pub interpreter: Option<PathBuf>,
    /// `DT_NEEDED`.
    pub needed: Vec<String>,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// Which allocators' names it defines.
    pub defines: Defines,
    /// Bytes of thread-local storage that a shared object wants in the block that every thread has from
    /// its start (`DF_STATIC_TLS`); none where the loader may place them later.
    pub static_tls_bytes: Option<u64>,
    /// The alignment of its segments: the largest page size on which it can be loaded.
    pub segment_alignment: u64,
}

/// Why a file's facts are not known.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is something else, or damaged.
    #[error("not an ELF file: {0}")]
    Format(#[from] object::Error),
}

impl Elf {
    /// Reads the facts of the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        let data = ReadCache::new(NamedFile::open(path)?);
        let kind = object::FileKind::parse(&data)?;
        match kind {
            object::FileKind::Elf32 => parse::<elf::FileHeader32<Endianness>, _>(&data).map_err(ElfError::Format),
            _ => parse::<elf::FileHeader64<Endianness>, _>(&data).map_err(ElfError::Format),
        }
    }

    /// Whether this is a program that no loader prepares, so that nothing can be preloaded.
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none() && !self.is_loader()
    }

    /// Whether this is the loader itself, started as a program (`ld-linux-x86-64.so.2 ./program`).
    pub(crate) fn is_loader(&self) -> bool {
        self.interpreter.is_none() && self.defines.loaded_objects
    }
}

/// The C library that a program (by its loader) or a shared object (by what it needs) is made for.
pub fn libc_of(elf: &Elf) -> Libc {
    if let Some(loader) = &elf.interpreter {
        let name = file_name(loader);
        return match name.as_str() {
            n if n.starts_with("ld-musl") => Libc::Musl,
            n if n.starts_with("ld-linux") || n.starts_with("ld64.so") || n == "ld.so.1" => Libc::Glibc,
            // A copy of glibc's, as bundles have it.
            _ if elf.needed.iter().any(|name| name == "libc.so.6") => Libc::Glibc,
            _ => Libc::Other(name),
        };
    }
    let names = || elf.needed.iter().chain(elf.soname.iter());
    if names().any(|name| is_musl_name(name)) {
        return Libc::Musl;
    }
    if names().any(|name| is_glibc_name(name)) {
        return Libc::Glibc;
    }
    if elf.needed.is_empty() {
        return Libc::Any;
    }
    // libstdc++ and friends alone say nothing about the C library below them.
    Libc::Other(format!("the libc below {}", elf.needed.join(", ")))
}

/// musl's libc is one object; distributions call it `libc.musl-ARCH.so.1`, its own build `libc.so`.
fn is_musl_name(name: &str) -> bool {
    name == "libc.so" || name.starts_with("libc.musl-") || name.starts_with("ld-musl")
}

fn is_glibc_name(name: &str) -> bool {
    name.starts_with("libc.so.")
        || name.starts_with("ld-linux")
        || name.starts_with("ld64.so")
        || name == "libpthread.so.0"
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn parse<'data, H, R>(data: R) -> object::Result<Elf>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;

    let mut interpreter = None;
    let mut dynamic = None;
    for segment in segments {
        if let Some(bytes) = segment.interpreter(endian, data)? {
            interpreter = Some(PathBuf::from(String::from_utf8_lossy(bytes).into_owned()));
        }
        if let Some(entries) = segment.dynamic(endian, data)? {
            dynamic = Some(entries);
        }
    }
    let wants_static_tls = dynamic.is_some_and(|entries: &[H::Dyn]| {
        entries.iter().any(|entry| {
            let value: u64 = entry.d_val(endian).into();
            entry.d_tag(endian) == elf::DT_FLAGS && value & DF_STATIC_TLS != 0
        })
    });
    let size_of = |kind| {
        let segment = segments.iter().find(|it| it.p_type(endian) == kind);
        segment.map(|it| it.p_memsz(endian).into())
    };
    let loads = segments.iter().filter(|it| it.p_type(endian) == elf::PT_LOAD);
    let (needed, soname) = match dynamic {
        Some(entries) => dynamic_names::<H, R>(endian, data, segments, entries),
        None => (Vec::new(), None),
    };
    let kind = header.e_type(endian);
    Ok(Elf {
        machine: Machine {
            machine: header.e_machine(endian).0,
            bits: if header.is_class_64() { 64 } else { 32 },
            little_endian: endian == Endianness::Little,
        },
        loadable: kind == elf::ET_DYN || kind == elf::ET_EXEC,
        interpreter,
        needed,
        soname,
        defines: defined_names(header, endian, data)?,
        static_tls_bytes: size_of(elf::PT_TLS).filter(|_| wants_static_tls),
        segment_alignment: loads.map(|it| it.p_align(endian).into()).min().unwrap_or(0),
    })
}

/// `DT_NEEDED` and `DT_SONAME`, found through the segments: section headers may be stripped.
fn dynamic_names<'data, H, R>(
    endian: Endianness,
    data: R,
    segments: &[H::ProgramHeader],
    entries: &[H::Dyn],
) -> (Vec<String>, Option<String>)
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let value_of =
        |tag| entries.iter().find(|entry| entry.d_tag(endian) == tag).map(|entry| entry.d_val(endian).into());
    let (Some(address), Some(size)) = (value_of(elf::DT_STRTAB), value_of(elf::DT_STRSZ)) else {
        return (Vec::new(), None);
    };
    let Some(offset) = file_offset::<H>(endian, segments, address) else {
        return (Vec::new(), None);
    };
    let strings = StringTable::new(data, offset, offset.saturating_add(size));
    let text = |entry: &H::Dyn| {
        let at: u64 = entry.d_val(endian).into();
        strings.get(u32::try_from(at).ok()?).ok().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let tagged = |tag| entries.iter().filter(move |entry| entry.d_tag(endian) == tag);
    (tagged(elf::DT_NEEDED).filter_map(text).collect(), tagged(elf::DT_SONAME).find_map(text))
}

fn file_offset<H>(endian: Endianness, segments: &[H::ProgramHeader], address: u64) -> Option<u64>
where
    H: FileHeader<Endian = Endianness>,
{
    segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).find_map(|segment| {
        let start: u64 = segment.p_vaddr(endian).into();
        let size: u64 = segment.p_filesz(endian).into();
        let within = address.checked_sub(start).filter(|&within| within < size)?;
        let offset: u64 = segment.p_offset(endian).into();
        offset.checked_add(within)
    })
}

/// Which of these names the dynamic symbol table defines. A reference to `malloc` (undefined, also with the address of
/// a stub in the program) is no definition.
fn defined_names<'data, H, R>(header: &H, endian: Endianness, data: R) -> object::Result<Defines>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut defines = Defines::default();
    let symbols = header.sections(endian, data)?.symbols(endian, data, elf::SHT_DYNSYM)?;
    for symbol in symbols.iter() {
        let kind = symbol.st_type();
        let is_function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
        let is_named = is_function || kind == elf::STT_OBJECT;
        if !is_named || symbol.is_undefined(endian) || symbol.is_local() {
            continue;
        }
        match symbols.symbol_name(endian, symbol)? {
            name if !is_function => {
                let list = [GLIBC_LOADED_OBJECTS.as_bytes(), MUSL_LOADED_OBJECTS.as_bytes()];
                defines.loaded_objects |= list.contains(&name);
            }
            b"malloc" => defines.malloc = true,
            b"mallctl" => defines.jemalloc = true,
            b"mi_malloc" => defines.mimalloc = true,
            b"tc_malloc" => defines.tcmalloc = true,
            _ => {}
        }
    }
    Ok(defines)
}

/// The address within its file of the first of `names` that the file defines as data.
pub fn data_symbol(path: &Path, names: &[&str]) -> Option<u64> {
    let data = ReadCache::new(NamedFile::open(path).ok()?);
    let file = object::File::parse(&data).ok()?;
    let symbol = file.dynamic_symbols().find(|symbol| {
        symbol.is_definition()
            && symbol.kind() == object::SymbolKind::Data
            && symbol.name().is_ok_and(|name| names.contains(&name))
    })?;
    Some(symbol.address())
}

/// Whether the file's dynamic symbol table defines one of `names`.
pub fn exports(path: &Path, names: &[&str]) -> bool {
    let Ok(file) = NamedFile::open(path) else {
        return false;
    };
    let data = ReadCache::new(file);
    object::File::parse(&data).is_ok_and(|file| {
        file.dynamic_symbols()
            .any(|symbol| symbol.is_definition() && symbol.name().is_ok_and(|name| names.contains(&name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(interpreter: Option<&str>, needed: &[&str], soname: Option<&str>) -> Elf {
        Elf {
            machine: Machine { machine: elf::EM_X86_64.0, bits: 64, little_endian: true },
            loadable: true,
            interpreter: interpreter.map(PathBuf::from),
            needed: needed.iter().map(|name| (*name).to_owned()).collect(),
            soname: soname.map(str::to_owned),
            defines: Defines::default(),
            static_tls_bytes: None,
            segment_alignment: 0x1000,
        }
    }

    #[test]
    fn a_program_belongs_to_the_libc_of_its_loader() {
        let glibc = object(Some("/lib64/ld-linux-x86-64.so.2"), &["libc.so.6"], None);
        assert_eq!(libc_of(&glibc), Libc::Glibc);
        let musl = object(Some("/lib/ld-musl-x86_64.so.1"), &["libc.so"], None);
        assert_eq!(libc_of(&musl), Libc::Musl);
        let renamed = object(Some("/opt/bundle/start"), &["libm.so.6", "libc.so.6"], None);
        assert_eq!(libc_of(&renamed), Libc::Glibc);
        let bionic = object(Some("/system/bin/linker64"), &["libc.so"], None);
        assert_eq!(libc_of(&bionic), Libc::Other("linker64".to_owned()));
    }

    #[test]
    fn a_library_belongs_to_the_libc_that_it_needs() {
        let needs = |needed: &[&str]| libc_of(&object(None, needed, Some("libx.so.1")));
        assert_eq!(needs(&["libm.so.6", "libc.so.6"]), Libc::Glibc);
        assert_eq!(needs(&["libc.musl-x86_64.so.1"]), Libc::Musl);
        assert_eq!(needs(&["libstdc++.so.6", "libc.so"]), Libc::Musl);
        assert_eq!(needs(&[]), Libc::Any);
        assert!(matches!(needs(&["libstdc++.so.6"]), Libc::Other(_)));
    }

    #[test]
    fn a_program_without_a_loader_is_static_unless_it_is_the_loader() {
        assert!(object(None, &[], None).is_static());
        let mut loader = object(None, &[], None);
        loader.defines.loaded_objects = true;
        assert!(!loader.is_static());
        assert!(!object(Some("/lib64/ld-linux-x86-64.so.2"), &[], None).is_static());
    }

    #[test]
    fn this_test_program_is_read_as_what_it_is() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.loadable);
        assert!(!own.is_static());
        assert!(!own.needed.is_empty());
        assert!(!own.defines.malloc, "it refers to malloc, it does not define it");
    }

    #[test]
    fn text_is_not_an_elf_file() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(matches!(Elf::read(&source), Err(ElfError::Format(_))));
    }
}
