//! A kernel for tests: ordinary memory, a clock that the test moves, failures that it scripts.
//!
//! Used by the tests of the layers above, by loom models, and by other crates' tests (feature
//! `fake-os`). Reservations are real mappings: a discarded page really loses its contents, and what is
//! not committed cannot be touched. Misuse of a range (commit, discard or release of what was not
//! reserved or not committed) panics.

extern crate std;

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::vec::Vec;

use super::{Discarded, Headroom, Os, OsError, PageRun, Scarce};

mod mapping;
#[cfg(test)]
mod tests;

use mapping::{MIN_PAGE_BYTES, Reservation};

/// A call that can be told to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// [`Os::reserve`].
    Reserve,
    /// [`Os::commit`].
    Commit,
    /// [`Os::discard`]: the whole call is refused.
    Discard,
    /// [`Os::move_pages`].
    MovePages,
    /// [`Os::give_up`].
    GiveUp,
    /// [`Os::take_back`].
    TakeBack,
    /// [`Os::membarrier`].
    Membarrier,
}

/// What a fake kernel has been asked to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Bytes reserved and not released.
    pub reserved_bytes: usize,
    /// Bytes committed and not released.
    pub committed_bytes: usize,
    /// Runs discarded, in order, refused ones left out.
    pub discarded: Vec<PageRun>,
    /// Moves done, in order: from, to, bytes.
    pub moved: Vec<(usize, usize, usize)>,
    /// Ranges that ask for huge pages.
    pub asking: Vec<PageRun>,
    /// Huge pages split: an address in each.
    pub split: Vec<usize>,
    /// Barriers issued.
    pub membarriers: usize,
    /// What was written to standard error.
    pub stderr: Vec<u8>,
}

#[derive(Default)]
struct State {
    now_ms: u64,
    cpus: usize,
    address_space_limit: Option<usize>,
    asks_for_huge_pages: bool,
    sparse: bool,
    headroom: Option<Headroom>,
    headroom_asked: usize,
    scarce: Scarce,
    /// By start address.
    reservations: BTreeMap<usize, Reservation>,
    /// Calls made of each kind, and which of them fail.
    calls: BTreeMap<Call, usize>,
    failures: BTreeMap<Call, Vec<(core::ops::Range<usize>, OsError)>>,
    record: Record,
}

/// A fake kernel. Everything that it reserved is freed with it.
pub struct Fake {
    page_bytes: usize,
    state: Mutex<State>,
    /// Loom: pages by their number modulo the length; see [`Fake::use_bytes`].
    #[cfg(loom)]
    watched: [loom::cell::UnsafeCell<()>; 32],
}

#[cfg(loom)]
// SAFETY: loom's cells are there to be reached by several threads: loom reports a race.
unsafe impl Sync for Fake {}

impl Fake {
    /// A kernel with pages of `page_bytes`: 4, 16 or 64 KiB.
    pub fn new(page_bytes: usize) -> Self {
        assert!([4096, 16384, 65536].contains(&page_bytes));
        let state = State { cpus: 2, ..State::default() };
        Self {
            page_bytes,
            state: Mutex::new(state),
            #[cfg(loom)]
            watched: core::array::from_fn(|_| loom::cell::UnsafeCell::new(())),
        }
    }

    /// Moves the clock.
    pub fn advance_ms(&self, ms: u64) {
        self.state().now_ms += ms;
    }

    /// Sets how many CPUs there are.
    pub fn set_cpus(&self, cpus: usize) {
        self.state().cpus = cpus;
    }

    /// Sets what [`Os::headroom`] says.
    pub fn set_headroom(&self, headroom: Option<Headroom>) {
        self.state().headroom = headroom;
    }

    /// Lets huge pages be asked for.
    pub fn allow_huge_pages(&self) {
        self.state().asks_for_huge_pages = true;
    }

    /// From now on no page is resident, or every page.
    pub fn set_sparse(&self, sparse: bool) {
        self.state().sparse = sparse;
    }

    /// How often the headroom was asked for.
    pub fn headroom_asked(&self) -> usize {
        self.state().headroom_asked
    }

    /// Sets RLIMIT_AS: [`Os::reserve`] fails beyond it too.
    pub fn set_address_space_limit(&self, bytes: Option<usize>) {
        self.state().address_space_limit = bytes;
    }

    /// Sets what is limited.
    pub fn set_scarce(&self, scarce: Scarce) {
        self.state().scarce = scarce;
    }

