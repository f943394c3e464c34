//! `report.html`: one page that needs nothing from the network.
//!
//! The template, its style and its script lie next to this file and are built in. The page works
//! without the script; the script adds the values under the pointer.

use super::chart::{self, TimeScale};
use super::drawing::{NARROW, WIDE, strokes, tenths};
use super::figures;
use super::latency;
use super::notes;
use super::table::WORD_ENDS;
use super::tables;
use super::timeline::Timeline;
use ebb_trial::results::{Column, Figure, Trial, Unit, Variant, VerdictKind};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, HtmlEscape};
use serde_json::{Value as Json, json};

/// The whole page.
pub fn render(trial: &Trial) -> Result<String, String> {
    page(trial).map_err(|error| error.to_string())
}

fn page(trial: &Trial) -> Result<String, minijinja::Error> {
    let timeline = Timeline::of(trial);
    let distributions = latency::of(trial);
    let wide = chart::draw(&timeline, WIDE)?;
    let contents = json!({
        "script": include_str!("page/page.js"),
        "title": trial.workload.name,
        "description": trial.workload.description,
        "verdict": trial.verdict,
        "more": notes::conclusions(trial)[1..],
        "bars": bars(trial),
        "data": (!wide.is_empty()).then(|| data(&timeline)),
        "wide": wide,
        "narrow": chart::draw(&timeline, NARROW)?,
        "latency_wide": latency::draw(&distributions, WIDE)?,
        "latency_narrow": latency::draw(&distributions, NARROW)?,
        "legend": legend(&timeline),
        "has_phases": true,
        "has_band": timeline.lines.iter().any(|line| !line.band.is_empty()),
        "has_live": timeline.lines.iter().any(|line| !line.live.is_empty()),
        "tables": tables::of(trial),
        "next": next(trial),
        "docs": DOCS,
        "notes": notes::of(trial),
        "method": notes::method(trial),
        "variants": variants(trial),
        "metric": trial.metric.label(),
        "is_live": trial.canary.is_some(),
    });
    fill(include_str!("page/page.html"), contents)
}

/// Fills in a page and its frame. Where `contents` has `data`, its `script` reads it.
pub fn fill(page: &str, mut contents: Json) -> Result<String, minijinja::Error> {
    contents["style"] = include_str!("page/page.css").into();
    let mut environment = Environment::new();
    environment.add_filter("breakable", |name: &str| breakable(name));
    // The names' ending switches escaping of HTML on.
    environment.add_template("frame.html", include_str!("page/frame.html"))?;
    environment.add_template("plot.html", include_str!("page/plot.html"))?;
    environment.add_template("page.html", page)?;
    environment.get_template("page.html")?.render(Serde(&contents))
}

/// Where the manual is.
const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/docs");

/// What follows from a trial, with commands for the folder that has `results.json`.
fn next(trial: &Trial) -> Vec<Json> {
    let step = |what: &str, command: &str| json!({ "what": what, "command": command });
    let mut steps = Vec::new();
    if trial.verdict.kind == VerdictKind::Recommend && trial.canary.is_none() {
        steps.push(step(
            "Put the recommended variant into the file that starts the service (a Dockerfile, compose file, manifest, \
             unit, Procfile or Cargo.toml). The command shows the change and writes nothing.",
            "ebb fix Dockerfile --from results.json",
        ));
        steps.push(step("Try it once without a change.", "ebb run --from results.json -- COMMAND"));
    }
    if notes::is_disturbed(trial) {
        let what = "Repeat the trial on a quiet machine: its costs are not known.";
        steps.push(step(what, "ebb compare ... -n 5"));
    }
    steps
}

/// A name as HTML, which may be broken after the signs between its words, and nowhere else.
fn breakable(name: &str) -> Value {
    let parts = name.split_inclusive(WORD_ENDS).map(|part| {
        let end = if part.ends_with(WORD_ENDS) { "<wbr>" } else { "" };
        format!("{}{end}", HtmlEscape(part))
    });
    Value::from_safe_string(parts.collect())
}

/// What each variant ran on.
fn variants(trial: &Trial) -> Vec<Json> {
    let row = |variant: &Variant| {
        let preloaded = variant.preloaded().into_iter().map(|path| path.display().to_string());
        let env = variant.env.iter().map(|(key, value)| format!("{key}={value}"));
        json!({
            "name": variant.name,
            "preloaded": preloaded.collect::<Vec<_>>(),
            "without_preload": variant.without_preload(),
            "command": variant.command_line(&trial.workload),
            "env": env.collect::<Vec<_>>(),
        })
    };
    trial.variants.iter().map(row).collect()
}

/// The figure that a variant is known by: after the rest, or the median of services that were watched.
fn held(trial: &Trial) -> Column {
    match trial.canary {
        Some(_) => Column::Typical,
        None => Column::AfterRest,
    }
}

