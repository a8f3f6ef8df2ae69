//! Tests of the engine through its public API, with plain git as the oracle.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

// The harness: a work tree, a store, real git, and manifests to compare.
mod lab;

// Contents of snapshots: hashes equal to git's, ignore rules, coverage, partial tracking.
mod changed_rules;
mod coverage;
mod ignored;
mod oracle;
mod other_halves;
mod outside;
mod partial;
// Incremental scans, and scans that several callers share.
mod differing;
mod foreign_stores;
mod incremental;
// Restores: every type change, modes, empty directories, exactness, reverts.
mod restore;
mod revert;
mod text;
// Steps, undo and redo with several sessions and a user.
mod session_choices;
mod sessions;
// Garbage collection and retention.
mod attribution;
mod care;
// Reverting a session to a message, ignored files, long logs, forks, quota, repair.
mod ignored_snapshots;
mod lineage;
mod quota;
mod repair;
mod retained;
mod reverting;
mod segments;
// Moved, copied and replaced directories; transfer; reports of undo.
mod modes;
mod moving;
mod transfer;
mod true_reports;
mod uncaptured;
mod undo_conflicts;
// Random sequences against a naive copy.
mod model;
// Hostile trees, names and environments; damaged stores.
mod damage;
mod hard_links;
mod hostile;
mod named_files;
mod names;
// Regression tests for defects of the original and of similar tools.
mod field_failures;
// Regression tests for defects that reviews of the engine found.
mod reviewed;
// Several clones, several processes, the user's repository.
mod seeding;
mod sharing;
// Files that belong together, and snapshots with a watcher.
mod units;
mod watching;
// Layering and forbidden calls.
mod tidy;