    /// Lets the next `count` calls of one kind fail, after `skip` more that do not.
    pub fn fail(&self, call: Call, skip: usize, count: usize, error: OsError) {
        let mut state = self.state();
        let first = state.calls.get(&call).copied().unwrap_or(0).saturating_add(skip);
        let range = first..first.saturating_add(count);
        state.failures.entry(call).or_default().push((range, error));
    }

    /// Takes all scripted failures back.
    pub fn heal(&self) {
        self.state().failures.clear();
    }

    /// Locks committed pages in memory, so that they cannot be discarded.
    pub fn lock_pages(&self, start: usize, bytes: usize) {
        let mut state = self.state();
        state.reservation(start, bytes).lock(start, bytes);
    }

    /// What has happened so far.
    pub fn record(&self) -> Record {
        self.state().record.clone()
    }

    /// The runs discarded since the last call of this function.
    pub fn take_discarded(&self) -> Vec<PageRun> {
        core::mem::take(&mut self.state().record.discarded)
    }

    /// Loom: the caller uses these bytes. A discard of their page that is not ordered before or after
    /// this is reported as a data race, whatever the schedule.
    #[cfg(loom)]
    pub fn use_bytes(&self, start: usize, bytes: usize) {
        for page in start / self.page_bytes..(start + bytes).div_ceil(self.page_bytes) {
            self.watched[page % self.watched.len()].with(|_| ());
        }
    }

