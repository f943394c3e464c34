//! A Rust process on the system's malloc in a known state: other STATE.
use std::collections::HashMap;
use std::io::Read;

fn main() {
    let state = std::env::args().nth(1).unwrap();
    let mut table: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut text = Vec::new();
    let mut kept = Vec::new();
    match state.as_str() {
        "table" => table.extend((0..60_000).map(|i| (i, vec![1; 500 + (i % 1500) as usize]))),
        "table-drained" => {
            table.extend((0..60_000).map(|i| (i, vec![1; 500 + (i % 1500) as usize])));
            table.retain(|key, _| key % 50 == 0);
        }
        "channel" => {
            let (into, out) = std::sync::mpsc::channel::<Vec<u8>>();
            let worker = std::thread::spawn(move || {
                for i in 0..40_000 {
                    into.send(vec![2; 1000 + i % 2000]).unwrap();
                }
            });
            worker.join().unwrap();
            kept = out.try_iter().step_by(40).collect();
        }
        "vector" => text = vec![3u8; 90_000_000],
        _ => panic!("{state}"),
    }
    let live: usize = table.values().map(|one| one.capacity() + 16).sum::<usize>()
        + kept.iter().map(|one| one.capacity() + 16).sum::<usize>()
        + text.capacity();
    println!("{{\"live\": {live}, \"held\": null, \"other\": 0}}");
    let _ = std::io::stdin().read(&mut [0]);
    std::hint::black_box((&table, &text, &kept));
}
