//! The real kernel, as the machine that runs the tests has it.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;

const GRANULE: usize = 64 * 1024;

fn committed(os: &Linux, bytes: usize) -> *mut u8 {
    let start = os.reserve(bytes, GRANULE).unwrap();
    // SAFETY: the range was reserved just now.
    unsafe { os.commit(start.as_ptr() as usize, bytes).unwrap() };
    start.as_ptr()
}

/// Of each page in the range, whether it is resident.
fn resident(start: *mut u8, bytes: usize) -> Vec<bool> {
    use std::io::{Read, Seek};
    let page = Linux::new().page_bytes();
    let mut pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.seek(std::io::SeekFrom::Start((start as usize / page * 8) as u64)).unwrap();
    let mut entries = vec![0u8; bytes / page * 8];
    pagemap.read_exact(&mut entries).unwrap();
    let present = |entry: &[u8]| u64::from_ne_bytes(entry.try_into().unwrap()) >> 63 == 1;
    entries.chunks_exact(8).map(present).collect()
}

#[test]
fn page_size_is_that_of_the_kernel() {
    let output = std::process::Command::new("getconf").arg("PAGESIZE").output().unwrap();
    let told: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(Linux::new().page_bytes(), told);
}

#[test]
fn reservations_are_aligned_named_and_released() {
    let os = Linux::new();
    // The permissions of the mapping that holds an address; neighbours may have been joined to it.
    let permissions = |address: usize| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let bound = |text| usize::from_str_radix(text, 16).unwrap();
            (bound(start)..bound(end)).contains(&address).then(|| rest[..4].to_owned())
        })
    };
    for align in [GRANULE, 2 << 20, 64 << 20, 1 << 30] {
        // Other tests map memory meanwhile, and may get what was released just now.
        let released = (0..20).any(|_| {
            let start = os.reserve(3 * GRANULE, align).unwrap().as_ptr() as usize;
            assert_eq!(start % align, 0);
            assert_eq!(permissions(start).as_deref(), Some("---p"));
            // SAFETY: no thread uses the range.
            unsafe { os.release(start, 3 * GRANULE) };
            permissions(start).is_none()
        });
        assert!(released);
    }
}

#[test]
fn discarded_runs_are_gone_and_read_as_zero() {
    let os = Linux::new();
    let page = os.page_bytes();
    let bytes = 1200 * page;
    let start = committed(&os, bytes);
    // SAFETY: the range was committed just now.
    unsafe { start.write_bytes(7, bytes) };
    let runs: Vec<_> = (0..400).map(|n| PageRun { start: start as usize + 3 * n * page, bytes: 2 * page }).collect();
    // SAFETY: the runs lie in the committed range, which is ours.
    let done = unsafe { os.discard(&runs) };
    assert_eq!(done, Discarded { returned_bytes: 800 * page, refused_bytes: 0 });
    let expected: Vec<bool> = (0..1200).map(|n| n % 3 == 2).collect();
    assert_eq!(resident(start, bytes), expected);
    // SAFETY: the mapping is the test's own and still there.
    unsafe {
        assert_eq!(start.read(), 0);
        assert_eq!(start.add(2 * page).read(), 7);
    }
}

#[test]
fn locked_runs_are_counted_as_refused_and_the_others_still_go() {
    unsafe extern "C" {
        fn mlock(start: *const u8, bytes: usize) -> i32;
    }
    let os = Linux::new();
    let page = os.page_bytes();
    let start = committed(&os, 10 * page);
    // SAFETY: the range was committed just now.
    unsafe {
        start.write_bytes(7, 10 * page);
        assert_eq!(mlock(start.add(4 * page), page), 0);
    }
    let run = |n: usize| PageRun { start: start as usize + n * page, bytes: page };
    // SAFETY: the runs lie in the committed range, which is ours.
    let done = unsafe { os.discard(&[run(0), run(2), run(4), run(6), run(8)]) };
    assert_eq!(done, Discarded { returned_bytes: 4 * page, refused_bytes: page });
    let expected: Vec<bool> = (0..10).map(|n| n % 2 == 1 || n == 4).collect();
    assert_eq!(resident(start, 10 * page), expected);
}

