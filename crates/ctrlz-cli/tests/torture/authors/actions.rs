//! The actions of a case and the profiles that generate them.
//!
//! An action carries a salt instead of details, so that it stays meaningful when a shorter history
//! leaves out what came before it.

use xtask::Random;

/// A generator profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Steps by `ctrlz run`.
    Run,
    /// Steps by hook events of Claude Code.
    Hooks,
    /// Both kinds of steps.
    Mixed,
    /// Both kinds of steps, with a watcher.
    Watcher,
    /// With git operations of the user between steps.
    Git,
    /// Chains of `revert`, ended by `unrevert`.
    Reverts,
    /// Two sessions with steps open at the same time.
    Overlapping,
    /// Sub-agents in the foreground and in the background.
    SubAgents,
    /// The user edits while steps are open.
    Inside,
    /// Steps that never end, and killed commands.
    Interrupted,
    /// Files that are too large to be captured.
    Large,
}

impl Mode {
    pub(crate) const ALL: [Mode; 11] = [
        Mode::Run,
        Mode::Hooks,
        Mode::Mixed,
        Mode::Watcher,
        Mode::Git,
        Mode::Reverts,
        Mode::Overlapping,
        Mode::SubAgents,
        Mode::Inside,
        Mode::Interrupted,
        Mode::Large,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Run => "run",
            Mode::Hooks => "hooks",
            Mode::Mixed => "mixed",
            Mode::Watcher => "watcher",
            Mode::Git => "git",
            Mode::Reverts => "reverts",
            Mode::Overlapping => "overlapping",
            Mode::SubAgents => "sub-agents",
            Mode::Inside => "inside",
            Mode::Interrupted => "interrupted",
            Mode::Large => "large",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The interface through which a step reaches ctrlz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Run,
    Hook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// A shell command that may change any file.
    Shell,
    /// A shell command that names the files it changes.
    Script,
    /// An edit tool, which names its file and changes only that one.
    Edit,
}

/// A tool call and the session that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) via: Via,
    pub(crate) session: usize,
    /// The sub-agent of the session that makes the call, if any.
    pub(crate) agent: Option<usize>,
    pub(crate) tool: Tool,
    /// Whether the call is the first one of a new turn.
    pub(crate) is_new_turn: bool,
}

/// The time at which the user edits during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nothing,
    /// Before the tool starts, while the client asks for permission.
    Waiting,
    Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    Failure,
    /// The tool call was refused and never ran.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Turn,
    SessionTurn,
    LastStep,
    Step,
    Message,
    Session,
    Path,
    /// The last turn, with `--force` where it does not merge.
    Force,
    /// The last turn, including ignored files.
    Ignored,
}

/// The command that directly follows an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    Redo,
    RestoreSafety,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Undo,
    Redo,
    Track,
    Gc,
    /// The hook event or the `ctrlz run` that would end an open step.
    EndOfStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    User,
    Git,
    /// A step from begin to end.
    Step(Call, Meanwhile),
    /// A step that stays open in a slot.
    Begin(usize, Call),
    Work(usize),
    End(usize, Ending),
    Prompt(usize),
    Stop(usize),
    /// The call that starts a sub-agent.
    Delegate(usize),
    /// The end of that call.
    Delegated(usize),
    Undo(Scope, Then),
    Redo,
    Revert,
    Unrevert,
    Kill(Victim),
    Gc,
    Track,
    /// A process opens a file for writing.
    Hold,
    /// The process closes all files that it has opened.
    Release,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) action: Action,
    pub(crate) salt: u64,
}

/// Generates the actions of a case.
pub(crate) fn plan(mode: Mode, seed: u64) -> Vec<Planned> {
    let mut random = Random::from(seed.wrapping_mul(31).wrapping_add(mode as u64));
    let count = 7 + random.below(6);
    let mut actions = Vec::new();
    for _ in 0..count {
        actions.extend(some_actions(mode, &mut random));
    }
    actions.push(Action::Undo(Scope::Turn, then(&mut random)));
    actions.into_iter().map(|action| Planned { action, salt: salt(&mut random) }).collect()
}

fn salt(random: &mut Random) -> u64 {
    (0..8).fold(0, |salt, _| salt << 8 | u64::from(random.byte()))
}

fn then(random: &mut Random) -> Then {
    match random.below(5) {
        0 | 1 => Then::Redo,
        2 => Then::RestoreSafety,
        _ => Then::Nothing,
    }
}

fn undo(random: &mut Random) -> Action {
    let scope = match random.below(15) {
        0..5 => Scope::Turn,
        5 | 6 => Scope::SessionTurn,
        7 => Scope::LastStep,
        8 => Scope::Step,
        9 => Scope::Message,
        10 => Scope::Session,
        11 => Scope::Force,
        12 => Scope::Ignored,
        _ => Scope::Path,
    };
    Action::Undo(scope, then(random))
}

