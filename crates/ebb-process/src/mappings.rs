//! The mappings of a process by kind, from one reading of `smaps`, or from `maps` and the page map, which holds up a large process less.
//!
//! Used by `ebb why` and its kin. The sorting itself is pure: it takes the parsed file, the stack
//! pointers of the threads, and the devices that are tmpfs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use procfs::FromBufRead;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps, Process, Syscall};

use ebb_inspect::LONG_WALK_BYTES;
use ebb_inspect::Memory as _;
use ebb_inspect::memory::process::{PageCounts, ProcessMemory};

use super::charge::{Unreadable, io_reason, reason};
use crate::snapshot::{Kind, Usage};

/// The most that glibc, musl and language runtimes put below a thread's stack as a guard.
const MOST_GUARD_BYTES: u64 = 1 << 20;

/// Facts that do not come from `smaps`.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The stack pointers of the threads that are not running.
    pub stack_pointers: Vec<u64>,
    /// The size of a thread's stack by default (the soft limit of the process).
    pub stack_bytes: Option<u64>,
    /// Devices whose files lie in memory, as major and minor.
    pub memory_devices: BTreeSet<(i32, i32)>,
}

impl Hints {
    /// Reads what `/proc` has.
    pub fn of(process: &Process) -> Self {
        let stack_pointers = process
            .tasks()
            .map(|tasks| tasks.flatten().filter_map(|task| task.syscall().ok()))
            .into_iter()
            .flatten()
            .filter_map(|syscall| match syscall {
                Syscall::Blocked { stack_pointer, .. } => Some(stack_pointer),
                _ => None,
            })
            .collect();
        let stack_bytes = process.limits().ok().and_then(|limits| match limits.max_stack_size.soft_limit {
            procfs::process::LimitValue::Value(bytes) => Some(bytes),
            procfs::process::LimitValue::Unlimited => None,
        });
        let memory_devices = process
            .mountinfo()
            .map(|mounts| {
                mounts
                    .into_iter()
                    .filter(|mount| matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs"))
                    .filter_map(|mount| device(&mount.majmin))
                    .collect()
            })
            .unwrap_or_default();
        Self { stack_pointers, stack_bytes, memory_devices }
    }
}

/// Four times what the kernel allows without a setting (`vm.max_map_count`): 150 MB of ours.
const MOST_MAPPINGS: usize = 262_144;
/// So many are parsed at a time, and then only what is used here is kept.
const PIECE_MAPPINGS: usize = 256;
/// The fields of `smaps` that are used here.
const FIELDS: [&str; 10] = [
    "Rss", "Pss", "Anonymous", "Swap", "SwapPss", "Private_Clean", "Private_Dirty", "AnonHugePages", "ShmemPmdMapped",
    "KernelPageSize",
];

/// Reads the mappings of a process.
pub fn read(process: &Process) -> Result<MemoryMaps, Unreadable> {
    let smaps = process.open_relative("smaps").map_err(reason)?;
    read_from(BufReader::new(smaps))
}

/// The same; the process waits for us for no longer than a few milliseconds when it maps memory. Pages of a large process that other
/// processes map as well count as if `sharers` had them: only `smaps` knows, and holds the lock of all mappings over a whole one
/// (19 ms per GiB of small pages on an AMD EPYC).
pub fn read_gently(process: &Process, sharers: u64) -> Result<MemoryMaps, Unreadable> {
    let status = process.status().map_err(reason)?;
    if status.vmrss.unwrap_or(0) * 1024 <= LONG_WALK_BYTES {
        return read(process);
    }
    let mut maps = read_from(BufReader::new(process.open_relative("maps").map_err(reason)?))?;
    let is_large = |map: &MemoryMap| map.address.1 - map.address.0 > LONG_WALK_BYTES / 2;
    if !maps.0.iter().any(is_large) {
        return read(process);
    }
    let memory = ProcessMemory::open(process.pid).map_err(of_memory)?;
    let anonymous = status.rssanon.map(|kib| kib * 1024 / memory.page_bytes());
    let count = |map: &MemoryMap| match memory.count(map.address.0, map.address.1) {
        // Unmapped since, or one of the kernel's own addresses.
        Err(ebb_inspect::Unreadable::Unmapped(_)) => Ok(PageCounts::default()),
        counted => counted.map_err(of_memory),
    };
    let counts = maps.0.iter().map(count).collect::<Result<Vec<PageCounts>, _>>()?;
    let sum = |pages: fn(&PageCounts) -> u64| counts.iter().map(pages).sum::<u64>();
    let (own, forked) = (sum(|it| it.own), sum(|it| it.forked));
    // The kernel's page of zeros is resident nowhere, and looks like a page of a fork.
    let real = anonymous.map_or(forked, |all| all.saturating_sub(own).min(forked));
    for (map, count) in maps.0.iter_mut().zip(&counts) {
        let forked = (u128::from(count.forked) * u128::from(real)).checked_div(u128::from(forked));
        let forked = forked.map_or(0, |pages| u64::try_from(pages).unwrap_or(0));
        fill(map, &PageCounts { forked, ..*count }, memory.page_bytes(), sharers.max(1));
    }
    Ok(maps)
}

fn of_memory(error: ebb_inspect::Unreadable) -> Unreadable {
    match error {
        ebb_inspect::Unreadable::Gone => Unreadable::Gone,
        ebb_inspect::Unreadable::Refused => Unreadable::Permission,
        other => Unreadable::Other(other.to_string()),
    }
}

/// Gives a mapping the fields that `smaps` would have.
fn fill(map: &mut MemoryMap, pages: &PageCounts, page_bytes: u64, sharers: u64) {
    let (alone, shared) = (pages.own + pages.file, pages.forked + pages.file_shared);
    let fields = [
        ("Rss", (alone + shared) * page_bytes),
        ("Pss", alone * page_bytes + shared * page_bytes / sharers),
        ("Anonymous", (pages.own + pages.forked) * page_bytes),
        ("Private_Dirty", alone * page_bytes),
        ("Swap", pages.swapped * page_bytes),
    ];
    let fields = fields.into_iter().filter(|(_, bytes)| *bytes > 0);
    map.extension.map.extend(fields.map(|(name, bytes)| (name.to_owned(), bytes)));
}

fn read_from(smaps: impl BufRead) -> Result<MemoryMaps, Unreadable> {
    let mut all = Vec::new();
    let (mut piece, mut mappings) = (Vec::new(), 0);
    for line in smaps.split(b'\n') {
        let line = line.map_err(|error| io_reason(&error))?;
        // A mapping begins with its address, a field with its name.
        let begins = line.first().is_some_and(|first| !first.is_ascii_uppercase());
        if begins && mappings == PIECE_MAPPINGS {
            parse(&piece, &mut all)?;
            piece.clear();
            mappings = 0;
        }
        mappings += usize::from(begins);
        if all.len() + mappings > MOST_MAPPINGS {
            return Err(Unreadable::Other(format!("it has more than {MOST_MAPPINGS} mappings")));
        }
        piece.extend_from_slice(&line);
        piece.push(b'\n');
    }
    parse(&piece, &mut all)?;
    let mut maps = MemoryMaps::from_buf_read(&b""[..]).map_err(reason)?;
    maps.0 = all;
    Ok(maps)
}

/// Adds the mappings of a piece of `smaps`.
fn parse(piece: &[u8], all: &mut Vec<MemoryMap>) -> Result<(), Unreadable> {
    for mut map in MemoryMaps::from_buf_read(piece).map_err(reason)?.0 {
        let fields = &mut map.extension.map;
        let is_swapped = fields.get("Swap").is_some_and(|&bytes| bytes > 0);
        // A missing field counts as 0. But swap without its share would count whole, so a share of 0 stays.
        fields.retain(|name, bytes| FIELDS.contains(&name.as_str()) && (*bytes > 0 || is_swapped && name == "SwapPss"));
        fields.shrink_to_fit();
        all.push(map);
    }
    Ok(())
}

/// Sums the mappings up by kind.
pub fn by_kind(maps: &MemoryMaps, hints: &Hints) -> BTreeMap<Kind, Usage> {
    let mut kinds: BTreeMap<Kind, Usage> = BTreeMap::new();
    let mut before: Option<&MemoryMap> = None;
    for map in &maps.0 {
        let usage = usage(map);
        let kind = kind(map, before, hints);
        match kind {
            Kind::File | Kind::Shared if is_private(map) => {
                // A private mapping of a file has pages of the file and copies of its own.
                let own = Usage {
                    rss: usage.anon,
                    pss: usage.anon.min(usage.pss),
                    anon: usage.anon,
                    swap: usage.swap,
                    ..Usage::default()
                };
                let copies = if is_without_file(map) { Kind::Anonymous } else { Kind::Data };
                kinds.entry(copies).or_default().add(own);
                kinds.entry(kind).or_default().add(Usage {
                    rss: usage.rss - own.rss.min(usage.rss),
                    pss: usage.pss - own.pss,
                    anon: 0,
                    swap: 0,
                    ..usage
                });
            }
            kind => kinds.entry(kind).or_default().add(usage),
        }
        before = Some(map);
    }
    kinds.retain(|_, usage| usage.mappings > 0 || usage.rss > 0 || usage.swap > 0);
    kinds
}

/// Resident anonymous pages of private mappings that no other process maps: of forked workers, what each has written.
pub fn private(maps: &MemoryMaps) -> u64 {
    let own = |map: &&MemoryMap| is_private(map);
    let pages = |map: &MemoryMap| {
        let field = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
        // The pages of a file are private, too, while only one process maps them.
        (field("Private_Clean") + field("Private_Dirty")).min(field("Anonymous"))
    };
    maps.0.iter().filter(own).map(pages).sum()
}

/// Whether what is mapped has a name, and no file that anybody else can open.
fn is_without_file(map: &MemoryMap) -> bool {
    match &map.pathname {
        MMapPath::Path(path) => {
            let name = path.to_string_lossy();
            name.starts_with("/memfd:") || name.starts_with("/dev/zero")
        }
        _ => false,
    }
}

fn is_private(map: &MemoryMap) -> bool {
    !map.perms.contains(MMPermissions::SHARED)
}

/// What one mapping is; `before` is the one below it.
fn kind(map: &MemoryMap, before: Option<&MemoryMap>, hints: &Hints) -> Kind {
    let shared = map.perms.contains(MMPermissions::SHARED);
    match &map.pathname {
        MMapPath::Heap => Kind::Brk,
        MMapPath::Stack | MMapPath::TStack(_) => Kind::Stack,
        MMapPath::Vsys(_) => Kind::Shared,
        MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall | MMapPath::Rollup => Kind::Special,
        MMapPath::Path(path) => {
            let name = path.to_string_lossy();
            if name.starts_with("/anon_hugepage") || map.extension.map.get("KernelPageSize") > Some(&65536) {
                Kind::Hugetlb
            } else if name.starts_with("/memfd:")
                || name.starts_with("/dev/zero")
                || name.starts_with("/dev/shm/")
                || hints.memory_devices.contains(&map.dev)
            {
                Kind::Shared
            } else {
                Kind::File
            }
        }
        // Named by prctl; glibc's names say what they are.
        MMapPath::Other(name) if name.starts_with("anon_shmem:") => Kind::Shared,
        MMapPath::Other(name) if name.starts_with("anon: glibc: malloc") => Kind::Malloc,
        MMapPath::Other(name) if name.contains("stack") => Kind::Stack,
        MMapPath::Other(name) if name.starts_with("anon:") => Kind::Anonymous,
        MMapPath::Other(_) => Kind::Special,
        MMapPath::Anonymous if shared => Kind::Shared,
        MMapPath::Anonymous if is_stack(map, before, hints) => Kind::Stack,
        MMapPath::Anonymous => Kind::Anonymous,
    }
}

/// A thread's stack has no name: a thread's stack pointer lies in it, or it has the default size
/// and a guard below.
fn is_stack(map: &MemoryMap, before: Option<&MemoryMap>, hints: &Hints) -> bool {
    let (from, to) = map.address;
    if !map.perms.contains(MMPermissions::WRITE) {
        return false;
    }
    if hints.stack_pointers.iter().any(|sp| (from..to).contains(sp)) {
        return true;
    }
    let guarded = before.is_some_and(|guard| {
        let (start, end) = guard.address;
        end == from && end - start <= MOST_GUARD_BYTES && is_closed(guard)
    });
    // musl and glibc put thread-local data into the same mapping, so it may be a little larger.
    guarded
        && hints.stack_bytes.is_some_and(|bytes| {
            (bytes.saturating_sub(MOST_GUARD_BYTES)..=bytes + MOST_GUARD_BYTES).contains(&(to - from))
        })
}

fn is_closed(map: &MemoryMap) -> bool {
    let open = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::EXECUTE;
    map.pathname == MMapPath::Anonymous && !map.perms.intersects(open)
}

fn usage(map: &MemoryMap) -> Usage {
    let field = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
    Usage {
        mappings: 1,
        size: map.address.1 - map.address.0,
        rss: field("Rss"),
        pss: field("Pss"),
        anon: field("Anonymous"),
        // Without SwapPss (before Linux 4.3) whole pages.
        swap: match map.extension.map.get("SwapPss") {
            Some(&bytes) => bytes,
            None => field("Swap"),
        },
        huge: field("AnonHugePages") + field("ShmemPmdMapped"),
    }
}

fn device(majmin: &str) -> Option<(i32, i32)> {
    let (major, minor) = majmin.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests;
