//! Prints the heap's figures, and what control changes: `cargo run --release --example control`.

use ebbmalloc::Ebbmalloc;
use ebbmalloc::control::{Result, background_thread, epoch, stats, version};

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

fn main() -> Result<()> {
    let advance = epoch::mib()?;
    let allocated = stats::allocated::mib()?;
    let resident = stats::resident::mib()?;
    println!("version {}", version::read()?);
    println!("background thread: {}", background_thread::read()?);
    let mut blocks = Vec::new();
    for burst in 0..4 {
        blocks.extend((0..50_000).map(|_| vec![burst; 400]));
        if burst == 2 {
            blocks.clear();
            GLOBAL.trim();
        }
        advance.advance()?;
        println!("{:>6} KiB allocated, {:>6} KiB resident", allocated.read()? >> 10, resident.read()? >> 10);
    }
    Ok(())
}
