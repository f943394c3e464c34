//! Any text in EBB_CONF and MALLOC_CONF is read without a panic, and what EBB_CONF says wins.
#![no_main]

mod hooks;

use ebbmalloc_core::process::conf::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: (Option<&[u8]>, Option<&[u8]>)| {
    let (ebb, malloc) = text;
    let (config, problems) = parse(ebb, malloc);
    let _ = problems.iter().count();
    // A setting that is repeated behind all others is the one in force.
    let last = [ebb.unwrap_or_default(), b",purge:off,stats_print:true"].concat();
    if ebb.is_none_or(|text| parse(Some(text), None).1.iter().next().is_none()) {
        let (changed, _) = parse(Some(&last), malloc);
        assert!(!changed.purge && changed.stats_print);
        assert_eq!(changed.narenas, config.narenas);
    }
});
