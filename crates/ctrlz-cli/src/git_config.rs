//! Finds the ignore file and the attributes file that git uses for a work tree.
//!
//! Reads the configuration of the system, the user and the repository in git's order, with
//! `include` and `includeIf`; the last value wins. Nothing is executed. Lines with a syntax error
//! are skipped, where git would refuse to run, because a broken file must not stop a snapshot.
//!
//! Of git's variables only those that name configuration files are read. A hook may run inside a
//! git command that has set the others, such as `GIT_DIR` or `GIT_CONFIG_COUNT`, for itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ctrlz::GitDirs;
use gix_glob::wildmatch::Mode;

use crate::{reftable, small_file};

/// The depth at which git refuses to follow further includes.
const MAX_DEPTH: usize = 10;

/// Maximum number of files, which bounds the time that hostile includes can take.
const MAX_FILES: usize = 200;

/// Files with patterns for a whole work tree. They need not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatternFiles {
    pub(crate) excludes: Option<PathBuf>,
    pub(crate) attributes: Option<PathBuf>,
}

/// Locations of git's configuration, as far as the environment determines them.
#[derive(Debug, Default)]
pub(crate) struct ConfigPlaces {
    /// The system's configuration; `None` if `GIT_CONFIG_NOSYSTEM` is set.
    pub(crate) system: Option<PathBuf>,
    /// `GIT_CONFIG_GLOBAL`, which replaces both files of the user. An empty one means no file.
    pub(crate) global: Option<PathBuf>,
    /// The configuration directory of all programs, usually `~/.config`.
    pub(crate) config_dir: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
}

impl ConfigPlaces {
    /// Returns the files for the work tree `root`.
    pub(crate) fn pattern_files(&self, root: &Path) -> PatternFiles {
        let repo = ctrlz::git_dirs(root);
        let first = Pass::over(self, root, repo.as_ref(), Vec::new());
        if first.needs_urls {
            // The URLs of remotes are complete only after the first pass, as in git.
            Pass::over(self, root, repo.as_ref(), first.found_urls).files
        } else {
            first.files
        }
    }

    /// Returns the files outside the repository, in order of increasing precedence.
    fn user_files(&self) -> Vec<PathBuf> {
        let xdg = self.config_dir.as_ref().map(|dir| dir.join("git/config"));
        let own = self.home.as_ref().map(|home| home.join(".gitconfig"));
        match &self.global {
            Some(global) => self.system.iter().chain([global]).cloned().collect(),
            None => self.system.iter().cloned().chain(xdg).chain(own).collect(),
        }
    }

    /// Expands `~/` and `~user/`. Returns `None` if there is no such home directory, and for
    /// `%(prefix)/`, the directory that git was installed in.
    fn expand(&self, value: &[u8]) -> Option<PathBuf> {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        if value.starts_with(b"%(prefix)/") {
            return None;
        }
        let Some(named) = value.strip_prefix(b"~") else { return Some(path(value)) };
        let end = named.iter().position(|byte| *byte == b'/').unwrap_or(named.len());
        let (user, rest) = named.split_at(end);
        let home = if user.is_empty() { self.home.clone() } else { home_of(user) };
        match rest.strip_prefix(b"/") {
            Some(rest) => Some(home?.join(path(rest))),
            None => home,
        }
    }
}

/// Returns the home directory of a user of this machine.
fn home_of(user: &[u8]) -> Option<PathBuf> {
    let users = small_file::read(Path::new("/etc/passwd")).ok()??;
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let home = (fields.next()? == user).then(|| fields.nth(4)).flatten()?;
        Some(PathBuf::from(OsStr::from_bytes(home)))
    })
}

/// Owner of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    User,
    /// The repository, which may have come from elsewhere.
    Repository,
}

/// One pass over all configuration files.
struct Pass<'a> {
    places: &'a ConfigPlaces,
    root: &'a Path,
    repo: Option<&'a GitDirs>,
    /// URLs that `hasconfig:remote.*.url:` is compared with.
    urls: Vec<Vec<u8>>,
    found_urls: Vec<Vec<u8>>,
    needs_urls: bool,
    files_left: usize,
    files: PatternFiles,
}

