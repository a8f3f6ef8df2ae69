//! The only code that writes to the terminal: data to standard output, the rest to standard error.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ctrlz::escape;
use ctrlz_api::{Gap, Skipped, StepInfo, WireError};

use crate::args::GlobalArgs;
use crate::failure::Failure;

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Returns the program's name with the options that select the work tree, so that a suggested
/// command acts on the same one.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("ctrlz", String::as_str)
}

/// Gives the commands that a text quotes the options that select the work tree; see [`program`].
pub(crate) fn with_program(text: &str) -> String {
    text.replace("`ctrlz ", &format!("`{} ", program()))
}

/// Stores the options that select the work tree, for [`program`].
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
    // Ignored: it is set only once per process.
    PROGRAM.set(format!("ctrlz{}", given.collect::<String>())).ok();
}

/// Standard output, which remembers whether its reader has closed the pipe.
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
    closed: bool,
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        // The capacity of a pipe: 64 KiB.
        let stdout = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        Output { stdout, closed: false, json }
    }

    /// Returns whether JSON was requested.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether the reader closed the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes one line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self, "{text}")?)
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl ctrlz_api::Described) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            self.json_part(&serde_json::to_string(value)?)?;
        } else {
            serde_json::to_writer(&mut *self, value)?;
        }
        self.line("")
    }

    /// Writes a part of a JSON text. On a terminal, characters that could control it become Unicode
    /// escapes, which are equivalent JSON.
    pub(crate) fn json_part(&mut self, text: &str) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            Ok(self.write_all(escaped_json(text).as_bytes())?)
        } else {
            Ok(self.write_all(text.as_bytes())?)
        }
    }

    /// Writes one path of a list: escaped if it is a line on a terminal, otherwise verbatim.
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

    /// Flushes the output.
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

/// Writer for the contents of files: verbatim into a pipe, and with escaped control characters on a
/// terminal.
pub(crate) struct Contents<'a> {
    out: &'a mut Output,
    /// The incomplete line, if the output is a terminal.
    line: Option<Vec<u8>>,
}

impl Output {
    /// Calls `write` with a writer for the contents of files.
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
    /// Writes the collected line and its terminator.
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

/// Terminator of the paths in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Line,
    Nul,
}

impl Ending {
    /// Returns NUL if `-z` was given.
    pub(crate) fn of(nul: bool) -> Ending {
        if nul { Ending::Nul } else { Ending::Line }
    }
}

/// Describes a file whose content is not what git's index says.
pub(crate) fn wrong_index(path: &str) -> String {
    format!(
        "git's index is wrong about the content of {path}, or the object is damaged; files are read \
         instead of borrowed"
    )
}

/// Prints a line on standard error.
pub(crate) fn note(text: &str) {
    // Ignored: there is no other channel to report the error on.
    writeln!(io::stderr().lock(), "{}", printable(text)).ok();
}

/// Asks a question on standard error. Returns whether the answer begins with `y`.
pub(crate) fn asks(question: &str) -> bool {
    let mut stderr = io::stderr().lock();
    // Ignored: if standard error is gone, the answer on standard input is still read.
    write!(stderr, "{question}").and_then(|()| stderr.flush()).ok();
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && answer.trim_start().to_ascii_lowercase().starts_with('y')
}

/// Prints the paths that a snapshot does not hold, one per line.
pub(crate) fn skipped(skipped: &[Skipped]) {
    for Skipped { path, text, .. } in skipped {
        note(&format!("skipped {path}: {text}"));
    }
    let failed = skipped.iter().filter(|skipped| skipped.failure).count();
    match (skipped.len(), failed) {
        (0, _) => (),
        (all, 0) => note(&format!("{} left out of the snapshot", paths(all))),
        (all, failed) => note(&format!(
            "{} left out of the snapshot, {failed} of them because they could not be captured",
            paths(all)
        )),
    }
}

/// Prints an error on standard error, and for programs also on standard output.
pub(crate) fn failure(out: &mut Output, failure: &Failure) {
    let (message, hint) = (message(failure), failure.hint());
    note(&format!("ctrlz: {message}"));
    if let Some(hint) = &hint {
        note(&format!("hint: {hint}"));
    }
    if out.is_json() {
        let error = WireError { message, ..WireError::from(failure) };
        // Ignored: the exit code reports the failure as well.
        out.json(&serde_json::json!({ "error": error })).and_then(|()| out.finish()).ok();
    }
}

