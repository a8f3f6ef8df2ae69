//! The growth plot: cost by size, and cost by the length of a session.

use std::fmt::Write;

use crate::peers::Contender;
use crate::scenarios::{Results, Scenario};
use crate::tree::Shape;

const WIDTH: f64 = 980.0;
const HEIGHT: f64 = 440.0;
const PANEL_WIDTH: f64 = 360.0;
const PANEL_HEIGHT: f64 = 290.0;
const TOP: f64 = 90.0;

/// A line in a panel.
struct Line {
    name: &'static str,
    colour: &'static str,
    dashes: &'static str,
    points: Vec<(f64, f64)>,
}

struct Panel<'a> {
    left: f64,
    title: &'a str,
    across: &'a str,
    lines: Vec<Line>,
}

/// Draws both panels.
pub(crate) fn growth(results: &Results) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#2b2f36\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"60\" y=\"34\" font-size=\"19\" font-weight=\"bold\">What a snapshot costs as things grow</text>\n\
         <text x=\"60\" y=\"55\" fill=\"#69707d\">milliseconds, medians, both axes logarithmic; lower is better</text>\n"
    );
    let tracks = Panel {
        left: 60.0,
        title: "snapshot with one file changed",
        across: "files in the work tree",
        lines: Contender::ALL.into_iter().filter_map(|who| line(results, who)).collect(),
    };
    let steps = Line {
        name: "ctrlz, one step",
        colour: "#d6336c",
        dashes: "",
        points: results.session.iter().map(|p| (p.step as f64, p.cost.median)).collect(),
    };
    let session = Panel {
        left: 560.0,
        title: "one step of a session",
        across: "steps already in the session",
        lines: vec![steps],
    };
    for panel in [tracks, session] {
        panel.draw(&mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

fn line(results: &Results, contender: Contender) -> Option<Line> {
    let (colour, dashes) = match contender {
        Contender::Ctrlz => ("#d6336c", ""),
        Contender::Watcher => ("#0ca678", ""),
        Contender::Git => ("#f08c00", ""),
        Contender::OpenCode => ("#4263eb", ""),
        Contender::Jj => ("#7048e8", ""),
        Contender::Floor => ("#868e96", "5 4"),
        Contender::Library => return None,
    };
    let mut points: Vec<(f64, f64)> = results
        .rows
        .iter()
        .filter(|row| row.scenario == Scenario::WarmChanged(1) && row.shape == Shape::Usual)
        .filter_map(|row| Some((row.files as f64, row.series.get(&contender)?.wall().median)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    (!points.is_empty()).then_some(Line { name: contender.name(), colour, dashes, points })
}

impl Panel<'_> {
    fn draw(&self, svg: &mut String) {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let (low_x, high_x) = decades(all().map(|point| point.0));
        let (low_y, high_y) = decades(all().map(|point| point.1));
        let x = |value: f64| {
            self.left + (value.log10() - low_x) / (high_x - low_x) * (PANEL_WIDTH - 70.0)
        };
        let y = |value: f64| {
            TOP + PANEL_HEIGHT - (value.log10() - low_y) / (high_y - low_y) * PANEL_HEIGHT
        };
        self.grid(svg, (low_x, high_x, low_y, high_y), &x, &y);
        let mut labels: Vec<(f64, &Line)> = Vec::new();
        for line in &self.lines {
            let path: Vec<String> = line
                .points
                .iter()
                .map(|(at, cost)| format!("{:.1},{:.1}", x(*at), y(*cost)))
                .collect();
            writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\" \
                 stroke-linejoin=\"round\" stroke-dasharray=\"{}\"/>",
                path.join(" "),
                line.colour,
                line.dashes
            )
            .expect("text can grow");
            for (at, cost) in &line.points {
                writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{}\"/>",
                    x(*at),
                    y(*cost),
                    line.colour
                )
                .expect("text can grow");
            }
            if let Some((_, cost)) = line.points.last() {
                labels.push((y(*cost), line));
            }
        }
        self.labels(svg, labels);
    }

    fn grid(
        &self,
        svg: &mut String,
        (low_x, high_x, low_y, high_y): (f64, f64, f64, f64),
        x: &dyn Fn(f64) -> f64,
        y: &dyn Fn(f64) -> f64,
    ) {
        let (right, bottom) = (self.left + PANEL_WIDTH - 70.0, TOP + PANEL_HEIGHT);
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            self.left,
            TOP - 12.0,
            self.title
        )
        .expect("text can grow");
        for power in low_y as i32..=high_y as i32 {
            let at = y(10_f64.powi(power));
            writeln!(
                svg,
                "<line x1=\"{}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e6e8eb\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#69707d\">{}</text>",
                self.left,
                self.left - 8.0,
                at + 4.0,
                short(10_f64.powi(power))
            )
            .expect("text can grow");
        }
        for power in low_x as i32..=high_x as i32 {
            let at = x(10_f64.powi(power));
            writeln!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#f1f3f5\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#69707d\">{}</text>",
                bottom + 19.0,
                short(10_f64.powi(power))
            )
            .expect("text can grow");
        }
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#69707d\">{}</text>",
            (self.left + right) / 2.0,
            bottom + 41.0,
            self.across
        )
        .expect("text can grow");
    }

    /// Draws the names beside the ends of the lines, moved apart if they would overlap.
    fn labels(&self, svg: &mut String, mut labels: Vec<(f64, &Line)>) {
        labels.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut free = f64::MIN;
        for (at, line) in labels {
            let at = at.max(free);
            free = at + 17.0;
            writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" fill=\"{}\" font-weight=\"bold\">{}</text>",
                self.left + PANEL_WIDTH - 58.0,
                at + 4.0,
                line.colour,
                line.name
            )
            .expect("text can grow");
        }
    }
}

/// Returns the exponents of the powers of ten that enclose the values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if logs.is_empty() {
        return (0.0, 1.0);
    }
    let (low, high) = ((low + 0.02).floor(), (high - 0.02).ceil());
    (low, if high <= low { low + 1.0 } else { high })
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1_000_000.0 => format!("{}M", value / 1_000_000.0),
        value if value >= 1_000.0 => format!("{}k", value / 1_000.0),
        value => format!("{value}"),
    }
}
