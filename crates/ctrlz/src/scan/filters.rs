//! Patterns of attributes that name a filter program.

/// Returns the patterns of an attributes file whose files are converted before git stores them.
///
/// Returns `None` if a macro or a quoted pattern makes that undecidable here. Line-ending
/// conversion is not included: it changes the size, and a blob of another size is never borrowed.
pub(crate) fn filter_patterns(text: &[u8]) -> Option<Vec<u8>> {
    let mut patterns = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        let risky = line.split(|byte| byte.is_ascii_whitespace()).skip(1).any(|attribute| {
            let name = attribute.split(|byte| *byte == b'=').next().unwrap_or_default();
            [&b"filter"[..], b"ident", b"working-tree-encoding"].contains(&name)
        });
        if line.starts_with(b"#") || !risky {
            continue;
        }
        if line.starts_with(b"[attr]") || line.starts_with(b"\"") {
            return None;
        }
        let pattern = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        patterns.extend_from_slice(pattern);
        patterns.push(b'\n');
    }
    Some(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filter_attributes_prevent_borrowing() {
        let text = b"* text=auto\n*.bin filter=lfs -text\n# *.x filter=y\n*.c ident\n";
        assert_eq!(filter_patterns(text).unwrap(), b"*.bin\n*.c\n");
        assert_eq!(filter_patterns(b"[attr]crypt filter=crypt\n"), None);
    }
}
