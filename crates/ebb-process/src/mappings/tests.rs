//! Sorting of made-up and of real mappings.

use procfs::FromBufRead;

use super::*;

/// An entry of `smaps`, with figures in kB.
fn entry(line: &str, rss: u64, pss: u64, anon: u64) -> String {
    format!(
        "{line}\nSize: 4 kB\nKernelPageSize: 4 kB\nRss: {rss} kB\nPss: {pss} kB\nAnonymous: {anon} kB\nSwap: 0 kB\nVmFlags: rd\n"
    )
}

fn sorted(entries: &[String], hints: &Hints) -> BTreeMap<Kind, Usage> {
    let maps = MemoryMaps::from_buf_read(entries.concat().as_bytes()).unwrap();
    by_kind(&maps, hints)
}

#[test]
fn what_was_written_to_a_private_mapping_is_no_shared_memory() {
    let kinds = sorted(
        &[
            entry("1000-9000 rw-p 00000000 00:01 9 /memfd:x (deleted)", 32, 32, 32),
            entry("a000-e000 rw-p 00000000 00:2a 9 /run/x", 16, 16, 8),
        ],
        &Hints { memory_devices: BTreeSet::from([(0, 0x2a)]), ..Hints::default() },
    );
    let pss = |kind: Kind| kinds.get(&kind).map(|usage| usage.pss / 1024);
    assert_eq!(pss(Kind::Anonymous), Some(32), "of the memfd");
    assert_eq!(pss(Kind::Data), Some(8), "copies of a file's pages");
    assert_eq!(pss(Kind::Shared), Some(8), "the rest of the file's");
}

#[test]
fn names_tell_most_kinds() {
    let kinds = sorted(
        &[
            entry("1000-2000 rw-p 00000000 00:00 0 [heap]", 4, 4, 4),
            entry("3000-5000 r--p 00000000 fe:00 7 /usr/lib/libc.so.6", 8, 2, 1),
            entry("6000-7000 rw-s 00000000 00:01 9 /memfd:x (deleted)", 4, 4, 0),
            entry("8000-9000 rw-s 00000000 00:01 9 /SYSV00000000 (deleted)", 4, 4, 0),
            entry("a000-b000 rw-s 00000000 00:2a 9 /run/x", 4, 4, 0),
            entry("c000-d000 rw-p 00000000 00:00 0 [stack]", 4, 4, 4),
            entry("e000-f000 rw-p 00000000 00:00 0 ", 4, 4, 4),
            entry("10000-11000 r-xp 00000000 00:00 0 [vdso]", 4, 0, 0),
        ],
        &Hints { memory_devices: BTreeSet::from([(0, 0x2a)]), ..Hints::default() },
    );
    let pss = |kind: Kind| kinds.get(&kind).map(|usage| usage.pss);
    assert_eq!(pss(Kind::Brk), Some(4096));
    assert_eq!(pss(Kind::Data), Some(1024), "the copied page of a file");
    assert_eq!(pss(Kind::File), Some(1024), "the rest of its share");
    assert_eq!(kinds[&Kind::Shared].mappings, 3);
    assert_eq!(pss(Kind::Stack), Some(4096));
    assert_eq!(pss(Kind::Anonymous), Some(4096));
    assert_eq!(pss(Kind::Special), Some(0));
    let all: u64 = kinds.values().map(|usage| usage.pss).sum();
    assert_eq!(all, (4 + 2 + 4 + 4 + 4 + 4 + 4) * 1024, "nothing is lost or counted twice");
}

#[test]
fn a_stack_is_known_by_a_stack_pointer_or_by_its_guard_and_size() {
    let map = [
        entry("1000-2000 ---p 00000000 00:00 0 ", 0, 0, 0),
        entry("2000-802000 rw-p 00000000 00:00 0 ", 8, 8, 8),
        entry("a00000-a10000 rw-p 00000000 00:00 0 ", 16, 16, 16),
    ];
    let none = Hints::default();
    assert!(!sorted(&map, &none).contains_key(&Kind::Stack));
    let by_size = Hints { stack_bytes: Some(8 << 20), ..Hints::default() };
    assert_eq!(sorted(&map, &by_size)[&Kind::Stack].pss, 8 * 1024);
    let by_pointer = Hints { stack_pointers: vec![0xa0_8000], ..Hints::default() };
    assert_eq!(sorted(&map, &by_pointer)[&Kind::Stack].pss, 16 * 1024);
}

#[test]
fn the_kinds_of_this_process_add_up_to_what_the_kernel_says() {
    let own = Process::myself().unwrap();
    let maps = read(&own).unwrap();
    let pss = |map: &MemoryMap| map.extension.map.get("Pss").copied().unwrap_or(0);
    let expected: u64 = maps.0.iter().map(pss).sum();
    let kinds = by_kind(&maps, &Hints::of(&own));
    let total: u64 = kinds.values().map(|usage| usage.pss).sum();
    assert_eq!(total, expected);
    assert!(kinds[&Kind::File].pss > 0 && kinds[&Kind::Stack].pss > 0, "{kinds:?}");
}

