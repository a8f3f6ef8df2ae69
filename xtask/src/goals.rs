//! The reliability goals, figures of other tools, and the tests that measure ours.

/// Tests in one test binary.
pub(crate) struct Harness {
    pub(crate) package: &'static str,
    pub(crate) target: &'static str,
    /// Filters for test names, as `cargo test` takes them.
    pub(crate) filters: &'static [&'static str],
}

/// A goal, which is one row of the table.
pub(crate) struct Goal {
    pub(crate) number: u8,
    /// Title for the terminal.
    pub(crate) short: &'static str,
    pub(crate) text: &'static str,
    /// Behaviour of other tools, from our measurements or their documentation.
    pub(crate) peers: &'static str,
    pub(crate) harnesses: &'static [Harness],
}

const fn torture(filters: &'static [&'static str]) -> Harness {
    Harness { package: "ctrlz", target: "torture", filters }
}

const fn engine(filters: &'static [&'static str]) -> Harness {
    Harness { package: "ctrlz-engine", target: "it", filters }
}

const fn server(filters: &'static [&'static str]) -> Harness {
    Harness { package: "ctrlz-server", target: "it", filters }
}

pub(crate) const GOALS: [Goal; 21] = [
    Goal {
        number: 1,
        short: "kill -9 at every call and at random moments",
        text: "kill -9 at every call that changes a file system, in every command that makes such calls, and at 10,000 random \
               moments with threads: no torn file, no lost snapshot, the next command works",
        peers: "git: torn user file and a stale lock; restic: \"you might have to run unlock manually\"",
        harnesses: &[torture(&[
            "killed::",
            "rolled_back::",
            "random_kills::",
            "peers::git_tears",
            "peers::gix_tears",
            "checked::",
        ])],
    },
    Goal {
        number: 2,
        short: "power cuts",
        text: "power cuts on ext4 and xfs, half of them after a flush of an unrelated file: no acknowledged snapshot lost, no empty \
               object, no torn user file, no manual repair",
        peers: "gitoxide's writer: 201 of 252 objects empty; git's default: 202 of 402 empty and HEAD lost",
        harnesses: &[torture(&["power::", "peers::git_loses", "peers::gix_loses"])],
    },
    Goal {
        number: 3,
        short: "failing calls",
        text: "every call fails once with each of EIO, ENOSPC, EDQUOT, EACCES, EROFS, EMFILE, EINTR; short writes; failing \
               flush, close and rename; small disks: no false success, no lost byte",
        peers: "borg 9853: exit 0 and a corrupt archive on ENOSPC; gitoxide's checkout: a file of 0 bytes",
        harnesses: &[torture(&["failing::", "full::", "users::", "cut_short::"])],
    },
    Goal {
        number: 4,
        short: "many processes on one work tree",
        text: "24 processes × 20 tracks on one work tree: all succeed, 99 % of them within 2 s",
        peers: "git add, 8 × 8: 8 of 64 succeed",
        harnesses: &[torture(&[
            "crowd::two_dozen",
            "crowd::a_mixed",
            "writers::",
            "peers::git_adds",
        ])],
    },
    Goal {
        number: 5,
        short: "eight work trees on one store, with gc",
        text: "8 work trees, one store, 24 processes, gc in a loop: no broken snapshot, no failed track",
        peers: "git gc --prune=now beside writers: 1 of 39 broken, 1 failed",
        harnesses: &[torture(&["shared_store::"])],
    },
    Goal {
        number: 6,
        short: "dead lock holders",
        text: "1,000 killed lock holders, stopped ones, and reused process ids: the next command gets the lock within 50 ms, \
               without manual repair",
        peers: "git and gitoxide: locked forever; restic: up to 30 minutes across hosts",
        harnesses: &[torture(&["holders::", "crowd::a_killed", "crowd::a_stopped"])],
    },
    Goal {
        number: 7,
        short: "directories swapped for symlinks",
        text: "100,000 swaps of a directory and a symlink under scan, restore and delete: no byte written outside, no foreign byte in \
               the store",
        peers: "gitoxide's checkout: 1 of 1 escapes",
        harnesses: &[torture(&["flip::"])],
    },
    Goal {
        number: 8,
        short: "hostile trees and repositories",
        text: "hostile trees (names equivalent to .git, duplicates, contradictions) are refused before the first write; hostile \
               repositories and environments execute nothing; no parser panics on any input",
        peers: "gitoxide accepts duplicates, contradictions and `.g\\u200cit` on Linux",
        harnesses: &[
            torture(&["execs::"]),
            engine(&["hostile::"]),
            Harness { package: "ctrlz-engine", target: "ctrlz", filters: &["parsers::"] },
            Harness { package: "ctrlz-agents", target: "ctrlz_agents", filters: &["never_panics"] },
            Harness { package: "ctrlz", target: "ctrlz", filters: &["never_panics"] },
        ],
    },
    Goal {
        number: 9,
        short: "random sequences against a model",
        text: "random sequences of edits, tracks, restores, undos, redos, gc and crashes equal a naive model, and every \
               incremental hash equals the hash of a full scan",
        peers: "kopia: 4 clients with fio and a checker",
        harnesses: &[
            torture(&["sequences::"]),
            engine(&["model::", "incremental::incremental_and_cold", "sessions::undo_and_revert"]),
        ],
    },
    Goal {
        number: 10,
        short: "a damaged store",
        text: "1,000 flipped bits and cut files: all detected, no wrong byte restored, healed where the content still exists",
        peers: "git, gitoxide: detected, not healed (0 of 201)",
        harnesses: &[torture(&["corrupted::"]), engine(&["damage::", "repair::"])],
    },
    Goal {
        number: 11,
        short: "names and depths",
        text: "10,000 names of random bytes, a path of 8,040 bytes, 5,000 levels: all of them are restored",
        peers: "git: one `git~1` and nothing is added; deep paths are skipped with a warning",
        harnesses: &[engine(&["names::"])],
    },
    Goal {
        number: 12,
        short: "changes that clocks and watchers could miss",
        text: "2,000 rewrites of the same size where the file system keeps whole seconds, 10,000 writes just before a watched track, \
               overflowing queues: none missed",
        peers: "git: its racy rule; watchman: its cookie rule",
        harnesses: &[torture(&["racy::", "watched::"]), engine(&["watching::"])],
    },
    Goal {
        number: 13,
        short: "attacks over HTTP",
        text: "every route × every attack is refused and changes nothing; slow clients and many clients do not block others",
        peers: "opencode CVE-2026-22812, rmcp before 1.4 (CVE-2026-42559)",
        harnesses: &[server(&["doors::", "limits::", "calling::"])],
    },
    Goal {
        number: 14,
        short: "bombs",
        text: "2 GiB in an object of 2 MB, a tree of 10^10 paths, a sparse file of 8 GB: below 256 MB, below 5 s",
        peers: "gitoxide: a limit only at reduced trust",
        harnesses: &[
            torture(&["bombs::"]),
            engine(&["hostile::a_tree_bomb", "hostile::a_decompression_bomb"]),
        ],
    },
    Goal {
        number: 15,
        short: "garbage",
        text: "gc and track, interleaved 1,000 times: nothing referenced is deleted, no garbage is left",
        peers: "opencode: leaks of 62 to 876 GB; kopia: margins of 24 h",
        harnesses: &[
            torture(&["full::garbage"]),
            engine(&[
                "care::gc_needs_little",
                "care::gc_concurrent",
                "care::many_snapshots",
                "care::expired_segments",
                "care::thinning_keeps",
                "care::gc_is_refused",
            ]),
        ],
    },
    Goal {
        number: 16,
        short: "purged content and private permissions",
        text: "a purged secret is in no object, log, cache or file; nothing in the store is readable to other users, with any umask",
        peers: "no comparable tool offers it",
        harnesses: &[
            torture(&["users::a_store_is_private", "purged::"]),
            engine(&["care::a_purge_removes", "care::a_purged_file"]),
        ],
    },
    Goal {
        number: 17,
        short: "the price of durability",
        text: "a durable track of 200 changed files is at most 30 ms slower than one that flushes nothing",
        peers: "git: core.fsync=batch is the idea",
        harnesses: &[torture(&["price::"])],
    },
    Goal {
        number: 18,
        short: "soak",
        text: "ten minutes of 50 edits a second with the watcher killed every 5 s: nothing missed, descriptors and memory flat ±5 %",
        peers: "–",
        harnesses: &[torture(&["soak::"])],
    },
    Goal {
        number: 19,
        short: "random histories with an author for every line",
        text: "20,000 random histories of agents, sub-agents, overlapping sessions, interruptions, git operations and the user: every \
               undo, redo, revert and unrevert keeps the lines of other authors, reverses the lines of its steps or \
               reports a conflict that the record confirms, and does exactly what its dry run, report and exit code say",
        peers: "–",
        harnesses: &[torture(&["authors::"])],
    },
    Goal {
        number: 20,
        short: "databases with live writers",
        text: "10,000 commands beside a process that commits to an SQLite database, with a write-ahead log or a rollback journal, \
               and 2,000 without one: no acknowledged commit is lost, no file is replaced under a process that has it open, \
               and the database is restored with its sidecar files to one recorded state, byte for byte, or left and reported",
        peers: "Hermes 101092: the same loss, since fixed",
        harnesses: &[torture(&["databases::"])],
    },
    Goal {
        number: 21,
        short: "attacks",
        text: "2,000 hostile stores that come with a project, 1,000 broken repositories, 400 forged indexes, 200 sets of private \
               rules, 600 obstacles in the way of an installation and 200 sets of names and contents with control characters: no \
               program runs, nothing outside of the project changes, recording and undo keep working, no private rule leaves \
               the machine, and no control character reaches a terminal",
        peers: "–",
        harnesses: &[torture(&["attacks::"])],
    },
];