/// Runs `test` on a thread of its own, in which the kernel answers one system call with an error.
fn with_refused(number: usize, errno: u16, test: impl FnOnce() + Send + 'static) {
    /// Load the call's number; if it is this one, return the error; else allow.
    fn install(number: usize, errno: u16) {
        #[repr(C)]
        struct Instruction(u16, u8, u8, u32);
        #[repr(C)]
        struct Program(u16, *const Instruction);
        let code = [
            Instruction(0x20, 0, 0, 0),
            Instruction(0x15, 0, 1, number as u32),
            Instruction(0x06, 0, 0, 0x0005_0000 | u32::from(errno)),
            Instruction(0x06, 0, 0, 0x7fff_0000),
        ];
        let program = Program(code.len() as u16, code.as_ptr());
        const PR_SET_SECCOMP: usize = 22;
        const PR_SET_NO_NEW_PRIVS: usize = 38;
        // SAFETY: a filter on this thread alone; the program outlives the call.
        unsafe {
            call(arch::nr::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0]).unwrap();
            call(arch::nr::PRCTL, [PR_SET_SECCOMP, 2, &raw const program as usize]).unwrap();
        }
    }
    let thread = std::thread::spawn(move || {
        install(number, errno);
        test();
    });
    thread.join().unwrap();
}

#[test]
fn refused_vectors_go_run_by_run_from_then_on() {
    for errno in [Errno::PERM, Errno::NOSYS, Errno::INVAL] {
        with_refused(arch::nr::PROCESS_MADVISE, errno.0, || {
            let os = Linux::new();
            let page = os.page_bytes();
            let start = committed(&os, 64 * page);
            // SAFETY: the range was committed just now.
            unsafe { start.write_bytes(7, 64 * page) };
            let run = |n: usize| PageRun { start: start as usize + 2 * n * page, bytes: page };
            let runs: Vec<_> = (0..32).map(run).collect();
            // SAFETY: the runs lie in the committed range, which is ours.
            let done = unsafe { os.discard(&runs) };
            assert_eq!(done.returned_bytes, 32 * page);
            assert_eq!(os.process_madvise_works(), Some(false));
            let expected: Vec<bool> = (0..64).map(|n| n % 2 == 1).collect();
            assert_eq!(resident(start, 64 * page), expected);
        });
    }
}

#[test]
fn refused_barriers_are_no_barriers() {
    for errno in [Errno::PERM, Errno::NOSYS] {
        with_refused(arch::nr::MEMBARRIER, errno.0, || {
            let os = Linux::new();
            assert!(!os.membarrier());
            assert_eq!(os.membarrier_works(), Some(false));
        });
    }
}

#[test]
fn a_refused_clone_is_no_thread_and_leaves_no_trace() {
    with_refused(arch::nr::CLONE, Errno::PERM.0, || {
        static OS: Linux = Linux::new();
        static WORD: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the thread is never started.
        let spawned = unsafe { OS.spawn(&WORD, count_when_woken, core::ptr::null_mut()) };
        assert!(!spawned);
        assert_eq!(WORD.load(Ordering::Relaxed), 0);
        OS.see_purger_off();
    });
}

#[test]
fn moved_pages_leave_zeros_behind() {
    let os = Linux::new();
    let bytes = 4 * GRANULE;
    let (from, to) = (committed(&os, bytes), committed(&os, bytes));
    // SAFETY: both ranges were committed just now.
    unsafe {
        from.write_bytes(7, bytes);
        os.move_pages(from as usize, to as usize, bytes).unwrap();
        assert_eq!(to.add(bytes - 1).read(), 7);
        assert_eq!(from.read(), 0);
        from.write(1);
    }
}

#[test]
fn time_passes_and_waits_end() {
    let os = Linux::new();
    let word = AtomicU32::new(1);
    let before = (os.now_ms(), Instant::now());
    os.wait(&word, 1, Some(30));
    assert!(before.1.elapsed() >= Duration::from_millis(25));
    assert!(os.now_ms() >= before.0 + 25);
    os.wait(&word, 2, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while word.load(Ordering::Acquire) == 1 {
                os.wait(&word, 1, None);
            }
        });
        word.store(2, Ordering::Release);
        os.wake(&word, 1);
    });
}

#[test]
fn facts_about_the_machine_are_plausible() {
    let os = Linux::new();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(os.cpus() >= cpus);
    assert!(os.membarrier() == os.membarrier_works().unwrap());
    assert!(!os.is_privileged());
    assert_eq!(os.process_id(), std::process::id());
    let mut buffer = [0u8; 4096];
    let read = os.read_file(c"/proc/self/stat", &mut buffer).unwrap();
    assert!(buffer[..read].starts_with(std::process::id().to_string().as_bytes()));
}

