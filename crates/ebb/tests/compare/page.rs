//! The page of `ebb compare` in headless Chromium at a desktop's and a phone's width; colours of text, only on a terminal and where they
//! are forced.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use ebb_report::html;
use ebb_trial::results::Trial;
use serde::Deserialize;
use test_needs::skip;

use crate::harness::{Subject, each, words};
use crate::workload::{ALIKE, Workload};

/// What the document around the page saw.
#[derive(Debug, Deserialize)]
struct Seen {
    errors: Vec<String>,
    client_width: f64,
    scroll_width: f64,
    /// What sticks out to the right without lying in something that scrolls.
    sticking_out: Vec<String>,
    plots: Vec<String>,
    lines: usize,
    labels: Vec<String>,
    dash_patterns: usize,
    bars: usize,
    tables: usize,
    smallest_text_px: f64,
    chosen_after_click: bool,
    dimmed_after_click: usize,
    readout: String,
    readout_after_leave: bool,
    requests: usize,
    /// Of the view of the plot before, after dragging over a part, after Escape.
    views: Vec<String>,
    ticks_when_zoomed: Vec<String>,
    names_hidden_when_zoomed: bool,
    readout_by_key: String,
    buttons: Vec<String>,
    latency_lines: usize,
    /// Names that are broken inside of a word.
    broken_names: Vec<String>,
    /// Tables with columns out of sight, and signs that say so.
    scrolling: usize,
    signs: usize,
    /// Signs after each table was scrolled to its end.
    signs_at_end: usize,
    next_steps: Vec<String>,
    heading: String,
}

/// Runs in the document around the page, once the page is there.
const LOOK: &str = r##"
const look = (frame, errors) => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  const all = (selector) => [...page.querySelectorAll(selector)];
  const shown = (element) => view.getComputedStyle(element).display !== "none" && element.getClientRects().length > 0;
  const plots = all("svg.plot").filter(shown);
  const plot = plots[0];
  const scrolls = (element) => element.closest(".scroll, pre, svg, .sr");
  const sticking = all("body *").filter((element) => shown(element) && !scrolls(element) && element.getBoundingClientRect().right > root.clientWidth + 0.5);
  const scale = (text) => { const svg = text.closest("svg"); return svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1; };
  const texts = all("body *").filter((element) => shown(element) && !element.closest(".sr") && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  const box = plot.getBoundingClientRect();
  plot.dispatchEvent(new view.PointerEvent("pointermove", { clientX: box.left + box.width * 0.4, clientY: box.top + 50, bubbles: true }));
  const readout = page.getElementById("readout");
  const text = readout.hidden ? "" : readout.textContent;
  const inside = readout.getBoundingClientRect().right <= root.clientWidth && readout.getBoundingClientRect().left >= 0;
  if (!inside) errors.push("the readout sticks out");
  plot.dispatchEvent(new view.PointerEvent("pointerleave", {}));
  const hidden = readout.hidden && !shown(plot.querySelector(".cross"));
  const views = [], viewed = () => views.push(plot.querySelector(".data").getAttribute("viewBox"));
  const drag = (kind, share) => plot.dispatchEvent(new view.PointerEvent(kind, { clientX: box.left + box.width * share, clientY: box.top + 50, bubbles: true }));
  const press = (key) => plot.dispatchEvent(new view.KeyboardEvent("keydown", { key, bubbles: true }));
  viewed();
  drag("pointerdown", 0.3); drag("pointermove", 0.5); drag("pointerup", 0.5);
  viewed();
  const ticks_when_zoomed = [...plot.querySelectorAll(".tick-x")].filter(shown).map((tick) => tick.textContent);
  const names_hidden_when_zoomed = ![...plot.querySelectorAll(".phase-name")].some(shown);
  press("Escape");
  viewed();
  press("ArrowRight");
  const readout_by_key = readout.textContent;
  plot.dispatchEvent(new view.FocusEvent("blur"));
  // A word of a name lies on one line: a range over its letters has one rectangle.
  const broken_names = [];
  for (const name of all(".bar-name, .legend button > span:last-child, tbody th").filter(shown)) {
    for (const node of [...name.childNodes].filter((node) => node.nodeType === 3)) {
      for (const word of node.data.matchAll(/[A-Za-z0-9.]+/g)) {
        const range = page.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 1) broken_names.push(word[0]);
      }
    }
  }
  const tables = all(".scroll"), signs_shown = () => all(".more-columns").filter((sign) => shown(sign) && view.getComputedStyle(sign).visibility === "visible").length;
  const scrolling = tables.filter((table) => table.scrollWidth > table.clientWidth + 1).length, signs = signs_shown();
  for (const table of tables) { table.scrollLeft = table.scrollWidth; table.dispatchEvent(new view.Event("scroll")); }
  const signs_at_end = signs_shown();
  page.querySelector(".legend button").click();
  const figure = page.getElementById("plot");
  return {
    errors, client_width: root.clientWidth, scroll_width: root.scrollWidth,
    sticking_out: sticking.map((element) => element.tagName + "." + element.className),
    plots: plots.map((element) => element.getAttribute("class")),
    lines: plot.querySelectorAll("path.line").length,
    labels: [...plot.querySelectorAll(".end-label")].map((label) => label.textContent),
    dash_patterns: new Set([...plot.querySelectorAll("path.line")].map((line) => line.getAttribute("stroke-dasharray"))).size,
    bars: all(".bars li").length, tables: all("table").length,
    smallest_text_px: Math.min(...texts.map((element) => parseFloat(view.getComputedStyle(element).fontSize) * scale(element))),
    chosen_after_click: figure.classList.contains("chosen"),
    dimmed_after_click: [...plot.querySelectorAll("path.line")].filter((line) => parseFloat(view.getComputedStyle(line).opacity) < 0.5).length,
    readout: text, readout_after_leave: hidden, views, ticks_when_zoomed, names_hidden_when_zoomed, readout_by_key,
    buttons: all(".zoom button").map((button) => button.textContent),
    latency_lines: all("svg.latency").filter(shown).flatMap((svg) => [...svg.querySelectorAll("path.line")]).length,
    broken_names, scrolling, signs, signs_at_end,
    next_steps: all(".next code").map((code) => code.textContent), heading: page.querySelector("h1").textContent,
    requests: view.performance.getEntriesByType("resource").filter((entry) => !entry.name.startsWith("data:")).length,
  };
};
"##;

