//! The files and directories that every store has: their creation and repair.

use std::path::Path;

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};

/// Version of the layout.
pub(super) const FORMAT: u32 = 1;

/// Directories of a store that packs, refs and notes are written into.
pub(super) const DIRS: [&str; 7] =
    ["ctrlz", "ctrlz/wt", "info", "objects", "objects/info", "objects/pack", "refs"];

/// Keeps plain git, run by hand, from converting, executing or publishing anything.
pub(super) const CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tsharedRepository = 0600
\tlogAllRefUpdates = false
\tautocrlf = false
\tsymlinks = true
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
[gc]
\tauto = 0
[maintenance]
\tauto = false
[log]
\tdiffMerges = first-parent
[fsck]
\tgitmodulesBlob = ignore
\tgitmodulesLarge = ignore
\tgitmodulesMissing = ignore
\tgitmodulesName = ignore
\tgitmodulesParse = ignore
\tgitmodulesPath = ignore
\tgitmodulesSymlink = ignore
\tgitmodulesUpdate = ignore
\tgitmodulesUrl = ignore
\tgitattributesBlob = ignore
\tgitattributesLarge = ignore
\tgitattributesLineLength = ignore
\tgitattributesMissing = ignore
\tgitattributesSymlink = ignore
\tlargePathname = ignore
";

/// Overrides every `.gitattributes` of a snapshot, so that plain git checks out raw bytes.
const ATTRIBUTES: &str = "* -text -ident -filter -working-tree-encoding !diff !merge\n";

/// Returns the files that plain git needs. They can be rewritten at any time.
fn skeleton() -> [(&'static str, String); 4] {
    [
        ("HEAD", "ref: refs/heads/main\n".into()),
        ("config", CONFIG.into()),
        ("info/attributes", ATTRIBUTES.into()),
        ("ctrlz/format", format!("{FORMAT}\n")),
    ]
}

/// Recreates missing or damaged files of a store, so that one bad file never disables a project.
pub(super) fn mend(git_dir: &Path) -> Result<(), Error> {
    // The directory that marks a store as ours comes first.
    for dir in ["ctrlz/wt", "info", "objects/info", "objects/pack", "refs"] {
        private::create_dirs(&git_dir.join(dir))?;
    }
    for (name, text) in skeleton() {
        let path = git_dir.join(name);
        let good = match name {
            // Users may add to the configuration, but git refuses to run with a torn one.
            "config" => read_small(&path, 1 << 20)?
                .is_some_and(|bytes| bytes.starts_with(b"[core]") && !bytes.contains(&0)),
            "HEAD" => read_small(&path, 4096)?.is_some_and(|bytes| bytes.starts_with(b"ref: ")),
            // A power loss can leave an empty file.
            _ => path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0),
        };
        if !good {
            private::replace(&path, text.as_bytes(), Durable::Yes)?;
        }
    }
    Ok(())
}

/// Creates the files of a new store. Its directories and the exclude list are durable on return.
/// The other files are not flushed, because [`mend`] recreates them.
pub(super) fn build(git_dir: &Path, exclude: &str) -> Result<(), Error> {
    for dir in DIRS {
        private::create_dir(&git_dir.join(dir))?;
    }
    for (name, text) in skeleton() {
        private::replace(&git_dir.join(name), text.as_bytes(), Durable::No)?;
    }
    if !exclude.is_empty() {
        private::replace(&git_dir.join("info/exclude"), exclude.as_bytes(), Durable::Yes)?;
    }
    for dir in ["objects", "ctrlz", "."] {
        private::sync_dir(&git_dir.join(dir))?;
    }
    Ok(())
}
