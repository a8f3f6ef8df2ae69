//! The scenarios, their order, and their work trees.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctrlz::{
    Options, Progress, Rewind, StepEnd, StepInfo, StepStart, TimelineQuery, UndoOptions, UndoScope,
    Workspace,
};

use crate::Fallible;
use crate::job::{Job, Work};
use crate::measure::{Sample, Series, Spread};
use crate::peers::{self, Contender};
use crate::process::{is_installed, output, pour, program};
use crate::tree::{Shape, Tree, disk_bytes};

/// Parameters from the command line.
pub(crate) struct Plan {
    pub(crate) files: Vec<usize>,
    pub(crate) quick: bool,
    pub(crate) steps: usize,
    pub(crate) jj: bool,
    pub(crate) temp: Option<PathBuf>,
    pub(crate) ctrlz: PathBuf,
}

/// A piece of work in a certain situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    ColdUnseeded,
    ColdSeeded,
    WarmUnchanged,
    /// This number of files changed.
    WarmChanged(usize),
    Patch,
    DiffFull(usize),
    Restore(usize),
    /// This number of files was created since and is removed.
    RestoreExact(usize),
}

impl Scenario {
    pub(crate) fn name(self) -> String {
        match self {
            Scenario::ColdUnseeded => "cold, nothing to borrow".into(),
            Scenario::ColdSeeded => "cold, seeded by the user's git".into(),
            Scenario::WarmUnchanged => "warm, nothing changed".into(),
            Scenario::WarmChanged(1) => "warm, 1 file changed".into(),
            Scenario::WarmChanged(count) => format!("warm, {count} files changed"),
            Scenario::Patch => "patch, 1 file changed".into(),
            Scenario::DiffFull(1) => "diff_full, 1 file".into(),
            Scenario::DiffFull(count) => format!("diff_full, {count} files"),
            Scenario::Restore(1) => "restore, 1 file".into(),
            Scenario::Restore(count) => format!("restore, {count} files"),
            Scenario::RestoreExact(count) => format!("exact restore, {count} files deleted"),
        }
    }
}

/// A row of the tables.
pub(crate) struct Row {
    pub(crate) scenario: Scenario,
    pub(crate) files: usize,
    pub(crate) shape: Shape,
    pub(crate) series: BTreeMap<Contender, Series>,
}

/// Costs at one point of a long session, in milliseconds.
pub(crate) struct SessionPoint {
    pub(crate) step: usize,
    /// Beginning and ending a step.
    pub(crate) cost: Spread,
    /// Listing the newest 20 entries of the log.
    pub(crate) log: Spread,
    /// Planning an undo of the last turn.
    pub(crate) plan: Spread,
    /// Undoing and redoing it.
    pub(crate) undo: Spread,
}

/// System calls of one contender.
pub(crate) struct Calls {
    pub(crate) contender: Contender,
    pub(crate) total: u64,
    pub(crate) most: Vec<(String, u64)>,
}

/// All results.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    pub(crate) session: Vec<SessionPoint>,
    /// System calls of a snapshot without changes, with the number of files.
    pub(crate) calls: Option<(usize, Vec<Calls>)>,
    /// Disk space of the stores, in bytes.
    pub(crate) disk: Vec<(String, Contender, u64)>,
    pub(crate) jj: bool,
}