/// The bars of the first picture: what each variant holds after the rest, and its peak.
fn bars(trial: &Trial) -> Vec<Json> {
    let held = held(trial);
    let highest = trial
        .variants
        .iter()
        .flat_map(|variant| [Column::Peak, held].map(|column| variant.figure(column)))
        .flatten()
        .map(|figure| figure.max)
        .fold(1.0, f64::max);
    let percent = |bytes: f64| (bytes / highest * 1000.0).round() / 10.0;
    let strokes = strokes(&trial.variants);
    let bar = |(index, variant): (usize, &Variant)| {
        let (after, peak) = (variant.figure(held), variant.figure(Column::Peak));
        let missing = after.is_none().then(|| match &variant.unavailable {
            Some(reason) => format!("not run: {reason}"),
            None => notes::oom_kills_in_words(variant)
                .map_or("no complete run".into(), |kills| format!("OOM-killed {kills}")),
        });
        let text = |figure: &Figure| figures::plain(figure.median, Unit::Bytes);
        let median = |figure: &Figure| percent(figure.median);
        json!({
            "name": variant.name,
            "recommended": trial.recommends(&variant.name),
            "colour": strokes[index].colour,
            "after_rest": after.map(text),
            "after_rest_percent": after.map_or(0.0, median),
            "peak": peak.map(text),
            "peak_percent": peak.map(median),
            "live_percent": variant.figure(Column::Live).map(median),
            "range_percent": after
                .filter(|figure| figure.n > 1)
                .map(|figure| (percent(figure.min), percent(figure.max))),
            "missing": missing,
        })
    };
    trial.variants.iter().enumerate().map(bar).collect()
}

/// The lines of the legend, each with the pattern of its line.
fn legend(timeline: &Timeline) -> Vec<Json> {
    let lines = timeline.lines.iter();
    lines.map(|it| json!({ "variant": it.variant, "name": it.name, "stroke": it.stroke })).collect()
}

/// The lines for the script: the values under the pointer.
pub(super) fn data(timeline: &Timeline) -> String {
    let lines = timeline.lines.iter().map(|line| {
        let points = line.median.iter().map(|(at_s, mb)| (tenths(*at_s), tenths(*mb)));
        json!({ "variant": line.variant, "name": line.name, "points": points.collect::<Vec<_>>() })
    });
    let phases =
        timeline.shades.iter().map(|shade| json!({ "name": shade.name, "round": shade.round, "to_s": shade.to_s }));
    let data = json!({
        "end_s": timeline.end_s,
        "scale": TimeScale::of(timeline.end_s),
        "phases": phases.collect::<Vec<_>>(),
        "lines": lines.collect::<Vec<_>>(),
    });
    // Inside a script element only a closing tag could end it.
    data.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::COLOURS;
    use ebb_trial::example;

    #[test]
    fn the_page_is_whole_and_needs_no_network() {
        let page = render(&example::trial()).unwrap();
        for expected in [
            "<!doctype html>", "ebbmalloc holds 61 MB", "class=\"plot wide\"", "class=\"plot narrow\"", "tcmalloc",
            "</html>",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        // A link is followed by a reader, not fetched by the page.
        let links = page.matches("<a href=\"https://").count();
        assert_eq!(links, page.matches("https://").count());
        let page = page.replace("<a href=\"https://", "");
        for network in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(network), "{network} in the page");
        }
    }

    /// What the trial is made into, whether the page has a part, and the part.
    #[test]
    fn names_are_escaped_and_broken_and_the_next_step_is_named() {
        type Case = (fn(&mut Trial), &'static [(bool, &'static str)]);
        let cases: [Case; 5] = [
            (|_| (), &[(true, "&lt;segfault&gt; &amp; nothing"), (false, "<segfault>")]),
            (
                |trial| {
                    trial.variants[1].name = "ebbmalloc+A=<b>".into();
                    trial.verdict.variant = Some("ebbmalloc+A=<b>".into());
                },
                &[
                    (true, "ebbmalloc+<wbr>A=<wbr>&lt;b&gt;"),
                    (true, "ebb fix Dockerfile --from results.json"),
                    (true, "/docs/compare.md"),
                ],
            ),
            (|trial| trial.verdict.kind = VerdictKind::NothingToGain, &[(false, "ebb fix")]),
            (|trial| trial.variants[0].name = "</script><script>alert(1)".into(), &[(false, "<script>alert(1)")]),
            (
                |trial| {
                    for variant in &mut trial.variants {
                        variant.summary = None;
                        variant.runs.clear();
                    }
                },
                &[(true, "no complete run"), (false, "NaN")],
            ),
        ];
        for (change, parts) in cases {
            let mut trial = example::trial();
            change(&mut trial);
            let page = render(&trial).unwrap();
            for (has, part) in parts {
                assert_eq!(page.contains(part), *has, "{part} in\n{page}");
            }
        }
    }

    /// The colours of one mode, by their names.
    fn colours(css: &str) -> std::collections::BTreeMap<String, [f64; 3]> {
        let declared = css.lines().filter_map(|line| line.trim().strip_prefix("--")?.strip_suffix(';'));
        declared
            .filter_map(|line| {
                let (name, value) = line.split_once(": #")?;
                let channel = |at: usize| u8::from_str_radix(value.get(at..at + 2)?, 16).ok().map(f64::from);
                Some((name.to_owned(), [channel(0)?, channel(2)?, channel(4)?]))
            })
            .collect()
    }

    /// WCAG 2: relative luminance and contrast.
    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let linear = |value: f64| {
            let share = value / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        let luminance =
            |[red, green, blue]: [f64; 3]| 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_and_lines_can_be_read_in_both_modes() {
        let css = include_str!("page/page.css");
        let (light, dark) = css.split_once("@media screen and (prefers-color-scheme: dark)").unwrap();
        for (mode, text) in [("light", light), ("dark", dark)] {
            let colours = colours(text);
            let lines: Vec<String> = (0..COLOURS).map(|line| format!("line-{line}")).collect();
            for name in lines.iter().map(String::as_str).chain(["ink", "soft", "accent"]) {
                for ground in ["panel", "paper"] {
                    let ratio = contrast(colours[name], colours[ground]);
                    assert!(ratio >= 4.5, "{mode}: {name} on {ground} has a contrast of {ratio:.2}");
                }
            }
        }
    }
}
