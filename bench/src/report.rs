//! The results as a Markdown page.

use std::fmt::Write;

use crate::facts::Machine;
use crate::measure::{Series, Spread};
use crate::peers::Contender;
use crate::scenarios::{Results, Row, Scenario};
use crate::tree::Shape;

/// Returns the whole page.
pub(crate) fn markdown(machine: &Machine, results: &Results) -> String {
    let mut page = String::from(
        "# Measured\n\nWritten by `cargo run --release -p ctrlz-bench -- --out bench`. Every sample is a fresh \
         process; contenders take turns\nwithin a round, and the ratios are of medians in the same run. Milliseconds: \
         median (smallest – largest).\n\n",
    );
    for (what, value) in &machine.lines {
        page += &format!("- {what}: {value}\n");
    }
    page += "\n*git* is `git add -A && git write-tree` with a separate, warm index; restoring is `read-tree` and \
             `checkout-index -a -f`\n(and `clean -fd` where exact). *OpenCode's calls* are the git calls of its snapshots, without \
             its JavaScript. The *floor* is one\n`statx` per file and one open per directory, names known beforehand, on all \
             cores; for cold work it also reads, hashes\nand compresses every file; for restores it writes every file beside \
             its place, renames it there and flushes once.\n\n## Goals\n\n";
    goals(&mut page, results);
    let kind = |row: &Row| (row.shape, row.files);
    let mut kinds: Vec<(Shape, usize)> = results.rows.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (shape, files) in kinds {
        let rows = results.rows.iter().filter(|row| kind(row) == (shape, files));
        let rows: Vec<&Row> = rows.collect();
        page += &format!("\n## {files} files{}\n\n", shape.name());
        wall_table(&mut page, &rows, results.jj);
        page += "\nCPU time of all processes, and the largest process:\n\n";
        cpu_table(&mut page, &rows);
    }
    session(&mut page, results);
    disk(&mut page, results);
    calls(&mut page, results);
    page += "\n![Growth](growth.svg)\n\n";
    page += include_str!("../NOTES.md");
    page
}

