//! Paths and hashes in JSON.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ctrlz::{NotAHash, ObjectId, PathText, TreePath, escape};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path: a string if it is UTF-8, else `{"bytes": [...]}`, so that every path can be represented.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WirePath(Vec<u8>);

impl WirePath {
    /// Creates a path from its bytes.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> WirePath {
        WirePath(bytes.into())
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path in the operating system's form.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl From<&TreePath> for WirePath {
    fn from(path: &TreePath) -> WirePath {
        WirePath(path.as_bytes().to_vec())
    }
}

impl From<TreePath> for WirePath {
    fn from(path: TreePath) -> WirePath {
        WirePath::from(&path)
    }
}

impl From<&Path> for WirePath {
    fn from(path: &Path) -> WirePath {
        WirePath(path.as_os_str().as_bytes().to_vec())
    }
}

/// The path with control characters escaped, for people.
impl fmt::Display for WirePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl Serialize for WirePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from_bytes(&self.0).serialize(serializer)
    }
}

// Implemented by hand: a derived implementation buffers the input in a form many times as large.
impl<'de> Deserialize<'de> for WirePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WirePath, D::Error> {
        struct PathVisitor;
        impl<'de> Visitor<'de> for PathVisitor {
            type Value = WirePath;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path: a string or {\"bytes\": [...]}")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<WirePath, E> {
                if text.len() > MAX_PATH_BYTES {
                    Err(E::custom(format!("a path has at most {MAX_PATH_BYTES} bytes")))
                } else {
                    Ok(WirePath(text.as_bytes().to_vec()))
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WirePath, A::Error> {
                let key = map.next_key::<Cow<'_, str>>()?;
                if key.as_deref() != Some("bytes") {
                    return Err(A::Error::custom("a path that is no string has \"bytes\""));
                }
                let PathBytes(bytes) = map.next_value()?;
                match map.next_key::<serde::de::IgnoredAny>()? {
                    None => Ok(WirePath(bytes)),
                    Some(_) => Err(A::Error::custom("a path has nothing but \"bytes\"")),
                }
            }
        }
        deserializer.deserialize_any(PathVisitor)
    }
}

/// Bytes of a path, at most [`MAX_PATH_BYTES`].
struct PathBytes(Vec<u8>);

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PathBytes, D::Error> {
        at_most(MAX_PATH_BYTES, deserializer).map(PathBytes)
    }
}

impl JsonSchema for WirePath {
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A path: a string where it is UTF-8, else every byte of it.",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": {
                        "bytes": {
                            "type": "array",
                            "items": { "type": "integer", "minimum": 0, "maximum": 255 }
                        }
                    },
                    "required": ["bytes"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// Hash of a snapshot: 40 hexadecimal digits. Validated on use, so that an invalid hash is reported
/// like any other error of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hash(pub String);

impl Hash {
    /// Parses the hash.
    pub fn id(&self) -> Result<ObjectId, NotAHash> {
        self.0.parse()
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ObjectId> for Hash {
    fn from(id: ObjectId) -> Hash {
        Hash(id.to_string())
    }
}

impl JsonSchema for Hash {
    fn schema_name() -> Cow<'static, str> {
        "Hash".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The hash of a snapshot, of a file's content or of a plan: 40 hexadecimal digits.",
            "type": "string"
        })
    }
}

/// Maximum length of a path in bytes. Longer paths cannot exist and would only make long error
/// messages.
const MAX_PATH_BYTES: usize = 1 << 20;
/// Maximum number of items of a list: the maximum number of paths in a snapshot.
const MAX_ITEMS: usize = 1_500_000;

/// Deserializes a list of at most [`MAX_ITEMS`] items, so that a request cannot exhaust memory.
pub(crate) fn bounded<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    at_most(MAX_ITEMS, deserializer)
}

fn at_most<'de, T, D>(limit: usize, deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Bounded<T>(usize, std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an array of at most {} items", self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = sequence.next_element()? {
                if items.len() == self.0 {
                    return Err(A::Error::custom(format!("more than {} items", self.0)));
                }
                items.push(item);
            }
            Ok(items)
        }
    }
    deserializer.deserialize_seq(Bounded(limit, std::marker::PhantomData))
}

/// Deserializes an optional list of at most [`MAX_ITEMS`] items.
pub(crate) fn bounded_option<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Items<T>(Vec<T>);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items<T>, D::Error> {
            bounded(deserializer).map(Items)
        }
    }
    Ok(Option::<Items<T>>::deserialize(deserializer)?.map(|items| items.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_round_trip(bytes: &[u8]) {
        let path = WirePath::from_bytes(bytes);
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<WirePath>(&json).unwrap(), path, "{json}");
        let engine = serde_json::to_string(&PathText::from_bytes(bytes)).unwrap();
        assert_eq!(json, engine, "same form as in the engine");
    }

    #[test]
    fn any_bytes_round_trip_through_json() {
        for bytes in [&b"plain"[..], b"", b"\xff\xfe", b"a\nb\"c\\", "\u{1f980}".as_bytes()] {
            check_round_trip(bytes);
        }
        check_round_trip(&(0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn other_forms_are_refused() {
        for json in
            ["1", "null", "[]", "{}", r#"{"bytes":[256]}"#, r#"{"bytes":[],"x":1}"#, r#"{"x":[]}"#]
        {
            assert!(serde_json::from_str::<WirePath>(json).is_err(), "{json}");
        }
    }
}
