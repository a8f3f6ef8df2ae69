//! The graph beside the log: one lane per session.

use std::collections::HashMap;

use crate::render::Charset;

/// Maximum number of lanes. Further concurrent sessions share the last one, so that the text stays
/// aligned.
const MAX_LANES: usize = 8;

/// The lanes in use at each line of the log.
#[derive(Debug)]
pub(super) struct Lanes {
    /// For each line its own lane, and whether each lane is in use there and continues below.
    lines: Vec<(usize, Vec<Use>)>,
    width: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    here: bool,
    below: bool,
}

impl Lanes {
    /// Assigns each session a lane from its first line to its last. `None` stands for no session.
    pub(super) fn of<'a>(sessions: impl Iterator<Item = Option<&'a str>>) -> Lanes {
        let sessions: Vec<_> = sessions.collect();
        let last: HashMap<Option<&str>, usize> =
            sessions.iter().enumerate().map(|(at, session)| (*session, at)).collect();
        let mut held: Vec<Vec<Option<&str>>> = Vec::new();
        let mut lines = Vec::new();
        for (at, session) in sessions.iter().enumerate() {
            let own = lane_of(&mut held, *session);
            let goes_on = |held: &Vec<Option<&str>>| held.iter().any(|one| last[one] > at);
            let uses = held
                .iter()
                .map(|held| Use { here: !held.is_empty(), below: goes_on(held) })
                .collect();
            lines.push((own, uses));
            held.iter_mut().for_each(|held| held.retain(|one| last[one] > at));
        }
        Lanes { lines, width: held.len() }
    }

    /// Returns the graph of a line, with `sign` in its lane.
    pub(super) fn row(&self, line: usize, sign: char, charset: Charset) -> String {
        let (own, uses) = &self.lines[line];
        self.draw(|lane| match uses.get(lane) {
            _ if lane == *own => sign,
            Some(Use { here: true, .. }) => bar(charset),
            _ => ' ',
        })
    }

    /// Returns the graph between a line and the next.
    pub(super) fn row_below(&self, line: usize, charset: Charset) -> String {
        let (_, uses) = &self.lines[line];
        self.draw(|lane| match uses.get(lane) {
            Some(Use { below: true, .. }) => bar(charset),
            _ => ' ',
        })
    }

    fn draw(&self, at: impl Fn(usize) -> char) -> String {
        let lanes: Vec<String> = (0..self.width).map(|lane| at(lane).to_string()).collect();
        lanes.join(" ")
    }
}

/// Returns the lane of a session, or assigns the first free one.
fn lane_of<'a>(held: &mut Vec<Vec<Option<&'a str>>>, session: Option<&'a str>) -> usize {
    let known = held.iter().position(|held| held.contains(&session));
    if let Some(lane) = known {
        return lane;
    }
    let free = held.iter().position(Vec::is_empty).unwrap_or(held.len()).min(MAX_LANES - 1);
    if free == held.len() {
        held.push(Vec::new());
    }
    held[free].push(session);
    free
}

fn bar(charset: Charset) -> char {
    match charset {
        Charset::Utf8 => '│',
        Charset::Ascii => '|',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sessions: &[&str]) -> Vec<String> {
        let named = sessions.iter().map(|name| Some(*name).filter(|name| *name != "-"));
        let lanes = Lanes::of(named);
        (0..sessions.len()).map(|line| lanes.row(line, '*', Charset::Ascii)).collect()
    }

    #[test]
    fn a_lane_lasts_from_the_first_line_of_a_session_to_its_last() {
        assert_eq!(drawn(&["a", "b", "a", "-", "b"]), ["*  ", "| *", "* |", "* |", "  *"]);
        assert_eq!(drawn(&["a", "b", "c"]), ["*", "*", "*"]);
    }

    #[test]
    fn many_sessions_share_the_last_lane() {
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let mut lines: Vec<&str> = names.iter().map(String::as_str).collect();
        lines.extend_from_within(..);
        let drawn = drawn(&lines);
        assert!(drawn.iter().all(|row| row.len() == MAX_LANES * 2 - 1), "{drawn:?}");
        assert!(drawn.iter().all(|row| row.contains('*')));
    }
}
