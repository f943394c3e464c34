//! Typed control, with ebbmalloc as the allocator of this program.

#![cfg(target_os = "linux")]

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebbmalloc::Ebbmalloc;
use ebbmalloc::control::{
    self, arenas, background_thread, epoch, max_background_threads, opt, profiling, raw, stats, stats_print, thread,
    version,
};

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

/// Settings and the epoch belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn statistics_follow_the_epoch() {
    let _alone = alone();
    let advance = epoch::mib().unwrap();
    let allocated = stats::allocated::mib().unwrap();
    let number = advance.advance().unwrap();
    let before = allocated.read().unwrap();
    let block = black_box(vec![1_u8; 32 << 20]);
    assert_eq!(allocated.read().unwrap(), before);
    assert_eq!(advance.advance().unwrap(), number + 1);
    assert_eq!(epoch::read().unwrap(), number + 1);
    let full = allocated.read().unwrap();
    assert!(full >= before + (31 << 20), "{before} {full}");
    let active = stats::active::read().unwrap();
    let resident = stats::resident::read().unwrap();
    let mapped = stats::mapped::read().unwrap();
    assert!(full <= active && active <= resident && resident <= mapped, "{full} {active} {resident} {mapped}");
    assert!(stats::metadata::read().unwrap() > 0);
    stats::retained::read().unwrap();
    drop(block);
    epoch::advance().unwrap();
    assert!(allocated.read().unwrap() + (31 << 20) <= full);
}

#[test]
fn settings_are_read() {
    assert!(version::read().unwrap().starts_with("5."));
    assert_eq!(version::mib().unwrap().read().unwrap(), version::read().unwrap());
    assert!(!opt::abort::read().unwrap());
    assert!(opt::narenas::read().unwrap() >= 1);
    assert_eq!(opt::junk::read().unwrap(), "false");
    assert!(!opt::zero::read().unwrap() && opt::tcache::read().unwrap());
    assert!(opt::tcache_max::read().unwrap() >= 4096);
    assert!(opt::dirty_decay_ms::read().unwrap() >= -1);
    assert!(!profiling::prof::read().unwrap());
    assert_eq!(profiling::lg_prof_sample::read().unwrap(), 19);
    assert!(arenas::narenas::read().unwrap() >= opt::narenas::read().unwrap());
    assert!(arenas::page::read().unwrap().is_power_of_two());
}

#[test]
fn the_background_thread_is_switched() {
    let _alone = alone();
    let initial = background_thread::read().unwrap();
    assert_eq!(background_thread::update(!initial).unwrap(), initial);
    assert_eq!(background_thread::read().unwrap(), !initial);
    background_thread::write(initial).unwrap();
    assert_eq!(background_thread::mib().unwrap().read().unwrap(), initial);
    assert!(max_background_threads::read().unwrap() >= 1);
}

#[test]
fn a_threads_counters_are_live() {
    let allocated = thread::allocatedp::read().unwrap();
    let deallocated = thread::deallocatedp::mib().unwrap().read().unwrap();
    let (from, freed) = (allocated.get(), deallocated.get());
    drop(black_box(vec![0_u8; 100_000]));
    assert!(allocated.get() >= from + 100_000);
    assert!(deallocated.get() >= freed + 100_000);
    thread::flush_tcache().unwrap();
    thread::idle().unwrap();
    assert!(thread::tcache_enabled::read().unwrap());
}

#[test]
fn any_name_is_reached() {
    // SAFETY: the names have these types.
    unsafe {
        assert_eq!(raw::read::<usize>("arenas.quantum").unwrap(), 16);
        assert_eq!(raw::read::<usize>(b"arenas.quantum\0").unwrap(), 16);
        assert_eq!(raw::read::<&str>("opt.zero_realloc").unwrap(), "free");
        raw::act("arena.4096.purge").unwrap();
        assert_eq!(raw::read::<usize>("no.such.name").unwrap_err().code(), 2);
        // The wrong size, and nothing to be written.
        assert_eq!(raw::read::<u32>("arenas.quantum").unwrap_err().code(), 22);
        assert_eq!(raw::write("arenas.quantum", 8_usize).unwrap_err().code(), 1);
    }
}

#[test]
fn profiling_that_is_off_says_so() {
    assert!(!profiling::active::read().unwrap());
    assert_eq!(profiling::active::write(true).unwrap_err().code(), 2);
    assert_eq!(profiling::dump(None).unwrap_err().code(), 2);
    let text = profiling::reset(Some(10)).unwrap_err().to_string();
    assert_eq!(text, "no such name (errno 2)");
}

#[test]
fn statistics_are_printed() {
    let _alone = alone();
    let mut text = Vec::new();
    stats_print::stats_print(&mut text, stats_print::Options::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Begin jemalloc statistics"), "{text}");
    let mut options = stats_print::Options::default();
    options.json_format = true;
    options.skip_per_arena = true;
    let mut json = Vec::new();
    stats_print::stats_print(&mut json, options).unwrap();
    assert!(json.starts_with(b"{"));

    /// Takes nothing.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(stats_print::stats_print(Full, options).is_err());
}

#[test]
fn an_error_can_be_passed_on() {
    fn fails() -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        // SAFETY: there is no such name.
        Ok(unsafe { control::raw::read("nothing") }?)
    }
    assert!(fails().is_err());
}

#[test]
fn an_arena_is_made_used_and_ended() {
    let _alone = alone();
    let old = arenas::dirty_decay_ms::update(123).unwrap();
    let arena = arenas::create().unwrap();
    arenas::dirty_decay_ms::write(old).unwrap();
    assert_eq!(arenas::dirty_decay_ms::read().unwrap(), old);
    assert_eq!(arena.dirty_decay_ms().unwrap().update(-1).unwrap(), 123);
    assert_eq!(arena.dirty_decay_ms().unwrap().read().unwrap(), -1);
    assert_eq!(arenas::narenas::read().unwrap(), arena.index() + 1);

    let worker = std::thread::spawn(move || {
        thread::arena::write(arena.index()).unwrap();
        assert_eq!(thread::arena::read().unwrap(), arena.index());
        let block = vec![1_u8; 1 << 20];
        epoch::advance().unwrap();
        let name = format!("stats.arenas.{}.large.allocated", arena.index());
        // SAFETY: the name has this type.
        let large: usize = unsafe { raw::read(name.as_str()) }.unwrap();
        assert!(large >= 1 << 20, "{large}");
        drop(block);
        thread::flush_tcache().unwrap();
    });
    worker.join().unwrap();
    arena.decay().unwrap();
    arena.purge().unwrap();
    arenas::Arena::ALL.purge().unwrap();
    assert!(arenas::Arena::with_index(1_000_000).purge().is_err());
}
