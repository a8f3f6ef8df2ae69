//! Logs from other machines and files, as their refs name them.
//!
//! ```text
//! <prefix>/<log>/{log, past/…, session/…, …}     the same names here, there and in a file
//! ctrlz/wt/<log>/from                            says that a log is not of this machine
//! ```
//!
//! A log's name belongs to one work tree of one data directory, so that many can share one server.

use std::collections::BTreeMap;

use crate::git::ObjectId;

/// Ref prefix in files and on servers, independent of the local prefix.
pub(super) const SHARED: &str = "refs/ctrlz/";
/// Ref prefix of ignored files, in files and on servers.
pub(super) const PRIVATE: &str = "refs/ctrlz-private/";

/// Handling of logs that would bring purged content back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPurged {
    /// Refuses them and changes nothing.
    #[default]
    Refuse,
    /// Imports them.
    Allow,
}

/// The refs of one received log.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrival {
    pub(super) name: String,
    pub(super) log: Option<ObjectId>,
    /// Past segments, by the id of their last operation.
    pub(super) past: BTreeMap<String, ObjectId>,
    /// Sessions and checkpoints, by their ref names below the log's prefix.
    pub(super) others: BTreeMap<String, ObjectId>,
    /// Ignored snapshots, by their ref names below the log's prefix.
    pub(super) private: BTreeMap<String, ObjectId>,
}

/// Groups refs by log. Unknown refs are left out.
pub(super) fn arrivals(refs: &[(String, ObjectId)]) -> Vec<Arrival> {
    let mut found: BTreeMap<String, Arrival> = BTreeMap::new();
    for (name, id) in refs {
        let shared = name.strip_prefix(SHARED).map(|rest| (rest, false));
        let private = || name.strip_prefix(PRIVATE).map(|rest| (rest, true));
        let Some((rest, is_private)) = shared.or_else(private) else { continue };
        let Some((log, rest)) = rest.split_once('/') else { continue };
        if !is_plain(log) || rest.len() > 200 || !rest.split('/').all(is_plain) {
            continue;
        }
        let arrival = found.entry(log.to_owned()).or_default();
        arrival.name = log.to_owned();
        match (rest.split_once('/'), is_private) {
            (None | Some(("past", _)), true) => drop(arrival.private.insert(rest.into(), *id)),
            (None, false) if rest == "log" => arrival.log = Some(*id),
            (Some(("past", end)), false) => drop(arrival.past.insert(end.into(), *id)),
            (None | Some(("session", _)), false) => drop(arrival.others.insert(rest.into(), *id)),
            (Some(_), _) => (),
        }
    }
    found.into_values().filter(|arrival| arrival.log.is_some()).collect()
}

/// Returns whether a part of a ref name has no characters that are special to file systems or git.
fn is_plain(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_%".contains(&byte);
    !part.is_empty() && part.bytes().all(plain)
}
