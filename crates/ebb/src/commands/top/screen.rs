//! The terminal as `ebb top` needs it: raw, on the other screen, with the mouse. It is what it was before on every way out: an
//! end, a failure, a signal, a panic.

use std::io::{self, Stdout};
use std::sync::mpsc::Sender;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, MouseEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::model::Event;
use crate::exit::Failure;

/// The terminal while it is taken.
pub struct Screen(pub Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes the terminal. From here on keys, sizes and signals are sent to `events`.
    pub fn take(events: &Sender<Event>) -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let ended = events.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if ended.send(Event::End).is_err() {
                    return;
                }
            }
        });
        // The program aborts after a panic, so no destructor runs.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enable_raw_mode()?;
        let taken = execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture);
        let screen = taken.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        let screen = screen.map(Self).inspect_err(|_| restore())?;
        let events = events.clone();
        std::thread::spawn(move || while send(&events) {});
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Waits for what a person does next and sends it; `false` where that was the last.
fn send(events: &Sender<Event>) -> bool {
    let event = match event::read() {
        Ok(event::Event::Key(key)) => Event::Key(key),
        // Else each movement would draw the screen.
        Ok(event::Event::Mouse(mouse)) if mouse.kind == MouseEventKind::Moved => return true,
        Ok(event::Event::Mouse(mouse)) => Event::Mouse(mouse),
        Ok(event::Event::Resize(width, height)) => Event::Resize(width, height),
        Ok(_) => return true,
        // The terminal is gone.
        Err(_) => {
            let _ = events.send(Event::End);
            return false;
        }
    };
    events.send(event).is_ok()
}

/// A terminal that is gone cannot be restored.
fn restore() {
    let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
