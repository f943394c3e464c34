//! A trial as one table with a row per variant: CSV for programs, Markdown for a pull request.
//!
//! Used by `ebb compare --export-csv` and `--export-markdown`; `docs/json.md` has the columns. A figure that was not
//! measured is an empty cell, never 0.

use super::markdown::escape;
use super::table::Cell;
use super::tables;
use ebb_trial::results::sureness::Disturbance;
use ebb_trial::results::{Column, Figure, Trial, Unit, Variant};

/// Columns whose spread and difference to the first variant are in the CSV, too.
const IN_FULL: [Column; 6] =
    [Column::AfterRest, Column::Peak, Column::Typical, Column::Cpu, Column::Throughput, Column::P99];
/// What the Markdown has of each of [`IN_FULL`]: whether a column of differences follows.
const IN_MARKDOWN: [(Column, bool); 6] = [
    (Column::AfterRest, true),
    (Column::Typical, true),
    (Column::Peak, false),
    (Column::Cpu, true),
    (Column::Throughput, false),
    (Column::P99, false),
];

/// One part of a figure, with the end of its column's name.
type Part = (&'static str, fn(&Figure) -> Option<f64>);

const PARTS: [Part; 5] = [
    ("_min", |figure| Some(figure.min)),
    ("_max", |figure| Some(figure.max)),
    ("_diff", |figure| figure.versus_first.map(|versus| versus.value)),
    ("_diff_low", |figure| Some(figure.versus_first?.interval?.0)),
    ("_diff_high", |figure| Some(figure.versus_first?.interval?.1)),
];

/// The CSV: a header and a row per variant, in the order of the trial.
pub fn csv(trial: &Trial) -> Result<String, String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let about = ["variant", "allocator", "recommended", "n", "disturbed_times", "disturbed_memory"];
    let header = about.map(str::to_owned).into_iter();
    let header = header.chain(Column::ALL.iter().copied().flat_map(names));
    writer.write_record(header).map_err(|error| error.to_string())?;
    for variant in &trial.variants {
        let about = [
            variant.name.clone(),
            variant.allocator.clone(),
            trial.recommends(&variant.name).to_string(),
            complete(variant).to_string(),
            cell(times_disturbed(variant)),
            cell(memory_disturbed(variant)),
        ];
        let cells = Column::ALL.iter().flat_map(|column| values(variant, *column));
        let record = about.into_iter().chain(cells.map(cell));
        writer.write_record(record).map_err(|error| error.to_string())?;
    }
    let bytes = writer.into_inner().map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// Nothing where nothing was measured.
fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// The names of a column's cells: that of the median as in `measures` of `results.json`, then its parts.
fn names(column: Column) -> Vec<String> {
    let name = match serde_json::to_value(column) {
        Ok(serde_json::Value::String(name)) => name,
        _ => column.label().to_owned(),
    };
    let unit = match column.unit() {
        Unit::Bytes => "_bytes",
        Unit::Count => "",
        Unit::Seconds => "_s",
        Unit::PerSecond => "_per_s",
        Unit::Milliseconds => "_ms",
        Unit::BytesPerHour => "_bytes_per_h",
    };
    let median = name + unit;
    let parts = parts(column).iter();
    let parts: Vec<String> = parts.map(|(end, _)| format!("{median}{end}")).collect();
    std::iter::once(median).chain(parts).collect()
}

/// The cells of a column, in the order of [`names`].
fn values(variant: &Variant, column: Column) -> Vec<Option<f64>> {
    let figure = variant.figure(column);
    let parts = parts(column).iter();
    let parts = parts.map(|(_, part)| figure.and_then(part));
    std::iter::once(figure.map(|figure| figure.median)).chain(parts).collect()
}

fn parts(column: Column) -> &'static [Part] {
    if IN_FULL.contains(&column) { &PARTS } else { &[] }
}

/// The Markdown: the columns of memory and cost that some variant has, in the units of the tables.
pub fn markdown(trial: &Trial) -> String {
    let shown: Vec<(Column, bool)> = IN_MARKDOWN
        .into_iter()
        .filter(|(column, _)| trial.variants.iter().any(|it| it.figure(*column).is_some()))
        .map(|(column, versus)| (column, versus && trial.variants.len() > 1))
        .collect();
    let mut header = vec!["variant".to_owned(), "n".to_owned()];
    for (column, versus) in &shown {
        let heading = match column.unit() {
            Unit::Bytes => format!("{} MB", column.label()),
            _ => column.label().to_owned(),
        };
        header.push(heading.clone());
        if let (true, Some(first)) = (versus, trial.variants.first()) {
            header.push(format!("{heading} vs. {}", escape(&first.name)));
        }
    }
    header.push("disturbed".to_owned());
    let rule = format!("|---|{}---|\n", "---:|".repeat(header.len() - 2));
    let rows = trial.variants.iter().map(|variant| {
        let name = escape(&variant.name);
        let name = if trial.recommends(&variant.name) { format!("**{name}**") } else { name };
        let mut cells = vec![name, complete(variant).to_string()];
        for (column, versus) in &shown {
            cells.extend(cells_of(trial, variant.figure(*column), *column, *versus));
        }
        cells.push(disturbed(variant).to_owned());
        line(&cells)
    });
    let rows: String = rows.collect();
    format!("{}{rule}{rows}", line(&header))
}