impl<'a> Pass<'a> {
    fn over(
        places: &'a ConfigPlaces,
        root: &'a Path,
        repo: Option<&'a GitDirs>,
        urls: Vec<Vec<u8>>,
    ) -> Pass<'a> {
        let default = |name| places.config_dir.as_ref().map(|dir| dir.join("git").join(name));
        let files = PatternFiles { excludes: default("ignore"), attributes: default("attributes") };
        let (found_urls, needs_urls, files_left) = (Vec::new(), false, MAX_FILES);
        let mut pass = Pass { places, root, repo, urls, found_urls, needs_urls, files_left, files };
        for file in places.user_files() {
            pass.read(&file, Author::User, 0);
        }
        if let Some(GitDirs { git_dir, common_dir }) = repo {
            let config = common_dir.join("config");
            pass.read(&config, Author::Repository, 0);
            if pass.has_worktree_config(&config) {
                pass.read(&git_dir.join("config.worktree"), Author::Repository, 0);
            }
        }
        pass
    }

    /// Applies a file and its includes. A file that cannot be read has no effect.
    fn read(&mut self, file: &Path, author: Author, depth: usize) {
        if depth > MAX_DEPTH || self.files_left == 0 {
            return;
        }
        self.files_left -= 1;
        if author == Author::Repository && self.is_linked_repository_file(file) {
            return;
        }
        for Entry { section, subsection, key, value } in self.entries_of(file) {
            let Some(value) = value else { continue };
            let is_included = match (section.as_slice(), subsection.as_deref(), key.as_slice()) {
                (b"core", None, b"excludesfile") => {
                    self.files.excludes = self.pattern_file(&value, author);
                    false
                }
                (b"core", None, b"attributesfile") => {
                    self.files.attributes = self.pattern_file(&value, author);
                    false
                }
                (b"remote", Some(_), b"url") => {
                    self.found_urls.push(value.clone());
                    false
                }
                (b"include", None, b"path") => true,
                (b"includeif", Some(condition), b"path") => self.holds(condition, file),
                _ => false,
            };
            if is_included && let Some(path) = self.places.expand(&value) {
                let dir = file.parent().unwrap_or(Path::new(""));
                self.read(&dir.join(path), author, depth + 1);
            }
        }
    }

    fn entries_of(&self, file: &Path) -> Vec<Entry> {
        entries(&small_file::read(file).ok().flatten().unwrap_or_default())
    }

    /// Returns whether `extensions.worktreeConfig` is on. Git does not look for it in included
    /// files.
    fn has_worktree_config(&self, config: &Path) -> bool {
        if self.is_linked_repository_file(config) {
            return false;
        }
        let is_key = |entry: &Entry| {
            entry.section == b"extensions"
                && entry.subsection.is_none()
                && entry.key == b"worktreeconfig"
        };
        self.entries_of(config).iter().rfind(|entry| is_key(entry)).is_some_and(Entry::is_true)
    }

    /// Returns the file that a value names, or `None` for an empty value, which means no file.
    fn pattern_file(&self, value: &[u8], author: Author) -> Option<PathBuf> {
        let path = self.places.expand(value).filter(|path| !path.as_os_str().is_empty())?;
        let path = self.root.join(path);
        match author {
            Author::User => Some(path),
            Author::Repository => self.permitted(&path),
        }
    }

    /// Returns the canonical path of a file that the repository names, if it may be read.
    ///
    /// Its text becomes part of the snapshot's record, which can be pushed. A repository from
    /// elsewhere must not choose a private file for that, such as `~/.netrc`. Outside the work tree
    /// and the repository only files that other users may read as well are permitted.
    fn permitted(&self, path: &Path) -> Option<PathBuf> {
        let real = path.canonicalize().ok()?;
        let own = self.repository_dirs().chain([self.root.to_owned()]);
        let is_public = || real.metadata().is_ok_and(|meta| meta.mode() & 0o044 != 0);
        let is_permitted = !self.is_linked_repository_file(path)
            && (own.into_iter().any(|dir| real.starts_with(dir)) || is_public());
        is_permitted.then_some(real)
    }

    /// Returns whether `path` contains a symlink in the repository's own directories.
    fn is_linked_repository_file(&self, path: &Path) -> bool {
        let own: Vec<PathBuf> = self.repository_dirs().collect();
        let mut real = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => drop(real.pop()),
                other => real.push(other),
            }
            if real.is_symlink() {
                if own.iter().any(|dir| real.starts_with(dir)) {
                    return true;
                }
                // A dangling link leads to no file.
                let Ok(target) = real.canonicalize() else { return false };
                real = target;
            }
        }
        false
    }

    /// Returns the canonical paths of the repository's own directories.
    fn repository_dirs(&self) -> impl Iterator<Item = PathBuf> {
        let dirs = self.repo.into_iter().flat_map(|repo| [&repo.git_dir, &repo.common_dir]);
        dirs.filter_map(|dir| dir.canonicalize().ok())
    }

    /// Returns whether the condition of an `includeIf` in `file` holds. Unknown conditions do not.
    fn holds(&mut self, condition: &[u8], file: &Path) -> bool {
        if let Some(pattern) = condition.strip_prefix(b"gitdir:") {
            self.is_git_dir(pattern, file, Mode::empty())
        } else if let Some(pattern) = condition.strip_prefix(b"gitdir/i:") {
            self.is_git_dir(pattern, file, Mode::IGNORE_CASE)
        } else if let Some(pattern) = condition.strip_prefix(b"onbranch:") {
            let pattern = with_all_below(pattern.to_vec());
            self.branch().is_some_and(|branch| matches(&pattern, &branch, Mode::empty()))
        } else if let Some(pattern) = condition.strip_prefix(b"hasconfig:remote.*.url:") {
            self.needs_urls = true;
            self.urls.iter().any(|url| matches(pattern, url, Mode::empty()))
        } else {
            false
        }
    }

    fn is_git_dir(&self, pattern: &[u8], file: &Path, mode: Mode) -> bool {
        let Some(repo) = self.repo else { return false };
        let Ok(git_dir) = repo.git_dir.canonicalize() else { return false };
        let (git_dir, by_name) = (git_dir.as_os_str().as_bytes(), repo.git_dir.as_os_str());
        if let Some(inside) = pattern.strip_prefix(b"./") {
            // The directory is compared literally; it may contain characters of patterns.
            let dir = file.canonicalize().ok().and_then(|file| Some(file.parent()?.to_owned()));
            let Some(dir) = dir.map(|dir| dir.join("").into_os_string().into_vec()) else {
                return false;
            };
            let is_same = |start: &[u8]| {
                if mode.contains(Mode::IGNORE_CASE) {
                    start.eq_ignore_ascii_case(&dir)
                } else {
                    start == dir
                }
            };
            return git_dir.split_at_checked(dir.len()).is_some_and(|(start, rest)| {
                let inside = if inside.is_empty() { &b"**"[..] } else { inside };
                is_same(start) && matches(&with_all_below(inside.to_vec()), rest, mode)
            });
        }
        let expanded = if pattern.starts_with(b"~") {
            self.places.expand(pattern).map(|path| path.into_os_string().into_vec())
        } else {
            None
        };
        let mut pattern = expanded.unwrap_or_else(|| pattern.to_vec());
        if !pattern.starts_with(b"/") {
            pattern.splice(..0, *b"**/");
        }
        let pattern = with_all_below(pattern);
        // Git also accepts the path by which the shell entered the directory. Symlinks in the
        // pattern are resolved instead, so that the result is the same for every process.
        matches(&pattern, git_dir, mode)
            || matches(&pattern, by_name.as_bytes(), mode)
            || matches(&without_links(&pattern), git_dir, mode)
    }

    /// Returns the branch that HEAD names.
    fn branch(&self) -> Option<Vec<u8>> {
        /// Content of the file in repositories that keep their refs in reftables.
        const ELSEWHERE: &[u8] = b"ref: refs/heads/.invalid";
        let git_dir = &self.repo?.git_dir;
        let is_linked = |name| self.is_linked_repository_file(&git_dir.join(name));
        if is_linked("HEAD") || is_linked("reftable") || is_linked("reftable/tables.list") {
            return None;
        }
        let text = small_file::read(&git_dir.join("HEAD")).ok()??;
        let target = match text.trim_ascii_end() {
            ELSEWHERE => reftable::head(git_dir)?,
            text => text.strip_prefix(b"ref: ")?.to_vec(),
        };
        target.strip_prefix(b"refs/heads/").map(<[u8]>::to_vec)
    }
}