    #[cfg(loom)]
    fn empty_bytes(&self, start: usize, bytes: usize) {
        for page in start / self.page_bytes..(start + bytes).div_ceil(self.page_bytes) {
            self.watched[page % self.watched.len()].with_mut(|_| ());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked in here has failed already; others go on.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn check_whole_pages(&self, start: usize, bytes: usize) {
        assert!(
            start.is_multiple_of(self.page_bytes) && bytes.is_multiple_of(self.page_bytes),
            "{start:#x} + {bytes:#x} are not whole pages of {}",
            self.page_bytes
        );
    }
}

impl State {
    /// Counts a call and says whether it is one that fails.
    fn call(&mut self, call: Call) -> Result<(), OsError> {
        let count = self.calls.entry(call).or_default();
        let this = *count;
        *count += 1;
        let scripted = self.failures.get(&call).into_iter().flatten();
        match scripted.clone().find(|(range, _)| range.contains(&this)) {
            Some((_, error)) => Err(*error),
            None => Ok(()),
        }
    }

    fn reservation(&mut self, start: usize, bytes: usize) -> &mut Reservation {
        let found = self.reservations.range_mut(..=start).next_back();
        let reservation = found.map(|(_, reservation)| reservation);
        let whole = reservation.filter(|r| start + bytes <= r.start() + r.bytes());
        whole.unwrap_or_else(|| panic!("{start:#x} + {bytes:#x} was never reserved"))
    }
}

// SAFETY: memory comes from fresh mappings, which live as long as the fake kernel.
unsafe impl Os for Fake {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn reserve(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, OsError> {
        self.check_whole_pages(align, bytes);
        let mut state = self.state();
        state.call(Call::Reserve)?;
        let limit = state.address_space_limit.unwrap_or(usize::MAX);
        if bytes > limit.saturating_sub(state.record.reserved_bytes) {
            return Err(OsError::OutOfMemory);
        }
        let reservation = Reservation::new(bytes, align).ok_or(OsError::OutOfMemory)?;
        let start = reservation.start();
        state.reservations.insert(start, reservation);
        state.record.reserved_bytes += bytes;
        NonNull::new(start as *mut u8).ok_or(OsError::OutOfMemory)
    }

    unsafe fn commit(&self, start: usize, bytes: usize) -> Result<(), OsError> {
        self.check_whole_pages(start, bytes);
        let mut state = self.state();
        state.call(Call::Commit)?;
        let fresh_pages = state.reservation(start, bytes).commit(start, bytes);
        state.record.committed_bytes += fresh_pages * MIN_PAGE_BYTES;
        Ok(())
    }

    unsafe fn release(&self, start: usize, bytes: usize) {
        self.check_whole_pages(start, bytes);
        let mut state = self.state();
        let committed_pages = state.reservation(start, bytes).release(start, bytes);
        state.record.reserved_bytes -= bytes;
        state.record.committed_bytes -= committed_pages * MIN_PAGE_BYTES;
    }

    unsafe fn discard(&self, runs: &[PageRun]) -> Discarded {
        let mut done = Discarded::default();
        let mut state = self.state();
        let refused = state.call(Call::Discard).is_err();
        for run in runs {
            self.check_whole_pages(run.start, run.bytes);
            let reservation = state.reservation(run.start, run.bytes);
            reservation.expect_committed(run.start, run.bytes, "discard");
            if refused || reservation.any_locked(run.start, run.bytes) {
                done.refused_bytes += run.bytes;
                continue;
            }
            #[cfg(loom)]
            self.empty_bytes(run.start, run.bytes);
            // SAFETY: the run is committed memory whose contents no thread reads again.
            unsafe { (run.start as *mut u8).write_bytes(0, run.bytes) };
            done.returned_bytes += run.bytes;
            state.record.discarded.push(*run);
        }
        done
    }

    unsafe fn move_pages(&self, from: usize, to: usize, bytes: usize) -> Result<(), OsError> {
        let mut state = self.state();
        state.call(Call::MovePages)?;
        for start in [from, to] {
            self.check_whole_pages(start, bytes);
            state.reservation(start, bytes).expect_committed(start, bytes, "move");
        }
        // SAFETY: both ranges are committed, and the caller vouches that they are apart.
        unsafe {
            (to as *mut u8).copy_from_nonoverlapping(from as *const u8, bytes);
            (from as *mut u8).write_bytes(0, bytes);
        }
        state.record.moved.push((from, to, bytes));
        Ok(())
    }

    fn settle_huge_pages(&self, start: usize, bytes: usize) {
        self.check_whole_pages(start, bytes);
        let mut state = self.state();
        state.reservation(start, bytes);
        let end = start + bytes;
        state.record.asking.retain(|run| run.start + run.bytes <= start || end <= run.start);
    }

    fn asks_for_huge_pages(&self) -> bool {
        self.state().asks_for_huge_pages
    }

    fn ask_for_huge_pages(&self, start: usize, bytes: usize) -> bool {
        let mut state = self.state();
        state.reservation(start, bytes).expect_committed(start, bytes, "ask for huge pages of");
        state.record.asking.push(PageRun { start, bytes });
        true
    }

    fn split_huge_page(&self, page: usize) {
        self.state().record.split.push(page);
    }

    fn is_resident(&self, _: usize) -> bool {
        !self.state().sparse
    }

    fn settle_huge_metadata(&self, start: usize, bytes: usize) {
        self.check_whole_pages(start, bytes);
        self.state().reservation(start, bytes);
    }

    fn scarce(&self) -> Scarce {
        self.state().scarce
    }

    unsafe fn give_up(&self, start: usize, bytes: usize, _: Scarce) -> Result<(), OsError> {
        self.check_whole_pages(start, bytes);
        let mut state = self.state();
        state.call(Call::GiveUp)?;
        let reservation = state.reservation(start, bytes);
        reservation.expect_committed(start, bytes, "give up");
        // SAFETY: committed memory whose contents no thread reads again.
        unsafe { (start as *mut u8).write_bytes(0, bytes) };
        reservation.uncommit(start, bytes);
        state.record.committed_bytes -= bytes;
        Ok(())
    }

    unsafe fn take_back(&self, start: usize, bytes: usize, _: Scarce) -> Result<(), OsError> {
        self.check_whole_pages(start, bytes);
        let mut state = self.state();
        state.call(Call::TakeBack)?;
        let fresh_pages = state.reservation(start, bytes).commit(start, bytes);
        assert_eq!(fresh_pages * MIN_PAGE_BYTES, bytes, "taken back twice");
        state.record.committed_bytes += bytes;
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.state().now_ms
    }

    fn membarrier(&self) -> bool {
        let mut state = self.state();
        let works = state.call(Call::Membarrier).is_ok();
        state.record.membarriers += usize::from(works);
        drop(state);
        // A barrier of the caller alone: loom's owners have a fence of their own (see `cache`), and a
        // test with real threads needs the real kernel.
        #[cfg(loom)]
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        works
    }

    /// Returns at once, as a wake without reason: loops around it go on looking.
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout_ms: Option<u64>) {
        self.yield_now();
    }

    fn wake(&self, _word: &AtomicU32, _count: u32) {}

    fn yield_now(&self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        std::thread::yield_now();
    }

    fn address_space_limit(&self) -> Option<usize> {
        self.state().address_space_limit
    }

    fn cpus(&self) -> usize {
        self.state().cpus
    }

    fn headroom(&self) -> Option<Headroom> {
        let mut state = self.state();
        state.headroom_asked += 1;
        state.headroom
    }

    fn write_stderr(&self, text: &[u8]) {
        self.state().record.stderr.extend_from_slice(text);
    }

    fn abort(&self) -> ! {
        let text = self.state().record.stderr.clone();
        panic!("abort: {}", std::string::String::from_utf8_lossy(&text));
    }
}
