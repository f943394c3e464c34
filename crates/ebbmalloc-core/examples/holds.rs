//! Drives a heap on the real kernel from one thread, always with the same requests and ticks, and prints how long each
//! hold of each lock was. `benches/holds.py` runs it several times and takes the least of each hold.
//!
//! `holds PROGRAM FILE`; FILE gets for each lock the number of its holds, 64 bits, and their lengths in nanoseconds,
//! 32 bits each, in the machine's byte order.

use ebbmalloc_core::base::holds;
use ebbmalloc_core::cache::cache::{Cache, Entered};
use ebbmalloc_core::heap::{Access, Heap};
use ebbmalloc_core::os::linux::Linux;
use ebbmalloc_core::runtime::Hooks;
use ebbmalloc_core::size::{SMALL_MAX, class_of};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

static HEAP: Heap<Linux> = Heap::new(Linux::new());

/// The process's own heap, which asks for these, is not used here.
#[unsafe(no_mangle)]
extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
    unreachable!("no allocator of a process")
}

/// What a program does: so many caches take blocks, most of which are freed in random order.
struct Program {
    name: &'static str,
    caches: usize,
    total_bytes: usize,
    sizes: std::ops::Range<usize>,
    /// One in so many survives the first round of frees; 0 for none.
    survives: usize,
}

const PROGRAMS: [Program; 5] = [
    Program { name: "idle", caches: 64, total_bytes: 256 << 20, sizes: 16..4096, survives: 0 },
    Program { name: "tiny", caches: 4, total_bytes: 300 << 20, sizes: 16..64, survives: 64 },
    Program { name: "mid", caches: 4, total_bytes: 300 << 20, sizes: 64..4096, survives: 32 },
    Program { name: "threads", caches: 1000, total_bytes: 1000 << 20, sizes: 16..4096, survives: 0 },
    Program { name: "large", caches: 1, total_bytes: 2000 << 20, sizes: 40 << 10..400 << 10, survives: 3 },
];

/// Ticks after each step: more than it takes until nothing is left to return.
const TICKS: usize = 5;
/// Blocks that each cache takes once more before its thread ends.
const LAST_BLOCKS: usize = 200;

/// Numbers that are always the same (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn size(&mut self, program: &Program) -> usize {
        program.sizes.start + self.below(program.sizes.len())
    }
}

#[derive(Clone, Copy)]
struct Thread(NonNull<Cache>);

impl Thread {
    fn start() -> Self {
        Self(HEAP.attach().expect("memory for a cache"))
    }

    fn slowly<R>(self, work: impl FnOnce(Access) -> R) -> R {
        // SAFETY: attached, and not yet detached.
        let cache = unsafe { self.0.as_ref() };
        assert!(matches!(cache.enter(), Entered::Mine));
        let result = work(Access::Cached(cache));
        cache.leave();
        result
    }

    fn take(self, size: usize) -> *mut u8 {
        // SAFETY: the cache is this thread's and is not unmade.
        let quick = (size <= SMALL_MAX).then(|| unsafe { self.0.as_ref() }.pop(class_of(size)));
        let block = match quick.flatten() {
            Some(slot) => slot.as_ptr(),
            None => self.slowly(|access| HEAP.allocate(access, size)),
        };
        assert!(!block.is_null(), "out of memory");
        // SAFETY: the block is ours and has `size` bytes.
        unsafe { block.write_bytes(1, size) };
        block
    }

    fn give(self, block: *mut u8) {
        if let Some(class @ 1..) = HEAP.quick_class(block as usize)
            // SAFETY: the cache is this thread's and is not unmade.
            && unsafe { self.0.as_ref() }.push(class, block)
        {
            return;
        }
        // SAFETY: every block is returned once.
        self.slowly(|access| unsafe { HEAP.free(access, block) });
    }

    fn end(self) {
        // SAFETY: attached, and used no more.
        unsafe { HEAP.detach(self.0) };
    }
}

fn tick() {
    for _ in 0..TICKS {
        HEAP.tick(None);
    }
}

fn run(program: &Program) {
    let mut random = Random(88_172_645_463_325_252);
    let threads: Vec<_> = (0..program.caches).map(|_| Thread::start()).collect();
    let mut blocks = Vec::new();
    for &thread in &threads {
        let mut left = program.total_bytes / program.caches;
        while left > 0 {
            let size = random.size(program);
            left = left.saturating_sub(size);
            blocks.push((thread, thread.take(size)));
        }
    }
    for index in (1..blocks.len()).rev() {
        blocks.swap(index, random.below(index + 1));
    }
    let (survivors, freed): (Vec<_>, Vec<_>) =
        blocks.into_iter().partition(|_| program.survives > 0 && random.below(program.survives) == 0);
    for blocks in [freed, survivors] {
        blocks.into_iter().for_each(|(thread, block)| thread.give(block));
        tick();
    }
    for thread in threads {
        let last: Vec<_> = (0..LAST_BLOCKS).map(|_| thread.take(random.size(program))).collect();
        last.into_iter().for_each(|block| thread.give(block));
        thread.end();
    }
    tick();
}

/// Nanoseconds that one tick of the processor's counter takes.
fn nanoseconds_a_tick() -> f64 {
    let (from, start) = (holds::now(), Instant::now());
    std::thread::sleep(Duration::from_millis(200));
    start.elapsed().as_nanos() as f64 / (holds::now() - from) as f64
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let known = |name: &str| PROGRAMS.iter().find(|program| program.name == name);
    let (Some(program), Some(file)) = (arguments.first().and_then(|name| known(name)), arguments.get(1)) else {
        let names = PROGRAMS.map(|program| program.name).join(", ");
        eprintln!("holds PROGRAM FILE, where PROGRAM is one of {names}");
        std::process::exit(2);
    };
    holds::prepare();
    run(program);
    let scale = nanoseconds_a_tick();
    let mut out = BufWriter::new(File::create(file)?);
    for rank in 0..holds::RANKS {
        let ticks: Vec<_> = holds::ticks(rank).expect("few enough holds").collect();
        out.write_all(&(ticks.len() as u64).to_ne_bytes())?;
        for tick in ticks {
            out.write_all(&((f64::from(tick) * scale) as u32).to_ne_bytes())?;
        }
    }
    out.flush()
}
