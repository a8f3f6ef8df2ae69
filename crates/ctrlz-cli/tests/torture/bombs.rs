//! Objects, trees and files that are much larger than they look, handled in little memory and time.

use xtask::Row;

use crate::lab::{Ended, Lab, command, has, run};

/// Runs a command, and prints its peak memory in kilobytes and its CPU time in milliseconds.
const MEASURE: &str = "import resource,subprocess,sys; code=subprocess.call(sys.argv[1:]); \
    used=resource.getrusage(resource.RUSAGE_CHILDREN); \
    time=(used.ru_utime+used.ru_stime)*1000; \
    sys.stderr.write('\\nused %d %d\\n' % (used.ru_maxrss, time)); sys.exit(code)";

/// Runs `ctrlz` with `args`, and asserts that it needs less than 256 MB and five seconds of CPU
/// time. It may fail. CPU time does not depend on other processes on the machine, unlike elapsed
/// time.
fn check_bounded(row: &mut Row, lab: &Lab, args: &[&str]) -> Ended {
    let before = ["python3", "-c", MEASURE].map(str::to_owned);
    let ended = run(&mut lab.wrapped(&before, args));
    let used = ended.stderr.rsplit("used ").next().and_then(|text| text.trim().split_once(' '));
    let (kilobytes, millis) = used.unwrap_or_else(|| panic!("{ended:?}"));
    let (kilobytes, millis): (u64, u64) = (kilobytes.parse().unwrap(), millis.parse().unwrap());
    assert!(ended.code() != Some(101), "{args:?}: {ended:?}");
    assert!(kilobytes < 256 * 1024, "{args:?} took {kilobytes} kB: {ended:?}");
    assert!(millis < 5000, "{args:?} took {millis} ms");
    row.note(format!("the last one {} MB, {millis} ms", kilobytes / 1024));
    row.done();
    ended
}

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("file", "calm");
    lab.track();
    lab
}

/// Writes an object into the store without git's checks. Returns its id.
fn plant(lab: &Lab, kind: &str, make: &str) -> String {
    let script =
        format!("{make} | git --git-dir \"$0\" hash-object -t {kind} -w --literally --stdin");
    let mut shell = command("bash");
    run(shell.args(["-c", &script]).arg(lab.store())).ok().stdout.trim().to_owned()
}

#[test]
fn a_2_gib_object_in_2_mb_is_shown_in_bounded_memory_and_time() {
    let mut row = Row::of(14, "commands that meet an object of 2 GiB in 2 MB");
    if !has("python3") || !has("git") {
        return;
    }
    let lab = lab();
    let bytes = xtask::sized("200M", "2G");
    // Zeros compress to about a thousandth of their size.
    let blob = plant(&lab, "blob", &format!("head -c {bytes} /dev/zero"));
    let tree = format!(
        "python3 -c \"import sys; sys.stdout.buffer.write(b'100644 bomb\\\\0'+bytes.fromhex('{blob}'))\""
    );
    let tree = plant(&lab, "tree", &tree);
    // Only commands that read the object: a restore would depend on the free space of the disk.
    for args in [&["diff", &tree][..], &["patch", &tree], &["ls", &tree]] {
        check_bounded(&mut row, &lab, args);
    }
}

#[test]
fn a_tree_of_ten_billion_paths_is_refused_in_bounded_memory_and_time() {
    let mut row = Row::of(14, "commands that meet a tree of 10^10 paths");
    if !has("python3") || !has("git") {
        return;
    }
    let lab = lab();
    let mut id = plant(&lab, "blob", "echo x");
    for level in 0..10 {
        let mode = if level == 0 { "100644" } else { "40000" };
        let make = format!(
            "python3 -c \"import sys; [sys.stdout.buffer.write(b'{mode} %d\\\\0'%n+bytes.fromhex('{id}')) for n in range(10)]\""
        );
        id = plant(&lab, "tree", &make);
    }
    let before = lab.manifest();
    let all = [&["restore", "--exact", "--yes", &id][..], &["patch", &id], &["diff", &id]];
    for args in &all[..xtask::sized(1, 3)] {
        let ended = check_bounded(&mut row, &lab, args);
        assert!(ended.code() != Some(0), "{args:?}: {ended:?}");
    }
    lab.manifest().assert_is(&before, "a tree that expands");
}

#[test]
fn a_sparse_file_of_8_gb_is_skipped_and_reported() {
    let mut row = Row::of(14, "commands that meet a sparse file of 8 GB");
    if !has("python3") {
        return;
    }
    let lab = lab();
    let sparse = std::fs::File::create(lab.work.join("sparse")).unwrap();
    sparse.set_len(8 << 30).unwrap();
    let ended = check_bounded(&mut row, &lab, &["track"]);
    assert!(ended.code() == Some(0) && ended.stderr.contains("sparse"), "{ended:?}");
    let hash = ended.stdout.trim().to_owned();
    check_bounded(&mut row, &lab, &["restore", "--exact", "--yes", &hash]);
    assert_eq!(lab.work.join("sparse").metadata().unwrap().len(), 8 << 30);
}