/// Appends `**` to a pattern that ends in a slash.
fn with_all_below(mut pattern: Vec<u8>) -> Vec<u8> {
    if pattern.ends_with(b"/") {
        pattern.extend_from_slice(b"**");
    }
    pattern
}

/// Resolves symlinks in the part of an absolute pattern that precedes the first wildcard.
fn without_links(pattern: &[u8]) -> Vec<u8> {
    let wildcard = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    let literal = &pattern[..wildcard.unwrap_or(pattern.len())];
    let end = literal.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (dir, rest) = pattern.split_at(end);
    // Git compares `..` and `//` literally, so that such a pattern matches nothing.
    let is_literal = |part: &[u8]| part.is_empty() || part == b"..";
    if dir.split(|byte| *byte == b'/').skip(1).any(is_literal) {
        return pattern.to_vec();
    }
    match Path::new(OsStr::from_bytes(dir)).canonicalize() {
        Ok(real) => [real.as_os_str().as_bytes(), rest].concat(),
        Err(_) => pattern.to_vec(),
    }
}

fn matches(pattern: &[u8], text: &[u8], mode: Mode) -> bool {
    gix_glob::wildmatch(pattern.into(), text.into(), mode | Mode::NO_MATCH_SLASH_LITERAL)
}

/// One variable of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// In lower case.
    section: Vec<u8>,
    subsection: Option<Vec<u8>>,
    /// In lower case.
    key: Vec<u8>,
    /// `None` for a key without `=`, which means true.
    value: Option<Vec<u8>>,
}

