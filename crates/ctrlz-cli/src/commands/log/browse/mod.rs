//! `ctrlz log -i`: browses the timeline and the changes of each operation, with undo and restore.
//!
//! `state` holds the state and handles keys; each other file draws one pane.

mod confirm;
mod diff;
mod state;
mod timeline;

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::{Constraint, Layout};
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::Block;
use ratatui::{DefaultTerminal, Frame};

use super::super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{Charset, Palette};
use state::{Browser, Focus};

/// Shows the timeline until the user quits.
pub(super) fn run(
    place: &Place,
    session: Option<&str>,
    charset: Charset,
    palette: Palette,
) -> Result<Done, Failure> {
    let mut browser = Browser::open(place.opened(), session, charset)?;
    let style = Style { charset, palette };
    let mut terminal = ratatui::try_init().map_err(Failure::Output)?;
    let shown = browse(&mut terminal, &mut browser, style);
    // The terminal is restored in any case, even if browsing failed.
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(Failure::Output)?;
    Ok(Done::Complete)
}

/// Character set and colours.
#[derive(Clone, Copy)]
struct Style {
    charset: Charset,
    palette: Palette,
}

impl Style {
    /// Returns a style in a colour, or a plain one if colours are disabled.
    fn ink(self, colour: ratatui::style::Color) -> ratatui::style::Style {
        match self.palette {
            Palette::Coloured => ratatui::style::Style::new().fg(colour),
            Palette::Plain => ratatui::style::Style::new(),
        }
    }

    /// Returns a border around one pane.
    fn frame(self, title: &str) -> Block<'_> {
        const ASCII: border::Set<'_> = border::Set {
            top_left: "+",
            top_right: "+",
            bottom_left: "+",
            bottom_right: "+",
            vertical_left: "|",
            vertical_right: "|",
            horizontal_top: "-",
            horizontal_bottom: "-",
        };
        let block = Block::bordered().title(title);
        match self.charset {
            Charset::Utf8 => block,
            Charset::Ascii => block.border_set(ASCII),
        }
    }
}

fn browse(
    terminal: &mut DefaultTerminal,
    browser: &mut Browser<'_>,
    style: Style,
) -> io::Result<()> {
    /// Interval between checks for new operations.
    const LOOK_UP: Duration = Duration::from_secs(1);
    while browser.is_open() {
        terminal.draw(|frame| draw(frame, browser, style))?;
        if !event::poll(LOOK_UP)? {
            browser.look_up();
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            browser.press(key);
        }
    }
    Ok(())
}

/// Draws everything: side by side if there is room, otherwise stacked.
fn draw(frame: &mut Frame<'_>, browser: &mut Browser<'_>, style: Style) {
    const WIDE: u16 = 110;
    let [body, foot] =
        Layout::vertical([Constraint::Min(3), Constraint::Length(1)]).areas(frame.area());
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let layout =
        if body.width >= WIDE { Layout::horizontal(halves) } else { Layout::vertical(halves) };
    let [left, right] = layout.areas(body);
    timeline::draw(frame, left, browser, style);
    diff::draw(frame, right, browser, style);
    frame.render_widget(Line::from(footer(browser)), foot);
    if let Some(proposal) = browser.proposal() {
        confirm::draw(frame, body, proposal, style);
    }
}

