use super::*;
use crate::commands::top::model::tests::after;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// The screen as text, without the room on the right.
fn text(model: &Model, (width, height): (u16, u16), has_colours: bool) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, frame, has_colours)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn screen(size: (u16, u16), keys: &str) -> String {
    text(&after(size, keys).0, size, true)
}

#[track_caller]
fn assert_screen(found: &str, expected: &str) {
    assert_eq!(found.trim_end(), expected.trim_matches('\n'), "\n{found}");
}

#[test]
fn show() {
    for (size, keys) in [((80,24),""),((160,20),"t"),((80,24),"Tab t"),((80,24),"Enter"),((80,24),"F1"),((80,24),"F6"),((40,10),""),((20,7),"")] {
        println!("== {size:?} {keys}\n{}", screen(size, keys));
    }
}
