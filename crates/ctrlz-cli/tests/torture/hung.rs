//! A file system that stops answering, like a network file system whose server is gone.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, command, has, is_root, run};

/// Python program that speaks the kernel's FUSE protocol. It serves an empty directory, and listing
/// it never ends.
const SERVER: &str = r#"
import ctypes, os, struct, sys
at = sys.argv[1]
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"hung", at.encode(), b"fuse", 0, options) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True)
GETATTR, STATFS, INIT, OPENDIR = 3, 17, 26, 27
NEVER = {2, 28, 36, 42, 44}  # forgetting, reading directories, interrupting
attr = struct.pack("<QII6Q10I", 0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
answers = {
    INIT: struct.pack("<4I2HII2HI7I", 7, 31, 65536, 0, 1, 1, 65536, 1, 1, 0, 0, *[0] * 7),
    GETATTR: attr,
    OPENDIR: struct.pack("<QII", 1, 0, 0),
    STATFS: struct.pack("<5Q4I6I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0, *[0] * 6),
}
while True:
    request = os.read(fd, 1 << 20)
    _, opcode, unique = struct.unpack_from("<IIQ", request)
    if opcode in NEVER:
        continue
    body = answers.get(opcode, b"")
    error = 0 if opcode in answers else -2 if opcode == 1 else -38
    os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
"#;

struct Hung {
    server: Child,
    at: PathBuf,
}

impl Hung {
    fn mount(at: PathBuf) -> Hung {
        std::fs::create_dir(&at).unwrap();
        let mut server = command("python3")
            .args(["-c", SERVER])
            .arg(&at)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Hung { server, at }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Processes that wait for an answer get an error when the server exits.
        self.server.kill().ok();
        self.server.wait().ok();
        run(command("umount").arg("-l").arg(&self.at));
    }
}

#[test]
fn a_hung_file_system_does_not_block_other_work_trees() {
    if !is_root() || !has("python3") || !std::path::Path::new("/dev/fuse").exists() {
        eprintln!("needs FUSE: not run");
        return;
    }
    let lab = Lab::new();
    lab.write("a", "1");
    let hung = Hung::mount(lab.dir().join("disk-hung"));
    let mut stuck = lab.command_in(&hung.at, &["track"]).current_dir("/").spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(stuck.try_wait().unwrap().is_none(), "it has to wait for the listing");
    let begun = Instant::now();
    let hash = lab.track();
    lab.write("a", "2");
    lab.restore(&hash);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // When the file system is gone, the process that waits for it exits with an error.
    drop(hung);
    let begun = Instant::now();
    assert!(!stuck.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    lab.track();
}
