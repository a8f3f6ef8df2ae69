//! Decoding and encoding of commits.

use super::id::ObjectId;

/// A commit of the log: the snapshot's tree, the parents, and structured data of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) tree: ObjectId,
    pub(crate) parents: Vec<ObjectId>,
    /// Name shown by `git log`, for example the agent's.
    pub(crate) author: String,
    /// Seconds since 1970.
    pub(crate) seconds: i64,
    /// Value of the `ctrlz` header, one line of JSON. Empty if there is no such header.
    pub(crate) data: String,
    pub(crate) message: String,
}

const HEADER: &str = "ctrlz";
const MAIL: &str = "ctrlz@localhost";

/// Encodes a commit in git's format, with the `ctrlz` header after the committer.
pub(crate) fn encode_commit(commit: &Commit) -> Vec<u8> {
    let mut text = format!("tree {}\n", commit.tree);
    for parent in &commit.parents {
        text.push_str(&format!("parent {parent}\n"));
    }
    let author = plain_name(&commit.author);
    let seconds = commit.seconds.max(0);
    text.push_str(&format!("author {author} <{MAIL}> {seconds} +0000\n"));
    text.push_str(&format!("committer ctrlz <{MAIL}> {seconds} +0000\n"));
    if !commit.data.is_empty() {
        debug_assert!(!commit.data.contains('\n'), "the data is one line");
        text.push_str(&format!("{HEADER} {}\n", commit.data));
    }
    text.push('\n');
    text.push_str(&commit.message.replace('\0', "\u{fffd}"));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.into_bytes()
}

/// Returns an author name without characters that could end its header line.
fn plain_name(name: &str) -> String {
    let kept: String = name.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
    let trimmed = kept.trim();
    if trimmed.is_empty() { "ctrlz".into() } else { trimmed.into() }
}

/// Decodes a commit. Returns `None` if the bytes are not a commit.
pub(crate) fn parse_commit(bytes: &[u8]) -> Option<Commit> {
    let text = String::from_utf8_lossy(bytes);
    let (headers, message) = text.split_once("\n\n")?;
    let id = |value: &str| value.parse::<ObjectId>().ok();
    let mut commit = Commit {
        tree: ObjectId::NULL,
        parents: Vec::new(),
        author: String::new(),
        seconds: 0,
        data: String::new(),
        message: message.trim_end_matches('\n').to_owned(),
    };
    let mut has_tree = false;
    for line in headers.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "tree" => {
                commit.tree = id(value)?;
                has_tree = true;
            }
            "parent" => commit.parents.push(id(value)?),
            "author" => commit.author = value.split(" <").next().unwrap_or("").to_owned(),
            "committer" => {
                commit.seconds = value.split_whitespace().rev().nth(1)?.parse().unwrap_or(0);
            }
            HEADER => commit.data = value.to_owned(),
            _ => (),
        }
    }
    has_tree.then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_survives_encoding() {
        let commit = Commit {
            tree: ObjectId::EMPTY_TREE,
            parents: vec![ObjectId([3; 20])],
            author: "an agent".into(),
            seconds: 1_700_000_000,
            data: r#"{"v":1}"#.into(),
            message: "label\n\nbody".into(),
        };
        assert_eq!(parse_commit(&encode_commit(&commit)), Some(commit));
    }

    #[test]
    fn an_author_cannot_add_headers() {
        let commit = Commit {
            tree: ObjectId::EMPTY_TREE,
            parents: vec![],
            author: "x>\nparent 1 <".into(),
            seconds: 0,
            data: String::new(),
            message: String::new(),
        };
        assert_eq!(parse_commit(&encode_commit(&commit)).unwrap().parents, []);
    }
}