/// Returns an error and all of its causes on one line that is safe to print.
pub(crate) fn message(error: &dyn std::error::Error) -> String {
    printable(&ctrlz_api::message(error))
}

/// Returns a number of paths in words.
pub(crate) fn paths(count: usize) -> String {
    if count == 1 { "1 path".into() } else { format!("{count} paths") }
}

/// Returns a number of files in words.
pub(crate) fn files(count: usize) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

/// Returns a number of steps in words.
pub(crate) fn steps(count: u64) -> String {
    if count == 1 { "1 step".into() } else { format!("{count} steps") }
}

/// Returns a short title of a step: its tool and its label.
pub(crate) fn step(info: &StepInfo) -> String {
    let text = match (&info.tool, &info.label) {
        (Some(tool), Some(label)) => format!("{tool}: {label}"),
        (Some(text), None) | (None, Some(text)) => text.clone(),
        (None, None) => "a step".into(),
    };
    clipped(&text)
}

/// Returns the first line of a text, shortened to fit into a table.
fn clipped(text: &str) -> String {
    clipped_to(text, 50)
}

/// Returns the first line of a text, shortened to `max` characters.
pub(crate) fn clipped_to(text: &str, max: usize) -> String {
    let first = text.lines().next().unwrap_or_default();
    let short: String = first.chars().take(max).collect();
    let cut = short.len() < text.trim_end().len();
    format!("{}{}", printable(&short), if cut { "..." } else { "" })
}

/// Character set of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    Utf8,
    Ascii,
}

/// Whether the output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    Coloured,
    Plain,
}

/// Meaning of a colour, the same in every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Changes of an agent.
    Agent,
    /// Changes made outside of any step.
    Outside,
    /// Undone or secondary entries.
    Faint,
}

impl Palette {
    /// Returns the text in a colour, if colours are enabled. The text must be escaped already.
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

/// Quotes bytes as one word of a shell that is safe to print.
pub(crate) fn shell_word(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._/-+:@%,=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) && bytes[0] != b'-' {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    if escape(bytes).as_bytes() == bytes {
        return format!("'{}'", String::from_utf8_lossy(bytes).replace('\'', "'\\''"));
    }
    // ANSI-C quoting, because some of the bytes must not reach a terminal. bash, zsh and ksh
    // support it.
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

/// Returns a line of a file with control characters escaped, except tabs.
pub(crate) fn file_line(text: &str) -> String {
    text.split('\t').map(printable).collect::<Vec<_>>().join("\t")
}

/// Returns the origin of a change: its step, or the kind of its operation.
pub(crate) fn origin(kind: &str, by: Option<&StepInfo>) -> String {
    by.map_or_else(|| kind.to_owned(), step)
}

/// Describes a period in which nothing could be recorded, without the names of its turns.
pub(crate) fn gap(gap: &Gap) -> String {
    format!("not recorded: {}", gap.why)
}

/// Returns the agents whose turns are missing because of a gap, without duplicates.
pub(crate) fn agents(gap: &Gap) -> String {
    let mut agents: Vec<&str> = Vec::new();
    for who in gap.turns.iter().filter_map(|turn| turn.who.as_deref()) {
        if !agents.contains(&who) {
            agents.push(who);
        }
    }
    agents.join(", ")
}

/// Returns a human-readable size.
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

/// Returns the age of a time, which is given in milliseconds since the Unix epoch.
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

/// Escapes control characters and line breaks. Unlike `ctrlz::escape`, keeps backslashes, because
/// names in the text may be escaped already.
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
        if escape(c.encode_utf8(&mut [0; 4]).as_bytes()).starts_with("\\u") {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            safe.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_with_binary_units() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
    }

    #[test]
    fn steps_fit_on_a_line() {
        let step = |tool: Option<&str>, label: Option<&str>| {
            let (tool, label) = (tool.map(Into::into), label.map(Into::into));
            step(&StepInfo::from(&ctrlz::StepInfo { tool, label, ..ctrlz::StepInfo::default() }))
        };
        assert_eq!(step(None, None), "a step");
        assert_eq!(step(Some("bash"), Some("make\n")), "bash: make");
        assert_eq!(step(None, Some("one\ntwo")), "one...");
        assert_eq!(step(Some(&"x".repeat(99)), None), format!("{}...", "x".repeat(50)));
        assert_eq!(step(Some("\x1b[2J"), None), "\\u{1b}[2J");
    }

    #[test]
    fn shell_words_are_quoted_and_escaped() {
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
