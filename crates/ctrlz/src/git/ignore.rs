//! Ignore rules, as an immutable chain with one link per directory that has a `.gitignore`.
//!
//! Precedence, strongest first: the configuration's `include_ignored`, its `exclude`, the
//! `.gitignore` files from the deepest directory up, `info/exclude`, the global excludes file.

use std::path::PathBuf;
use std::sync::Arc;

use gix_glob::pattern::Case;
use gix_ignore::{Search, search::Ignore};

use super::hash::Hasher;

/// Result of matching a path against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No rule matches, or a negated one does.
    Plain,
    /// A rule ignores it.
    Ignored,
    /// `include_ignored` matches, which overrides every other rule.
    Included,
}

/// The rules that apply in one directory.
#[derive(Debug)]
pub(crate) struct Rules {
    parent: Option<Arc<Rules>>,
    /// Length of the path prefix to strip before matching these patterns.
    prefix_bytes: usize,
    search: Search,
    overrides: Arc<Overrides>,
    /// Hash of all patterns from this directory up to the root.
    fingerprint: u64,
}

#[derive(Debug, Default)]
struct Overrides {
    include: Search,
    exclude: Search,
    /// The patterns of `include` as written, for [`Rules::includes_below`].
    include_text: Vec<Vec<u8>>,
}

impl Rules {
    /// Creates the rules that apply everywhere. `lists` are ordered from weakest to strongest.
    pub(crate) fn base(lists: &[&[u8]], exclude: &[String], include: &[String]) -> Arc<Rules> {
        let mut search = Search::default();
        for list in lists {
            add(&mut search, list);
        }
        let mut overrides = Overrides::default();
        add(&mut overrides.exclude, exclude.join("\n").as_bytes());
        add(&mut overrides.include, include.join("\n").as_bytes());
        overrides.include_text = include.iter().map(|text| text.clone().into_bytes()).collect();
        let mut texts: Vec<&[u8]> = lists.to_vec();
        let (exclude, include) = (exclude.join("\n"), include.join("\n"));
        texts.extend([exclude.as_bytes(), include.as_bytes()]);
        Arc::new(Rules {
            parent: None,
            prefix_bytes: 0,
            search,
            overrides: Arc::new(overrides),
            fingerprint: fingerprint(0, &texts),
        })
    }

    /// Returns these rules plus the `.gitignore` of `directory`, a path without a trailing slash.
    pub(crate) fn child(self: &Arc<Rules>, directory: &[u8], text: &[u8]) -> Arc<Rules> {
        let mut search = Search::default();
        add(&mut search, text);
        Arc::new(Rules {
            parent: Some(Arc::clone(self)),
            prefix_bytes: if directory.is_empty() { 0 } else { directory.len() + 1 },
            search,
            overrides: Arc::clone(&self.overrides),
            fingerprint: fingerprint(self.fingerprint, &[directory, text]),
        })
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Matches `path`. The caller must have checked that its parent directories are not ignored.
    pub(crate) fn verdict(&self, path: &[u8], is_dir: bool) -> Verdict {
        if matches(&self.overrides.include, path, is_dir) == Some(true) {
            return Verdict::Included;
        }
        match matches(&self.overrides.exclude, path, is_dir) {
            Some(true) => return Verdict::Ignored,
            Some(false) => return Verdict::Plain,
            None => (),
        }
        let mut link = Some(self);
        while let Some(rules) = link {
            match matches(&rules.search, &path[rules.prefix_bytes..], is_dir) {
                Some(true) => return Verdict::Ignored,
                Some(false) => return Verdict::Plain,
                None => link = rules.parent.as_deref(),
            }
        }
        Verdict::Plain
    }

    /// Returns whether `path` or any directory above it is ignored.
    pub(crate) fn ignores_or_above(&self, path: &[u8], is_dir: bool) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let ends: Vec<usize> = ends.collect();
        let reach = |link: &Rules, len: usize| link.prefix_bytes <= len;
        let mut ignored = false;
        for end in ends.into_iter().chain([path.len()]) {
            let is_dir = is_dir || end < path.len();
            let mut link = self;
            // A `.gitignore` does not apply to the directories above it.
            while !reach(link, end) {
                match link.parent.as_deref() {
                    Some(parent) => link = parent,
                    None => break,
                }
            }
            match link.verdict(&path[..end], is_dir) {
                Verdict::Ignored => ignored = true,
                Verdict::Included => ignored = false,
                Verdict::Plain => (),
            }
        }
        ignored
    }

