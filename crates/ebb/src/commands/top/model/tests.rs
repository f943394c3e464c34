use super::*;
use crate::commands::top::rows::Heap;
use ratatui::crossterm::event::KeyEventState;

fn process(pid: i32, parent: i32, group: &str, name: &str, rss: u64, held: Option<u64>) -> Row {
    let key = |pid| Key::Process { pid, started_ticks: 100 };
    let heap = |held| Heap {
        live: Some(rss / 2),
        held: Some(held),
        returnable: Some(held / 2),
        pinned: Some(held / 4),
        file: Some(1_500_000),
        allocator: Some("glibc".to_owned()),
        in_charge: (pid == 30).then_some(false),
        verdict: if held > rss / 4 { "retention" } else { "in use" },
        ..Heap::default()
    };
    Row {
        key: key(pid),
        parent: Some(key(parent)),
        group: Some(Key::Group { cgroup: group.to_owned() }),
        name: name.to_owned(),
        processes: 1,
        rss: Some(rss),
        limit: (group == "/web").then_some(2_000_000_000),
        limit_usage: (group == "/web").then_some(1_900_000_000),
        heap: held.map(heap).or((pid == 50).then(|| Heap { verdict: "no right", ..Heap::default() })),
        ..Row::default()
    }
}

/// Five processes in two groups; one was not read.
pub fn example() -> Figures {
    const MB: u64 = 1_000_000;
    let processes = vec![
        process(10, 1, "/web", "gunicorn", 100 * MB, Some(5 * MB)),
        process(20, 10, "/web", "gunicorn: worker", 900 * MB, Some(400 * MB)),
        process(30, 10, "/web", "gunicorn: worker", 800 * MB, Some(350 * MB)),
        process(40, 1, "/db", "postgres", 2500 * MB, Some(20 * MB)),
        process(50, 40, "/db", "a\u{fffd}[31mb", 50 * MB, None),
    ];
    let group = |name: &str, members: &[usize]| Row {
        key: Key::Group { cgroup: name.to_owned() },
        parent: None,
        group: None,
        name: name[1..].to_owned(),
        processes: members.len(),
        rss: members.iter().map(|&at| processes[at].rss).sum(),
        heap: processes[members[0]].heap.clone().map(|heap| Heap {
            held: members.iter().filter_map(|&at| processes[at].heap.as_ref()?.held).reduce(|a, b| a + b),
            ..heap
        }),
        ..processes[members[0]].clone()
    };
    let groups = vec![group("/web", &[0, 1, 2]), group("/db", &[3, 4])];
    let cost =
        Cost { share: 0.004, budget: 0.01, resident: Some(12 * MB), clock: "03:00:00".to_owned(), every_s: None };
    Figures { processes, groups, cost, is_tick: true }
}

pub fn press(model: &mut Model, key: &str) -> Vec<Wish> {
    let (modifiers, key) = match key.strip_prefix("C-") {
        Some(key) => (KeyModifiers::CONTROL, key),
        None => (KeyModifiers::NONE, key),
    };
    let code = match key {
        "Enter" => KeyCode::Enter,
        "Esc" => KeyCode::Esc,
        "Tab" => KeyCode::Tab,
        "Down" => KeyCode::Down,
        "PgDn" => KeyCode::PageDown,
        "End" => KeyCode::End,
        "Back" => KeyCode::Backspace,
        _ if key.len() > 1 => KeyCode::F(key[1..].parse().unwrap()),
        _ => KeyCode::Char(key.chars().next().unwrap()),
    };
    let kind = KeyEventKind::Press;
    model.update(Event::Key(KeyEvent { code, modifiers, kind, state: KeyEventState::NONE }))
}

/// The screen after these keys, with the wishes of the last.
pub fn after(size: (u16, u16), keys: &str) -> (Model, Vec<Wish>) {
    let mut model = Model::new(size, View::Processes);
    let mut wishes = model.update(Event::Figures(example()));
    for key in keys.split_whitespace() {
        wishes = press(&mut model, key);
    }
    (model, wishes)
}

