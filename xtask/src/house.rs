//! `cargo xtask house`: size and prose of the production code, beside three well-known projects.
//!
//! Lines are counted after `rustfmt` with its default settings, so that long lines are no
//! advantage. Test code (`#[cfg(test)]`, `#[test]`) is left out, comments are counted separately.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::process::{program, top};

/// Figures of other projects, from the review of ctrlz 0.1.0: their main branches at that time,
/// counted by the same rules in their own layout.
const ANCHORS: [(&str, Anchor); 3] = [
    (
        "jj",
        Anchor {
            lines: 107_877,
            file_p90: 829,
            function_p90: 39,
            many: 2.7,
            what: 0.3,
            persons: 0.1,
            returns: 27.0,
        },
    ),
    (
        "ripgrep",
        Anchor {
            lines: 36_345,
            file_p90: 1_015,
            function_p90: 22,
            many: 0.3,
            what: 0.1,
            persons: 0.0,
            returns: 62.0,
        },
    ),
    (
        "conserve",
        Anchor {
            lines: 9_761,
            file_p90: 409,
            function_p90: 32,
            many: 1.2,
            what: 1.6,
            persons: 0.0,
            returns: 35.0,
        },
    ),
];

struct Anchor {
    lines: usize,
    file_p90: usize,
    function_p90: usize,
    /// Percentage of functions with five or more parameters.
    many: f64,
    /// Matches per 1,000 comment lines. See `begins_with_what` and `names_a_person`.
    what: f64,
    persons: f64,
    returns: f64,
}

/// The figures of one file.
#[derive(Default)]
struct Measured {
    path: PathBuf,
    code: usize,
    comments: Vec<String>,
    functions: Vec<Function>,
    workspace_methods: usize,
}

struct Function {
    name: String,
    lines: usize,
    parameters: usize,
}

/// Measures `crates/` of this checkout, or of another one at `dir`, and prints the table. Fails
/// only if a file cannot be read or parsed.
pub(crate) fn run(dir: Option<&str>) -> Result<bool, String> {
    let root = dir.map_or_else(top, PathBuf::from);
    let mut files = Vec::new();
    collect(&root.join("crates"), &mut files)?;
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let text = formatted(&path)?;
        let short = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        all.push(measure(&short, &text)?);
    }
    print(&all);
    Ok(true)
}

/// Collects the production sources below `crates/*/src`.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let read = |error: std::io::Error| format!("cannot read {}: {error}", dir.display());
    for entry in std::fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "examples", "benches", "fuzz", "target"].contains(&name.as_str()) {
                collect(&path, files)?;
            }
        } else if name.ends_with(".rs") && !["tests.rs", "build.rs"].contains(&name.as_str()) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns a file's text as `rustfmt` lays it out by default.
