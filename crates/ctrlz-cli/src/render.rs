//! The only code that writes to the terminal: data to standard output, the rest to standard error.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ctrlz::{OperationKind, Skipped, StepInfo, escape};
use ctrlz_wire::WireError;
use serde::Serialize;

use crate::args::GlobalArgs;
use crate::failure::Failure;

static PROGRAM: OnceLock<String> = OnceLock::new();

/// How this program was called: its name and the options that say where it acts, so that a command
/// which a report suggests acts in the same place.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("ctrlz", String::as_str)
}

/// Remembers the options that say where this program acts.
pub(crate) fn remember_program(args: &GlobalArgs) {
    let options = [
        ("-C", &args.directory),
        ("--data-dir", &args.data_dir),
        ("--store", &args.store),
        ("--config", &args.config),
    ];
    let given = options.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!(" {name} {}", shell_word(value.as_os_str().as_bytes())))
    });
    // Set once per process.
    PROGRAM.set(format!("ctrlz{}", given.collect::<String>())).ok();
}

/// Standard output, which remembers whether its reader has gone.
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
    closed: bool,
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        // As much as a pipe holds.
        let stdout = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        Output { stdout, closed: false, json }
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the reader closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes one line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self, "{text}")?)
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        match io::stdout().is_terminal() {
            // As valid as the characters themselves, and nothing that steers a terminal.
            true => self.line(&escaped_json(&serde_json::to_string(value)?)),
            false => {
                serde_json::to_writer(&mut *self, value)?;
                self.line("")
            }
        }
    }

    /// Writes one path of a list: as it is, so that programs can use it, but never such that it
    /// could steer a terminal.
    pub(crate) fn path(&mut self, path: &[u8], ending: Ending) -> Result<(), Failure> {
        match ending {
            Ending::Nul => {
                self.write_all(path)?;
                self.write_all(b"\0")?;
            }
            Ending::Line if io::stdout().is_terminal() => self.line(&escape(path))?,
            Ending::Line => {
                self.write_all(path)?;
                self.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    /// Hands everything written so far to the reader.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.flush()?)
    }

    fn noting<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &outcome {
            self.closed |= error.kind() == io::ErrorKind::BrokenPipe;
        }
        outcome
    }
}

/// A writer for what files hold: byte for byte into a pipe, and such that nothing steers the terminal
/// on one.
pub(crate) struct Contents<'a> {
    out: &'a mut Output,
    /// The line that is not complete yet, on a terminal.
    line: Option<Vec<u8>>,
}

impl Output {
    /// Lets `write` write what files hold.
    pub(crate) fn contents<E>(
        &mut self,
        write: impl FnOnce(&mut Contents<'_>) -> Result<(), E>,
    ) -> Result<(), Failure>
    where
        Failure: From<E>,
    {
        let line = io::stdout().is_terminal().then(Vec::new);
        let mut contents = Contents { out: self, line };
        write(&mut contents)?;
        Ok(contents.end_line(b"")?)
    }
}

impl Contents<'_> {
    /// Writes the line that was collected, and what ends it.
    fn end_line(&mut self, end: &[u8]) -> io::Result<()> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let line = std::mem::take(line);
        let mut shown = Vec::with_capacity(line.len() + end.len());
        for (at, part) in line.split(|byte| *byte == b'\t').enumerate() {
            shown.extend_from_slice(if at > 0 { b"\t" } else { b"" });
            for chunk in part.utf8_chunks() {
                shown.extend_from_slice(printable(chunk.valid()).as_bytes());
                shown.extend_from_slice(escape(chunk.invalid()).as_bytes());
            }
        }
        shown.extend_from_slice(end);
        self.out.write_all(&shown)
    }
}

impl Write for Contents<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(line) = &mut self.line else { return self.out.write(bytes) };
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                line.extend_from_slice(&bytes[..end]);
                self.end_line(b"\n")?;
                Ok(end + 1)
            }
            None => {
                line.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stdout.write(bytes);
        self.noting(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.stdout.flush();
        self.noting(flushed)
    }
}

