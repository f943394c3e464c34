//! Figures are true, and sums of their parts; settings in the mirror are the ones that were set.

use core::ffi::{CStr, c_char};
use ebbmalloc_core::runtime;
use ebbmalloc_core::size::large::LARGE_CLASSES;
use ebbmalloc_core::size::{CLASSES, SMALL_MAX};
use ebbmalloc_jemalloc::{print, read, write};
use std::sync::Mutex;

/// The figures are those of the process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn size(name: &str) -> usize {
    read(name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn count(name: &str) -> u64 {
    read(name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn refresh() {
    write(b"epoch", 1u64).unwrap();
}

fn blocks(number: usize, bytes: usize) -> Vec<*mut u8> {
    let make = |_| {
        let block = runtime::malloc(bytes);
        // SAFETY: ours, and that long.
        unsafe { block.write_bytes(1, bytes) };
        block
    };
    (0..number).map(make).collect()
}

fn free(blocks: Vec<*mut u8>) {
    for block in blocks {
        // SAFETY: allocated by `blocks`, and freed once.
        unsafe { runtime::free(block) };
    }
}

#[test]
fn figures_add_up() {
    let _one = ONE.lock();
    let held = (blocks(3000, 700), blocks(40, 100_000));
    refresh();
    let all = "stats.arenas.4096";
    let (mut small, mut large) = (0, 0);
    for bin in 0..CLASSES {
        let of = |name: &str| size(&format!("{all}.bins.{bin}.{name}"));
        let counted = |name: &str| count(&format!("{all}.bins.{bin}.{name}"));
        assert_eq!(counted("nmalloc") - counted("ndalloc"), of("curregs") as u64);
        let regions: u32 = read(format!("arenas.bin.{bin}.nregs").as_bytes()).unwrap();
        assert!(of("nonfull_slabs") <= of("curslabs"));
        assert!(of("curregs") <= of("curslabs") * regions as usize);
        assert_eq!(of("curregs") == 0 && counted("nmalloc") > 0, of("curregs") == 0 && counted("nfills") > 0);
        small += of("curregs") * size(&format!("arenas.bin.{bin}.size"));
    }
    for class in 0..LARGE_CLASSES {
        let of = |name: &str| count(&format!("{all}.lextents.{class}.{name}"));
        let current = size(&format!("{all}.lextents.{class}.curlextents"));
        assert_eq!(of("nmalloc") - of("ndalloc"), current as u64);
        large += current;
    }
    assert_eq!(small, size(&format!("{all}.small.allocated")));
    assert!(large >= 40);
    let sum: usize = (0..2).map(|arena| size(&format!("stats.arenas.{arena}.small.allocated"))).sum();
    assert_eq!(sum, small);
    let allocated = size("stats.allocated");
    assert_eq!(allocated, small + size(&format!("{all}.large.allocated")));
    assert!(allocated >= 3000 * 700 + 40 * 100_000);
    let page = size("arenas.page");
    assert_eq!(size("stats.active"), size(&format!("{all}.pactive")) * page);
    assert_eq!(size("approximate_stats.active"), size("stats.active"));
    assert!(allocated <= size("stats.active"));
    assert!(size("stats.active") <= size("stats.resident"));
    assert!(size("stats.resident") <= size("stats.mapped"));
    assert!(size("stats.metadata_edata") <= size("stats.metadata"));

    // As they were taken, until they are taken again.
    let more = blocks(10, 50_000);
    assert_eq!(size("stats.allocated"), allocated);
    refresh();
    assert!(size("stats.allocated") >= allocated + 500_000);
    free(more);
    free(held.0);
    free(held.1);
}

#[test]
fn a_caches_bound_can_be_changed() {
    let _one = ONE.lock();
    // Slots that have left the bin and are not free in it: no other test asks for this size.
    let bin = (0..CLASSES).find(|bin| size(&format!("arenas.bin.{bin}.size")) == 20 << 10).unwrap();
    let kept = move || {
        free(blocks(5, 20_000));
        refresh();
        size(&format!("stats.arenas.4096.bins.{bin}.curregs"))
    };
    std::thread::spawn(move || {
        assert!(kept() > 0);
        write(b"thread.tcache.max", 1000usize).unwrap();
        assert_eq!(size("thread.tcache.max"), 1024);
        assert_eq!(kept(), 0);
        write(b"thread.tcache.max", 1usize << 40).unwrap();
        assert_eq!(size("thread.tcache.max"), SMALL_MAX);
        assert!(kept() > 0);
        write(b"thread.tcache.max", 0usize).unwrap();
        assert_eq!(size("thread.tcache.max"), 0);
    })
    .join()
    .unwrap();
}

#[test]
fn the_mirror_says_what_was_set() {
    let _one = ONE.lock();
    refresh();
    let text: *const c_char = read(b"opt.stats_print_opts").unwrap();
    // SAFETY: the texts of the mirror live as long as the process.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"Jx");
    assert_eq!(read::<u32>(b"opt.narenas"), Ok(2));
    assert_eq!(read::<bool>(b"opt.zero"), Ok(false));
    assert!((1000..=1800).contains(&read::<isize>(b"opt.dirty_decay_ms").unwrap()));
}

fn printed(letters: &str) -> String {
    let mut text = String::new();
    print::print(&mut |piece| text.push_str(piece.to_str().unwrap()), letters.as_bytes());
    text
}

#[test]
fn json_is_closed_and_letters_leave_parts_out() {
    let _one = ONE.lock();
    let whole = printed("J");
    assert!(whole.starts_with("{\"jemalloc\":{\"version\":\"") && whole.ends_with("}}\n"));
    let (mut depth, mut inside, mut escaped) = (0, false, false);
    for letter in whole.chars() {
        match letter {
            '\\' if inside && !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => inside = !inside,
            '{' | '[' if !inside => depth += 1,
            '}' | ']' if !inside => depth -= 1,
            _ => {}
        }
        escaped = false;
    }
    assert_eq!((depth, inside), (0, false));
    assert!(!whole.contains(",}") && !whole.contains(",]") && !whole.contains(",,"));
    for (letter, part) in
        [('g', "\"config\":"), ('m', "\"merged\":"), ('a', "\"0\":"), ('b', "\"bins\":"), ('l', "\"lextents\":")]
    {
        assert!(whole.contains(part), "{part}");
        let less = printed(&format!("J{letter}"));
        assert!(!less.contains(part), "{letter} leaves {part}");
    }
    let words = printed("");
    assert!(words.starts_with("___ Begin jemalloc statistics ___\nVersion: \""));
    assert!(words.ends_with("--- End jemalloc statistics ---\n"));
}
