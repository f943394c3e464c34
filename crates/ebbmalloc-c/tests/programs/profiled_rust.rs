//! Keeps a known number of bytes that Rust allocated, for a heap profile to find.

/// A name that no tool has to decode.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rust_boxes(count: usize) -> usize {
    let boxes: Vec<Box<[u8; 1000]>> = (0..count).map(|_| Box::new([1; 1000])).collect();
    std::mem::forget(std::hint::black_box(boxes));
    count
}

fn main() {
    println!("{}\nok", rust_boxes(20_000_000 / 1024));
}
