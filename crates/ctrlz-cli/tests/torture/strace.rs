//! Fault injection at the Nth system call, with strace.
//!
//! `when=N` counts per thread, so every command runs with one thread. It also counts per system
//! call even if several are named, so "every call" means every call of each kind. With
//! `--seccomp-bpf`, strace 6.1 does not inject signals, so that option is used only for counting.

use std::collections::BTreeMap;

use crate::lab::{Ended, Lab, run};

/// The system calls that change a file system. With a `?`, strace accepts names that the machine
/// lacks.
pub(crate) const MUTATING: &str = "write,pwrite64,?rename,?renameat,renameat2,?link,linkat,?unlink,\
unlinkat,?mkdir,mkdirat,fsync,fdatasync,syncfs,ftruncate,?chmod,fchmod,?fchmodat,fchown,symlinkat,\
flock";

/// One system call of a command: the `number`th one of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) number: usize,
}

/// A fault that replaces or follows a system call.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) calls: String,
    /// In the syntax of strace: `signal=SIGKILL`, `error=EIO`.
    pub(crate) what: String,
    pub(crate) when: String,
}

impl Fault {
    pub(crate) fn kill(call: &Call) -> Fault {
        Fault::at(&call.name, "signal=SIGKILL", call.number)
    }

    pub(crate) fn error(error: &str, call: &Call) -> Fault {
        Fault::at(&call.name, &format!("error={error}"), call.number)
    }

    /// A fault at the `number`th call of each of `calls`.
    pub(crate) fn at(calls: &str, what: &str, number: usize) -> Fault {
        Fault { calls: calls.into(), what: what.into(), when: number.to_string() }
    }

    /// A fault at every call of `calls`.
    pub(crate) fn always(calls: &str, what: &str) -> Fault {
        Fault { calls: calls.into(), what: what.into(), when: "1+".into() }
    }
}

/// Returns the words that run a command with `faults` injected.
pub(crate) fn injecting(faults: &[Fault]) -> Vec<String> {
    let mut line = ["strace", "-f", "-qq", "-o", "/dev/null"].map(str::to_owned).to_vec();
    let calls: Vec<&str> = faults.iter().map(|fault| fault.calls.as_str()).collect();
    line.extend(["-e".into(), format!("trace={}", calls.join(","))]);
    for Fault { calls, what, when } in faults {
        line.extend(["-e".into(), format!("inject={calls}:{what}:when={when}")]);
    }
    line
}

/// Runs `ctrlz` with `args` and one fault.
pub(crate) fn run_with(lab: &Lab, fault: &Fault, args: &[&str]) -> Ended {
    run(&mut lab.wrapped(&injecting(std::slice::from_ref(fault)), args))
}

/// Returns the calls in `set` that a command makes without faults, in order.
pub(crate) fn calls(lab: &Lab, set: &str, args: &[&str]) -> Vec<Call> {
    let log = lab.dir().join("ctrlz-calls");
    let mut before = ["strace", "-f", "-qq", "--seccomp-bpf", "-o"].map(str::to_owned).to_vec();
    before.extend([log.to_str().unwrap().into(), "-e".into(), format!("trace={set}")]);
    run(&mut lab.wrapped(&before, args)).ok();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let text = std::fs::read_to_string(log).unwrap();
    let names = text.lines().filter_map(|line| line.split_once('(')?.0.split(' ').next_back());
    names
        .map(|name| {
            let number = numbers.entry(name.to_owned()).or_default();
            *number += 1;
            Call { name: name.to_owned(), number: *number }
        })
        .collect()
}
