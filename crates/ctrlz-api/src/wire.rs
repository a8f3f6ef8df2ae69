//! The macro that declares JSON types next to their conversion from the engine's types.

use std::path::PathBuf;

use ctrlz::{
    ChangeStatus, ConflictReason, ObjectId, OperationKind, SkipReason, TreePath, UncapturedChange,
};
use serde::Serialize;

use crate::path::{Hash, WirePath};

/// Conversion of an engine's value into the JSON type `T`.
pub(crate) trait Wire<T> {
    /// Returns the value in its JSON type.
    fn wire(&self) -> T;
}

/// Declares JSON types that mirror types of the engine.
///
/// `pub struct A from B` declares `A` and implements `From<&B>` for it. Each field is converted
/// from the field of `B` that has the same name. A field followed by `= function` is computed from
/// the whole `B` instead.
macro_rules! wire {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident from $engine:ty {
            $( $(#[$about_field:meta])* pub $field:ident: $type:ty $(= $function:expr)?, )*
        }
    )*) => {$(
        #[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
        $(#[$about])*
        pub struct $name { $( $(#[$about_field])* pub $field: $type, )* }

        impl From<&$engine> for $name {
            fn from(value: &$engine) -> $name {
                $name { $( $field: wire!(@ value.$field, $engine => $type $(, $function)?), )* }
            }
        }

        impl crate::wire::Wire<$name> for $engine {
            fn wire(&self) -> $name {
                self.into()
            }
        }
    )*};
    (@ $value:ident.$field:ident, $engine:ty => $type:ty) => {
        crate::wire::Wire::<$type>::wire(&$value.$field)
    };
    (@ $value:ident.$field:ident, $engine:ty => $type:ty, $function:expr) => {{
        let function: fn(&$engine) -> $type = $function;
        function($value)
    }};
}
pub(crate) use wire;

/// Types with the same form in the engine and in JSON.
macro_rules! unchanged {
    ($($type:ty),*) => {$(
        impl Wire<$type> for $type {
            fn wire(&self) -> $type {
                self.clone()
            }
        }
    )*};
}

unchanged!(bool, u32, u64, String, &'static str, (u64, u64), ChangeStatus);

impl<T, E: Wire<T>> Wire<Option<T>> for Option<E> {
    fn wire(&self) -> Option<T> {
        self.as_ref().map(E::wire)
    }
}

impl<T, E: Wire<T>> Wire<Vec<T>> for Vec<E> {
    fn wire(&self) -> Vec<T> {
        self.iter().map(E::wire).collect()
    }
}

impl Wire<u64> for usize {
    fn wire(&self) -> u64 {
        *self as u64
    }
}

impl Wire<Hash> for ObjectId {
    fn wire(&self) -> Hash {
        (*self).into()
    }
}

impl Wire<WirePath> for TreePath {
    fn wire(&self) -> WirePath {
        self.into()
    }
}

impl Wire<WirePath> for PathBuf {
    fn wire(&self) -> WirePath {
        self.as_path().into()
    }
}

/// Enums whose JSON form is the name of the variant, with the key that holds it in the engine's
/// serialization.
macro_rules! named {
    ($($engine:ty: $key:literal),*) => {$(
        impl Wire<String> for $engine {
            fn wire(&self) -> String {
                tag(self, $key)
            }
        }
    )*};
}

named!(
    ConflictReason: "reason",
    OperationKind: "kind",
    SkipReason: "reason",
    UncapturedChange: "change"
);

/// Returns the name of a variant in the engine's own serialization, so that names are defined once.
pub(crate) fn tag(value: &impl Serialize, key: &str) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    let name = json.as_str().or_else(|| json[key].as_str());
    name.unwrap_or("unknown").to_owned()
}