/// A python of which 96 MiB are held in 64: of a real kernel, recorded by `ci/vm/record.sh`.
#[test]
fn recorded_mappings_that_are_partly_in_swap() {
    let text = include_bytes!("../recorded/swapped/smaps");
    let maps = MemoryMaps::from_buf_read(&text[..]).unwrap();
    let kinds = by_kind(&maps, &Hints::default());
    let swap: u64 = kinds.values().map(|usage| usage.swap).sum();
    let whole: u64 = String::from_utf8_lossy(text)
        .lines()
        .filter_map(|line| line.strip_prefix("SwapPss:")?.trim().strip_suffix(" kB"))
        .map(|kilobytes| kilobytes.trim().parse::<u64>().unwrap() << 10)
        .sum();
    assert_eq!(swap, whole);
    assert!((40 << 20..75 << 20).contains(&swap), "{swap}");
    assert!(kinds[&Kind::Anonymous].swap > 40 << 20, "{kinds:?}");
}

/// `ebb why` reads nothing that would bring a page back: the two figures are of before and after two of its runs.
#[test]
fn recorded_looks_bring_nothing_back_from_swap() {
    let status = include_str!("../recorded/swapped/status");
    let (before, after) = status.trim_end().split_once('\n').unwrap();
    assert!(before.starts_with("VmSwap:"));
    assert_eq!(before, after);
}

/// A python on glibc 2.41 that names its mappings, with a second arena, a thread and a block of its own mapping: of a
/// real kernel, recorded by `ci/vm/record.sh`.
#[test]
fn recorded_mappings_that_glibc_has_named() {
    let text = include_str!("../recorded/named/smaps");
    let maps = MemoryMaps::from_buf_read(text.as_bytes()).unwrap();
    let kinds = by_kind(&maps, &Hints::default());
    let named = |name: &str| {
        let entries =
            maps.0.iter().filter(|map| matches!(&map.pathname, MMapPath::Other(other) if other.starts_with(name)));
        entries.map(|map| map.extension.map["Pss"]).sum::<u64>()
    };
    let [arena, blocks] = ["anon: glibc: malloc arena", "anon: glibc: malloc"].map(named);
    assert!(arena > 0 && blocks > arena + (5 << 20), "{arena} {blocks}");
    assert_eq!(kinds[&Kind::Malloc].pss, blocks);
    // The first thread's is known by the kernel's own name, and by no other here.
    let threads = named("anon: glibc: pthread stack");
    let first: u64 =
        maps.0.iter().filter(|map| map.pathname == MMapPath::Stack).map(|map| map.extension.map["Pss"]).sum();
    assert!(threads > 0 && first > 0);
    assert_eq!(kinds[&Kind::Stack].pss, threads + first);
    // What the loader has for itself is no heap that malloc_trim reaches.
    assert!(kinds[&Kind::Anonymous].pss >= named("anon: glibc: loader malloc"));
}

#[test]
fn pages_of_private_mappings_that_nobody_else_has_are_private() {
    let with = |line: &str, anon: u64, clean: u64, dirty: u64| {
        let figures = format!("Private_Clean: {clean} kB\nPrivate_Dirty: {dirty} kB\nVmFlags: rd");
        entry(line, 64, 64, anon).replace("VmFlags: rd", &figures)
    };
    let entries = [
        with("1000-9000 rw-p 00000000 00:00 0 [heap]", 64, 4, 20),
        with("a000-b000 r--p 00000000 fe:00 7 /usr/lib/libc.so.6", 8, 40, 8),
        with("c000-d000 rw-s 00000000 00:01 9 /dev/zero (deleted)", 0, 0, 64),
    ];
    let maps = MemoryMaps::from_buf_read(entries.concat().as_bytes()).unwrap();
    assert_eq!(private(&maps), (24 + 8) * 1024);
}

/// A million of them, as the kernel writes one.
#[test]
fn mappings_are_read_in_pieces_and_up_to_a_bound() {
    let one = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nSize:                  4 kB\nKernelPageSize:        4 kB\n\
               Rss:                   4 kB\nPss:                   4 kB\nAnonymous:             4 kB\nSwap:                  0 kB\n\
               VmFlags: rd wr mr mw me ac sd \n";
    let read = |count: usize| read_from(one.repeat(count).as_bytes());
    let maps = read(1000).unwrap();
    assert_eq!(maps.0.len(), 1000);
    let of = by_kind(&maps, &Hints::default())[&Kind::Anonymous];
    assert_eq!((of.mappings, of.rss, of.swap), (1000, 4_096_000, 0));
    let why = read(MOST_MAPPINGS + 1).unwrap_err().to_string();
    assert_eq!(why, "it has more than 262144 mappings");
}

#[test]
fn the_page_map_tells_what_smaps_tells() {
    let own = Process::myself().unwrap();
    let bytes = usize::try_from(LONG_WALK_BYTES).unwrap() + (64 << 20);
    let held = vec![1u8; bytes];
    // Other tests allocate meanwhile.
    const NEAR: u64 = 64 << 20;
    let field = |maps: &MemoryMaps, name: &str| -> u64 {
        maps.0.iter().map(|map| map.extension.map.get(name).copied().unwrap_or(0)).sum()
    };
    let (exact, gentle) = (read(&own).unwrap(), read_gently(&own, 1).unwrap());
    for name in ["Rss", "Anonymous", "Swap"] {
        let (exact, gentle) = (field(&exact, name), field(&gentle, name));
        assert!(exact.abs_diff(gentle) < NEAR, "{name}: {exact} {gentle}");
    }
    let of = |maps: &MemoryMaps| by_kind(maps, &Hints::default())[&Kind::Anonymous].pss;
    assert!(of(&gentle).abs_diff(of(&exact)) < NEAR);
    assert!(gentle.0.iter().all(|map| !map.extension.map.contains_key("KernelPageSize")));
    assert_eq!(held[bytes - 1], 1);
}