#[test]
fn a_mapped_file_is_new_and_holds_what_is_written() {
    let os = Linux::new();
    let folder = std::env::temp_dir().join(format!("ebbmalloc-os-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (file, victim) = (folder.join("counters"), folder.join("victim"));
    std::fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, &file).unwrap();
    let path = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
    let mapped = os.map_new_file(&path, 4096).unwrap();
    // SAFETY: mapped just now, and never unmapped.
    unsafe { mapped.write_bytes(b'e', 4) };
    let contents = std::fs::read(&file).unwrap();
    assert_eq!((&contents[..5], contents.len()), (b"eeee\0".as_slice(), 4096));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    assert!(os.map_new_file(c"/nonexistent/counters", 4096).is_none());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What a purger does: sleeps until it is woken, counts, ends.
unsafe extern "C" fn count_when_woken(gate: *mut u8) {
    static OS: Linux = Linux::new();
    // SAFETY: the test passes a static word.
    let gate = unsafe { &*gate.cast::<[AtomicU32; 2]>() };
    while gate[0].load(Ordering::Acquire) == 0 {
        OS.wait(&gate[0], 0, None);
    }
    gate[1].fetch_add(1, Ordering::Relaxed);
}

#[test]
fn one_purger_after_the_other_runs_and_is_joined() {
    static OS: Linux = Linux::new();
    static WORD: AtomicU32 = AtomicU32::new(0);
    static GATE: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    let argument = (&raw const GATE).cast_mut().cast();
    for round in 1..=20 {
        GATE[0].store(0, Ordering::Relaxed);
        // SAFETY: `count_when_woken` calls no libc, its argument is static, and the one before has ended.
        assert!(OS.without_signals(|| unsafe { OS.spawn(&WORD, count_when_woken, argument) }));
        assert_ne!(WORD.load(Ordering::Relaxed), 0);
        GATE[0].store(1, Ordering::Release);
        OS.wake(&GATE[0], 1);
        while let thread @ 1.. = WORD.load(Ordering::Acquire) {
            OS.wait_shared(&WORD, thread, None);
        }
        OS.see_purger_off();
        assert_eq!(GATE[1].load(Ordering::Relaxed), round);
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn syscall(number: i64, flags: u64, stack: usize, a: usize, b: usize, c: usize) -> i64;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Whether what the child does, which is nothing but system calls, comes out true there.
fn is_true_in(child: i32, what: impl FnOnce() -> bool) -> bool {
    if child == 0 {
        let status = (!what()).into();
        // SAFETY: ends the child at once.
        unsafe { _exit(status) };
    }
    let mut status = -1;
    // SAFETY: `status` is valid to write to.
    unsafe { waitpid(child, &mut status, 0) == child && status == 0 }
}

#[test]
fn a_child_that_shares_the_memory_is_a_borrower_and_no_other_process() {
    let os = Linux::new();
    assert!(!os.is_borrower(), "nobody owned anything");
    os.mark_alive();
    assert!(!os.is_borrower());
    // CLONE_VFORK and SIGCHLD, with a memory of its own: the child may go on as it likes.
    // SAFETY: the child calls nothing but system calls.
    let child = unsafe { syscall(arch::nr::CLONE as i64, 0x4000 | 17, 0, 0, 0, 0) } as i32;
    assert!(is_true_in(child, || {
        let noticed = os.is_borrower();
        os.mark_alive();
        noticed && !os.is_borrower()
    }));
    // SAFETY: the child calls nothing but system calls.
    assert!(is_true_in(unsafe { fork() }, || {
        os.mark_alive();
        !os.is_borrower()
    }));
    assert!(!os.is_borrower());
}

#[test]
fn a_fork_without_handlers_is_noticed_once() {
    let os = Linux::new();
    assert!(os.is_alive_here(), "nothing marked yet");
    assert!(os.mark_alive());
    assert!(os.is_alive_here());
    // SAFETY: the child calls nothing but system calls.
    assert!(is_true_in(unsafe { fork() }, || {
        let noticed = !os.is_alive_here();
        os.mark_alive();
        noticed && os.is_alive_here()
    }));
    assert!(os.is_alive_here());
}
