//! Names that must never occur in a snapshot or be written by a restore.

use gix_validate::path::component::{self, Options};

/// Metadata directories of other version control systems.
const OTHER_SYSTEMS: [&[u8]; 4] = [b".jj", b".hg", b".svn", b".sl"];

/// Returns whether `name` is `.git`, a name that some file system treats as `.git`, or the metadata
/// directory of another version control system.
///
/// The rules of HFS+ and NTFS apply on every platform, because a snapshot may be restored on
/// another one. `git fsck` rejects such names too.
pub(crate) fn is_protected_name(name: &[u8]) -> bool {
    if OTHER_SYSTEMS.iter().any(|system| name.eq_ignore_ascii_case(system)) {
        return true;
    }
    // Git for Windows treats a backslash as a separator, so every part of the name is checked.
    name.split(|byte| *byte == b'\\').any(is_dot_git)
}

fn is_dot_git(part: &[u8]) -> bool {
    let options = Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    matches!(
        gix_validate::path::component(part.into(), None, options),
        Err(component::Error::DotGitDir)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_of_dot_git_is_protected() {
        let names: [&[u8]; 13] = [
            b".git",
            b".GIT",
            b".gIt",
            ".g\u{200c}it".as_bytes(),
            b"git~1",
            b"GIT~1",
            b".git ",
            b".git.",
            b".git::$INDEX_ALLOCATION",
            b".git...:x",
            b".git\\hooks",
            b".hg",
            b".jj",
        ];
        for name in names {
            assert!(is_protected_name(name), "{:?}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn ordinary_names_are_not_protected() {
        for name in
            [".gitignore", ".github", "git", "a\\b", "CON", "a:b", ".gitmodules", "x.git", "..."]
        {
            assert!(!is_protected_name(name.as_bytes()), "{name}");
        }
    }
}
