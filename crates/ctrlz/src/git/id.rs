//! Object ids.

use std::fmt;
use std::str::FromStr;

/// The id of a git object: 20 bytes, written as 40 hexadecimal digits.
///
/// A snapshot's public id is the id of its tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(crate) [u8; 20]);

/// Error for a text that is not 40 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a snapshot hash: expected 40 hexadecimal digits")]
pub struct NotAHash {
    /// The text, truncated to 60 characters.
    pub text: String,
}

impl ObjectId {
    /// The id of the empty tree, which git always knows.
    pub const EMPTY_TREE: ObjectId = ObjectId([
        0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92,
        0x88, 0xfb, 0xee, 0x49, 0x04,
    ]);

    /// The id of the empty blob.
    pub(crate) const EMPTY_BLOB: ObjectId = ObjectId([
        0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8,
        0xc2, 0xe4, 0x8c, 0x53, 0x91,
    ]);

    pub(crate) const NULL: ObjectId = ObjectId([0; 20]);

    /// Creates an id from its bytes.
    pub fn from_bytes(bytes: [u8; 20]) -> ObjectId {
        ObjectId(bytes)
    }

    /// Returns the 20 bytes.
    pub fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Option<ObjectId> {
        bytes.try_into().ok().map(ObjectId)
    }

    pub(crate) fn to_gix(self) -> gix_hash::ObjectId {
        gix_hash::ObjectId::from_bytes_or_panic(&self.0)
    }
}

impl FromStr for ObjectId {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<ObjectId, NotAHash> {
        let refuse = || NotAHash { text: text.chars().take(60).collect() };
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(refuse());
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte =
                (nibble(pair[0]).ok_or_else(refuse)? << 4) | nibble(pair[1]).ok_or_else(refuse)?;
        }
        Ok(ObjectId(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for ObjectId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ObjectId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ObjectId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_hashes_are_refused() {
        for text in ["", "abc", &"g".repeat(40), &"a".repeat(41), "-", "../../x"] {
            assert!(text.parse::<ObjectId>().is_err(), "{text}");
        }
    }
}