/// Put in front of the page, before its own script.
const CATCH: &str = r#"<script>
addEventListener("error", (event) => parent.errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => parent.errors.push(String(event.reason)));
for (const level of ["error", "warn"]) console[level] = (...words) => parent.errors.push(words.join(" "));
</script>"#;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let in_folders = |name| std::env::split_paths(&path).map(|it| it.join(name)).find(|it| it.exists());
    names.iter().find_map(in_folders)
}

/// Shows the page at a width and gives what was seen; `None` without a browser.
fn look_at(page: &str, width: u32) -> Option<Seen> {
    let Some(browser) = browser() else {
        test_needs::installed(&["chromium"]);
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let framed = page.replacen("<head>", &format!("<head>{CATCH}"), 1);
    let attribute = framed.replace('&', "&amp;").replace('"', "&quot;");
    let document = format!(
        "<!doctype html><meta charset=utf-8><body style=margin:0><script>window.errors=[];{LOOK}</script>\
         <iframe id=f style=border:0 width={width} height=900 srcdoc=\"{attribute}\"></iframe>\
         <script>f.onload=()=>{{let seen;try{{seen=look(f,errors)}}catch(error){{errors.push(String(error.stack));seen={{errors}}}}\
         document.body.innerHTML='<pre id=seen></pre>';document.getElementById('seen').textContent=JSON.stringify(seen)}}</script>"
    );
    let file = dir.path().join("frame.html");
    std::fs::write(&file, document).unwrap();
    let options = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                   --disable-background-networking --disable-component-update --disable-sync \
                   --hide-scrollbars --virtual-time-budget=5000 --window-size=1400,1000 --dump-dom";
    let output = Command::new(browser)
        .args(options.split_whitespace())
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let seen = dom.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let seen = seen.unwrap_or_else(|| panic!("the page did not load: {}", String::from_utf8_lossy(&output.stderr)));
    let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&seen).unwrap_or_else(|error| panic!("{error}: {seen}")))
}

