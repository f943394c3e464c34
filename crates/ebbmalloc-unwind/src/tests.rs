//! Walks of real stacks: this test's own.

use crate::{Host, ReadAt, Registers, Unwinder};
use std::ffi::CStr;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Process {
    memory: File,
    readings: AtomicUsize,
    /// What the files are that can be opened; `None`: none can be.
    files: Option<Files>,
    pieces: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    Theirs,
    Unreadable,
}

impl Process {
    fn new() -> Self {
        let memory = File::open("/proc/self/mem").unwrap();
        let (readings, pieces) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { memory, readings, files: None, pieces }
    }
}

impl Host for Process {
    fn is_readable(&self, address: usize) -> bool {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address as u64).is_ok()
    }

    fn read_maps(&self, each: &mut dyn FnMut(&[u8])) -> bool {
        self.readings.fetch_add(1, Ordering::Relaxed);
        let text = fs::read("/proc/self/maps").unwrap();
        text.chunks(1000).for_each(each);
        true
    }

    fn read_file(&self, name: &CStr, work: &mut dyn FnMut(&ReadAt)) {
        let Some(kind) = self.files else { return };
        let file = File::open(name.to_str().unwrap()).unwrap();
        work(&|at, into| {
            self.pieces.fetch_add(1, Ordering::Relaxed);
            file.read_exact_at(into, at as u64).is_ok() && kind == Files::Theirs
        });
    }
}

type Walk<'a> = &'a mut dyn FnMut() -> Vec<usize>;

#[inline(never)]
fn deeper(levels: usize, walk: Walk) -> Vec<usize> {
    if levels == 0 {
        return black_box(walk());
    }
    // Room of different lengths, so that frames are not all alike to the compiler.
    let room = black_box([levels; 37]);
    let frames = deeper(levels - 1, walk);
    black_box(room);
    frames
}

fn walk_here(unwinder: &mut Unwinder, process: &Process, most: usize) -> Vec<usize> {
    let mut frames = vec![0; most];
    // SAFETY: this frame's own registers.
    let count = unsafe { unwinder.walk(process, Registers::here(), false, &mut frames, &mut []) };
    frames.truncate(count);
    frames
}

/// How many of the frames are the most frequent one.
fn repeated(frames: &[usize]) -> usize {
    frames.iter().map(|frame| frames.iter().filter(|other| *other == frame).count()).max().unwrap_or(0)
}

#[test]
fn every_level_of_a_recursion_is_found_up_to_the_threads_beginning() {
    let process = Process::new();
    let mut unwinder = Box::new(Unwinder::new());
    let frames = deeper(50, &mut || walk_here(&mut unwinder, &process, 500));
    // 49 levels return into the same place, the outermost to this test.
    assert_eq!(repeated(&frames), 50 - 1 + 1, "{frames:x?}");
    assert!(frames.len() > 52 && frames.len() < 200, "{}", frames.len());
    // What is remembered gives the same.
    let again = deeper(50, &mut || walk_here(&mut unwinder, &process, 500));
    assert_eq!(frames.len(), again.len());
    assert_eq!(process.readings.load(Ordering::Relaxed), 1);
}

/// 20 frames, how many there are, and how often a file was read.
#[inline(never)]
fn with_files(files: Option<Files>) -> (Vec<usize>, usize, usize) {
    let process = Process { files, ..Process::new() };
    let mut unwinder = Box::new(Unwinder::new());
    let frames = deeper(20, &mut || walk_here(&mut unwinder, &process, 500));
    (frames[..20].to_vec(), frames.len(), process.pieces.into_inner())
}

#[test]
fn tables_in_the_file_say_what_those_in_memory_say() {
    let (frames, count, reads) = with_files(None);
    assert!(count > 22 && reads == 0);
    let (in_file, count_in_file, reads) = with_files(Some(Files::Theirs));
    assert_eq!((&in_file, count_in_file), (&frames, count));
    let (unreadable, count_unreadable, failed) = with_files(Some(Files::Unreadable));
    assert_eq!((unreadable, count_unreadable), (frames, count));
    assert!(failed > 0 && reads > 4 * failed, "{reads} {failed}");
}

#[test]
fn a_walk_stops_where_there_is_no_more_room() {
    let process = Process::new();
    let mut unwinder = Box::new(Unwinder::new());
    let frames = deeper(50, &mut || walk_here(&mut unwinder, &process, 10));
    assert_eq!(frames.len(), 10);
}

#[test]
fn registers_that_lead_nowhere_end_the_walk() {
    let process = Process::new();
    let mut unwinder = Box::new(Unwinder::new());
    let here = Registers::here();
    let mut frames = [0; 64];
    for wrong in [
        Registers { pc: 16, ..here },
        Registers { pc: 16, fp: 8, ..here },
        Registers { pc: 16, fp: here.sp + 8, ..here },
        Registers { sp: 16, ..here },
        Registers { sp: usize::MAX & !15, fp: usize::MAX & !15, ..here },
    ] {
        // SAFETY: none; that the walk survives is what is tested: it asks before it reads.
        let count = unsafe { unwinder.walk(&process, wrong, false, &mut frames, &mut []) };
        assert!(count <= frames.len());
    }
}

/// Code in no known object (as a compiler at run time makes it) does not have the list read at each walk.
#[test]
fn unknown_code_is_asked_for_ever_more_seldom() {
    let process = Process::new();
    let mut unwinder = Box::new(Unwinder::new());
    let here = Registers::here();
    for _ in 0..1000 {
        // SAFETY: these are this thread's registers but for `pc`, and no module has 16 as an address, so the walk reads no table.
        unsafe { unwinder.walk(&process, Registers { pc: 16, ..here }, false, &mut [0; 8], &mut []) };
    }
    assert!(process.readings.load(Ordering::Relaxed) < 12);
}