fn cells_of(trial: &Trial, figure: Option<&Figure>, column: Column, versus: bool) -> Vec<String> {
    let unit = column.unit();
    let median = figure.map(|figure| tables::absolute(figure, unit));
    let difference =
        figure.filter(|figure| figure.versus_first.is_some()).map(|figure| tables::difference(trial)(figure, unit));
    let text = |cell: Option<Cell>| cell.map_or_else(String::new, |cell| cell.in_one_line());
    let cells = std::iter::once(text(median));
    cells.chain(versus.then(|| text(difference))).collect()
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn complete(variant: &Variant) -> u32 {
    variant.summary.as_ref().map_or(0, |summary| summary.runs)
}

/// Whether other programs took processors from a run that counts; nothing where no run could tell.
fn times_disturbed(variant: &Variant) -> Option<bool> {
    known(variant, variant.has_disturbed_times(), |it| it.others_cpu_share)
}

/// The same of memory.
fn memory_disturbed(variant: &Variant) -> Option<bool> {
    known(variant, variant.has_disturbed_memory(), |it| it.memory_pressure_share)
}

/// A disturbance is known from one run; its absence only where every run was measured.
fn known(variant: &Variant, is_disturbed: bool, share: fn(&Disturbance) -> Option<f64>) -> Option<bool> {
    let mut runs = variant.complete().peekable();
    runs.peek()?;
    let all_measured = runs.all(|run| share(&run.disturbance).is_some());
    (is_disturbed || all_measured).then_some(is_disturbed)
}

fn disturbed(variant: &Variant) -> &'static str {
    match (times_disturbed(variant), memory_disturbed(variant)) {
        (Some(true), Some(true)) => "times, memory",
        (Some(true), _) => "times",
        (_, Some(true)) => "memory",
        (Some(false), _) => "no",
        (None, _) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_trial::example;

    fn read(text: &str) -> Vec<csv::StringRecord> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        reader.records().map(Result::unwrap).collect()
    }

    #[test]
    fn names_of_the_csv_are_those_of_the_results() {
        let measures = serde_json::to_value(ebb_trial::results::Measures {
            typical_bytes: Some(0.0),
            floor_bytes: Some(0.0),
            cgroup_bytes: Some(0.0),
            ..Default::default()
        });
        let measures = measures.unwrap();
        for column in Column::ALL {
            let name = &names(*column)[0];
            assert!(measures.get(name).is_some(), "{name} is not in {measures}");
        }
    }

    #[test]
    fn a_missing_figure_is_empty_and_a_name_with_a_comma_is_one_cell() {
        let mut trial = example::trial();
        trial.variants[0].name = "x, \"y\"".into();
        let rows = read(&csv(&trial).unwrap());
        assert_eq!(rows.len(), trial.variants.len() + 1);
        assert_eq!(&rows[1][0], "x, \"y\"");
        let at = |name: &str| rows[0].iter().position(|it| it == name).unwrap();
        assert_eq!(&rows[1][at("after_rest_bytes_diff")], "", "the first itself");
        let without = trial.variants.iter().position(|it| it.summary.is_none());
        let row = &rows[without.unwrap() + 1];
        assert_eq!(&row[at("n")], "0");
        let from = at("disturbed_times");
        assert!(row.iter().skip(from).all(str::is_empty), "{row:?}");
    }

    #[test]
    fn a_markdown_table_has_one_row_per_variant_and_cells_for_every_heading() {
        let mut trial = example::trial();
        trial.variants[0].name = "a|b".into();
        let text = markdown(&trial);
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), trial.variants.len() + 2, "{text}");
        assert!(lines.iter().all(|line| bars(line) == bars(lines[0])), "{text}");
        assert!(lines[0].contains("| after rest MB | after rest MB vs. a\\|b |"), "{text}");
        assert!(text.contains("| **ebbmalloc** |"), "{text}");
        let missing = lines.iter().find(|line| line.starts_with("| tcmalloc"));
        assert!(missing.unwrap().starts_with("| tcmalloc | 0 |  |  |"), "{text}");
    }

    #[test]
    fn a_disturbance_that_no_run_could_tell_is_neither_yes_nor_no() {
        let mut variant = example::trial().variants.swap_remove(0);
        let set = |variant: &mut Variant, share| {
            for run in &mut variant.runs {
                run.disturbance.others_cpu_share = share;
            }
        };
        for (share, disturbed) in [(None, None), (Some(0.0), Some(false)), (Some(0.5), Some(true))] {
            set(&mut variant, share);
            assert_eq!(times_disturbed(&variant), disturbed);
        }
        variant.runs.clear();
        assert_eq!(times_disturbed(&variant), None);
    }
}