/// A real trial, once for all tests of this file.
static TRIAL: LazyLock<Trial> = LazyLock::new(|| {
    let finished = Workload::plain().run("--variants glibc,jemalloc-now,missing -n 2 --json");
    finished.expect(0, &[], &[]);
    serde_json::from_str(&finished.stdout).unwrap()
});

/// The same with as many variants as the tool knows, under names as long as people write them.
fn crowded() -> Trial {
    let mut trial = TRIAL.clone();
    let measured = trial.variants[1].clone();
    for index in 0..7 {
        let mut more = measured.clone();
        more.name = format!("jemalloc-{index}000+PYTHONMALLOC=malloc+MALLOC_CONF=narenas:1");
        trial.variants.push(more);
    }
    trial
}

fn check(trial: &Trial, width: u32, class: &str) {
    let Some(seen) = look_at(&html::render(trial).unwrap(), width) else {
        return;
    };
    let lines = trial.variants.iter().filter(|variant| variant.summary.is_some()).count();
    assert_eq!(seen.errors, Vec::<String>::new());
    assert_eq!(seen.client_width, f64::from(width));
    assert_eq!(seen.sticking_out, Vec::<String>::new());
    assert!(seen.scroll_width <= seen.client_width, "{} px wide", seen.scroll_width);
    assert_eq!(seen.plots, [format!("plot {class}")], "one drawing, the one for this width");
    assert_eq!((seen.lines, seen.labels.len()), (lines, lines));
    assert!(seen.dash_patterns >= lines.min(5), "lines differ without their colour");
    let tables = ebb_report::tables::of(trial).len();
    assert_eq!((seen.bars, seen.tables), (trial.variants.len(), tables));
    assert!(seen.smallest_text_px >= 10.5, "{} px", seen.smallest_text_px);
    assert!(seen.chosen_after_click && seen.dimmed_after_click == lines - 1, "{seen:?}");
    assert!(seen.readout.contains(" MB  glibc"), "{}", seen.readout);
    assert!(seen.readout_after_leave);
    assert_eq!(seen.requests, 0, "nothing is fetched");
    assert_ne!(seen.views[0], seen.views[1], "a part is shown");
    assert_eq!(seen.views[0], seen.views[2], "Escape shows all of it");
    assert!(seen.names_hidden_when_zoomed && seen.ticks_when_zoomed.len() > 1, "{seen:?}");
    assert!(seen.readout_by_key.contains(" MB  glibc"), "{}", seen.readout_by_key);
    assert_eq!(seen.buttons, ["Zoom in", "Zoom out", "Whole time"]);
    assert_eq!(seen.latency_lines, ebb_report::latency::of(trial).len());
    assert_eq!(seen.broken_names, Vec::<String>::new());
    assert_eq!((seen.signs, seen.signs_at_end), (seen.scrolling, 0));
    if class == "narrow" {
        assert!(seen.signs > 0, "no table fits a phone: {seen:?}");
    }
    assert_eq!(seen.heading, trial.verdict.sentence);
    assert_eq!(seen.next_steps[0], "ebb fix Dockerfile --from results.json", "{seen:?}");
}

/// The same trial from loads that tell their histograms, with a restart marked.
fn with_latencies() -> Trial {
    let mut trial = TRIAL.clone();
    for (index, variant) in trial.variants.iter_mut().enumerate() {
        for run in &mut variant.runs {
            run.restarts.push(ebb_trial::results::Restart { at_s: 1.0, text: "restarted".into() });
            for load in run.phases.iter_mut().filter_map(|span| span.load.as_mut()) {
                load.histogram_ms = Some(vec![(8.0, 50), (32.0, 40), (512.0, 2 + index as u64)]);
            }
        }
    }
    assert_eq!(ebb_report::latency::of(&trial).len(), 2);
    trial
}

#[test]
fn on_a_desktop_and_a_phone() {
    let (latencies, crowded) = (with_latencies(), crowded());
    let cases: &[(&str, (&Trial, u32, &str))] = &[
        ("a desktop", (&TRIAL, 1280, "wide")),
        ("a phone", (&TRIAL, 390, "narrow")),
        ("latencies on a desktop", (&latencies, 1280, "wide")),
        ("latencies on a phone", (&latencies, 390, "narrow")),
        ("many variants on a desktop", (&crowded, 1280, "wide")),
        ("many variants on a phone", (&crowded, 390, "narrow")),
    ];
    each(cases, |(trial, width, class)| check(trial, *width, class));
}

