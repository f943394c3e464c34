//! Which settings of glibc's malloc are placebos in a trial, and why.
//!
//! Used by `commands/compare` at its end. Pure. A placebo is a setting with which glibc holds after the rest what it holds
//! without, by the trial's own statistics. malloc trims by itself only the top of an arena, and only above a threshold:
//! what lies between live blocks stays whatever the setting.

use super::cost::megabytes;
use super::summary::{self, values};
use crate::results::sureness::Reading;
use crate::results::{Column, FreeMemory, Placebos, Variant};
use ebb_allocators::Allocator;

/// Less free memory than this leaves nothing to return.
const LITTLE_BYTES: u64 = 8_000_000;
/// From this share inside on, free memory lies out of the trim's reach.
const PINNED_SHARE: f64 = 0.8;

/// The placebos; `None` where no setting is one.
pub fn look(variants: &[Variant]) -> Option<Placebos> {
    let glibc = || variants.iter().filter(|it| is_glibc(it) && !it.is_reference());
    glibc().filter(|plain| !plain.env.keys().any(|key| is_setting(key))).find_map(|plain| {
        let names: Vec<String> = glibc()
            .filter(|other| differs_by_settings(other, plain) && is_no_different(other, plain))
            .map(|other| other.name.clone())
            .collect();
        (!names.is_empty()).then(|| {
            let free = free_of(plain);
            let sentence = sentence(&names, &plain.name, free.as_ref());
            Placebos { variants: names, of: plain.name.clone(), free, sentence }
        })
    })
}

fn is_glibc(variant: &Variant) -> bool {
    variant.allocator == Allocator::Glibc.name()
}

/// Whether a variable is a setting of glibc's malloc.
fn is_setting(key: &str) -> bool {
    key.starts_with("MALLOC_") || key == "GLIBC_TUNABLES"
}

/// The same program and variables, but for settings of malloc.
fn differs_by_settings(other: &Variant, plain: &Variant) -> bool {
    let without = other.env.iter().filter(|(key, _)| !is_setting(key));
    other.env.keys().any(|key| is_setting(key)) && without.eq(plain.env.iter()) && other.command == plain.command
}

/// The same memory after the rest, and no real difference of the peaks.
fn is_no_different(other: &Variant, plain: &Variant) -> bool {
    let reading = |column| summary::difference(column, &values(other, column), &values(plain, column))?.reading;
    reading(Column::AfterRest) == Some(Reading::NoRealDifference) && reading(Column::Peak) != Some(Reading::Real)
}

/// Of the run in the middle, by what lies at the tops.
fn free_of(variant: &Variant) -> Option<FreeMemory> {
    let mut runs: Vec<FreeMemory> = variant.complete().filter_map(|run| run.free).collect();
    runs.sort_by_key(|free| free.top_bytes);
    runs.get(runs.len() / 2).copied()
}

fn sentence(names: &[String], plain: &str, free: Option<&FreeMemory>) -> String {
    let (names, are) = match names {
        [one] => (one.clone(), "is a placebo"),
        [all @ .., last] => (format!("{} and {last}", all.join(", ")), "are placebos"),
        [] => return String::new(),
    };
    let why = match free {
        None => "where its free memory lies could not be read".to_owned(),
        Some(free) => reason(plain, free),
    };
    format!("{names} {are} here, with no real difference to {plain} after the rest: {why}.")
}

fn reason(plain: &str, free: &FreeMemory) -> String {
    let all = free.top_bytes + free.inside_bytes;
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    if all < LITTLE_BYTES {
        return format!("{plain} holds only {} of free memory", mb(all));
    }
    let threshold = free.trim_threshold_bytes.map_or(String::new(), |at| format!(" larger than {}", mb(at)));
    let inside = match free.inside_bytes as f64 >= all as f64 * PINNED_SHARE {
        true => format!("; {} lie between live blocks", mb(free.inside_bytes)),
        false => String::new(),
    };
    format!(
        "its automatic trim returns only the top of an arena{threshold}, where {} of {} of free memory lie{inside}",
        mb(free.top_bytes),
        megabytes(all as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Run;
    use std::collections::BTreeMap;

    /// A variant of glibc with two runs that hold so many MB, `top` and `inside` of them free.
    fn variant(name: &str, setting: &str, held: f64, (top, inside): (u64, u64)) -> Variant {
        let settings = setting.split(' ').filter_map(|pair| pair.split_once('='));
        let env: BTreeMap<String, String> = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let run = |repetition: u32| {
            let mut run = Run::new(repetition);
            run.measures.after_rest_bytes = Some((held + f64::from(repetition) / 10.0) * 1e6);
            run.measures.peak_bytes = Some(400e6);
            run.free = Some(FreeMemory {
                top_bytes: top * 1_000_000,
                inside_bytes: inside * 1_000_000,
                trim_threshold_bytes: Some(131_072),
                arenas: Some(1),
            });
            run
        };
        Variant { env, runs: vec![run(1), run(2)], ..Variant::new(name, "glibc") }
    }

    const TRIM: &str = "MALLOC_TRIM_THRESHOLD_=65536";

    /// The variants, those found, and the end of the sentence.
    #[test]
    fn settings_without_effect_are_named_with_the_reason() {
        let pinned = (1, 299);
        let plain = || variant("glibc", "", 350.0, pinned);
        let of = |env: &str, held: f64| variant("x", env, held, pinned);
        let threads = variant("y", "MALLOC_ARENA_MAX=2", 351.0, pinned);
        for (variants, found, end) in [
            (
                vec![plain(), of(TRIM, 350.0), threads],
                &["x", "y"][..],
                "x and y are placebos here, with no real difference to glibc after the rest: its automatic trim returns only \
                 the top of an arena larger than 0.1 MB, where 1.0 MB of 300 MB of free memory lie; 299.0 MB lie between \
                 live blocks.",
            ),
            (vec![plain(), of(TRIM, 60.0)], &[], ""),
            // Another variable differs too, or none does.
            (vec![plain(), of("MALLOC_ARENA_MAX=2 PYTHONMALLOC=malloc", 350.0)], &[], ""),
            (vec![plain(), of("PYTHONMALLOC=malloc", 350.0)], &[], ""),
            (
                vec![variant("glibc", "", 50.0, (1, 2)), of(TRIM, 50.0)],
                &["x"],
                "glibc holds only 3.0 MB of free memory.",
            ),
            (
                vec![variant("glibc", "", 350.0, (200, 100)), of(TRIM, 350.0)],
                &["x"],
                "where 200.0 MB of 300 MB of free memory lie.",
            ),
        ] {
            let placebos = look(&variants).unwrap_or_default();
            assert_eq!(placebos.variants, found);
            assert!(placebos.sentence.ends_with(end), "{}", placebos.sentence);
        }
    }

    #[test]
    fn one_run_proves_no_placebo_and_a_reference_is_none() {
        let mut variants = vec![variant("glibc", "", 350.0, (1, 299)), variant("x", TRIM, 350.0, (1, 299))];
        variants[1].trim_once = true;
        assert_eq!(look(&variants), None);
        variants[1].trim_once = false;
        assert!(look(&variants).is_some());
        variants[1].runs.truncate(1);
        assert_eq!(look(&variants), None);
    }

    #[test]
    fn what_could_not_be_read_is_said() {
        let mut plain = variant("glibc", "", 350.0, (0, 0));
        plain.runs.iter_mut().for_each(|run| run.free = None);
        let placebos = look(&[plain, variant("x", TRIM, 350.0, (0, 0))]).unwrap();
        assert!(placebos.sentence.ends_with("could not be read."), "{}", placebos.sentence);
    }
}