fn some_actions(mode: Mode, random: &mut Random) -> Vec<Action> {
    let general = random.below(20);
    match general {
        0..4 => return vec![Action::User],
        4..8 => return vec![undo(random)],
        8 => return vec![Action::Redo],
        9 if random.below(3) == 0 => return vec![Action::Gc],
        9 if random.below(2) == 0 => return vec![Action::Track],
        9 => return vec![if random.below(3) > 0 { Action::Hold } else { Action::Release }],
        _ => (),
    }
    let call = call(mode, random);
    let whole = Action::Step(call, Meanwhile::Nothing);
    match (mode, random.below(10)) {
        (Mode::Git, 0..4) => vec![Action::Git],
        (Mode::Reverts, 0..3) => vec![Action::Revert],
        (Mode::Reverts, 3) => vec![Action::Unrevert],
        (Mode::Inside, 0..3) => vec![Action::Step(call, Meanwhile::Waiting)],
        (Mode::Inside, 3..7) => vec![Action::Step(call, Meanwhile::Running)],
        (Mode::Overlapping, 0..8) => overlap(call, random),
        (Mode::SubAgents, 0..7) => delegation(call, random),
        (Mode::Interrupted, 0..7) => interruption(call, random),
        _ => vec![whole],
    }
}

fn call(mode: Mode, random: &mut Random) -> Call {
    let via = match mode {
        Mode::Run => Via::Run,
        Mode::Hooks | Mode::SubAgents => Via::Hook,
        _ if random.below(2) == 0 => Via::Run,
        _ => Via::Hook,
    };
    let tool = match random.below(6) {
        0..3 if via == Via::Hook => Tool::Edit,
        3 if via == Via::Hook => Tool::Script,
        _ => Tool::Shell,
    };
    let session = usize::from(random.below(4) == 0);
    Call { via, session, agent: None, tool, is_new_turn: random.below(3) > 0 }
}

fn overlap(call: Call, random: &mut Random) -> Vec<Action> {
    let slot = random.below(3);
    match random.below(6) {
        0..2 => vec![Action::Begin(slot, Call { session: slot % 2, ..call })],
        2 | 3 => vec![Action::Work(slot)],
        4 => vec![Action::End(slot, Ending::Success)],
        _ => {
            let (one, two) = (slot, (slot + 1) % 3);
            vec![
                Action::Begin(one, Call { session: 0, ..call }),
                Action::Begin(two, Call { session: 1, ..call }),
                Action::Work(one),
                Action::Work(two),
                Action::End(two, Ending::Success),
                Action::End(one, Ending::Success),
            ]
        }
    }
}

fn delegation(call: Call, random: &mut Random) -> Vec<Action> {
    let session = call.session;
    let agent = Call { agent: Some(random.below(2)), is_new_turn: false, ..call };
    match random.below(4) {
        // A sub-agent in the foreground.
        0 | 1 => vec![
            Action::Delegate(session),
            Action::Step(agent, Meanwhile::Nothing),
            Action::Step(agent, Meanwhile::Nothing),
            Action::Delegated(session),
        ],
        // A sub-agent in the background: its call stays open while the session continues.
        2 => vec![
            Action::Delegate(session),
            Action::Delegated(session),
            Action::Begin(0, agent),
            Action::Step(Call { is_new_turn: true, ..call }, Meanwhile::Nothing),
            Action::Work(0),
            Action::End(0, Ending::Success),
        ],
        // A sub-agent beside another call of the same batch.
        _ => vec![
            Action::Delegate(session),
            Action::Begin(0, agent),
            Action::Begin(1, Call { is_new_turn: false, ..call }),
            Action::Work(1),
            Action::Work(0),
            Action::End(1, Ending::Success),
            Action::End(0, Ending::Success),
            Action::Delegated(session),
        ],
    }
}

fn interruption(call: Call, random: &mut Random) -> Vec<Action> {
    let hooked = Call { via: Via::Hook, ..call };
    // Something else may take a snapshot before the interruption is known.
    let tracks = random.below(3) == 0;
    let mut actions = match random.below(7) {
        // The user presses Escape, edits, and asks for something else.
        0 => vec![
            Action::Begin(0, hooked),
            Action::Work(0),
            Action::User,
            Action::Prompt(hooked.session),
        ],
        // The user refuses the call after some edits.
        1 => vec![Action::Begin(0, hooked), Action::User, Action::End(0, Ending::Refused)],
        2 => vec![Action::Begin(0, hooked), Action::User, Action::Prompt(hooked.session)],
        3 => vec![Action::Begin(0, hooked), Action::Work(0), Action::Stop(hooked.session)],
        4 => vec![Action::Begin(0, call), Action::Work(0), Action::Kill(Victim::EndOfStep)],
        5 => vec![Action::Begin(0, hooked), Action::Work(0), Action::End(0, Ending::Failure)],
        _ => {
            let victims = [Victim::Undo, Victim::Undo, Victim::Redo, Victim::Track, Victim::Gc];
            vec![Action::Kill(*random.pick(&victims))]
        }
    };
    if tracks {
        actions.insert(actions.len() - 1, Action::Track);
    }
    actions
}
