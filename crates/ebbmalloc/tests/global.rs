//! A Rust program with ebbmalloc as its global allocator: this test program is one.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebbmalloc::Ebbmalloc;

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

const MIB: u64 = 1 << 20;

/// Figures of the whole process mean something to one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live_bytes() -> u64 {
    GLOBAL.stats().map_or(0, |stats| stats.live_bytes)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }
}

/// Allocates, resizes and frees blocks of many sizes and alignments, and checks their contents.
fn churn(seed: u64, steps: usize) {
    let mut numbers = Numbers(seed);
    let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
    for step in 0..steps {
        let below = 1 << (1 + numbers.next(16));
        let size = 1 + numbers.next(below);
        let layout = Layout::from_size_align(size, 1 << numbers.next(14)).unwrap();
        let fill = step as u8;
        // SAFETY: layouts have a size; blocks are used within it and freed once.
        unsafe {
            match (numbers.next(4), blocks.is_empty()) {
                (0, _) | (_, true) => {
                    let block = GLOBAL.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                    block.write_bytes(fill, size);
                    blocks.push((block, layout, fill));
                }
                (1, _) => {
                    let block = GLOBAL.alloc_zeroed(layout);
                    assert!(block.addr().is_multiple_of(layout.align()));
                    let bytes = std::slice::from_raw_parts(block, size);
                    assert!(bytes.iter().all(|&byte| byte == 0));
                    block.write_bytes(fill, size);
                    blocks.push((block, layout, fill));
                }
                (2, _) => {
                    let at = numbers.next(blocks.len());
                    let (block, old, fill) = blocks[at];
                    let moved = GLOBAL.realloc(block, old, size);
                    assert!(moved.addr().is_multiple_of(old.align()));
                    let kept = std::slice::from_raw_parts(moved, size.min(old.size()));
                    assert!(kept.iter().all(|&byte| byte == fill), "{old:?} to {size}");
                    moved.write_bytes(fill, size);
                    let layout = Layout::from_size_align(size, old.align()).unwrap();
                    blocks[at] = (moved, layout, fill);
                }
                _ => {
                    let (block, layout, fill) = blocks.swap_remove(numbers.next(blocks.len()));
                    let bytes = std::slice::from_raw_parts(block, layout.size());
                    assert!(bytes.iter().all(|&byte| byte == fill), "{layout:?}");
                    GLOBAL.dealloc(block, layout);
                }
            }
        }
    }
    for (block, layout, _) in blocks {
        // SAFETY: the block is live.
        unsafe { GLOBAL.dealloc(block, layout) };
    }
}

#[test]
fn threads_keep_their_blocks_apart() {
    let _alone = alone();
    let threads: Vec<_> = (0..8).map(|n| std::thread::spawn(move || churn(n, 4000))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn collections_of_std_work() {
    let _alone = alone();
    let map: BTreeMap<String, Vec<usize>> = (0..5000).map(|n| (format!("key {n}"), (0..n % 50).collect())).collect();
    assert_eq!(map["key 4999"].len(), 49);
}

#[test]
fn statistics_follow_what_is_live() {
    let _alone = alone();
    let before = live_bytes();
    let block = vec![1u8; 64 << 20];
    let during = live_bytes();
    assert!(during >= before + 63 * MIB, "{before} {during}");
    drop(block);
    assert!(live_bytes() + 60 * MIB <= during);
}

#[test]
fn a_child_of_fork_goes_on_allocating() {
    let _alone = alone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    churn(seed, 200);
                }
            });
        }
        for round in 0..50 {
            // SAFETY: the child allocates, which this allocator allows, and ends at once.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                churn(round, 500);
                let other = std::thread::spawn(|| churn(7, 500));
                let status = if other.join().is_ok() { 0 } else { 1 };
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(status) };
            }
            let mut status = -1;
            // SAFETY: `status` is valid to write to.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "round {round}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_burst_goes_back_without_being_asked_for() {
    let _alone = alone();
    let base = resident_bytes();
    let burst: Vec<Box<[u8]>> = (0..100_000).map(|_| vec![1; 1500].into_boxed_slice()).collect();
    let peak = resident_bytes();
    assert!(peak > base + 120 * MIB, "{base} {peak}");
    drop(burst);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = resident_bytes();
        if now < base + (peak - base) / 10 {
            break;
        }
        assert!(Instant::now() < deadline, "base {base}, peak {peak}, now {now}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn impossible_requests_return_null() {
    let _alone = alone();
    let huge = Layout::from_size_align(isize::MAX as usize - 4095, 4096).unwrap();
    let large = Layout::from_size_align(isize::MAX as usize - 15, 16).unwrap();
    // SAFETY: the layouts have a size.
    unsafe {
        assert!(GLOBAL.alloc(huge).is_null());
        assert!(GLOBAL.alloc(large).is_null());
        assert!(GLOBAL.alloc_zeroed(huge).is_null());
        assert!(GLOBAL.alloc_zeroed(large).is_null());
    }
}