fn formatted(path: &Path) -> Result<String, String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let failed = |error: std::io::Error| format!("rustfmt: {error}");
    let mut child = program("rustfmt")
        .args(["--edition", "2024", "--config", "use_small_heuristics=Default"])
        .args(["--config", "max_width=100"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    child.stdin.take().expect("it is piped").write_all(&text).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("rustfmt cannot format {}", path.display()));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

fn measure(path: &Path, text: &str) -> Result<Measured, String> {
    let file = syn::parse_file(text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut visitor =
        Visitor { is_test: vec![false; text.lines().count() + 1], ..Visitor::default() };
    visitor.visit_file(&file);
    let mut measured = Measured {
        path: path.to_owned(),
        functions: visitor.functions,
        workspace_methods: visitor.workspace_methods,
        ..Measured::default()
    };
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if visitor.is_test[at] || line.is_empty() {
            continue;
        }
        match line.strip_prefix("//") {
            Some(comment) => {
                measured.comments.push(comment.trim_start_matches(['/', '!']).trim().to_owned());
            }
            None => measured.code += 1,
        }
    }
    Ok(measured)
}

#[derive(Default)]
struct Visitor {
    /// Whether each line is test code, indexed from zero.
    is_test: Vec<bool>,
    functions: Vec<Function>,
    workspace_methods: usize,
}

impl Visitor {
    /// Returns whether attributes make an item test code, and marks its lines if so.
    fn skips(&mut self, attributes: &[syn::Attribute], span: proc_macro2::Span) -> bool {
        let is_test = |attribute: &syn::Attribute| match &attribute.meta {
            syn::Meta::Path(path) => path.is_ident("test"),
            syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
            syn::Meta::NameValue(_) => false,
        };
        let skips = attributes.iter().any(is_test);
        if skips {
            self.is_test[span.start().line - 1..span.end().line].fill(true);
        }
        skips
    }

    fn add(&mut self, signature: &syn::Signature, span: proc_macro2::Span) {
        let parameters = signature.inputs.iter();
        let parameters = parameters.filter(|input| matches!(input, syn::FnArg::Typed(_)));
        self.functions.push(Function {
            name: signature.ident.to_string(),
            lines: span.end().line + 1 - signature.span().start().line,
            parameters: parameters.count(),
        });
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !self.skips(&item.attrs, item.span()) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !self.skips(&item.attrs, item.span()) {
            self.add(&item.sig, item.span());
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if self.skips(&item.attrs, item.span()) {
            return;
        }
        let is_workspace = item.trait_.is_none()
            && matches!(&*item.self_ty, syn::Type::Path(path) if path.path.is_ident("Workspace"));
        let is_public = |item: &&syn::ImplItem| match item {
            syn::ImplItem::Fn(function) => matches!(function.vis, syn::Visibility::Public(_)),
            _ => false,
        };
        if is_workspace {
            self.workspace_methods += item.items.iter().filter(is_public).count();
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !self.skips(&item.attrs, item.span()) {
            self.add(&item.sig, item.span());
            visit::visit_impl_item_fn(self, item);
        }
    }
}

/// Returns the number of matches per 1,000 comment lines.
fn rate(comments: &[&String], matches: impl Fn(&str) -> bool) -> f64 {
    let count = comments.iter().filter(|line| matches(line)).count();
    1_000.0 * count as f64 / comments.len().max(1) as f64
}

/// Returns whether a line has a clause that begins with a free relative pronoun.
fn begins_with_what(line: &str) -> bool {
    let clauses = line.split(['.', ';', ':']).map(str::trim_start);
    let mut words = clauses.map(|clause| clause.split([' ', ',']).next().unwrap_or_default());
    words.any(|word| ["What", "Whatever", "Whoever", "How", "Which"].contains(&word))
}

fn names_a_person(line: &str) -> bool {
    let mut words = line.split(|letter: char| !letter.is_ascii_alphabetic());
    words.any(|word| {
        let word = word.to_ascii_lowercase();
        ["nobody", "somebody", "whoever", "everybody", "anybody"].contains(&word.as_str())
    })
}

fn percentile(mut values: Vec<usize>, percent: usize) -> usize {
    values.sort_unstable();
    values.get(values.len() * percent / 100).or(values.last()).copied().unwrap_or_default()
}

fn print(all: &[Measured]) {
    let mut names: Vec<String> = all.iter().map(|file| crate_of(&file.path)).collect();
    names.dedup();
    println!(
        "{:<14} {:>8} {:>9} {:>6} {:>9} {:>9} {:>9}",
        "crate", "code", "comments", "files", "file p90", "file max", "functions"
    );
    for name in names.iter().map(String::as_str).chain(["all"]) {
        let files: Vec<&Measured> =
            all.iter().filter(|file| name == "all" || crate_of(&file.path) == name).collect();
        let sizes: Vec<usize> = files.iter().map(|file| file.code + file.comments.len()).collect();
        println!(
            "{name:<14} {:>8} {:>9} {:>6} {:>9} {:>9} {:>9}",
            files.iter().map(|file| file.code).sum::<usize>(),
            files.iter().map(|file| file.comments.len()).sum::<usize>(),
            files.len(),
            percentile(sizes.clone(), 90),
            sizes.iter().max().copied().unwrap_or_default(),
            files.iter().map(|file| file.functions.len()).sum::<usize>(),
        );
    }
    let functions: Vec<&Function> = all.iter().flat_map(|file| &file.functions).collect();
    let lengths: Vec<usize> = functions.iter().map(|function| function.lines).collect();
    let many = functions.iter().filter(|function| function.parameters >= 5).count();
    let many = 100.0 * many as f64 / functions.len().max(1) as f64;
    let comments: Vec<&String> = all.iter().flat_map(|file| &file.comments).collect();
    let sizes: Vec<usize> = all.iter().map(|file| file.code + file.comments.len()).collect();
    let ours = Anchor {
        lines: sizes.iter().sum(),
        file_p90: percentile(sizes, 90),
        function_p90: percentile(lengths, 90),
        many,
        what: rate(&comments, begins_with_what),
        persons: rate(&comments, names_a_person),
        returns: rate(&comments, |line| line.starts_with("Returns")),
    };
    println!(
        "\n{:<10} {:>8} {:>9} {:>7} {:>10} {:>7} {:>8} {:>8}",
        "", "lines", "file p90", "fn p90", "5+ params", "What…", "persons", "Returns"
    );
    for (name, row) in
        [("ctrlz", &ours)].into_iter().chain(ANCHORS.iter().map(|(name, row)| (*name, row)))
    {
        println!(
            "{name:<10} {:>8} {:>9} {:>7} {:>8.1} % {:>7.1} {:>8.1} {:>8.1}",
            row.lines, row.file_p90, row.function_p90, row.many, row.what, row.persons, row.returns
        );
    }
    let methods: usize = all.iter().map(|file| file.workspace_methods).sum();
    println!("\npublic methods of Workspace: {methods}");
    let mut largest: Vec<&Measured> = all.iter().collect();
    largest.sort_by_key(|file| std::cmp::Reverse(file.code + file.comments.len()));
    println!("files above 700 lines:");
    for file in largest.iter().take_while(|file| file.code + file.comments.len() > 700) {
        println!("  {:>5} {}", file.code + file.comments.len(), file.path.display());
    }
    let mut longest: Vec<(&Function, &Path)> = all
        .iter()
        .flat_map(|file| file.functions.iter().map(|one| (one, file.path.as_path())))
        .collect();
    longest.sort_by_key(|(function, _)| std::cmp::Reverse(function.lines));
    println!("longest functions:");
    for (function, path) in longest.iter().take(5) {
        println!("  {:>5} {} in {}", function.lines, function.name, path.display());
    }
}

/// Returns the name of the crate that a path below `crates/` belongs to.
fn crate_of(path: &Path) -> String {
    path.components()
        .nth(1)
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_comments_are_counted_apart() {
        let text = "//! A file.\n\n/// Returns one.\npub fn one(a: u8, b: u8, c: u8, d: u8, e: u8) -> u8 {\n    1\n}\n\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n\nimpl Workspace {\n    pub fn open() {}\n    fn close() {}\n}\n";
        let measured = measure(Path::new("crates/a/src/lib.rs"), text).unwrap();
        assert_eq!((measured.code, measured.comments.len()), (7, 2));
        assert_eq!(
            measured.functions.iter().map(|one| one.parameters).collect::<Vec<_>>(),
            [5, 0, 0]
        );
        assert_eq!((measured.functions[0].lines, measured.workspace_methods), (3, 1));
    }

    #[test]
    fn clauses_and_persons_are_found_in_comments() {
        assert!(begins_with_what("What is there."));
        assert!(begins_with_what("A plan: What it does"));
        assert!(!begins_with_what("Returns what is there."));
        assert!(names_a_person("so that nobody waits"));
        assert!(!names_a_person("the caller waits"));
    }
}