    /// Returns whether `include_ignored` names a path inside the ignored directory `path`.
    pub(crate) fn includes_below(&self, path: &[u8]) -> bool {
        self.overrides.include_text.iter().any(|text| {
            let text = text.strip_prefix(b"/").unwrap_or(text);
            text.len() > path.len() && text.starts_with(path) && text[path.len()] == b'/'
        })
    }
}

fn add(search: &mut Search, text: &[u8]) {
    // Like git, ends the last line, so that a carriage return before it is removed, and ends a
    // pattern at a NUL byte.
    let lines = text.split(|byte| *byte == b'\n');
    let ends = lines.map(|line| line.split(|byte| *byte == 0).next().unwrap_or_default());
    let text = ends.flat_map(|line| [line, b"\n"]).collect::<Vec<_>>().concat();
    search
        .add_patterns_buffer(&text, PathBuf::new(), None, Ignore::default())
        .expect("a buffer without a root cannot fail");
}

/// Returns `Some(true)` if a pattern matches, `Some(false)` if a negated one does, else `None`.
fn matches(search: &Search, path: &[u8], is_dir: bool) -> Option<bool> {
    if search.patterns.is_empty() {
        return None;
    }
    search
        .pattern_matching_relative_path(path.into(), Some(is_dir), Case::Sensitive)
        .map(|found| !found.pattern.is_negative())
}

fn fingerprint(parent: u64, texts: &[&[u8]]) -> u64 {
    let mut hasher = Hasher::raw();
    hasher.update(&parent.to_le_bytes());
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let id = hasher.finish().map_or([0; 20], |id| id.0);
    u64::from_le_bytes(id[..8].try_into().expect("eight of twenty bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_ignore_file_wins() {
        let base = Rules::base(&[b"*.log"], &[], &[]);
        let root = base.child(b"", b"*.tmp\n!keep.log");
        let sub = root.child(b"sub", b"!x.tmp\n/only-here");
        assert_eq!(root.verdict(b"a.log", false), Verdict::Ignored);
        assert_eq!(root.verdict(b"keep.log", false), Verdict::Plain);
        assert_eq!(sub.verdict(b"sub/x.tmp", false), Verdict::Plain);
        assert_eq!(sub.verdict(b"sub/y.tmp", false), Verdict::Ignored);
        assert_eq!(sub.verdict(b"sub/only-here", false), Verdict::Ignored);
    }

    #[test]
    fn a_carriage_return_at_the_end_of_any_line_is_removed() {
        let base = Rules::base(&[b"*.tmp\r"], &[], &[]);
        let root = base.child(b"", b"*.bak\r\n*.log\r");
        for path in [&b"a.tmp"[..], b"a.bak", b"a.log"] {
            assert_eq!(root.verdict(path, false), Verdict::Ignored);
        }
        assert_eq!(root.verdict(b"a.log\r", false), Verdict::Plain);
    }

    #[test]
    fn a_pattern_ends_at_a_nul_byte() {
        let root = Rules::base(&[b"*.tmp\0x\n*.log"], &[], &[]);
        for path in [&b"a.tmp"[..], b"a.log"] {
            assert_eq!(root.verdict(path, false), Verdict::Ignored);
        }
    }

    #[test]
    fn configured_patterns_override_ignore_files() {
        let include = ["dist/keep.js".to_owned()];
        let base = Rules::base(&[], &["secret".to_owned()], &include);
        let root = base.child(b"", b"dist/\n!secret");
        assert_eq!(root.verdict(b"secret", false), Verdict::Ignored);
        assert_eq!(root.verdict(b"dist", true), Verdict::Ignored);
        assert!(root.includes_below(b"dist"));
        assert_eq!(root.verdict(b"dist/keep.js", false), Verdict::Included);
    }

    #[test]
    fn a_path_below_an_ignored_directory_is_ignored() {
        let root = Rules::base(&[], &[], &[]).child(b"", b"data/\n");
        assert!(root.ignores_or_above(b"data/a/b", false));
        assert!(!root.ignores_or_above(b"other/a", false));
    }
}