/// Measures everything. Calls `show` with the results so far after each part, so that they are not
/// lost if a later part fails.
pub(crate) fn run(plan: &Plan, mut show: impl FnMut(&Results) -> Fallible<()>) -> Fallible<()> {
    let temp = match &plan.temp {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let mut results = Results { jj: plan.jj && is_installed("jj"), ..Results::default() };
    for files in &plan.files {
        let lab = Lab::new(plan, &temp.path().join(files.to_string()), *files)?;
        lab.tracks(&mut results)?;
        show(&results)?;
        std::fs::remove_dir_all(&lab.dir)?;
    }
    for shape in [Shape::Wide, Shape::Deep] {
        let files = if plan.quick { 300 } else { 10_000 };
        let lab = Lab::shaped(plan, &temp.path().join("shaped"), files, shape)?;
        lab.tracks(&mut results)?;
        show(&results)?;
        std::fs::remove_dir_all(&lab.dir)?;
    }
    let files = if plan.quick { 300 } else { 3_000 };
    let lab = Lab::new(plan, &temp.path().join("restores"), files)?;
    lab.restores(&mut results)?;
    show(&results)?;
    let lab = Lab::new(plan, &temp.path().join("session"), if plan.quick { 200 } else { 1_000 })?;
    lab.session(&mut results)?;
    show(&results)
}

/// Measures a long session alone.
pub(crate) fn run_session(plan: &Plan) -> Fallible<Results> {
    let temp = match &plan.temp {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let mut results = Results::default();
    let lab = Lab::new(plan, &temp.path().join("session"), 1_000)?;
    lab.session(&mut results)?;
    Ok(results)
}

/// A tree and every contender's state.
struct Lab<'a> {
    plan: &'a Plan,
    dir: PathBuf,
    tree: Tree,
}

impl Lab<'_> {
    fn new<'a>(plan: &'a Plan, dir: &Path, files: usize) -> Fallible<Lab<'a>> {
        Lab::shaped(plan, dir, files, Shape::Usual)
    }

    fn shaped<'a>(plan: &'a Plan, dir: &Path, files: usize, shape: Shape) -> Fallible<Lab<'a>> {
        eprintln!("making a tree of {files} files{}", shape.name());
        let root = dir.join("tree");
        std::fs::create_dir_all(&root)?;
        Ok(Lab { plan, dir: dir.to_owned(), tree: Tree::make(&root, files, shape)? })
    }

    fn state(&self, contender: Contender) -> PathBuf {
        self.dir.join(contender.dir())
    }

    fn job(&self, contender: Contender, work: Work) -> Job {
        Job {
            contender,
            work,
            tree: self.tree.root.clone(),
            state: self.state(contender),
            ctrlz: self.plan.ctrlz.clone(),
        }
    }

    fn forget(&self, contender: Contender) -> Fallible<()> {
        let state = self.state(contender);
        if state.exists() {
            std::fs::remove_dir_all(&state)?;
        }
        Ok(())
    }

    /// Turns the tree into a user's repository with all files committed.
    fn commit(&self) -> Fallible<()> {
        let git = || {
            let mut git = program("git");
            git.current_dir(&self.tree.root);
            git
        };
        output(git().args(["init", "-q", "-b", "main"]))?;
        // Writes a single pack, as after a clone. `git add` can do that too, but compares each file
        // with all earlier ones, which takes most of an hour for a million files.
        let settings = ["-c", "core.compression=1", "-c", "fastimport.unpackLimit=1"];
        let mut import = git();
        import.args(settings).args(["fast-import", "--quiet", "--depth=0", "--done"]);
        pour(&mut import, &[0], |commit| self.tree.write_commit(commit))?;
        output(git().args(["reset", "-q"]))?;
        match output(git().args(["status", "--porcelain"]))?.as_slice() {
            [] => Ok(()),
            left => Err(format!("not committed: {}", String::from_utf8_lossy(left)).into()),
        }
    }

    /// Returns the numbers of rounds for cheap and for expensive work.
    fn rounds(&self) -> (usize, usize) {
        match self.plan.quick {
            true => (3, 1),
            false if self.is_huge() => (3, 1),
            false if self.tree.files > 20_000 => (5, 2),
            false => (7, 3),
        }
    }

    /// Returns whether the tree is so large that some scenarios are left out, and plain git, whose
    /// first snapshot takes minutes.
    fn is_huge(&self) -> bool {
        self.tree.files > 200_000
    }

    /// Returns the contenders that take snapshots of a tree with a warm cache.
    fn warm(&self) -> Vec<Contender> {
        use Contender::{Ctrlz, Floor, Git, Jj, Library, OpenCode, Watcher};
        if self.is_huge() {
            return vec![Ctrlz, Watcher, OpenCode, Floor];
        }
        let mut warm = vec![Ctrlz, Library, Watcher, Git, OpenCode, Floor];
        if self.plan.jj && is_installed("jj") {
            warm.push(Jj);
        }
        warm
    }

    /// Edits the tree, and jj's copy in the same way.
    fn edit(&self, count: usize, round: usize) -> Fallible<()> {
        let copy = peers::jj::copy(&self.state(Contender::Jj));
        if copy.exists() {
            Tree { root: copy, ..self.tree.clone() }.edit(count, round)?;
        }
        self.tree.edit(count, round)
    }

    /// Measures a scenario. The contenders take turns, and each round begins with another one.
    fn take_turns(
        &self,
        scenario: Scenario,
        contenders: &[Contender],
        rounds: usize,
        mut sample: impl FnMut(Contender, usize) -> Fallible<Sample>,
        mut between: impl FnMut(usize) -> Fallible<()>,
    ) -> Fallible<Row> {
        let shape = self.tree.shape.name();
        eprintln!("{:>9} files{shape}: {}", self.tree.files, scenario.name());
        let mut series: BTreeMap<Contender, Series> = BTreeMap::new();
        for round in 0..rounds {
            between(round)?;
            let mut hashes: BTreeMap<String, Contender> = BTreeMap::new();
            for turn in 0..contenders.len() {
                let contender = contenders[(turn + round) % contenders.len()];
                self.calm_down()?;
                let sample = sample(contender, round)?;
                if sample.output.len() == 40 {
                    hashes.insert(sample.output.clone(), contender);
                }
                series.entry(contender).or_default().push(sample);
            }
            if hashes.len() > 1 {
                return Err(format!("the contenders disagree: {hashes:?}").into());
            }
        }
        let (files, shape) = (self.tree.files, self.tree.shape);
        Ok(Row { scenario, files, shape, series })
    }

    /// Waits for background work of the previous sample: write-back, and copying borrowed blobs.
    fn calm_down(&self) -> Fallible<()> {
        let start = Instant::now();
        let borrows = |contender| has_borrowed(&self.state(contender));
        while (borrows(Contender::Ctrlz) || borrows(Contender::Watcher))
            && start.elapsed().as_secs() < 300
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let dir = std::fs::File::open(&self.dir)?;
        Ok(rustix::fs::syncfs(dir)?)
    }

    fn tracks(&self, results: &mut Results) -> Fallible<()> {
        use Contender::{Ctrlz, Floor, Git, Library, OpenCode, Watcher};
        let (many, few) = self.rounds();
        let huge = self.is_huge();
        let track = |contender| self.job(contender, Work::Track).sample();
        let quiet = |_| Ok(());

        let unseeded: &[_] = if huge { &[Ctrlz, Floor] } else { &[Ctrlz, Library, Git, Floor] };
        let cold = |contender, _| {
            self.forget(contender)?;
            let work = if contender == Floor { Work::ReadAll } else { Work::Track };
            self.job(contender, work).sample()
        };
        let row = self.take_turns(Scenario::ColdUnseeded, unseeded, few, cold, quiet)?;
        results.rows.push(row);
        let usual = self.tree.shape == Shape::Usual;
        for contender in unseeded.iter().filter(|contender| usual && **contender != Floor) {
            let bytes = disk_bytes(&self.state(*contender));
            let what = format!("{} files, first snapshot", self.tree.files);
            results.disk.push((what, *contender, bytes));
        }

        self.commit()?;
        let seeded: &[_] =
            if huge { &[Ctrlz, OpenCode, Floor] } else { &[Ctrlz, Library, OpenCode, Floor] };
        let cold = |contender, _| {
            self.forget(contender)?;
            track(contender)
        };
        results.rows.push(self.take_turns(Scenario::ColdSeeded, seeded, few, cold, quiet)?);

        let warm = self.warm();
        for contender in warm.iter().chain(&warm) {
            track(*contender)?;
        }
        for contender in [Library, Watcher] {
            if !warm.contains(&contender) {
                continue;
            }
            let workspace = Workspace::open(&self.tree.root, Options::new(self.state(contender)))?;
            while workspace.copy_borrowed(u64::MAX)? > 0 {}
        }
        let watched = self.job(Watcher, Work::Track);
        peers::ctrlz::watcher(&watched, "--detach")?;
        // The first snapshot after the start of a watcher is a full scan.
        track(Watcher)?;
        let warmly = |contender, _| track(contender);
        results.rows.push(self.take_turns(Scenario::WarmUnchanged, &warm, many, warmly, quiet)?);
        if usual && self.tree.files <= 10_000 && is_installed("strace") {
            results.calls = Some((self.tree.files, self.count_calls()?));
        }
        let done = self.changed_tracks(results, many);
        peers::ctrlz::watcher(&watched, "--stop")?;
        done
    }

    fn changed_tracks(&self, results: &mut Results, rounds: usize) -> Fallible<()> {
        use Contender::{Ctrlz, Git, Library, OpenCode};
        let all = self.warm();
        let track = |contender, _| self.job(contender, Work::Track).sample();
        let first = track(Ctrlz, 0)?.output;
        let most = self.tree.files.min(1_000);
        for (count, rounds) in [(1, rounds), (most, rounds.div_ceil(2))] {
            let edit = |round| self.edit(count, round + 100 * count);
            let scenario = Scenario::WarmChanged(count);
            results.rows.push(self.take_turns(scenario, &all, rounds, track, edit)?);
        }
        if self.is_huge() {
            return Ok(());
        }
        let makers = [Ctrlz, Library, Git, OpenCode];
        let edit = |round| self.tree.edit(1, round + 500_000);
        let patch = |contender, _| self.job(contender, Work::Patch(first.clone())).sample();
        results.rows.push(self.take_turns(Scenario::Patch, &makers, rounds, patch, edit)?);

        let readers = [Ctrlz, Library, OpenCode];
        for (count, round) in [(1, 700_000), (most, 800_000)] {
            let from = self.tracked_by(&readers)?;
            self.tree.edit(count, round)?;
            let to = self.tracked_by(&readers)?;
            let work = Work::DiffFull(from, to);
            let diff = |contender, _| self.job(contender, work.clone()).sample();
            let row =
                self.take_turns(Scenario::DiffFull(count), &readers, rounds, diff, |_| Ok(()))?;
            results.rows.push(row);
        }
        Ok(())
    }

    /// Takes a snapshot with each contender. Returns the hash of the last one.
    fn tracked_by(&self, contenders: &[Contender]) -> Fallible<String> {
        let mut hash = String::new();
        for contender in contenders {
            hash = self.job(*contender, Work::Track).sample()?.output;
        }
        Ok(hash)
    }

    fn restores(&self, results: &mut Results) -> Fallible<()> {
        use Contender::{Ctrlz, Floor, Git, Library, OpenCode};
        self.commit()?;
        let (many, _) = self.rounds();
        let target = self.tracked_by(&[Ctrlz, Library, Git, OpenCode])?;
        let all = [Ctrlz, Library, Git, OpenCode, Floor];
        let files = self.tree.files;
        for (scenario, count) in [(Scenario::Restore(1), 1), (Scenario::Restore(files), files)] {
            let restore = |contender, round: usize| {
                self.tree.edit(count, round + count)?;
                if contender == Floor {
                    self.calm_down()?;
                    let sample = self.job(Floor, Work::WriteAll(count)).sample()?;
                    self.check(Ctrlz, &target)?;
                    return Ok(sample);
                }
                // The agent's changes are recorded before the restore, as in a session.
                self.job(contender, Work::Track).sample()?;
                self.calm_down()?;
                let mut sample = self.job(contender, Work::Restore(target.clone())).sample()?;
                sample.output.clear();
                self.check(contender, &target)?;
                Ok(sample)
            };
            let row = self.take_turns(scenario, &all, many, restore, |_| Ok(()))?;
            results.rows.push(row);
        }
        let created = files / 6;
        let exact = |contender, round| {
            self.tree.add(created, round)?;
            self.job(contender, Work::Track).sample()?;
            self.calm_down()?;
            let mut sample = self.job(contender, Work::RestoreExact(target.clone())).sample()?;
            sample.output.clear();
            self.check(contender, &target)?;
            self.tree.remove_added()?;
            Ok(sample)
        };
        let removers = [Ctrlz, Library, Git];
        let scenario = Scenario::RestoreExact(created);
        let row = self.take_turns(scenario, &removers, many, exact, |_| Ok(()))?;
        results.rows.push(row);
        Ok(())
    }

    /// Checks that a contender really restored the target.
    fn check(&self, contender: Contender, target: &str) -> Fallible<()> {
        let now = self.job(contender, Work::Track).sample()?.output;
        if now != target {
            return Err(format!("{contender:?} did not restore: {now} instead of {target}").into());
        }
        Ok(())
    }

    /// Measures steps of one file each, like an agent that embeds the engine. OpenCode's calls take
    /// the same snapshots, to compare the disk space.
    fn session(&self, results: &mut Results) -> Fallible<()> {
        self.commit()?;
        let steps = self.plan.steps;
        eprintln!("{:>9} files: a session of {steps} steps", self.tree.files);
        let state = self.state(Contender::Library);
        let workspace = Workspace::open(&self.tree.root, Options::new(&state))?;
        let peer_steps = steps.min(1_000);
        self.job(Contender::OpenCode, Work::Track).sample()?;
        let before_peer = disk_bytes(&self.state(Contender::OpenCode));
        let mut costs = Vec::with_capacity(steps);
        let mut sizes = (0, 0);
        for step in 0..steps {
            costs.push(self.step(&workspace, step)?);
            if step < peer_steps {
                self.job(Contender::OpenCode, Work::Track).sample()?;
            }
            if step == 0 {
                while workspace.copy_borrowed(u64::MAX)? > 0 {}
                sizes.0 = disk_bytes(&state);
            }
            if step + 1 == peer_steps {
                sizes.1 = disk_bytes(&state);
            }
            if MILESTONES.contains(&(step + 1)) {
                let near = &costs[step + 1 - ((step + 1) / 5).max(5)..];
                let cost = Spread::of(near.to_vec());
                results.session.push(look_back(&workspace, step + 1, cost)?);
            }
        }
        let what = format!("{peer_steps} steps of one file each, growth");
        let peer = disk_bytes(&self.state(Contender::OpenCode)) - before_peer;
        results.disk.push((what.clone(), Contender::Library, sizes.1.saturating_sub(sizes.0)));
        results.disk.push((what, Contender::OpenCode, peer));
        Ok(())
    }

    /// Returns the milliseconds for beginning and ending a step, without the edit.
    fn step(&self, workspace: &Workspace, step: usize) -> Fallible<f64> {
        let info = StepInfo {
            session: "bench".into(),
            message: Some(format!("turn {step}")),
            ..StepInfo::default()
        };
        let start = StepStart { info, ..StepStart::default() };
        let progress = Progress::default();
        let clock = Instant::now();
        let begun = workspace.begin_step(start, &progress)?;
        let beginning = clock.elapsed();
        self.tree.edit(1, 1_000_000 + step)?;
        let clock = Instant::now();
        workspace.end_step(&begun.step, &StepEnd::default(), &progress)?;
        Ok((beginning + clock.elapsed()).as_secs_f64() * 1000.0)
    }

    /// Counts the system calls of a snapshot without changes.
    fn count_calls(&self) -> Fallible<Vec<Calls>> {
        let mut counted = Vec::new();
        for contender in [Contender::Ctrlz, Contender::Git, Contender::OpenCode] {
            let table = self.dir.join("calls");
            let job = serde_json::to_string(&self.job(contender, Work::Track))?;
            let mut strace = program("strace");
            strace.args(["-f", "-c", "-o"]).arg(&table).arg(std::env::current_exe()?);
            output(strace.args(["--job", &job]))?;
            counted.push(parse_calls(contender, &std::fs::read_to_string(&table)?));
        }
        Ok(counted)
    }
}