/// What separates the paths of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Line,
    Nul,
}

impl Ending {
    /// NUL where `-z` was given.
    pub(crate) fn of(nul: bool) -> Ending {
        if nul { Ending::Nul } else { Ending::Line }
    }
}

/// Describes a file whose content is not what git's index says.
pub(crate) fn wrong_index(path: &str) -> String {
    format!("git's index is wrong about the content of {path}; files are read instead of borrowed")
}

/// Says something on standard error.
pub(crate) fn note(text: &str) {
    // If standard error is gone too, nobody is left to tell.
    writeln!(io::stderr().lock(), "{}", printable(text)).ok();
}

/// Asks a question on standard error; only an answer that begins with `y` means yes.
pub(crate) fn asks(question: &str) -> bool {
    let mut stderr = io::stderr().lock();
    // If standard error is gone, the answer on standard input is still read.
    write!(stderr, "{question}").and_then(|()| stderr.flush()).ok();
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && answer.trim_start().to_ascii_lowercase().starts_with('y')
}

/// Says what a snapshot does not hold, one line per path.
pub(crate) fn skipped(skipped: &[Skipped]) {
    for skipped in skipped {
        note(&format!("skipped {skipped}"));
    }
    let failed = skipped.iter().filter(|skipped| skipped.reason.is_failure()).count();
    match (skipped.len(), failed) {
        (0, _) => (),
        (all, 0) => note(&format!("{} left out of the snapshot", paths(all))),
        (all, failed) => note(&format!(
            "{} left out of the snapshot, {failed} of them because they could not be captured",
            paths(all)
        )),
    }
}

/// Says why a command failed, and to programs also on standard output.
pub(crate) fn failure(out: &mut Output, failure: &Failure) {
    let (message, hint) = (message(failure), failure.hint());
    note(&format!("ctrlz: {message}"));
    if let Some(hint) = &hint {
        note(&format!("hint: {hint}"));
    }
    if out.is_json() {
        let error = WireError { message, ..WireError::from(failure) };
        // The exit code says it as well, so a failure to write it is no further failure.
        out.json(&serde_json::json!({ "error": error })).and_then(|()| out.finish()).ok();
    }
}

/// An error with everything that led to it, on one line.
pub(crate) fn message(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    printable(&message)
}

/// A count of paths in words.
pub(crate) fn paths(count: usize) -> String {
    if count == 1 { "1 path".into() } else { format!("{count} paths") }
}

/// A count of files in words.
pub(crate) fn files(count: usize) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

/// A count of steps in words.
pub(crate) fn steps(count: usize) -> String {
    if count == 1 { "1 step".into() } else { format!("{count} steps") }
}

/// What a step did, on one short line: its tool and its label.
pub(crate) fn step(info: &StepInfo) -> String {
    let text = match (&info.tool, &info.label) {
        (Some(tool), Some(label)) => format!("{tool}: {label}"),
        (Some(text), None) | (None, Some(text)) => text.clone(),
        (None, None) => "a step".into(),
    };
    clipped(&text)
}

/// The first line of a text, as far as a table has room for it.
fn clipped(text: &str) -> String {
    clipped_to(text, 50)
}

/// The first line of a text, and no more than `max` characters of it.
pub(crate) fn clipped_to(text: &str, max: usize) -> String {
    let first = text.lines().next().unwrap_or_default();
    let short: String = first.chars().take(max).collect();
    let cut = short.len() < text.trim_end().len();
    format!("{}{}", printable(&short), if cut { "..." } else { "" })
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    Utf8,
    Ascii,
}

/// Whether what is printed is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    Coloured,
    Plain,
}

/// What a colour stands for, so that it means the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// What an agent did.
    Agent,
    /// What somebody else did.
    Outside,
    /// What is taken back, or beside the point.
    Faint,
}