#[test]
fn a_page_that_is_too_wide_or_broken_would_be_noticed() {
    let page = html::render(&TRIAL).unwrap();
    let wrong = "<p style=\"width:900px\">wide</p><script>null.x</script></main>";
    let Some(seen) = look_at(&page.replacen("</main>", wrong, 1), 390) else {
        return;
    };
    assert!(seen.scroll_width > 390.0);
    assert!(seen.errors.iter().any(|error| error.contains("null")), "{:?}", seen.errors);
    assert!(seen.sticking_out.iter().any(|it| it.starts_with('P')), "{:?}", seen.sticking_out);
}

const ESCAPE: char = '\u{1b}';
const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const FORCED: (&str, &str) = ("CLICOLOR_FORCE", "1");

fn sleeper() -> Subject {
    Subject::spawn(Command::new("sleep").arg("600"))
}

/// What `program` writes. The environment decides about colours, so it has nothing but `env` of that.
fn written(program: &str, arguments: &[String], env: Option<(&str, &str)>) -> String {
    let mut command = Command::new(program);
    for key in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(key);
    }
    command.env("TERM", "xterm-256color").envs(env).args(arguments);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// What `ebb` writes to a pipe.
fn piped(line: &str, env: Option<(&str, &str)>) -> String {
    written(env!("CARGO_BIN_EXE_ebb"), &words(line), env)
}

/// What it writes to a terminal.
fn on_a_terminal(line: &str, env: Option<(&str, &str)>) -> String {
    let line = format!("'{} {line}'", env!("CARGO_BIN_EXE_ebb"));
    written("script", &words(&format!("--quiet --return --command {line} /dev/null")), env)
}

#[track_caller]
fn assert_plain(text: &str) {
    assert!(!text.contains(ESCAPE) && !text.is_empty(), "{text:?}");
}

#[test]
fn a_verdict_has_its_colour_on_a_terminal_and_nowhere_else() {
    let there = Command::new("script").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        skip!("there is no script(1), which makes a terminal");
    }
    let sleeper = sleeper();
    let pid = sleeper.pid();
    for (line, painted) in [
        (format!("why --no-children {pid}"), format!("{GREEN}Nothing to gain:\u{1b}[0m sleep")),
        (format!("check -a jemalloc {pid}"), format!("{pid}: {RED}jemalloc is NOT in charge")),
        ("trim --help".to_owned(), "\u{1b}[".to_owned()),
    ] {
        for text in [on_a_terminal(&line, None), piped(&line, Some(FORCED))] {
            assert!(text.contains(&painted), "{text:?}");
        }
        for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            assert_plain(&on_a_terminal(&line, Some(env)));
        }
        assert_plain(&piped(&line, None));
    }
    for verb in ["why", "check"] {
        let line = format!("{verb} --json {pid}");
        assert_plain(&piped(&line, Some(FORCED)));
        assert_plain(&on_a_terminal(&line, None));
    }
}

#[test]
fn a_difference_has_its_colour() {
    let sleeper = sleeper();
    let pid = sleeper.pid();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("look.json").display().to_string();
    piped(&format!("snap {pid} -o {file}"), Some(FORCED));
    let diff = piped(&format!("diff {file} {file}"), Some(FORCED));
    let unchanged = format!("{pid} {GREEN}is unchanged\u{1b}[0m at ");
    assert!(diff.contains(&unchanged), "{diff:?}");
}

#[test]
fn a_trials_verdict_has_its_colour_and_its_files_have_none() {
    let workload = Workload::short();
    let [path, out] = [workload.path(), workload.out()].map(|path| path.display());
    let exports = format!("-o {out} --export-csv {out}/f.csv --export-markdown {out}/f.md");
    let text = piped(&format!("compare {path} {ALIKE} -n 1 {exports}"), Some(FORCED));
    let verdict = "\n\u{1b}[33mVerdict:\u{1b}[0m No allocator helps";
    assert!(text.contains(verdict), "{text}");
    for name in ["results.json", "report.md", "report.html", "f.csv", "f.md"] {
        assert!(!workload.written(name).contains(ESCAPE), "{name}");
    }
}
