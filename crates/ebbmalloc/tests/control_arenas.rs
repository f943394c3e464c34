//! Arenas by number, with ebbmalloc as the allocator of this program.

#![cfg(target_os = "linux")]

use ebbmalloc::Ebbmalloc;
use ebbmalloc::control::{arenas, epoch, raw, thread};

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

#[test]
fn an_arena_is_made_used_and_ended() {
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
