//! The dialog that shows a plan and asks for confirmation.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Modifier, Style as Ink};
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use super::Style;
use super::state::Proposal;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, proposal: &Proposal, style: Style) {
    /// Number of lines around the list: the border, the question, blank lines and the choice.
    const AROUND: usize = 6;
    let room = usize::from(area.height).saturating_sub(AROUND).max(1);
    let mut lines = vec![
        Line::from(proposal.question.as_str()).style(Ink::new().add_modifier(Modifier::BOLD)),
        Line::default(),
    ];
    if proposal.lines.is_empty() {
        lines.push(Line::from("no file to change"));
    }
    lines.extend(proposal.lines.iter().take(room).map(|line| {
        let ink = if line.starts_with('!') { style.ink(Color::Yellow) } else { Ink::new() };
        Line::from(line.as_str()).style(ink)
    }));
    if proposal.lines.len() > room {
        lines.push(Line::from(format!("and {} more", proposal.lines.len() - room)));
    }
    lines.push(Line::default());
    lines.push(Line::from("y: do it    n: leave everything as it is"));
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX);
    let area = centred(area, width.min(area.width), height.min(area.height));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(style.frame("")), area);
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [cell] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(row);
    cell
}
