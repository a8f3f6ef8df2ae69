//! A step, turn or session does not allow the request.

/// A step, turn or session does not allow the request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No such step is open or recorded.
    #[error("no step {step:?}")]
    NoSuchStep {
        /// Requested id.
        step: String,
    },
    /// No recorded step belongs to this message.
    #[error("no step of a message {message:?}")]
    NoSuchMessage {
        /// Requested id.
        message: String,
    },
    /// No recorded step belongs to this part of the message.
    #[error("message {message:?} has no step of a part {part:?}")]
    NoSuchPart {
        /// Id of the message.
        message: String,
        /// Requested part.
        part: String,
    },
    /// The session is not reverted, or the revert has become final.
    #[error("session {session:?} has no revert to take back")]
    NothingReverted {
        /// Id of the session.
        session: String,
    },
    /// The session has an open step.
    #[error("session {session:?} is busy: {holder} is at step {step}")]
    SessionBusy {
        /// Id of the session.
        session: String,
        /// Id of the open step.
        step: String,
        /// Process that runs the step.
        holder: String,
    },
    /// No such session is recorded.
    #[error("no session {session:?}")]
    NoSuchSession {
        /// Requested id.
        session: String,
    },
    /// The id for a new session is already in use.
    #[error("there is a session {session:?} already")]
    SessionExists {
        /// Requested id.
        session: String,
    },
    /// An id or a name is too long to be stored with every operation.
    #[error("{what} has more than {max} bytes")]
    TooLong {
        /// Name of the value that is too long.
        what: &'static str,
        /// Upper bound in bytes.
        max: usize,
    },
    /// Everything is undone already, or nothing was recorded.
    #[error("nothing to undo")]
    NothingToUndo,
    /// A fork has no operations of its own to undo, and the shared ones have expired.
    #[error("what is shared with session {session:?} has expired and cannot be undone")]
    SharedExpired {
        /// Session that was forked.
        session: String,
    },
    /// The only work left to undo was not recorded as steps.
    #[error("the last turn was not recorded ({why}), so it cannot be undone by turn or step")]
    NotRecorded {
        /// Id of the operation before that work.
        before: String,
        /// Reason why it was not recorded.
        why: String,
    },
    /// There is no undo left to redo.
    #[error("nothing to redo")]
    NothingToRedo,
    /// No step changed or destroyed a version control directory that it named.
    #[error("no captured repository")]
    NoCapturedRepository,
}