fn footer(browser: &Browser<'_>) -> String {
    if let Some(notice) = browser.notice() {
        return notice.to_owned();
    }
    match browser.focus() {
        _ if browser.proposal().is_some() => " y do it   n leave everything as it is".into(),
        Focus::Timeline => {
            " ↑↓ move  tab diff  u undo step  U undo from here  r redo  R restore here  q quit"
                .into()
        }
        Focus::Diff => " j/k scroll  tab timeline  q quit".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ctrlz::{Options, Progress, StepEnd, StepInfo, StepStart, TrackOptions, Workspace};
    use ctrlz_api::Opened;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    /// A work tree with a baseline and two steps.
    struct Lab {
        _dir: tempfile::TempDir,
        opened: Opened,
    }

    impl Lab {
        fn new() -> Lab {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("project");
            std::fs::create_dir(&root).unwrap();
            let workspace = Workspace::open(&root, Options::new(dir.path().join("data"))).unwrap();
            let lab = Lab { _dir: dir, opened: workspace.into() };
            lab.write("a.txt", "one\n");
            lab.opened.workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
            lab.step("m1", "make \x1b[31mred", || lab.write("a.txt", "one\ntwo\n"));
            lab.step("m2", "cargo fmt", || lab.write("b.txt", "\x1b[2Jnew\n"));
            lab
        }

        fn root(&self) -> &Path {
            self.opened.workspace.root()
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.root().join(name), text).unwrap();
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.root().join(name)).unwrap_or_else(|_| "(none)".into())
        }

        fn step(&self, message: &str, label: &str, work: impl FnOnce()) {
            let info = StepInfo {
                session: "s1".into(),
                message: Some(message.into()),
                tool: Some("bash".into()),
                label: Some(label.into()),
                ..StepInfo::default()
            };
            let start = StepStart { info, ..StepStart::default() };
            let begun = self.opened.workspace.begin_step(start, &Progress::default()).unwrap();
            work();
            self.opened
                .workspace
                .end_step(&begun.step, &StepEnd::default(), &Progress::default())
                .unwrap();
        }

        fn browser(&self) -> Browser<'_> {
            Browser::open(&self.opened, None, Charset::Utf8).unwrap()
        }
    }

    /// Returns the screen of a terminal of this size.
    fn shown(browser: &mut Browser<'_>, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let style = Style { charset: Charset::Utf8, palette: Palette::Coloured };
        terminal.draw(|frame| draw(frame, browser, style)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows = buffer.content().chunks(usize::from(width));
        let row = |cells: &[ratatui::buffer::Cell]| -> String {
            cells.iter().map(ratatui::buffer::Cell::symbol).collect()
        };
        rows.map(row).collect::<Vec<_>>().join("\n")
    }

    fn press(browser: &mut Browser<'_>, keys: &[KeyCode]) {
        for key in keys {
            browser.press(KeyEvent::new(*key, KeyModifiers::NONE));
        }
    }

    #[test]
    fn the_timeline_is_shown_beside_the_diff_of_the_selected_operation() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        let screen = shown(&mut browser, 140, 30);
        assert!(screen.contains("bash: cargo fmt"), "{screen}");
        assert!(screen.contains("baseline"), "{screen}");
        assert!(screen.contains("+\\u{1b}[2Jnew"), "control characters are escaped: {screen}");
        assert!(!screen.contains('\x1b'), "{screen}");
        press(&mut browser, &[KeyCode::Down]);
        let screen = shown(&mut browser, 140, 30);
        assert!(screen.contains("+two"), "{screen}");
        press(&mut browser, &[KeyCode::End]);
        assert!(shown(&mut browser, 140, 30).contains("the first snapshot"), "the baseline");
    }

    #[test]
    fn small_terminals_are_drawn_without_a_panic() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        for (width, height) in [(80, 24), (40, 12), (20, 6), (5, 3), (1, 1)] {
            let screen = shown(&mut browser, width, height);
            assert_eq!(screen.lines().count(), usize::from(height));
        }
        assert!(shown(&mut browser, 80, 24).contains("bash: cargo fmt"));
    }

    #[test]
    fn undo_shows_its_plan_asks_for_confirmation_and_can_be_redone() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        press(&mut browser, &[KeyCode::Down, KeyCode::Char('u')]);
        let screen = shown(&mut browser, 100, 30);
        assert!(screen.contains("~ overwrite  a.txt"), "{screen}");
        press(&mut browser, &[KeyCode::Char('n')]);
        assert_eq!(lab.read("a.txt"), "one\ntwo\n", "the undo was not confirmed");
        press(&mut browser, &[KeyCode::Char('u'), KeyCode::Char('y')]);
        assert_eq!(lab.read("a.txt"), "one\n");
        assert_eq!(lab.read("b.txt"), "\x1b[2Jnew\n", "the later step stays");
        assert!(shown(&mut browser, 140, 30).contains("undo of"), "it is in the timeline");
        press(&mut browser, &[KeyCode::Char('r'), KeyCode::Char('y')]);
        assert_eq!(lab.read("a.txt"), "one\ntwo\n");
    }

    #[test]
    fn undo_from_a_message_and_restore_of_an_operation_work() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        press(&mut browser, &[KeyCode::Down, KeyCode::Char('U'), KeyCode::Char('y')]);
        assert_eq!((lab.read("a.txt").as_str(), lab.read("b.txt").as_str()), ("one\n", "(none)"));
        let last_step = browser.rows().iter().position(|row| row.contains("cargo fmt")).unwrap();
        press(&mut browser, &[KeyCode::Home]);
        press(&mut browser, &vec![KeyCode::Down; last_step]);
        press(&mut browser, &[KeyCode::Char('R')]);
        assert!(shown(&mut browser, 100, 30).contains("+ create     b.txt"));
        press(&mut browser, &[KeyCode::Enter]);
        assert_eq!(lab.read("b.txt"), "\x1b[2Jnew\n");
    }

    #[test]
    fn files_changed_after_the_plan_are_not_overwritten() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        press(&mut browser, &[KeyCode::Down, KeyCode::Char('u')]);
        lab.write("a.txt", "mine\n");
        press(&mut browser, &[KeyCode::Char('y')]);
        assert_eq!(lab.read("a.txt"), "mine\n");
        let notice = browser.notice().unwrap_or_default().to_owned();
        assert!(notice.contains("plan"), "the notice explains it: {notice}");
        assert!(shown(&mut browser, 140, 30).contains(notice.trim()));
    }

    #[test]
    fn impossible_actions_show_a_notice() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        press(&mut browser, &[KeyCode::End, KeyCode::Char('u')]);
        assert!(shown(&mut browser, 140, 30).contains("no step"), "a baseline has none");
        press(&mut browser, &[KeyCode::Char('r')]);
        assert!(browser.proposal().is_none());
        assert!(browser.notice().is_some_and(|notice| notice.contains("redo")));
    }

    #[test]
    fn new_operations_appear_and_the_selection_stays() {
        let lab = Lab::new();
        let mut browser = lab.browser();
        lab.step("m3", "make test", || lab.write("c.txt", "three\n"));
        browser.look_up();
        assert!(shown(&mut browser, 140, 30).contains("make test"));
        press(&mut browser, &[KeyCode::Down]);
        let chosen = browser.chosen().unwrap().operation.clone();
        lab.step("m4", "make all", || lab.write("c.txt", "four\n"));
        browser.look_up();
        assert_eq!(browser.chosen().unwrap().operation, chosen, "the selection stays");
    }

    #[test]
    fn an_empty_log_can_be_browsed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        std::fs::create_dir(&root).unwrap();
        let workspace = Workspace::open(&root, Options::new(dir.path().join("data"))).unwrap();
        let opened = workspace.into();
        let mut browser = Browser::open(&opened, None, Charset::Ascii).unwrap();
        let keys = [KeyCode::Down, KeyCode::Up, KeyCode::End, KeyCode::Char('u'), KeyCode::Tab];
        press(&mut browser, &keys);
        assert!(shown(&mut browser, 80, 24).contains("nothing is recorded"));
        press(&mut browser, &[KeyCode::Char('q')]);
        assert!(!browser.is_open());
    }

    #[test]
    fn a_long_log_is_loaded_while_scrolling() {
        let lab = Lab::new();
        for number in 0..60 {
            let label = format!("number {number}");
            lab.step(&label, &label, || lab.write("n.txt", &label));
        }
        let mut browser = lab.browser();
        let first = browser.rows().len();
        assert!(first < 60, "{first}");
        press(&mut browser, &[KeyCode::PageDown; 12]);
        assert!(browser.rows().len() > 60);
        assert!(shown(&mut browser, 100, 30).contains("baseline"));
    }
}
