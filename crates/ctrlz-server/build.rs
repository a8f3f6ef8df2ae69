//! Lists the files of the page, so that they become part of the program.

use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let assets = Path::new(&variable("CARGO_MANIFEST_DIR")).join("assets");
    println!("cargo:rerun-if-changed={}", assets.display());
    let mut files = Vec::new();
    collect(&assets, &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&assets).unwrap_or(&file).to_string_lossy().into_owned();
        list.push_str(&format!("    ({name:?}, include_bytes!({:?})),\n", file.display()));
    }
    list.push(']');
    std::fs::write(Path::new(&variable("OUT_DIR")).join("assets.rs"), list)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