/// The rows in their order, the selected one in brackets, by depth.
fn list(model: &Model) -> String {
    let all = model.shown.iter().enumerate().map(|(at, shown)| {
        let name = match &model.row(*shown).key {
            Key::Process { pid, .. } => pid.to_string(),
            Key::Group { cgroup } => cgroup.clone(),
        };
        let name = if at == model.cursor { format!("[{name}]") } else { name };
        format!("{}{name}", ">".repeat(shown.depth))
    });
    all.collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_order_move_filter_and_search() {
    for (keys, expected) in [
        // The row that holds most comes first, rows without a figure last.
        ("", "[20] 30 40 10 50"),
        ("j j k", "20 [30] 40 10 50"),
        ("G", "20 30 40 10 [50]"),
        ("G g g", "[20] 30 40 10 50"),
        ("PgDn", "20 30 40 10 [50]"),
        ("C-d", "20 30 40 10 [50]"),
        // The first row is selected, or the process that a person moved to.
        ("I", "[10] 40 30 20 50"),
        ("j I", "10 40 [30] 20 50"),
        ("j g g I", "[10] 40 30 20 50"),
        ("F6 j Enter", "[40] 20 30 10 50"),
        ("j s < < Enter", "10 20 [30] 40 50"),
        ("j s < < Enter I", "50 40 [30] 20 10"),
        ("j F6 Enter", "20 [30] 40 10 50"),
        ("t", "[10] >20 >30 40 >50"),
        ("Tab", "[/web] /db"),
        ("Tab t", "[/web] >20 >30 >10 /db >40 >50"),
        ("Tab Tab", "[20] 30 40 10 50"),
        ("\\ P O S Enter", "[40]"),
        ("\\ P O S Back Enter j", "[40]"),
        ("\\ 5 0 Enter t", "[40] >50"),
        ("\\ z z Enter", ""),
        ("\\ / w e b", "[20] 30 10"),
        ("\\ 5 0 Enter j Esc", "20 30 40 10 [50]"),
        ("\\ 5 0 Esc", "[20] 30 40 10 50"),
        ("/ w o r k", "[20] 30 40 10 50"),
        ("/ w o r k F3", "20 [30] 40 10 50"),
        ("/ w o r k Enter n n", "[20] 30 40 10 50"),
        ("/ z z", "[20] 30 40 10 50"),
        ("\\ q j Enter", ""),
    ] {
        assert_eq!(list(&after((80, 24), keys).0), expected, "{keys}");
    }
}

#[test]
fn keys_ask_for_looks_details_trims_and_snaps_of_the_selected_row() {
    let key = |pid| Key::Process { pid, started_ticks: 100 };
    for (keys, expected) in [
        ("", vec![Wish::Look(key(20))]),
        ("j", vec![Wish::Look(key(30))]),
        ("Enter", vec![Wish::Open(key(20))]),
        ("j T", vec![Wish::Forecast(key(30))]),
        ("Enter T", vec![Wish::Forecast(key(20))]),
        // The forecast has not come yet.
        ("T y", vec![]),
        ("S", vec![Wish::Snap(key(20))]),
        ("q", vec![Wish::Quit]),
        ("Enter q", vec![Wish::Look(key(20))]),
        ("Enter q F10", vec![Wish::Quit]),
        ("F1 q", vec![]),
        ("\\ q", vec![]),
        ("\\ C-c", vec![Wish::Quit]),
    ] {
        assert_eq!(after((80, 24), keys).1, expected, "{keys}");
    }
}

#[test]
fn a_trim_is_asked_for_and_only_y_does_it() {
    let key = Key::Process { pid: 20, started_ticks: 100 };
    for (offered, answer, expected) in
        [(true, "y", vec![Wish::Trim(key.clone())]), (true, "Enter", vec![]), (true, "n", vec![]), (false, "y", vec![])]
    {
        let (mut model, _) = after((80, 24), "T");
        model.update(Event::Forecast(key.clone(), vec!["400 MB".to_owned()], offered));
        assert_eq!(press(&mut model, answer), expected, "{answer}");
        model.update(Event::Done(vec!["done".to_owned()]));
        press(&mut model, "Esc");
        assert_eq!(model.mode, Mode::List);
    }
    // Of another row: it was closed meanwhile.
    let (mut model, _) = after((80, 24), "T Esc j");
    model.update(Event::Forecast(key, Vec::new(), true));
    assert_eq!(model.mode, Mode::List);
}

#[test]
fn new_figures_keep_the_selection_and_a_frozen_screen_its_rows() {
    let (mut model, _) = after((80, 24), "j");
    let mut figures = example();
    figures.processes.retain(|row| row.name != "postgres");
    figures.processes[1].heap.as_mut().unwrap().held = Some(0);
    assert_eq!(model.update(Event::Figures(figures)), []);
    assert_eq!(list(&model), "[30] 10 20 50");
    // Its process ended: the row in its place, which is looked at.
    let mut figures = example();
    figures.processes.remove(2);
    let wishes = model.update(Event::Figures(figures));
    assert_eq!(list(&model), "[20] 40 10 50");
    assert_eq!(wishes, [Wish::Look(Key::Process { pid: 20, started_ticks: 100 })]);
    press(&mut model, "f");
    model.update(Event::Figures(Figures::default()));
    assert_eq!(list(&model), "[20] 40 10 50");
    press(&mut model, "Z");
    model.update(Event::Figures(Figures::default()));
    assert_eq!(list(&model), "");
    assert_eq!(press(&mut model, "Enter"), []);
}

#[test]
fn the_mouse_selects_opens_sorts_and_scrolls() {
    let mouse = |kind, column, row| Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
    let click = |column, row| mouse(MouseEventKind::Down(MouseButton::Left), column, row);
    let (mut model, _) = after((80, 24), "");
    model.update(click(10, 4));
    assert_eq!(list(&model), "20 [30] 40 10 50");
    // Below the last row, on a heading, and on a key of the last line.
    model.update(click(10, 15));
    model.update(click(2, 2));
    assert_eq!(list(&model), "10 20 [30] 40 50");
    model.update(click(27, 23));
    assert_eq!(list(&model), "10 >20 >[30] 40 >50");
    model.update(mouse(MouseEventKind::ScrollDown, 1, 5));
    assert_eq!(model.cursor, 4);
    let again = (model.offset..).zip(3_u16..).find(|(at, _)| *at == model.cursor).unwrap().1;
    model.update(click(10, again));
    assert_eq!(model.mode, Mode::Detail);
}

#[test]
fn the_selected_row_is_on_a_screen_of_any_size() {
    for (width, height) in [(80, 24), (20, 7), (9, 4), (1, 1), (0, 0)] {
        for keys in ["G", "G k k", "Enter", "F1 j j", "F6 G", "t G"] {
            let (mut model, _) = after((80, 24), keys);
            model.update(Event::Resize(width, height));
            let count = usize::from(model.lines().count);
            let rows = model.offset..model.offset + count.max(1);
            assert!(rows.contains(&model.cursor), "{width}x{height} {keys}");
        }
    }
}
