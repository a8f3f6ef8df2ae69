//! Writes responses: each message as one line, each batch as one array.

use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use super::Event;

/// The only writer to the client.
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

    /// Writes one message. After a write error nothing more is written, and the server stops.
    pub(super) fn send(&self, mut message: String) {
        message.push('\n');
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.broken {
            return;
        }
        if write_patiently(&mut writer.to, message.as_bytes()).is_err() {
            writer.broken = true;
            // Fails only if the server has already ended.
            writer.events.send(Event::Stop).ok();
        }
    }
}

/// Writes all bytes, retrying while the stream is not ready.
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

/// Destination of a response.
pub(super) enum Reply {
    /// A line of its own.
    Line(Arc<Output>),
    /// The array of its batch.
    Batch(Arc<Batch>),
    /// None: a notification has no response.
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

/// Responses of a batch, written as one array once they are complete.
pub(super) struct Batch {
    output: Arc<Output>,
    state: Mutex<(usize, Vec<String>)>,
}

impl Batch {
    /// Creates a batch that is complete with `answers` responses.
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
