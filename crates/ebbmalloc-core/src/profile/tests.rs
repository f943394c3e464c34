//! Samples come and go; the output matches the live samples, and all memory comes back.

use super::dump::Summary;
use super::interval::Weight;
use super::{Profile, Sampled, Store};
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::fake::Fake;

struct Fixture {
    os: Fake,
    metadata: Metadata,
    profile: Profile,
}

impl Fixture {
    fn new() -> Self {
        Self { os: Fake::new(4096), metadata: Metadata::new(), profile: Profile::new() }
    }

    fn store(&self) -> Store<'_, Fake> {
        Store { os: &self.os, metadata: &self.metadata }
    }

    fn text(&self, lg: u32) -> String {
        let mut text = Vec::new();
        self.profile.dump(&self.os, lg, &mut |bytes| text.extend_from_slice(bytes));
        String::from_utf8(text).unwrap()
    }
}

const ONE: Weight = Weight { objects: Weight::ONE, bytes: 1 << 20 };

#[test]
fn a_dump_has_the_sums_by_stack_and_thread() {
    let fixture = Fixture::new();
    let (profile, store) = (&fixture.profile, &fixture.store());
    let first = profile.add_thread(store).unwrap();
    let second = profile.add_thread(store).unwrap();
    let sampled = |thread, frames| Sampled { thread, frames, block: (0x1000, 16), weight: ONE, usable_bytes: 0 };
    // SAFETY: the threads were made here and end below; samples go once.
    unsafe {
        assert!(profile.set_name(store, second, b"worker"));
        let kept = profile.add(store, &sampled(first, &[0x10, 0x20])).unwrap();
        let gone = profile.add(store, &sampled(second, &[0x10, 0x20])).unwrap();
        let other = profile.add(store, &sampled(second, &[0x10])).unwrap();
        let expected = "heap_v2/16
  t*: 3: 3145728 [0: 0]
  t1: 2: 2097152 [0: 0] worker
  t0: 1: 1048576 [0: 0]
@ 0x10 0x20
  t*: 2: 2097152 [0: 0]
  t1: 1: 1048576 [0: 0] worker
  t0: 1: 1048576 [0: 0]
@ 0x10
  t*: 1: 1048576 [0: 0]
  t1: 1: 1048576 [0: 0] worker
";
        let mut stacks: Vec<_> = expected.split("@ ").collect();
        let text = fixture.text(4);
        let mut found: Vec<_> = text.split("@ ").collect();
        stacks.sort();
        found.sort();
        assert_eq!(found, stacks);
        assert!(profile.remove(store, gone, Wait::Yes));
        profile.end_thread(store, second);
        let summary = Summary { bytes: 2 << 20, objects: 2, stacks: 2 };
        assert_eq!(profile.summary(&fixture.os), summary);
        assert!(profile.remove(store, other, Wait::Yes));
        assert!(!fixture.text(4).contains("worker"));
        assert!(profile.remove(store, kept, Wait::Yes));
        profile.end_thread(store, first);
    }
    assert_eq!(fixture.text(4), "heap_v2/16\n  t*: 0: 0 [0: 0]\n");
    // The buckets stay.
    assert_eq!(fixture.metadata.bytes(&fixture.os).0, 32 * 1024);
}

#[test]
fn a_full_table_takes_no_more_until_there_is_room() {
    let fixture = Fixture::new();
    let (profile, store) = (&fixture.profile, &fixture.store());
    let thread = profile.everyone(store).unwrap();
    // A stack and its tally take 128 bytes, a sample 64.
    profile.set_most_bytes(&fixture.os, 256);
    let frames = [[0x10], [0x20]];
    let sampled = |frames| Sampled { thread, frames, block: (0x1000, 16), weight: ONE, usable_bytes: 0 };
    // SAFETY: the record stays; samples go once.
    unsafe {
        let one = profile.add(store, &sampled(&frames[0])).unwrap();
        assert!(profile.add(store, &sampled(&frames[1])).is_none());
        let other = profile.add(store, &sampled(&frames[0])).unwrap();
        assert!(profile.add(store, &sampled(&frames[0])).is_none());
        profile.remove(store, one, Wait::Yes);
        profile.remove(store, other, Wait::Yes);
        let other = profile.add(store, &sampled(&frames[1])).unwrap();
        profile.remove(store, other, Wait::Yes);
    }
    assert_eq!(profile.summary(&fixture.os).stacks, 0);
}

#[test]
fn accumulated_sums_outlive_their_blocks_until_a_reset() {
    let fixture = Fixture::new();
    let (profile, store) = (&fixture.profile, &fixture.store());
    profile.set_accumulates(&fixture.os, true);
    let thread = profile.add_thread(store).unwrap();
    let sampled = Sampled { thread, frames: &[0x10], block: (0x1000, 16), weight: ONE, usable_bytes: 0 };
    // SAFETY: the thread was made here and ends below; samples go once.
    unsafe {
        let sample = profile.add(store, &sampled).unwrap();
        profile.remove(store, sample, Wait::Yes);
        assert!(fixture.text(4).contains("@ 0x10\n  t*: 0: 0 [1: 1048576]"));
        let before_reset = profile.add(store, &sampled).unwrap();
        profile.reset(store);
        assert_eq!(fixture.text(4), "heap_v2/16\n  t*: 0: 0 [0: 0]\n");
        profile.remove(store, before_reset, Wait::Yes);
        profile.end_thread(store, thread);
    }
    assert_eq!(fixture.metadata.bytes(&fixture.os).0, 32 * 1024);
}
