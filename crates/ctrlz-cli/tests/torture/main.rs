//! The `ctrlz` command under real faults: kill -9, failing calls, power cuts, full disks, crowds,
//! attackers. Every test compares manifests and asks plain git about the store.
//!
//! `RUN_SLOW_TESTS` in the environment means full sizes; without it each test does a smoke part.
//! What needs root, strace or loop mounts says so and does nothing where they are missing.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a test that cannot run here has to say so")]

// The harness: a lab to run in, manifests to compare, faults to inject, disks to lose.
mod checker;
mod disk;
mod lab;
mod manifest;
mod scene;
mod strace;

// One process that does not come to its end.
mod cut_short;
mod failing;
mod killed;
mod random_kills;
mod rolled_back;
mod sequences;
// A machine that does not come to its end, and disks with an end.
mod corrupted;
mod full;
mod power;
// Other processes: friends, writers, attackers.
mod attacks;
mod crowd;
mod flip;
mod holders;
mod hung;
mod outside;
mod shared_store;
mod writers;
// What may be executed, what clocks hide, who may do what.
mod bombs;
mod execs;
mod price;
mod purged;
mod racy;
mod soak;
mod users;
// Whoever watches, on file systems that come and go.
mod watched;
// Random histories with an author for every line, and with a database that is in use.
mod authors;
mod databases;
// Whether the checker would notice, and what others do under the same faults.
mod checked;
mod peers;
