//! SHA-1 with collision detection, as git computes ids.

use gix_object::Kind;

use super::id::ObjectId;

/// Incremental SHA-1 with collision detection.
pub(crate) struct Hasher(gix_hash::Hasher);

impl Hasher {
    /// Creates a hasher over raw bytes, as used for pack and index trailers.
    pub(crate) fn raw() -> Hasher {
        Hasher(gix_hash::hasher(gix_hash::Kind::Sha1))
    }

    /// Creates a hasher for an object of `bytes` bytes, with the object header already hashed.
    pub(crate) fn object(kind: Kind, bytes: u64) -> Hasher {
        let mut hasher = Hasher::raw();
        hasher.update(format!("{kind} {bytes}\0").as_bytes());
        hasher
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the id, or `None` if the input is part of a known SHA-1 collision attack.
    pub(crate) fn finish(self) -> Option<ObjectId> {
        ObjectId::from_slice(self.0.try_finalize().ok()?.as_slice())
    }
}

/// Returns the id of an object, or `None` if its content is part of a known SHA-1 collision attack.
pub(crate) fn hash_object(kind: Kind, bytes: &[u8]) -> Option<ObjectId> {
    let mut hasher = Hasher::object(kind, bytes.len() as u64);
    hasher.update(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_tree_hashes_to_its_constant() {
        assert_eq!(hash_object(Kind::Tree, b""), Some(ObjectId::EMPTY_TREE));
        assert_eq!(hash_object(Kind::Blob, b""), Some(ObjectId::EMPTY_BLOB));
    }
}