impl Entry {
    fn is_true(&self) -> bool {
        self.value.as_deref().is_none_or(is_true)
    }
}

/// Returns whether git treats a value as true: `true`, `yes`, `on` or a number other than 0.
pub(crate) fn is_true(value: &[u8]) -> bool {
    let is_word = [&b"true"[..], b"yes", b"on"].iter().any(|word| word.eq_ignore_ascii_case(value));
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
    is_word || number.is_some_and(|number| number != 0)
}

/// Returns the variables of a configuration file, in order.
fn entries(text: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut section, mut subsection) = (Vec::new(), None);
    let mut rest = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    while !rest.is_empty() {
        rest = rest.trim_ascii_start();
        if let Some(text) = rest.strip_prefix(b"[") {
            // A key may follow on the same line.
            (section, subsection, rest) = header(text);
            continue;
        }
        let end = rest.iter().position(|byte| matches!(byte, b'=' | b'\n' | b'#' | b';'));
        let end = end.unwrap_or(rest.len());
        let key = rest[..end].trim_ascii().to_ascii_lowercase();
        let (section, subsection) = (section.clone(), subsection.clone());
        match rest.get(end) {
            Some(b'=') => {
                let (value, after) = value(&rest[end + 1..]);
                rest = after;
                if value.is_some() {
                    entries.push(Entry { section, subsection, key, value });
                }
            }
            _ => {
                rest = after_line(&rest[end..]);
                if !key.is_empty() {
                    entries.push(Entry { section, subsection, key, value: None });
                }
            }
        }
    }
    entries
}

/// Splits the text after a `[` into section, subsection and the text after the header.
fn header(text: &[u8]) -> (Vec<u8>, Option<Vec<u8>>, &[u8]) {
    let end = text.iter().position(|byte| matches!(byte, b']' | b'\n' | b'"'));
    let end = end.unwrap_or(text.len());
    let name = text[..end].trim_ascii().to_ascii_lowercase();
    let after = text.get(end + 1..).unwrap_or_default();
    if text.get(end) != Some(&b'"') {
        return match name.iter().position(|byte| *byte == b'.') {
            Some(dot) => (name[..dot].to_vec(), Some(name[dot + 1..].to_vec()), after),
            None => (name, None, after),
        };
    }
    let mut subsection = Vec::new();
    let mut bytes = after.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'\n' => return (Vec::new(), None, &after[at..]),
            b'"' => {
                let rest = &after[at + 1..];
                return (name, Some(subsection), rest.strip_prefix(b"]").unwrap_or(rest));
            }
            b'\\' => subsection.extend(bytes.next().map(|(_, byte)| byte)),
            other => subsection.push(other),
        }
    }
    (Vec::new(), None, b"")
}

