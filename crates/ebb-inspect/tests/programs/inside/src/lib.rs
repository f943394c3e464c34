//! A Rust process whose heap is in a known state, whatever its global allocator is: NAME CASE.
//!
//! The programs in `bin` each put one allocator in charge and call [`run`]. Cases and commands are those of
//! `../regions.c`, which says what each is: `o` is the program's own count, `j` what jemalloc counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::{Arc, Barrier};

/// What the allocator in charge tells of itself.
pub trait Own {
    /// Bytes that the block at `block`, which is live, takes.
    fn usable(block: *mut u8, asked: usize) -> usize;

    /// The allocator's own figures, as its test expects them.
    fn figures() -> Vec<usize>;
}

const MIB: usize = 1 << 20;
/// Blocks at most; their list does not lie in the heap that is looked at.
const ROOM: usize = 1 << 20;
const ALIGN: usize = 16;

#[derive(Clone, Copy)]
struct Block {
    at: *mut u8,
    asked: usize,
}

struct Blocks {
    list: &'static mut [Block],
    count: usize,
    state: u64,
}

impl Blocks {
    fn new() -> Self {
        let layout = Layout::array::<Block>(ROOM).expect("a size");
        // SAFETY: the layout is not empty; a block of zeros is one, and no other thread ever has the list.
        let list = unsafe {
            let list = System.alloc_zeroed(layout).cast::<Block>();
            assert!(!list.is_null());
            std::slice::from_raw_parts_mut(list, ROOM)
        };
        Self {
            list,
            count: 0,
            state: 88_172_645_463_325_252,
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % below as u64) as usize
    }

    /// Takes blocks of `least` to `most` bytes until they are `total`.
    fn fill(&mut self, total: usize, least: usize, most: usize) {
        let mut sum = 0;
        while sum < total {
            let asked = least + self.draw(most - least + 1);
            self.list[self.count] = Block {
                at: allocate(asked),
                asked,
            };
            self.count += 1;
            sum += asked;
        }
    }

    /// Frees all blocks from `from` on but one in `keep` (0: none stays).
    fn release(&mut self, from: usize, keep: usize) {
        let mut left = from;
        for at in from..self.count {
            let block = self.list[at];
            if keep > 0 && self.draw(keep) == 0 {
                self.list[left] = block;
                left += 1;
            } else {
                free(block.at, block.asked);
            }
        }
        self.count = left;
    }

    fn own<A: Own>(&self) -> Vec<usize> {
        let live = &self.list[..self.count];
        vec![
            live.len(),
            live.iter().map(|block| block.asked).sum(),
            live.iter()
                .map(|block| A::usable(block.at, block.asked))
                .sum(),
        ]
    }
}

fn layout(asked: usize) -> Layout {
    Layout::from_size_align(asked, ALIGN).expect("a size")
}

fn allocate(asked: usize) -> *mut u8 {
    // SAFETY: no block is asked for without a size, and all of it is written.
    unsafe {
        let block = std::alloc::alloc(layout(asked));
        assert!(!block.is_null());
        block.write_bytes(0x5a, asked);
        block
    }
}

fn free(block: *mut u8, asked: usize) {
    // SAFETY: it comes from `allocate` with this size, and is forgotten here.
    unsafe { std::alloc::dealloc(block, layout(asked)) };
}

/// Threads that free what they took and stay: their caches keep some of it.
fn threads(number: usize) {
    let there = Arc::new(Barrier::new(number + 1));
    for _ in 0..number {
        let there = Arc::clone(&there);
        std::thread::spawn(move || {
            let mine = [(); 2000].map({
                let mut i = 0;
                move |()| {
                    i += 1;
                    let asked = 16 + i % 500;
                    Block {
                        at: allocate(asked),
                        asked,
                    }
                }
            });
            for block in mine {
                free(block.at, block.asked);
            }
            there.wait();
            std::thread::park();
        });
    }
    there.wait();
}

/// Runs the case that the command line names, then answers commands until the end of its input.
pub fn run<A: Own>() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let mut blocks = Blocks::new();
    match name.as_str() {
        "small" => {}
        "live" => {
            blocks.fill(40 * MIB, 16, 2000);
            blocks.fill(40 * MIB, 20_000, 900_000);
        }
        "burst" => {
            blocks.fill(10 * MIB, 16, 2000);
            let before = blocks.count;
            blocks.fill(80 * MIB, 16, 60_000);
            blocks.release(before, 0);
        }
        "survivors" => {
            blocks.fill(80 * MIB, 16, 1000);
            blocks.release(0, 10);
        }
        "threads" => {
            blocks.fill(8 * MIB, 16, 2000);
            threads(8);
        }
        _ => {
            eprintln!("inside: no case \"{name}\"");
            std::process::exit(64);
        }
    }
    // Both have their buffers before anyone looks.
    let input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    writeln!(output, "ready").expect("a reader");
    for command in input.bytes() {
        let figures = match command.expect("an input") {
            b'o' => blocks.own::<A>(),
            b'j' => A::figures(),
            _ => continue,
        };
        let words: Vec<String> = figures.iter().map(usize::to_string).collect();
        writeln!(output, "{}", words.join(" ")).expect("a reader");
    }
}
