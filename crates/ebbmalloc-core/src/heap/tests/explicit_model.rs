//! Random programs in which blocks of all arenas come and go.

use super::explicit::{end, free, heap, moves, validate_arena};
use super::explicit_hooks::Hooked;
use super::{become_child, validate, with_access};
use crate::heap::Access;
use crate::size::{GRANULE, SMALL_MAX};
use core::ptr::null_mut;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Allocate { arena: usize, size: usize, way: usize },
    Free { which: usize, way: usize },
    Resize { which: usize, size: usize },
    Reset { arena: usize },
    Renew { arena: usize },
    Move { to: usize },
    Tick,
    Trim,
    Fork { child: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        6 => 1..2000usize,
        2 => 2000..SMALL_MAX,
        2 => SMALL_MAX..(3 * GRANULE),
        1 => (1usize << 20)..(6 << 20),
    ];
    prop_oneof![
        12 => (0..4usize, size.clone(), 0..4usize)
            .prop_map(|(arena, size, way)| Step::Allocate { arena, size, way }),
        10 => (any::<usize>(), 0..4usize).prop_map(|(which, way)| Step::Free { which, way }),
        3 => (any::<usize>(), size).prop_map(|(which, size)| Step::Resize { which, size }),
        1 => (1..4usize).prop_map(|arena| Step::Reset { arena }),
        1 => (1..4usize).prop_map(|arena| Step::Renew { arena }),
        1 => (0..5usize).prop_map(|to| Step::Move { to }),
        3 => Just(Step::Tick),
        1 => Just(Step::Trim),
        1 => any::<bool>().prop_map(|child| Step::Fork { child }),
    ]
}

/// Blocks by address: the arena they lie in (0: the heap's own), their size and the byte that fills them.
type Shadow = BTreeMap<usize, (usize, usize, u8)>;

/// Arena 3 has hooks, and its memory is not clean.
fn check(steps: &[Step]) {
    let heap = heap();
    let thread = heap.attach();
    let mut hooked = Hooked::boxed(false);
    let hooks = &raw mut hooked.hooks;
    let make = |arena: usize| match arena {
        3 => heap.create_arena(hooks, 0).unwrap(),
        _ => heap.create_arena(null_mut(), 1000).unwrap(),
    };
    let mut arenas: Vec<_> = (1..4).map(make).collect();
    let cache = with_access(thread, |access| heap.create_cache(access)).unwrap();
    let mut shadow = Shadow::new();
    let mut seed = 0u8;
    for step in steps {
        seed = seed.wrapping_add(1);
        match *step {
            Step::Allocate { arena, size, way } => {
                let chosen = arena.checked_sub(1).map(|at| arenas[at]);
                let block = with_access(thread, |access| match (chosen, way) {
                    (_, 1) => {
                        let cache = heap.explicit_cache(cache).unwrap();
                        heap.with_cache(access, cache, chosen, |access| heap.allocate(access, size))
                    }
                    (None, 2) => heap.allocate(access.without_cache(), size),
                    (None, _) => heap.allocate(access, size),
                    (Some(chosen), _) => heap.allocate_in(chosen, access, size, 1).0,
                });
                assert!(!block.is_null());
                let index = heap.arena_of(block as usize).unwrap();
                let lies = arenas.iter().position(|arena| heap.index_of(arena) == index);
                let lies = lies.map_or(0, |at| at + 1);
                assert!(chosen.is_none() || lies == arena);
                // SAFETY: the block is ours and that long.
                unsafe { block.write_bytes(seed, size) };
                let entry = (lies, size, seed);
                assert!(shadow.insert(block as usize, entry).is_none());
            }
            Step::Free { which, way } => {
                let Some((&start, &(_, size, seed))) = shadow.iter().nth(which % shadow.len().max(1)) else {
                    continue;
                };
                shadow.remove(&start);
                let block = start as *mut u8;
                // SAFETY: live until here.
                unsafe {
                    assert_eq!((*block, *block.add(size - 1)), (seed, seed));
                    with_access(thread, |access| match way {
                        0 => heap.free(access, block),
                        1 => heap.free(access.without_cache(), block),
                        2 => heap.free(Access::Nested, block),
                        _ => {
                            let cache = heap.explicit_cache(cache).unwrap();
                            heap.with_cache(access, cache, None, |access| heap.free(access, block));
                        }
                    });
                }
            }
            Step::Resize { which, size } => {
                let Some((&start, &(lies, old, seed))) = shadow.iter().nth(which % shadow.len().max(1)) else {
                    continue;
                };
                shadow.remove(&start);
                // SAFETY: live until here; then the result is.
                unsafe {
                    let block = with_access(thread, |access| heap.reallocate(access, start as *mut u8, size));
                    let last = size.min(old) - 1;
                    assert_eq!((*block, *block.add(last)), (seed, seed));
                    block.write_bytes(seed, size);
                    let found = heap.arena_of(block as usize).unwrap();
                    assert!(lies == 0 || found == heap.index_of(arenas[lies - 1]));
                    let lies = arenas.iter().position(|arena| heap.index_of(arena) == found).map_or(0, |at| at + 1);
                    shadow.insert(block as usize, (lies, size, seed));
                }
            }
            Step::Reset { arena } => {
                shadow.retain(|_, block| block.0 != arena);
                let arena = arenas[arena - 1];
                // SAFETY: its blocks are forgotten.
                with_access(thread, |access| unsafe { heap.reset_arena(access, arena) });
                assert_eq!(validate_arena(&heap, arena), 0);
            }
            Step::Renew { arena } => {
                let old = arenas[arena - 1];
                if old.threads() > 0 {
                    continue;
                }
                shadow.retain(|_, block| block.0 != arena);
                assert!(end(&heap, thread, old));
                arenas[arena - 1] = make(arena);
            }
            Step::Move { to } => {
                let index = to.checked_sub(2).map_or(to, |at| heap.index_of(arenas[at]));
                moves(&heap, thread, index);
            }
            Step::Tick => {
                with_access(thread, |_| heap.tick(None));
            }
            Step::Trim => {
                heap.trim(None);
            }
            Step::Fork { child } => {
                assert!(heap.freeze(1, None));
                if child {
                    become_child(&heap, thread);
                } else {
                    assert!(heap.thaw(1));
                }
            }
        }
    }
    validate(&heap);
    for arena in &arenas {
        validate_arena(&heap, arena);
    }
    // SAFETY: the blocks of the shadow are live.
    let held: usize = shadow.keys().map(|&start| unsafe { heap.usable_size(start as *const u8) }).sum();
    heap.trim(None);
    let statistics = heap.statistics(None, true);
    assert_eq!(statistics.live, held, "{statistics:?}");
    for (&start, &(_, size, seed)) in &shadow {
        // SAFETY: live until here.
        unsafe {
            let block = start as *mut u8;
            assert_eq!((*block, *block.add(size - 1)), (seed, seed));
            free(&heap, thread, block);
        }
    }
    assert!(heap.flush_cache(cache));
    heap.trim(None);
    for arena in arenas {
        heap.purge_arena(arena, true);
        assert_eq!(validate_arena(&heap, arena), 0);
    }
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.live, statistics.resident, statistics.cached), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_with_arenas(steps in vec(step(), 1..250)) {
        check(&steps);
    }
}
