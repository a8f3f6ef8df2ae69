//! The pane with the changes of the selected operation.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::Style;
use super::state::{Browser, Focus};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, browser: &Browser<'_>, style: Style) {
    let preview = browser.preview();
    let lines = preview.lines.iter().skip(preview.scroll).take(usize::from(area.height));
    let lines: Vec<Line<'_>> =
        lines.map(|line| Line::from(line.as_str()).style(ink(line, style))).collect();
    let title = match browser.focus() {
        Focus::Diff => " > changes ",
        Focus::Timeline => " changes ",
    };
    frame.render_widget(Paragraph::new(lines).block(style.frame(title)), area);
}

fn ink(line: &str, style: Style) -> Ink {
    let is_head = ["diff ", "+++", "---", "index ", "new file", "deleted file", "similarity"];
    if is_head.iter().any(|start| line.starts_with(start)) {
        return Ink::new().add_modifier(Modifier::BOLD);
    }
    match line.as_bytes().first() {
        Some(b'+') => style.ink(Color::Green),
        Some(b'-') => style.ink(Color::Red),
        Some(b'@') => style.ink(Color::Cyan),
        _ => Ink::new(),
    }
}
