//! The `ctrlz` command under real faults: kill -9, failing calls, power cuts, full disks,
//! concurrent processes, attackers. Every test compares manifests and checks the store with plain
//! git.
//!
//! With `RUN_SLOW_TESTS` in the environment tests run at full size, otherwise at a small one. Tests
//! that need root, strace or loop mounts print a note and do nothing where these are missing.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a test that cannot run here has to say so")]

// The harness: labs, manifests, fault injection, disks and worker processes.
mod checker;
mod disk;
mod lab;
mod manifest;
mod scene;
mod strace;
mod workers;

// Processes that are killed or whose calls fail.
mod cut_short;
mod failing;
mod killed;
mod random_kills;
mod rolled_back;
mod sequences;
// Power cuts, damaged stores and full disks.
mod corrupted;
mod full;
mod power;
// Concurrent processes and attackers.
mod attacks;
mod crowd;
mod flip;
mod holders;
mod hung;
mod outside;
mod shared_store;
mod writers;
// Executed programs, resource limits, timestamps and permissions.
mod bombs;
mod execs;
mod price;
mod purged;
mod racy;
mod soak;
mod users;
// The watcher on mounts and unusual file systems.
mod watched;
// Random histories with an author for every line, and with a database in use.
mod authors;
mod databases;
// Tests of the checker itself, and other tools under the same faults.
mod checked;
mod peers;
