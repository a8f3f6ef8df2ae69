//! The operations of a store.

use std::collections::HashSet;

use crate::error::Error;
use crate::git::ObjectId;
use crate::store::Store;

use super::codec::{glance, read as read_operation};
use super::operation::Operation;
use super::work_tree::WorkTree;

impl Store {
    /// Returns all operations of all work trees whose snapshot is `id`.
    pub(crate) fn records_of(&self, id: &ObjectId) -> Result<Vec<Operation>, Error> {
        let mut records = Vec::new();
        for (name, head) in self.segments()? {
            // The index of a log covers its older segments too.
            let Some(work_tree) = self.log_of(&name) else { continue };
            let work_tree = WorkTree::named(self, work_tree);
            let checkpoints = work_tree.checkpoint_refs(self)?.into_iter();
            let mut apart: HashSet<ObjectId> = checkpoints.map(|(_, commit)| commit).collect();
            let Ok(mut log) = work_tree.index(self) else {
                self.records_in(head, id, &mut records);
                continue;
            };
            // Operations before a damaged one are lost.
            while let Some(Ok(entry)) = log.next() {
                apart.remove(&entry.commit);
                if entry.snapshot == *id {
                    records.extend(read_operation(&self.objects, &entry.commit).ok());
                }
            }
            // Checkpoints outlive their segments.
            let apart =
                apart.iter().filter_map(|commit| read_operation(&self.objects, commit).ok());
            records.extend(apart.filter(|operation| operation.snapshot == *id));
        }
        Ok(records)
    }

    /// Fallback of [`Store::records_of`] without an index: walks the readable commits.
    fn records_in(&self, head: ObjectId, id: &ObjectId, records: &mut Vec<Operation>) {
        let mut next = Some(head);
        while let Some(commit) = next {
            let Ok((snapshot, parent)) = glance(&self.objects, &commit) else { break };
            if snapshot == *id {
                records.extend(read_operation(&self.objects, &commit).ok());
            }
            next = parent;
        }
    }

    /// Returns the newest commit of each segment of all logs. Together they hold each operation
    /// once.
    pub(crate) fn segments(&self) -> Result<Vec<(String, ObjectId)>, Error> {
        let is_segment = |(name, _): &(String, ObjectId)| {
            self.log_of(name).is_some() || matches!(self.parts(name).as_slice(), [_, "past", _])
        };
        Ok(self.refs.list(self.ref_prefix())?.into_iter().filter(is_segment).collect())
    }

    /// Returns the names of all logs.
    pub(crate) fn logs(&self) -> Result<Vec<String>, Error> {
        let refs = self.refs.list(self.ref_prefix())?;
        Ok(refs.iter().filter_map(|(name, _)| self.log_of(name)).map(str::to_owned).collect())
    }

    /// Returns the work trees that use the store, and the other logs that have a directory.
    pub(crate) fn work_trees(&self) -> Result<Vec<WorkTree>, Error> {
        let dirs = self.work_tree_dirs()?;
        let names = dirs.iter().filter_map(|dir| Some(dir.file_name()?.to_string_lossy()));
        Ok(names.map(|name| WorkTree::named(self, &name)).collect())
    }

    /// Returns the work tree of a log's ref.
    fn log_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        match self.parts(name).as_slice() {
            [work_tree, "log"] => Some(work_tree),
            _ => None,
        }
    }

    fn parts<'a>(&self, name: &'a str) -> Vec<&'a str> {
        let rest = name.strip_prefix(self.ref_prefix()).unwrap_or_default();
        rest.trim_start_matches('/').split('/').collect()
    }

    /// Returns the operations of the log `name`, from `head` to the oldest one.
    pub(crate) fn history<'a>(
        &'a self,
        name: &'a str,
        head: ObjectId,
    ) -> impl Iterator<Item = Result<Operation, Error>> + 'a {
        let mut next = Some(head);
        std::iter::from_fn(move || {
            let operation = read_operation(&self.objects, &next?);
            next = match &operation {
                Ok(operation) => self.before(name, operation),
                Err(_) => None,
            };
            Some(operation)
        })
    }

    /// Reads the operations of one segment, from `head` back to its first. Stops after an error.
    pub(crate) fn segment(
        &self,
        head: ObjectId,
    ) -> impl Iterator<Item = Result<Operation, Error>> + '_ {
        let mut next = Some(head);
        std::iter::from_fn(move || {
            let operation = read_operation(&self.objects, &next?);
            next = operation.as_ref().ok().and_then(Operation::parent_in_segment);
            Some(operation)
        })
    }

    /// Returns the commit of the previous operation, or `None` if there is none or its segment was
    /// dropped.
    ///
    /// The name of the log decides, because an imported log continues under another name.
    pub(crate) fn before(&self, log: &str, operation: &Operation) -> Option<ObjectId> {
        match &operation.follows {
            None => operation.parent,
            Some(id) => {
                let past = self.past_ref(log, id);
                self.refs.read(&past).ok().flatten()
            }
        }
    }

    /// Returns the ref of the segment that ends with the operation `id`.
    pub(crate) fn past_ref(&self, work_tree: &str, id: &str) -> String {
        format!("{}/{work_tree}/past/{id}", self.ref_prefix())
    }
}
