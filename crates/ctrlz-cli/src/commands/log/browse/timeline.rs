//! The pane with the list of operations.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::widgets::{List, ListItem, ListState};

use super::Style;
use super::state::{Browser, Focus};
use crate::commands::log::is_undone;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, browser: &Browser<'_>, style: Style) {
    let ink = |at: usize| match browser.entries().get(at) {
        Some(entry) if is_undone(entry) => Ink::new().add_modifier(Modifier::DIM),
        Some(entry) if entry.kind == "outside" => style.ink(Color::Yellow),
        Some(entry) if !entry.steps.is_empty() => style.ink(Color::Cyan),
        _ => Ink::new(),
    };
    let rows = browser.rows().iter().enumerate();
    let items = rows.map(|(at, row)| ListItem::new(row.as_str()).style(ink(at)));
    let mark = if browser.focus() == Focus::Timeline { "> " } else { "  " };
    let list = List::new(items)
        .block(style.frame(" timeline "))
        .highlight_style(Ink::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol(mark);
    let selected = (!browser.rows().is_empty()).then_some(browser.selected());
    let mut state = ListState::default().with_selected(selected);
    frame.render_stateful_widget(list, area, &mut state);
}