/// Returns one value and the text after its line. The value is `None` if its quotes are not closed.
fn value(text: &[u8]) -> (Option<Vec<u8>>, &[u8]) {
    let mut value = Vec::new();
    // Spaces at the end belong to the value only inside quotes.
    let mut end = 0;
    let mut quoted = false;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'\n' => return ((!quoted).then(|| value[..end].to_vec()), &text[at..]),
            b'"' => quoted = !quoted,
            b'#' | b';' if !quoted => {
                return (Some(value[..end].to_vec()), after_line(&text[at..]));
            }
            b'\\' => {
                let escaped = text.get(at).copied();
                at += 1;
                match escaped {
                    Some(b'n') => value.push(b'\n'),
                    Some(b't') => value.push(b'\t'),
                    Some(b'b') => value.push(8),
                    Some(b'\n') | None => (),
                    Some(other) => value.push(other),
                }
                end = value.len();
            }
            b' ' | b'\t' | b'\r' if !quoted => {
                if !value.is_empty() {
                    value.push(byte);
                }
                continue;
            }
            other => value.push(other),
        }
        if byte != b'\\' {
            end = value.len();
        }
    }
    ((!quoted).then(|| value[..end].to_vec()), b"")
}

fn after_line(text: &[u8]) -> &[u8] {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => &text[end + 1..],
        None => b"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let found: Vec<(String, String)> = entries(text.as_bytes())
            .into_iter()
            .filter(|entry| entry.section == b"core" && entry.subsection.is_none())
            .filter_map(|Entry { key, value, .. }| {
                Some((String::from_utf8(key).unwrap(), String::from_utf8(value?).unwrap()))
            })
            .collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn values_are_read_as_git_reads_them() {
        check("[core]\n\texcludesFile = ~/x\n", &[("excludesfile", "~/x")]);
        check("[CORE] excludesFile=/a b # note\n", &[("excludesfile", "/a b")]);
        check("[core]\nk = \"a # b\" ; note\n", &[("k", "a # b")]);
        check("[core]\nk = \"a \"\n", &[("k", "a ")]);
        check("[core]\r\nk = a\\\\b\r\n", &[("k", "a\\b")]);
        check("[core]\nk = one\\\ntwo\nl = 3", &[("k", "onetwo"), ("l", "3")]);
        check("[core]\nk =\n", &[("k", "")]);
    }

    #[test]
    fn other_sections_are_skipped() {
        check("[user]\nexcludesFile = /a\n[core \"x\"]\nk = 1\n[core]\nk = 2\n", &[("k", "2")]);
        check("# [core]\nk = 1\n", &[]);
    }

    #[test]
    fn section_headers_are_read_as_git_reads_them() {
        let first = |text: &str| {
            let entry = entries(text.as_bytes()).remove(0);
            let name = String::from_utf8(entry.section).unwrap();
            (name, entry.subsection.map(|name| String::from_utf8(name).unwrap()), entry.value)
        };
        let cases = [
            ("[includeIf \"gitdir:~/a]b\"] path = x", ("includeif", Some("gitdir:~/a]b"))),
            ("[Remote \"A\\\"b\\\\\"]\npath = x\n", ("remote", Some("A\"b\\"))),
            ("[core.Sub]path=x", ("core", Some("sub"))),
            ("[core \"open\npath = x\n", ("", None)),
        ];
        for (text, (section, subsection)) in cases {
            let expected = (section.into(), subsection.map(str::to_owned), Some(b"x".to_vec()));
            assert_eq!(first(text), expected, "{text}");
        }
        assert!(entries(b"[extensions]\nworktreeConfig\n")[0].is_true());
    }

    #[test]
    fn booleans_are_read_as_git_reads_them() {
        assert!([&b"1"[..], b"-2", b"TRUE", b"yes", b"On"].into_iter().all(is_true));
        assert!(![&b""[..], b"0", b"off", b"no", b"false", b"2x"].into_iter().any(is_true));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        check("[core\nk = 1\n", &[("k", "1")]);
        check("[core]\nk = \"open\nl = 2\n", &[("l", "2")]);
        check("[core]\nno value\n= 1\n\0\u{1}\n", &[("", "1")]);
        check("[", &[]);
        check("[core]\nk = \\", &[("k", "")]);
    }
}
