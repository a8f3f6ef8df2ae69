//! Finds the files that a Codex patch names, and the texts that it replaces.

use std::path::PathBuf;

use super::event::ToolEdit;

/// Returns the files that a patch adds, changes, moves or deletes.
pub(super) fn files(patch: &str) -> Vec<PathBuf> {
    const MARKS: [&str; 4] =
        ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let named = patch.lines().filter_map(|line| {
        let line = line.trim_start();
        MARKS.iter().find_map(|mark| line.strip_prefix(mark))
    });
    named.map(str::trim).filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}

/// Returns the edits of existing files that a patch makes: per hunk, the lines before and after it.
pub(super) fn edits(patch: &str) -> Vec<ToolEdit> {
    let mut edits: Vec<ToolEdit> = Vec::new();
    let mut is_update = false;
    for line in patch.lines() {
        if line.starts_with("***") {
            let name = line.strip_prefix("*** Update File: ");
            is_update = name.is_some();
            let file = name.map(|name| PathBuf::from(name.trim()));
            edits.extend(file.map(|file| ToolEdit { file, ..ToolEdit::default() }));
            continue;
        }
        let Some(edit) = edits.last_mut().filter(|_| is_update) else { continue };
        if line.starts_with("@@") || edit.replaced.is_empty() {
            edit.replaced.push(Default::default());
        }
        let Some((old, new)) = edit.replaced.last_mut().filter(|_| !line.starts_with("@@")) else {
            continue;
        };
        let (text, kept) = (line.get(1..).unwrap_or_default(), line.starts_with(' '));
        for (side, has_line) in [(old, line.starts_with('-')), (new, line.starts_with('+'))] {
            if has_line || kept || line.is_empty() {
                side.push_str(text);
                side.push('\n');
            }
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_patch_is_found() {
        let patch = "*** Begin Patch\n*** Add File: a b.txt\n+x\n*** Update File: c\n\
                     *** Move to: d\n@@\n-*** Delete File: no\n+y\n*** Delete File: e \n*** End Patch";
        let names: Vec<_> = files(patch).iter().map(|p| p.display().to_string()).collect();
        assert_eq!(names, ["a b.txt", "c", "d", "e"]);
        assert_eq!(files("no patch at all"), Vec::<PathBuf>::new());
    }

    #[test]
    fn hunks_of_updated_files_are_replaced_texts() {
        let patch = "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: a\n@@ fn f\n one\n-two\n\
                     +TWO\n three\n@@\n-x\n+y\n*** End of File\n*** Delete File: b\n*** End Patch";
        let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
        let replaced = vec![pair("one\ntwo\nthree\n", "one\nTWO\nthree\n"), pair("x\n", "y\n")];
        assert_eq!(edits(patch), [ToolEdit { file: "a".into(), found: None, replaced }]);
    }
}