/// Returns whether a store still has borrowed blobs to copy.
fn has_borrowed(state: &Path) -> bool {
    let Ok(stores) = std::fs::read_dir(state.join("snapshot")) else { return false };
    stores.flatten().any(|store| {
        let trees = std::fs::read_dir(store.path().join("ctrlz/wt"));
        trees.into_iter().flatten().flatten().any(|tree| tree.path().join("borrowed").exists())
    })
}

/// Parses the table that `strace -c` prints.
fn parse_calls(contender: Contender, table: &str) -> Calls {
    let mut most: Vec<(String, u64)> = table
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let (name, count) = (columns.last()?, columns.get(3)?);
            Some(((*name).to_owned(), count.parse().ok()?))
        })
        .collect();
    most.retain(|(name, _)| name != "total");
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let total = most.iter().map(|(_, count)| count).sum();
    most.truncate(5);
    Calls { contender, total, most }
}

/// Numbers of steps after which a session is measured.
const MILESTONES: [usize; 7] = [10, 30, 100, 300, 1_000, 3_000, 10_000];

/// Measures the cost of reading the log and of undo after `step` steps.
fn look_back(workspace: &Workspace, step: usize, cost: Spread) -> Fallible<SessionPoint> {
    let progress = Progress::default();
    let query = TimelineQuery { limit: 20, ..TimelineQuery::default() };
    let (scope, options) = (UndoScope::LastTurn, UndoOptions::default());
    let rewind = Rewind::Undo { scope: scope.clone(), options: options.clone() };
    let (mut log, mut plan, mut undo) = (Vec::new(), Vec::new(), Vec::new());
    let millis = |clock: Instant| clock.elapsed().as_secs_f64() * 1000.0;
    for _ in 0..5 {
        let clock = Instant::now();
        let entries = workspace.timeline(&query)?;
        log.push(millis(clock));
        let clock = Instant::now();
        workspace.plan(&rewind, &progress)?;
        plan.push(millis(clock));
        let clock = Instant::now();
        workspace.undo(&scope, &options, &progress)?;
        undo.push(millis(clock));
        let clock = Instant::now();
        workspace.redo(&options, &progress)?;
        undo.push(millis(clock));
        if entries.is_empty() {
            return Err("the log is empty".into());
        }
    }
    let (log, plan, undo) = (Spread::of(log), Spread::of(plan), Spread::of(undo));
    Ok(SessionPoint { step, cost, log, plan, undo })
}
