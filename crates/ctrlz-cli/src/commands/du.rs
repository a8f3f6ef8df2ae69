//! `ctrlz du`: shows the disk usage of the store.

use ctrlz_api::methods::{self, DuParams};
use ctrlz_api::{DiskUse, Growth};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output};

/// Show the size of the store, its largest paths, and its growth
#[derive(clap::Args, Debug)]
pub(crate) struct DuArgs {
    /// Show the N largest paths
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

pub(crate) fn run(place: &Place, args: &DuArgs, out: &mut Output) -> Result<Done, Failure> {
    let used = place.call(methods::du, &DuParams { top: Some(args.top as u64) })?;
    if out.is_json() {
        out.json(&used)?;
        return Ok(Done::Complete);
    }
    for line in lines(&used) {
        out.line(&line)?;
    }
    Ok(Done::Complete)
}

fn lines(used: &DiskUse) -> Vec<String> {
    let quota = &used.quota;
    let mut lines = vec![
        format!("store      {}, {} operations", render::size(used.store_bytes), used.operations),
        format!(
            "quota      {} % used: {} of {} here, {} of {} in all stores",
            quota.percent,
            render::size(quota.store_bytes),
            render::size(quota.max_store_bytes),
            render::size(quota.total_bytes),
            render::size(quota.max_total_bytes),
        ),
    ];
    if used.unused_bytes > 0 {
        lines.push(format!(
            "unused     {}; `{} gc` frees it",
            render::size(used.unused_bytes),
            render::program()
        ));
    }
    if used.quarantine_bytes > 0 {
        let bytes = render::size(used.quarantine_bytes);
        lines.push(format!("put aside  {bytes} of damaged files"));
    }
    for consumer in &used.consumers {
        let versions = consumer.versions;
        lines.push(format!(
            "{:>10}  {} ({versions} versions)",
            render::size(consumer.bytes),
            consumer.path
        ));
    }
    lines.extend(chart(&used.days));
    lines
}

/// Returns one line per day, newest last, with a bar relative to the day with the most growth.
fn chart(days: &[Growth]) -> Vec<String> {
    const DAYS: usize = 14;
    const WIDTH: u64 = 40;
    let shown = &days[days.len().saturating_sub(DAYS)..];
    let most = shown.iter().map(|day| day.bytes).max().unwrap_or(0).max(1);
    let line = |day: &Growth| {
        let bar =
            "#".repeat((u128::from(day.bytes) * u128::from(WIDTH) / u128::from(most)) as usize);
        format!("{}  {:>10}  {bar}", date(day.day), render::size(day.bytes)).trim_end().to_owned()
    };
    shown.iter().map(line).collect()
}

/// Converts a number of days since 1970-01-01 to a date of the Gregorian calendar.
fn date(day: u64) -> String {
    // Counted from March 1 of the year 0, so that a leap day is the last day of its year.
    let day = day + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", year + era * 400 + carry)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn day_numbers_are_formatted_as_dates() {
        for (day, text) in
            [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_454, "2026-01-01")]
        {
            assert_eq!(date(day), text);
        }
    }
}
