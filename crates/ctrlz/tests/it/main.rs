//! Tests of the engine through its public API, with plain git as the oracle.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

// The harness: a work tree, a store, real git, and manifests to compare.
mod lab;

// What a snapshot holds: hashes equal git's, ignore rules, coverage, partial tracking.
mod changed_rules;
mod coverage;
mod ignored;
mod oracle;
mod other_halves;
mod outside;
mod partial;
// What a scan may take from the last one, and what several may share.
mod differing;
mod foreign_stores;
mod incremental;
// What comes back: every transition, modes, empty directories, exactness, rolling back.
mod restore;
mod revert;
mod text;
// Steps, undo and redo, several sessions and a user.
mod session_choices;
mod sessions;
// Garbage, retention, quota.
mod attribution;
mod care;
// A session taken back to a message; ignored files; a long log; forks and what came before.
mod companions;
mod lineage;
mod quota;
mod repair;
mod retained;
mod reverting;
mod segments;
// Directories that move, are copied or replaced.
mod modes;
mod moving;
mod transfer;
mod true_reports;
mod uncaptured;
mod undo_conflicts;
// Random sequences against a naive copy.
mod model;
// What must not happen: hostile trees, names, environments, damage.
mod damage;
mod hard_links;
mod hostile;
mod named_files;
mod names;
// Defects of the original and of its peers that must not come back.
mod field_failures;
// Mistakes that a review of the engine found.
mod reviewed;
// Several clones, several processes, the user's repository.
mod seeding;
mod sharing;
// With a watcher: the same snapshots, of what it was told of.
mod units;
mod watching;
// Layering and forbidden calls.
mod tidy;
