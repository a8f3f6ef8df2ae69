//! Answers on their way out: each line whole, each batch as one array.

use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use super::Event;

/// The one place that writes to the client.
pub(super) struct Output {
    writer: Mutex<Writer>,
}

struct Writer {
    to: Box<dyn Write + Send>,
    broken: bool,
    events: Sender<Event>,
}

impl Output {
    pub(super) fn new(to: Box<dyn Write + Send>, events: Sender<Event>) -> Output {
        Output { writer: Mutex::new(Writer { to, broken: false, events }) }
    }

    /// Writes one message. A client that is gone gets nothing more, and the server ends.
    pub(super) fn send(&self, mut message: String) {
        message.push('\n');
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.broken {
            return;
        }
        if write_patiently(&mut writer.to, message.as_bytes()).is_err() {
            writer.broken = true;
            // Nobody listens only if the server has ended already.
            writer.events.send(Event::Stop).ok();
        }
    }
}

/// Writes everything, also to a stream that is not always ready.
fn write_patiently(to: &mut dyn Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(super::RETRY);
            }
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

/// Where an answer goes.
pub(super) enum Reply {
    /// On a line of its own.
    Line(Arc<Output>),
    /// Into the array of its batch.
    Batch(Arc<Batch>),
    /// Nowhere: a notification has no answer.
    Nobody,
}

impl Reply {
    pub(super) fn give(self, message: String) {
        match self {
            Reply::Line(output) => output.send(message),
            Reply::Batch(batch) => batch.add(message),
            Reply::Nobody => (),
        }
    }
}

/// The answers of a batch, written once the last one is there.
pub(super) struct Batch {
    output: Arc<Output>,
    state: Mutex<(usize, Vec<String>)>,
}

impl Batch {
    /// A batch that is complete with `answers` answers.
    pub(super) fn new(output: Arc<Output>, answers: usize) -> Arc<Batch> {
        Arc::new(Batch { output, state: Mutex::new((answers, Vec::new())) })
    }

    fn add(&self, message: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (answers, given) = &mut *state;
        given.push(message);
        if given.len() == *answers {
            let message = format!("[{}]", given.join(","));
            drop(state);
            self.output.send(message);
        }
    }
}
