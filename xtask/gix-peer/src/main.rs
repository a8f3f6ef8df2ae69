//! `gix-peer write REPOSITORY COUNT` and `gix-peer checkout REPOSITORY TREE`: what gitoxide does.

use std::error::Error;
use std::sync::atomic::AtomicBool;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", repository, count] => write(repository, count.parse()?),
        ["checkout", repository, tree] => checkout(repository, tree),
        _ => Err("gix-peer write REPOSITORY COUNT, or gix-peer checkout REPOSITORY TREE".into()),
    }
}

/// Writes so many small blobs.
fn write(repository: &str, count: u32) -> Outcome {
    let repository = gix::open(repository)?;
    for number in 0..count {
        repository.write_blob(format!("{number}\n").repeat(200))?;
    }
    Ok(())
}

/// Brings the work tree to a tree, over what is there.
fn checkout(repository: &str, tree: &str) -> Outcome {
    let repository = gix::open(repository)?;
    let tree = gix::ObjectId::from_hex(tree.as_bytes())?;
    let mut index = repository.index_from_tree(&tree)?;
    let source = gix::worktree::stack::state::attributes::Source::IdMapping;
    let mut options = repository.checkout_options(source)?;
    options.overwrite_existing = true;
    options.destination_is_initially_empty = false;
    let dir = repository.workdir().ok_or("it has no work tree")?.to_owned();
    let outcome = gix::worktree::state::checkout(
        &mut index,
        dir,
        repository.objects.clone().into_arc()?,
        &gix::progress::Discard,
        &gix::progress::Discard,
        &AtomicBool::new(false),
        options,
    )?;
    match outcome.errors.is_empty() {
        true => Ok(()),
        false => Err(format!("{} files failed", outcome.errors.len()).into()),
    }
}
