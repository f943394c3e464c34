use super::*;
use crate::commands::top::model::Event;
use crate::commands::top::model::tests::{after, press};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;

fn drawn(model: &Model, (width, height): (u16, u16), has_colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, frame, has_colours)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width);
    let line = |cells: &[Cell]| cells.iter().map(Cell::symbol).collect::<String>();
    lines.map(|cells| line(cells).trim_end().to_owned() + "\n").collect()
}

/// `screens.txt` has the size, the keys and then the screen.
#[test]
fn screens_are_as_recorded() {
    let mut found = String::new();
    for (width, height, keys) in [
        (80, 24, ""),
        (160, 10, "t"),
        (80, 12, "Tab t j"),
        (80, 12, "\\ p o s"),
        (80, 24, "F1"),
        (80, 24, "F6"),
        (40, 8, ""),
        (14, 5, "j j"),
    ] {
        let (model, _) = after((width, height), keys);
        let screen = text(&drawn(&model, (width, height), true));
        found += &format!("== {width}x{height} {keys}\n{screen}");
    }
    let (mut model, _) = after((80, 12), "Enter");
    let key = model.open.clone().unwrap();
    let sentence = "Retention: 400 of 900 MB of gunicorn (20) are freed and held by the allocator, mostly whole pages.";
    let lines = [sentence, "", "  live blocks  450.0"].map(str::to_owned);
    model.update(Event::Detail(key.clone(), lines.to_vec()));
    found += &format!("== 80x12 Enter\n{}", text(&drawn(&model, (80, 12), true)));
    press(&mut model, "T");
    model.update(Event::Forecast(key, vec!["returns 200 MB".to_owned(), "Now?".to_owned()], true));
    found += &format!("== 80x12 Enter T\n{}", text(&drawn(&model, (80, 12), true)));
    assert!(found == include_str!("screens.txt"), "{found}");
}

#[test]
fn without_colours_there_are_none_and_no_size_is_too_small() {
    for keys in ["", "Tab t", "Enter", "F1 j j", "F6", "/ w", "T", "\\ z z"] {
        for size in [(160, 50), (80, 24), (30, 3), (3, 30), (2, 2), (1, 1), (1, 0)] {
            let (mut model, _) = after((80, 24), keys);
            // The screen is drawn before the size is known, and after it.
            drawn(&model, size, false);
            model.update(Event::Resize(size.0, size.1));
            let plain = drawn(&model, size, false);
            assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset), "{keys}");
        }
    }
    let (model, _) = after((80, 24), "");
    assert!(drawn(&model, (80, 24), true).content.iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn a_trend_runs_from_the_least_to_the_most_and_shows_the_last_points() {
    assert_eq!(trend(&[0, 10, 70, 35], 9), "▁▂█▄");
    assert_eq!(trend(&[9, 9, 0, 70], 2), "▁█");
    assert_eq!(trend(&[1_000_000, 1_000_001], 9), "▁▁");
    assert_eq!(trend(&[], 9), "");
}

#[test]
fn a_long_line_is_folded_between_words_and_a_long_word_is_not() {
    assert_eq!(words::folded("one two three four", 13), ["one two", "    three", "    four"]);
    assert_eq!(words::folded("  äone   two", 80), ["  äone   two"]);
    assert_eq!(words::folded("ääääääääää ööööööööö", 12), ["ääääääääää", "    ööööööööö"]);
    assert_eq!(words::folded("      abcdefghij", 8), ["      abcdefghij"]);
    assert_eq!(words::folded("abc", 0), ["abc"]);
}

#[test]
fn no_figure_is_cut_by_its_column() {
    const MB: u64 = 1_000_000;
    for (bytes, expected) in
        [(0, "0.0"), (999 * MB, "999.0"), (999_960_000, "1000"), (999_999 * MB, "999999"), (1_500_000 * MB, "1.5T")]
    {
        assert_eq!(mb(bytes), expected);
        assert!(expected.len() <= usize::from(Column::Rss.width()));
    }
}
