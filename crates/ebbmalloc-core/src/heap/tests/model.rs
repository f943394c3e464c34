//! Random programs against a shadow map: whatever a program does and whatever the kernel refuses,
//! blocks are apart, aligned, long enough and keep their contents; the figures add up; nothing is
//! lost. The validators of every layer run along. A failing program is shrunk by proptest.

use super::*;
use crate::os::OsError;
use crate::os::fake::Call;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Steps between two runs of the validators, which look at everything.
const VALIDATE_EVERY: usize = 16;
/// The largest size that the program asks for.
const SIZE_MAX: usize = 4 << 20;

/// What a program does; `Nested` is what a signal handler does.
#[derive(Clone, Debug)]
enum Step {
    Allocate { thread: usize, size: usize },
    Zeroed { thread: usize, size: usize },
    Aligned { thread: usize, size: usize, align: usize },
    Free { thread: usize, which: usize },
    Reallocate { thread: usize, which: usize, size: usize },
    Nested { size: usize, which: usize },
    Tick,
    Trim { thread: usize },
    Attach,
    Detach { thread: usize },
    Refuse { call: Call, count: usize },
    Lock { which: usize },
    // The program turns out to be a CPython.
    Lead,
}

fn size() -> impl Strategy<Value = usize> {
    (0u32..22, any::<usize>()).prop_map(|(log2, low)| ((1 << log2) + low % (1 << log2)).min(SIZE_MAX) - 1)
}

fn step() -> impl Strategy<Value = Step> {
    let (thread, which) = (0usize..4, any::<usize>());
    let call =
        prop::sample::select(vec![Call::Reserve, Call::Commit, Call::Discard, Call::MovePages, Call::Membarrier]);
    prop_oneof![
        30 => (thread.clone(), size()).prop_map(|(thread, size)| Step::Allocate { thread, size }),
        4 => (thread.clone(), size()).prop_map(|(thread, size)| Step::Zeroed { thread, size }),
        4 => (thread.clone(), size(), 0u32..21)
            .prop_map(|(thread, size, log2)| Step::Aligned { thread, size, align: 1 << log2 }),
        30 => (thread.clone(), which).prop_map(|(thread, which)| Step::Free { thread, which }),
        12 => (thread.clone(), which, size())
            .prop_map(|(thread, which, size)| Step::Reallocate { thread, which, size }),
        3 => (size(), which).prop_map(|(size, which)| Step::Nested { size, which }),
        8 => Just(Step::Tick),
        1 => thread.clone().prop_map(|thread| Step::Trim { thread }),
        2 => Just(Step::Attach),
        1 => thread.prop_map(|thread| Step::Detach { thread }),
        3 => (call, 1usize..4).prop_map(|(call, count)| Step::Refuse { call, count }),
        1 => which.prop_map(|which| Step::Lock { which }),
        1 => Just(Step::Lead),
    ]
}

/// What the program knows of a block that it holds.
struct Block {
    size: usize,
    usable: usize,
    seed: usize,
}

struct World {
    heap: Box<Heap<Fake>>,
    threads: Vec<NonNull<Cache>>,
    shadow: BTreeMap<usize, Block>,
    steps: usize,
    /// Scripted failures may be pending, so null is an answer.
    refusing: bool,
    /// Pages are locked: not everything goes.
    locked: bool,
}

impl World {
    fn new(page_bytes: usize) -> Self {
        Self {
            heap: Box::new(Heap::new(Fake::new(page_bytes))),
            threads: Vec::new(),
            shadow: BTreeMap::new(),
            steps: 0,
            refusing: false,
            locked: false,
        }
    }

    fn thread(&self, number: usize) -> Thread {
        self.threads.get(number).copied()
    }

    fn pick(&self, which: usize) -> Option<usize> {
        let nth = which.checked_rem(self.shadow.len())?;
        self.shadow.keys().nth(nth).copied()
    }

