//! Facts about the machine, without its name.

use std::path::Path;

use crate::Fallible;
use crate::process::{program, word};
use crate::scenarios::Plan;

/// Facts that readers need to judge the numbers.
pub(crate) struct Machine {
    pub(crate) lines: Vec<(&'static str, String)>,
}

impl Machine {
    /// Collects the facts about this machine.
    pub(crate) fn look(plan: &Plan) -> Fallible<Machine> {
        let temp = plan.temp.clone().unwrap_or_else(std::env::temp_dir);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let lines = vec![
            ("processor", format!("{cores} × {}", field("/proc/cpuinfo", "model name"))),
            ("memory", field("/proc/meminfo", "MemTotal")),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("file system", file_system(&temp)?),
            ("git", word(program("git").arg("--version"))?),
            ("load at the beginning", load()),
        ];
        Ok(Machine { lines })
    }
}

/// Returns the load averages of the last one, five and fifteen minutes.
pub(crate) fn load() -> String {
    read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
}

fn file_system(dir: &Path) -> Fallible<String> {
    let magic = rustix::fs::statfs(dir)?.f_type as u64;
    Ok(match magic {
        0xef53 => "ext4".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        0x0102_1994 => "tmpfs".into(),
        0x794c_7630 => "overlayfs".into(),
        other => format!("{other:#x}"),
    })
}
