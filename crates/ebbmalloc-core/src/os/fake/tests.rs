//! The fake kernel keeps its own promises.

use super::*;

const GRANULE: usize = 64 * 1024;

fn reserved(os: &Fake, bytes: usize) -> usize {
    os.reserve(bytes, GRANULE).unwrap().as_ptr() as usize
}

fn committed(os: &Fake, bytes: usize) -> usize {
    let start = reserved(os, bytes);
    // SAFETY: reserved just now.
    unsafe { os.commit(start, bytes) }.unwrap();
    start
}

#[test]
fn discarded_pages_lose_their_contents_and_are_recorded() {
    for page in [4096, 16384, 65536] {
        let os = Fake::new(page);
        let start = committed(&os, 4 * GRANULE);
        let run = PageRun { start: start + GRANULE, bytes: GRANULE };
        // SAFETY: the range is committed and ours.
        unsafe {
            (start as *mut u8).write_bytes(7, 4 * GRANULE);
            assert_eq!(os.discard(&[run]).returned_bytes, GRANULE);
            assert_eq!((run.start as *const u8).read(), 0);
            assert_eq!(((run.start - 1) as *const u8).read(), 7);
        }
        assert_eq!(os.take_discarded(), [run]);
        assert_eq!(os.take_discarded(), []);
    }
}

#[test]
fn scripted_failures_come_when_they_are_due_and_end() {
    let os = Fake::new(4096);
    let start = reserved(&os, 4 * GRANULE);
    os.fail(Call::Commit, 1, 2, OsError::OutOfMemory);
    let results: Vec<_> = (0..4)
        // SAFETY: within the reservation.
        .map(|n| unsafe { os.commit(start + n * GRANULE, GRANULE) })
        .collect();
    let failed = Err(OsError::OutOfMemory);
    assert_eq!(results, [Ok(()), failed, failed, Ok(())]);
    assert_eq!(os.record().committed_bytes, 2 * GRANULE);
    os.fail(Call::Membarrier, 0, usize::MAX, OsError::Refused);
    assert!(!os.membarrier());
    os.heal();
    assert!(os.membarrier());
    assert_eq!(os.record().membarriers, 1);
}

#[test]
fn locked_pages_and_refused_calls_keep_their_contents() {
    let os = Fake::new(4096);
    let start = committed(&os, 2 * GRANULE);
    os.lock_pages(start + 4096, 4096);
    let runs = [PageRun { start, bytes: 8192 }, PageRun { start: start + 8192, bytes: 4096 }];
    // SAFETY: the runs are committed and ours.
    unsafe {
        (start as *mut u8).write_bytes(7, GRANULE);
        let done = os.discard(&runs);
        assert_eq!(done, Discarded { returned_bytes: 4096, refused_bytes: 8192 });
        assert_eq!((start as *const u8).read(), 7);
        os.fail(Call::Discard, 0, 1, OsError::Invalid);
        assert_eq!(os.discard(&runs[1..]).refused_bytes, 4096);
    }
    assert_eq!(os.take_discarded(), &runs[1..]);
}

#[test]
fn address_space_is_limited_and_comes_back() {
    let os = Fake::new(4096);
    os.set_address_space_limit(Some(4 * GRANULE));
    let start = reserved(&os, 3 * GRANULE);
    assert_eq!(os.reserve(2 * GRANULE, GRANULE), Err(OsError::OutOfMemory));
    // SAFETY: no thread uses the range.
    unsafe { os.release(start + GRANULE, 2 * GRANULE) };
    assert!(os.reserve(2 * GRANULE, GRANULE).is_ok());
    assert_eq!(os.record().reserved_bytes, 3 * GRANULE);
}

#[test]
fn moved_pages_leave_zeros_behind() {
    let os = Fake::new(4096);
    let (from, to) = (committed(&os, GRANULE), committed(&os, GRANULE));
    // SAFETY: both ranges are committed and ours.
    unsafe {
        (from as *mut u8).write_bytes(7, GRANULE);
        os.move_pages(from, to, GRANULE).unwrap();
        assert_eq!((to as *const u8).read(), 7);
        assert_eq!((from as *const u8).read(), 0);
    }
    assert_eq!(os.record().moved, [(from, to, GRANULE)]);
}

#[test]
fn time_stands_still_until_it_is_moved() {
    let os = Fake::new(4096);
    assert_eq!(os.now_ms(), 0);
    os.advance_ms(250);
    assert_eq!(os.now_ms(), 250);
}

#[test]
#[should_panic(expected = "not committed")]
fn discarding_what_was_not_committed_is_noticed() {
    let os = Fake::new(4096);
    let start = reserved(&os, GRANULE);
    // SAFETY: the fake refuses by a panic.
    unsafe { os.discard(&[PageRun { start, bytes: 4096 }]) };
}

#[test]
#[should_panic(expected = "not whole pages")]
fn parts_of_pages_are_noticed() {
    let os = Fake::new(65536);
    let start = committed(&os, GRANULE);
    // SAFETY: the fake refuses by a panic.
    unsafe { os.discard(&[PageRun { start, bytes: 4096 }]) };
}