    /// The bytes of a block that are written and checked: all of a small one, some of each page of a
    /// large one, and the last.
    fn places(size: usize) -> impl Iterator<Item = usize> {
        let stride = if size <= 512 { 1 } else { 251 };
        (0..size).step_by(stride).chain(size.checked_sub(1))
    }

    fn adopt(&mut self, block: *mut u8, size: usize, align: usize) {
        let start = block as usize;
        assert!(start.is_multiple_of(align.max(16)), "{block:?} is not aligned to {align}");
        // SAFETY: the block is live.
        let usable = unsafe { self.heap.usable_size(block) };
        assert!(usable >= size);
        if let Some((&before, other)) = self.shadow.range(..=start).next_back() {
            assert!(before + other.usable <= start, "overlap");
        }
        if let Some((&after, _)) = self.shadow.range(start..).next() {
            assert!(start + usable <= after, "overlap");
        }
        let seed = self.steps.wrapping_mul(0x9E37_79B9);
        // SAFETY: all usable bytes are the program's.
        Self::places(usable).for_each(|at| unsafe { block.wrapping_add(at).write((seed + at) as u8) });
        self.shadow.insert(start, Block { size, usable, seed });
    }

    fn check_contents(start: usize, seed: usize, usable: usize, until: usize) {
        for at in Self::places(usable).filter(|&at| at < until) {
            // SAFETY: `at` lies inside a live block.
            let byte = unsafe { (start as *const u8).add(at).read() };
            assert_eq!(byte, (seed + at) as u8, "byte {at} of {until}");
        }
    }

    /// Takes a block off the books, its contents checked.
    fn forget(&mut self, start: usize) -> Block {
        let block = self.shadow.remove(&start).expect("held");
        Self::check_contents(start, block.seed, block.usable, block.usable);
        block
    }

    fn allocated(&mut self, block: *mut u8, size: usize, align: usize) {
        if block.is_null() {
            assert!(self.refusing, "no reason to refuse {size} bytes aligned to {align}");
        } else {
            self.adopt(block, size, align);
        }
    }

    fn run(&mut self, step: &Step) {
        let heap = &raw const *self.heap;
        // SAFETY: the box is not moved or replaced; the borrow checker cannot see that the calls
        // below need no other field.
        let heap = unsafe { &*heap };
        match *step {
            Step::Allocate { thread, size } => self.allocated(allocate(heap, self.thread(thread), size), size, 1),
            Step::Zeroed { thread, size } => {
                let block = with_access(self.thread(thread), |access| heap.allocate_zeroed(access, size));
                if !block.is_null() {
                    // SAFETY: the block is live and `size` bytes long.
                    let bytes = unsafe { core::slice::from_raw_parts(block, size) };
                    assert!(bytes.iter().all(|&byte| byte == 0), "not zero");
                }
                self.allocated(block, size, 1);
            }
            Step::Aligned { thread, size, align } => {
                let block = with_access(self.thread(thread), |access| heap.allocate_aligned(access, size, align));
                self.allocated(block, size, align);
            }
            Step::Free { thread, which } => {
                if let Some(start) = self.pick(which) {
                    self.forget(start);
                    free(heap, self.thread(thread), start as *mut u8);
                }
            }
            Step::Reallocate { thread, which, size } => {
                let Some(start) = self.pick(which) else {
                    return;
                };
                let old = self.forget(start);
                // SAFETY: the block is live.
                let new = with_access(self.thread(thread), |access| unsafe {
                    heap.reallocate(access, start as *mut u8, size)
                });
                if new.is_null() {
                    assert!(self.refusing);
                    Self::check_contents(start, old.seed, old.usable, old.usable);
                    self.shadow.insert(start, old);
                } else {
                    Self::check_contents(new as usize, old.seed, old.usable, old.size.min(size));
                    self.adopt(new, size, 1);
                }
            }
            Step::Nested { size, which } => {
                self.allocated(heap.allocate(Access::Nested, size), size, 1);
                if let Some(start) = self.pick(which) {
                    self.forget(start);
                    // SAFETY: the block was live until here.
                    unsafe { heap.free(Access::Nested, start as *mut u8) };
                }
            }
            Step::Tick => {
                heap.tick(None);
            }
            Step::Trim { thread } => {
                with_access(self.thread(thread), |access| match access {
                    Access::Cached(own) => heap.trim(Some(own)),
                    _ => heap.trim(None),
                });
            }
            Step::Attach => {
                if self.threads.len() < 4 {
                    match heap.attach() {
                        Some(cache) => self.threads.push(cache),
                        None => assert!(self.refusing),
                    }
                }
            }
            Step::Detach { thread } => {
                if thread < self.threads.len() {
                    let cache = self.threads.remove(thread);
                    // SAFETY: it is forgotten here.
                    unsafe { if self.steps.is_multiple_of(2) { heap.detach(cache) } else { heap.leave(cache) } }
                }
            }
            Step::Refuse { call, count } => {
                let error = if call == Call::Discard { OsError::Invalid } else { OsError::OutOfMemory };
                heap.os.fail(call, 0, count, error);
                self.refusing = true;
            }
            Step::Lock { which } => {
                if let Some(start) = self.pick(which) {
                    let page = heap.os.page_bytes();
                    heap.os.lock_pages(start & !(page - 1), page);
                    self.locked = true;
                }
            }
            Step::Lead => heap.lead_slabs(),
        }
        self.steps += 1;
        if self.steps.is_multiple_of(VALIDATE_EVERY) {
            self.validate();
        }
    }

