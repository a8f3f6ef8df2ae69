//! Finds the files that a Codex patch names.

use std::path::PathBuf;

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
}
