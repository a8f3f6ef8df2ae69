//! The two things we want from the user's global git configuration: where the global ignore file
//! and the global attributes file are.
//!
//! Only the two global files are read, no includes are followed, and no `GIT_*` variable is looked
//! at: a hook runs inside a git command that has set them for purposes of its own. Lines that make
//! no sense are passed over; a broken file must not stop a snapshot.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::small_file;

/// Files that git reads for every repository of the user. They need not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GlobalFiles {
    pub(crate) excludes: Option<PathBuf>,
    pub(crate) attributes: Option<PathBuf>,
}

/// Finds the global files from the configuration directory and the home directory.
pub(crate) fn global_files(config_dir: Option<&Path>, home: Option<&Path>) -> GlobalFiles {
    let git_dir = config_dir.map(|dir| dir.join("git"));
    let mut files = GlobalFiles {
        excludes: git_dir.as_ref().map(|dir| dir.join("ignore")),
        attributes: git_dir.as_ref().map(|dir| dir.join("attributes")),
    };
    let configs = [git_dir.map(|dir| dir.join("config")), home.map(|home| home.join(".gitconfig"))];
    for config in configs.into_iter().flatten() {
        // One that cannot be read has no effect.
        let text = small_file::read(&config).ok().flatten().unwrap_or_default();
        for (key, value) in core_entries(&text) {
            match key.as_slice() {
                b"excludesfile" => files.excludes = expand(value, home),
                b"attributesfile" => files.attributes = expand(value, home),
                _ => (),
            }
        }
    }
    files
}

/// An absolute path; `None` for an empty value, which switches the file off, and for paths that
/// only mean something to a shell.
fn expand(value: Vec<u8>, home: Option<&Path>) -> Option<PathBuf> {
    if let Some(rest) = value.strip_prefix(b"~/") {
        return home.map(|home| home.join(OsString::from_vec(rest.to_vec())));
    }
    let path = PathBuf::from(OsString::from_vec(value));
    path.is_absolute().then_some(path)
}

/// The keys, in lower case, and values of the section `[core]`, in order.
fn core_entries(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut in_core = false;
    let mut rest = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    while !rest.is_empty() {
        rest = rest.trim_ascii_start();
        if let Some(header) = rest.strip_prefix(b"[") {
            let end = header.iter().position(|byte| matches!(byte, b']' | b'\n'));
            let end = end.unwrap_or(header.len());
            in_core = header[..end].trim_ascii().eq_ignore_ascii_case(b"core");
            // A key may follow on the same line.
            rest = header.get(end + 1..).unwrap_or_default();
            continue;
        }
        let end = rest.iter().position(|byte| matches!(byte, b'=' | b'\n' | b'#' | b';'));
        let end = end.unwrap_or(rest.len());
        let key = rest[..end].trim_ascii().to_ascii_lowercase();
        match rest.get(end) {
            Some(b'=') => {
                let (value, after) = value(&rest[end + 1..]);
                rest = after;
                entries.extend(value.filter(|_| in_core).map(|value| (key, value)));
            }
            Some(_) => rest = after_line(&rest[end..]),
            None => rest = b"",
        }
    }
    entries
}

/// One value and what follows its line; no value if its quotes are not closed.
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
        let found: Vec<(String, String)> = core_entries(text.as_bytes())
            .into_iter()
            .map(|(key, value)| {
                (String::from_utf8(key).unwrap(), String::from_utf8(value).unwrap())
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
    fn other_sections_are_passed_over() {
        check("[user]\nexcludesFile = /a\n[core \"x\"]\nk = 1\n[core]\nk = 2\n", &[("k", "2")]);
        check("# [core]\nk = 1\n", &[]);
    }

    #[test]
    fn nonsense_is_passed_over() {
        check("[core\nk = 1\n", &[("k", "1")]);
        check("[core]\nk = \"open\nl = 2\n", &[("l", "2")]);
        check("[core]\nno value\n= 1\n\0\u{1}\n", &[("", "1")]);
        check("[", &[]);
        check("[core]\nk = \\", &[("k", "")]);
    }
}