impl Palette {
    /// Text in a colour, where there are any. It must be safe to print already.
    pub(crate) fn paint(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Agent => "36",
            Ink::Outside => "33",
            Ink::Faint => "2",
        };
        match self {
            Palette::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
            Palette::Plain => text.to_owned(),
        }
    }
}

/// A word that a shell takes for exactly these bytes, and that is safe to print.
pub(crate) fn shell_word(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._/-+:@%,=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) && bytes[0] != b'-' {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    if escape(bytes).as_bytes() == bytes {
        return format!("'{}'", String::from_utf8_lossy(bytes).replace('\'', "'\\''"));
    }
    // Something in it must not reach a terminal; every shell of today knows this form.
    let quoted: String = bytes
        .iter()
        .map(|byte| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
            b' '..=b'~' => char::from(*byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        })
        .collect();
    format!("$'{quoted}'")
}

/// A line of a file: nothing in it steers a terminal, and tabs stay tabs.
pub(crate) fn file_line(text: &str) -> String {
    text.split('\t').map(printable).collect::<Vec<_>>().join("\t")
}

/// Who made a change: a step, or the kind of operation it was.
pub(crate) fn origin(kind_of: OperationKind, by: Option<&StepInfo>) -> String {
    by.map_or_else(|| kind(kind_of).into(), step)
}

/// What happened, in one word.
pub(crate) fn kind(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Baseline => "baseline",
        OperationKind::Step => "step",
        OperationKind::Outside => "outside",
        OperationKind::Restore => "restore",
        OperationKind::Revert => "revert",
        OperationKind::Unrevert => "unrevert",
        OperationKind::Undo => "undo",
        OperationKind::Redo => "redo",
        OperationKind::Checkpoint => "checkpoint",
        OperationKind::Fork => "fork",
        _ => "something newer than this version",
    }
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// How long ago a time in milliseconds since 1970 was.
pub(crate) fn age(at_millis: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_millis(at_millis);
    let seconds = SystemTime::now().duration_since(then).unwrap_or_default().as_secs();
    let (count, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

/// Text in which nothing steers a terminal or starts a new line. Unlike `ctrlz::escape`, it
/// leaves backslashes alone: the names in it may be escaped already.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => safe.push(c),
            c => safe.push_str(&escape(c.encode_utf8(&mut [0; 4]).as_bytes())),
        }
    }
    safe
}

/// Returns a JSON text with control and invisible characters as Unicode escapes.
fn escaped_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match escape(c.encode_utf8(&mut [0; 4]).as_bytes()).starts_with("\\u") {
            true => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                safe.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
    }

    #[test]
    fn steps_fit_on_a_line() {
        let step = |tool: Option<&str>, label: Option<&str>| {
            let (tool, label) = (tool.map(Into::into), label.map(Into::into));
            step(&StepInfo { tool, label, ..StepInfo::default() })
        };
        assert_eq!(step(None, None), "a step");
        assert_eq!(step(Some("bash"), Some("make\n")), "bash: make");
        assert_eq!(step(None, Some("one\ntwo")), "one...");
        assert_eq!(step(Some(&"x".repeat(99)), None), format!("{}...", "x".repeat(50)));
        assert_eq!(step(Some("\x1b[2J"), None), "\\u{1b}[2J");
    }

    #[test]
    fn words_survive_a_shell_and_a_terminal() {
        for (bytes, word) in [
            (&b"src/a-1.rs"[..], "src/a-1.rs"),
            (b"a b", "'a b'"),
            (b"it's", r"'it'\''s'"),
            (b"-rf", "'-rf'"),
            (b"", "''"),
            (b"a\\\x1b\xff'", r"$'a\\\x1b\xff\''"),
        ] {
            assert_eq!(shell_word(bytes), word);
        }
    }

    #[test]
    fn messages_are_escaped_once() {
        assert_eq!(printable("a\\nb\x1b[1m\nc"), "a\\nb\\u{1b}[1m\\nc");
    }
}
