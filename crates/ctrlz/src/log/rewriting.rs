//! New versions of recorded operations, after a purge or retention, or for an export.

use std::collections::{BTreeMap, HashMap};

use crate::error::Error;
use crate::git::{Commit, Kind, ObjectId, encode_commit};
use crate::pack::{Objects, PackWriter, add};

use super::codec::{Continues, Header, author_of, commit_with, json_of, store_meta, subject_of};
use super::meta::Meta;
use super::operation::{Details, Operation, OperationKind};

/// Changes to an operation that is exported without some paths.
pub(crate) struct Redacted<'a> {
    pub(crate) snapshot: ObjectId,
    pub(crate) meta: Meta,
    /// New commits by their old ids. Contains every earlier commit that is kept.
    pub(crate) commits: &'a HashMap<ObjectId, ObjectId>,
}

/// Rewrites the operation of a commit through `put` and returns the new commit.
pub(crate) fn redact(
    objects: &Objects,
    commit: &ObjectId,
    new: Redacted<'_>,
    mut put: impl FnMut(Kind, Vec<u8>) -> ObjectId,
) -> Result<ObjectId, Error> {
    let (mut commit, mut header): (Commit, Header) = commit_with(objects, commit)?;
    let Redacted { snapshot, meta, commits } = new;
    let renamed = |old: &ObjectId| commits.get(old).copied();
    let mut parents: Vec<ObjectId> = commit
        .parents
        .iter()
        .filter(|parent| Some(**parent) != header.meta_in)
        .filter_map(renamed)
        .collect();
    header.continues = header
        .continues
        .and_then(|end| Some(Continues { commit: renamed(&end.commit)?, id: end.id }));
    header.previous = header
        .previous
        .into_iter()
        .filter_map(|(session, commit)| Some((session, renamed(&commit)?)))
        .collect();
    (header.meta, header.meta_in) = store_meta(&meta, |kind, bytes| Ok(put(kind, bytes)))?;
    parents.extend(header.meta_in);
    commit.parents = parents;
    commit.tree = snapshot;
    commit.data = json_of(&header);
    Ok(put(Kind::Commit, encode_commit(&commit)))
}

/// Context for rewriting commits of the store.
pub(crate) struct Rewriting<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) pack: &'a PackWriter,
    /// New ids of rewritten commits.
    pub(crate) commits: &'a BTreeMap<ObjectId, ObjectId>,
}

/// New version of an operation.
pub(crate) struct Rewritten {
    pub(crate) snapshot: ObjectId,
    /// New data besides the tree, or `None` to keep the old data.
    pub(crate) meta: Option<Meta>,
    /// New details, or `None` to keep the old ones. The commit's author and message follow them.
    pub(crate) details: Option<Details>,
    /// Number of earlier operations that were dropped and that this one now represents. A
    /// checkpoint keeps its name and pin; any other operation loses credits, kind and label.
    pub(crate) stands_for: u64,
    pub(crate) start: Start,
}

impl Rewritten {
    /// Changes only the snapshot and the ids that the operation refers to.
    pub(crate) fn with_snapshot(snapshot: ObjectId) -> Rewritten {
        Rewritten { snapshot, meta: None, details: None, stands_for: 0, start: Start::Same }
    }
}

/// Beginning of the segment of a rewritten operation.
pub(crate) enum Start {
    /// The segment begins where it did before.
    Same,
    /// The segment begins with this operation, which is the first of the log.
    First,
    /// The segment begins with this operation, after the given end of the previous segment.
    After { commit: ObjectId, id: String },
}

impl Rewriting<'_> {
    fn moved(&self, id: ObjectId) -> ObjectId {
        self.commits.get(&id).copied().unwrap_or(id)
    }

    /// Rewrites an operation's commit and replaces the ids it refers to by the new ones.
    pub(crate) fn write(&self, operation: &Operation, new: Rewritten) -> Result<ObjectId, Error> {
        let (mut commit, mut header): (Commit, Header) =
            commit_with(self.objects, &operation.commit)?;
        let mut meta = new.meta.unwrap_or_else(|| operation.meta.clone());
        meta.ignored_snapshot = meta.ignored_snapshot.map(|ignored| self.moved(ignored));
        let put = |kind, bytes: Vec<u8>| add(self.pack, kind, &bytes, &|id| self.objects.holds(id));
        (header.meta, header.meta_in) = store_meta(&meta, put)?;
        for commit in header.previous.values_mut() {
            *commit = self.moved(*commit);
        }
        if let Some(end) = &mut header.continues {
            end.commit = self.moved(end.commit);
        }
        if let Some(details) = new.details {
            commit.message = subject_of(header.kind, &details);
            commit.author = author_of(&details);
            header.details = details;
        }
        if new.stands_for > 0 && header.kind != OperationKind::Checkpoint {
            let count = new.stands_for;
            let label = format!("the last state of a day with {count} more operations");
            header.kind = OperationKind::Outside;
            header.details = Details { label: Some(label.clone()), ..Details::default() };
            header.previous.clear();
            (commit.message, commit.author) = (label, "ctrlz".into());
        }
        header.details.stands_for += new.stands_for;
        let mut parent = operation.parent_in_segment();
        if !matches!(new.start, Start::Same) {
            (parent, header.place, header.began) = (None, 0, header.at);
        }
        header.continues = match new.start {
            Start::Same => header.continues,
            Start::First => None,
            Start::After { commit, id } => Some(Continues { commit, id }),
        };
        commit.tree = new.snapshot;
        commit.parents =
            parent.map(|id| self.moved(id)).into_iter().chain(header.meta_in).collect();
        commit.data = json_of(&header);
        put(Kind::Commit, encode_commit(&commit))
    }
}
