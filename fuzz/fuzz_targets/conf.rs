//! Any text in any place for settings is read without a panic, and the later one wins.
#![no_main]

mod hooks;

use ebbmalloc_core::runtime::conf::{Id, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|texts: [Option<&[u8]>; 5]| {
    let mut wrong = 0;
    let options = parse(texts, |report| wrong += usize::from(report.outcome.is_err()));
    // A setting that is repeated after all others is the one in force.
    let last = [texts[4].unwrap_or_default(), b",purge:off,stats_print:true"].concat();
    let [a, b, c, d, _] = texts;
    let changed = parse([a, b, c, d, Some(&last)], |_| ());
    assert!(!changed.is(Id::Purge) && changed.is(Id::StatsPrint));
    assert_eq!(changed.number(Id::Narenas), options.number(Id::Narenas));
});