fn cell(spread: Spread) -> String {
    format!("{} ({} – {})", number(spread.median), number(spread.min), number(spread.max))
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn wall_table(page: &mut String, rows: &[&Row], jj: bool) {
    let columns: Vec<Contender> =
        Contender::ALL.into_iter().filter(|contender| *contender != Contender::Jj || jj).collect();
    page.push_str("| work |");
    for column in &columns {
        write!(page, " {} |", column.name()).expect("text can grow");
    }
    page.push_str(" × git | × OpenCode | of the floor |\n|---|");
    page.push_str(&"--:|".repeat(columns.len() + 3));
    page.push('\n');
    for row in rows {
        write!(page, "| {} |", row.scenario.name()).expect("text can grow");
        for column in &columns {
            let text = match row.series.get(column) {
                Some(series) if !series.is_empty() => cell(series.wall()),
                _ => "–".into(),
            };
            write!(page, " {text} |").expect("text can grow");
        }
        let times = |peer| ratio(row, peer).map_or("–".into(), |ratio| format!("{ratio:.1}"));
        let floor =
            ratio(row, Contender::Floor).map_or("–".into(), |r| format!("{:.2}", 1.0 / r));
        writeln!(page, " {} | {} | {floor} |", times(Contender::Git), times(Contender::OpenCode))
            .expect("text can grow");
    }
}

/// Returns the time of the peer divided by that of the `ctrlz` command.
fn ratio(row: &Row, peer: Contender) -> Option<f64> {
    Some(row.series.get(&peer)?.wall().median / row.series.get(&Contender::Ctrlz)?.wall().median)
}

fn cpu_table(page: &mut String, rows: &[&Row]) {
    let columns: Vec<Contender> = Contender::ALL
        .into_iter()
        .filter(|contender| rows.iter().any(|row| row.series.contains_key(contender)))
        .collect();
    page.push_str("| work |");
    for column in &columns {
        write!(page, " {} |", column.name()).expect("text can grow");
    }
    page.push_str("\n|---|");
    page.push_str(&"--:|".repeat(columns.len()));
    page.push('\n');
    for row in rows {
        write!(page, "| {} |", row.scenario.name()).expect("text can grow");
        for column in &columns {
            let text = row.series.get(column).map_or("–".into(), cpu_cell);
            write!(page, " {text} |").expect("text can grow");
        }
        page.push('\n');
    }
}

fn cpu_cell(series: &Series) -> String {
    let mib = series.peak_bytes() as f64 / (1 << 20) as f64;
    format!("{} ms, {} MiB", number(series.cpu().median), number(mib))
}

struct Goal {
    what: &'static str,
    scenario: Scenario,
    peer: Contender,
    at_least: f64,
}

fn goals(page: &mut String, results: &Results) {
    use Contender::{Floor, Git, OpenCode};
    let restored = results.rows.iter().filter_map(|row| match row.scenario {
        Scenario::Restore(count) if count > 1 => Some(count),
        _ => None,
    });
    let restored = restored.max().unwrap_or(3_000);
    let goal = |what, scenario, peer, at_least| Goal { what, scenario, peer, at_least };
    let all = [
        goal("≥ 5 × OpenCode", Scenario::WarmUnchanged, OpenCode, 5.0),
        goal("≥ 4.5 × git", Scenario::WarmUnchanged, Git, 4.5),
        goal("≤ 1.25 of the floor", Scenario::WarmUnchanged, Floor, 1.0 / 1.25),
        goal("≥ 10 × git", Scenario::ColdUnseeded, Git, 10.0),
        goal("≥ 4 × OpenCode", Scenario::ColdSeeded, OpenCode, 4.0),
        goal("≥ 3 × git, atomic and durable", Scenario::Restore(restored), Git, 3.0),
        goal("≥ 10 × OpenCode", Scenario::DiffFull(1_000), OpenCode, 10.0),
    ];
    page.push_str("| work | files | goal | measured | |\n|---|--:|---|--:|---|\n");
    for Goal { what, scenario, peer, at_least } in all {
        let rows = usual(results).filter(|row| row.scenario == scenario);
        let rows = rows.filter(|row| ratio(row, peer).is_some());
        let Some(row) = rows.max_by_key(|row| nearness(row.files)) else { continue };
        let found = ratio(row, peer).unwrap_or(f64::NAN);
        let shown = match peer {
            Floor => format!("{:.2} of the floor", 1.0 / found),
            _ => format!("{found:.1} ×"),
        };
        let verdict = if found >= at_least { "reached" } else { "not reached" };
        let name = scenario.name();
        writeln!(page, "| {name} | {} | {what} | {shown} | {verdict} |", row.files)
            .expect("text can grow");
    }
    watcher_goals(page, results);
    memory_goal(page, results);
    disk_goal(page, results);
}

/// Returns the rows of trees with the usual shape, which the goals refer to.
fn usual(results: &Results) -> impl Iterator<Item = &Row> {
    results.rows.iter().filter(|row| row.shape == Shape::Usual)
}

/// Returns a sort key: a tree of 100,000 files, for which the goals are set, else the largest.
fn nearness(files: usize) -> (bool, usize) {
    (files == 100_000, files)
}

/// Adds the goals with a watcher: the speedup, and its independence of the size of the tree.
fn watcher_goals(page: &mut String, results: &Results) {
    let rows = usual(results).filter(|row| row.scenario == Scenario::WarmChanged(1));
    let mut found: Vec<(usize, f64, Option<f64>)> = rows
        .filter_map(|row| {
            let watched = row.series.get(&Contender::Watcher)?.wall().median;
            let peer = row.series.get(&Contender::OpenCode).map(|peer| peer.wall().median);
            Some((row.files, watched, peer.map(|peer| peer / watched)))
        })
        .collect();
    found.sort_by_key(|(files, _, _)| *files);
    let with_peer = found.iter().filter(|(_, _, times)| times.is_some());
    let nearest = with_peer.max_by_key(|(files, _, _)| nearness(*files));
    if let Some((files, _, Some(times))) = nearest {
        let verdict = if *times >= 100.0 { "reached" } else { "not reached" };
        let row = format!("| ≥ 100 × OpenCode | {times:.1} × | {verdict} |");
        writeln!(page, "| warm with watcher, 1 file changed | {files} {row}")
            .expect("text can grow");
    }
    let Some((small, least, _)) = found.iter().find(|(files, _, _)| *files >= 10_000) else {
        return;
    };
    for (files, time, _) in found.iter().filter(|(files, _, _)| files > small) {
        let row = format!("| the same as at {small} | {:.2} times as long |", time / least);
        writeln!(page, "| warm with watcher, 1 file changed | {files} {row} |")
            .expect("text can grow");
    }
}

fn memory_goal(page: &mut String, results: &Results) {
    let warm = usual(results).filter(|row| row.scenario == Scenario::WarmUnchanged);
    let mut peaks: Vec<(usize, u64)> = warm
        .filter_map(|row| Some((row.files, row.series.get(&Contender::Ctrlz)?.peak_bytes())))
        .collect();
    peaks.sort_unstable();
    let (Some((small, least)), Some((large, most))) = (peaks.first(), peaks.last()) else { return };
    if large == small {
        return;
    }
    let per_file = most.saturating_sub(*least) as f64 / (large - small) as f64;
    let verdict = if per_file <= 150.0 { "reached" } else { "not reached" };
    let mib = *most as f64 / (1 << 20) as f64;
    writeln!(
        page,
        "| memory, warm | {large} | ≤ 150 bytes per file | {per_file:.0} bytes per file, {mib:.0} MiB in all | {verdict} |"
    )
    .expect("text can grow");
}

fn disk_goal(page: &mut String, results: &Results) {
    let of = |contender: Contender| {
        let found =
            results.disk.iter().find(|(what, who, _)| what.contains("steps") && *who == contender);
        found.map(|(_, _, bytes)| *bytes as f64)
    };
    if let (Some(ours), Some(theirs)) = (of(Contender::Library), of(Contender::OpenCode)) {
        let share = ours / theirs;
        let verdict = if share <= 0.2 { "reached" } else { "not reached" };
        writeln!(
            page,
            "| disk, steps of one file | – | ≤ 1/5 of OpenCode | {share:.2} | {verdict} |"
        )
        .expect("text can grow");
    }
}

/// Returns the page of a session that was measured alone.
pub(crate) fn session_page(machine: &Machine, results: &Results) -> String {
    let mut page = String::from("# A session, step by step\n\n");
    page.push_str(
        "Written by `cargo run --release -p ctrlz-bench -- --session --long-session --out bench`.\n\n",
    );
    for (what, value) in &machine.lines {
        page += &format!("- {what}: {value}\n");
    }
    session(&mut page, results);
    disk(&mut page, results);
    page
}

fn session(page: &mut String, results: &Results) {
    page.push_str(
        "\n## A long session\n\nIn process, on a tree of 1,000 files, after so many steps; milliseconds, median \
         (smallest – largest). A *step* is its beginning and its end, around the step of that number; *log* the newest \
         20 entries with their files and line counts; *plan* what an undo of the last turn would do; *undo* doing it, or \
         bringing it again.\n\n| step | step | log | plan | undo or redo |\n|--:|--:|--:|--:|--:|\n",
    );
    for point in &results.session {
        let cells = [point.cost, point.log, point.plan, point.undo].map(cell);
        writeln!(page, "| {} | {} |", point.step, cells.join(" | ")).expect("text can grow");
    }
}

fn disk(page: &mut String, results: &Results) {
    page.push_str("\n## On disk\n\n| what | who | MiB |\n|---|---|--:|\n");
    for (what, contender, bytes) in &results.disk {
        let mib = *bytes as f64 / (1 << 20) as f64;
        writeln!(page, "| {what} | {} | {} |", contender.name(), number(mib))
            .expect("text can grow");
    }
}

fn calls(page: &mut String, results: &Results) {
    let Some((files, counted)) = &results.calls else {
        page.push_str("\n## System calls\n\nNot run: strace is not installed.\n");
        return;
    };
    write!(
        page,
        "\n## System calls\n\nOf a snapshot of {files} files with nothing changed, counted by `strace -f -c`; \
         about 150 of each are the bench's own.\n\n| who | calls | most |\n|---|--:|---|\n"
    )
    .expect("text can grow");
    for calls in counted {
        let most: Vec<String> =
            calls.most.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(page, "| {} | {} | {} |", calls.contender.name(), calls.total, most.join(", "))
            .expect("text can grow");
    }
}