    /// Ends the refusals and checks everything.
    fn validate(&mut self) -> usize {
        self.heap.os.heal();
        self.refusing = false;
        let used = validate(&self.heap);
        for (&start, block) in &self.shadow {
            Self::check_contents(start, block.seed, block.usable, block.usable);
            // SAFETY: the block is live.
            assert_eq!(unsafe { self.heap.usable_size(start as *const u8) }, block.usable);
        }
        let statistics = self.heap.statistics(None, true);
        let held: usize = self.shadow.values().map(|block| block.usable).sum();
        assert_eq!(statistics.live, held, "{statistics:?}");
        assert_eq!(statistics.live + statistics.cached + statistics.idle, statistics.resident, "{statistics:?}");
        assert!(statistics.resident + statistics.retained <= statistics.mapped + statistics.live_large);
        assert_eq!(statistics.threads, self.threads.len());
        used
    }

    /// All blocks are freed and all threads end: nothing is left.
    fn finish(mut self) {
        self.validate();
        while let Some(start) = self.pick(0) {
            self.forget(start);
            free(&self.heap, self.thread(0), start as *mut u8);
        }
        // One may have been left.
        self.threads.extend(self.heap.attach());
        for cache in core::mem::take(&mut self.threads) {
            // SAFETY: forgotten here.
            unsafe { self.heap.detach(cache) };
        }
        self.heap.trim(None);
        let used = self.validate();
        if !self.locked {
            let statistics = self.heap.statistics(None, true);
            assert_eq!((statistics.live, statistics.resident), (0, 0), "{statistics:?}");
            assert_eq!(used, 0, "slabs or blocks are left");
            assert_eq!(self.heap.metadata.bytes(&self.heap.os).0, 0, "metadata is left");
        }
    }
}

fn check(page_bytes: usize, steps: &[Step]) {
    let mut world = World::new(page_bytes);
    steps.iter().for_each(|step| world.run(step));
    world.finish();
}

/// Programs for each page size; PROPTEST_CASES asks for more.
fn cases() -> u32 {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_on_pages_of_4_kib(steps in vec(step(), 1..400)) {
        check(4 << 10, &steps);
    }

    #[test]
    fn random_programs_on_pages_of_16_kib(steps in vec(step(), 1..400)) {
        check(16 << 10, &steps);
    }

    #[test]
    fn random_programs_on_pages_of_64_kib(steps in vec(step(), 1..400)) {
        check(64 << 10, &steps);
    }
}
