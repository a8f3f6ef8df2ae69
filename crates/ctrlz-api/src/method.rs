//! The table of methods, and the function that calls them.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use ctrlz::{NotATreePath, ObjectId, Progress, TreePath, Workspace};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{MethodError, WireError};
use crate::methods;
use crate::path::{Hash, WirePath};
use crate::place::{Host, Opened, Place};
use crate::schema::Described;
use crate::snapshot::Disabled;

/// One method: its parameters, its result and its description.
pub struct Method {
    /// Name of the method, the same on every interface.
    pub name: &'static str,
    /// Description, in one sentence.
    pub about: &'static str,
    /// Effect on the work tree. The parameters of a call may reduce it; see [`Method::access()`].
    pub(crate) access: Access,
    /// Errors specific to this method, beyond those that any call can return.
    pub errors: Vec<&'static str>,
    pub(crate) params: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) result: fn(&mut SchemaGenerator) -> Schema,
    run: Run,
}

/// Parameters of a method.
pub(crate) trait Params: DeserializeOwned + JsonSchema + 'static {}

impl<T: DeserializeOwned + JsonSchema + 'static> Params for T {}

/// The typed function of a method.
type Typed<P, R> = fn(&Call<'_>, &P) -> Result<R, MethodError>;
type Run = Box<dyn Fn(&Call<'_>, Fields<'_>) -> Result<Box<RawValue>, WireError> + Send + Sync>;

/// Effect of a method on the work tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads recorded data, without a lock.
    Reads,
    /// Takes a snapshot for its own sake. Where snapshots are disabled, it does nothing and returns
    /// [`Disabled`].
    Records,
    /// Changes files, after a snapshot that makes the change undoable. Works even where snapshots
    /// are disabled, because the user may need files that would be lost otherwise.
    Writes,
}

/// The later side of the comparison that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpTo {
    /// The snapshot given as `to`.
    Snapshot,
    /// The present state, if the request compares anything at all.
    Now,
}

impl Method {
    /// Returns the effect of a call. Comparing two recorded snapshots only reads.
    pub fn access(&self, up_to: UpTo) -> Access {
        match (self.access, up_to) {
            (Access::Records, UpTo::Snapshot) => Access::Reads,
            (access, UpTo::Snapshot | UpTo::Now) => access,
        }
    }

    /// Creates an entry of the table, for a method that reads.
    pub(crate) fn reads<P: Params, R: Described + 'static>(
        name: &'static str,
        about: &'static str,
        run: Typed<P, R>,
    ) -> Method {
        let run = move |call: &Call<'_>, fields: Fields<'_>| {
            let params: P = fields.read()?;
            let result = run(call, &params)?;
            to_raw_value(&result)
                .map_err(|error| WireError::new("json", format!("no JSON form: {error}")))
        };
        Method {
            name,
            about,
            access: Access::Reads,
            errors: Vec::new(),
            params: |schemas| schemas.subschema_for::<P>(),
            result: |schemas| schemas.subschema_for::<R>(),
            run: Box::new(run),
        }
    }

    /// Creates an entry of the table, for a method that records.
    pub(crate) fn records<P: Params, R: Described + 'static>(
        name: &'static str,
        about: &'static str,
        run: Typed<P, R>,
    ) -> Method {
        Method { access: Access::Records, ..Method::reads(name, about, run) }
    }

    /// Creates an entry of the table, for a method that changes files.
    pub(crate) fn writes<P: Params, R: Described + 'static>(
        name: &'static str,
        about: &'static str,
        run: Typed<P, R>,
    ) -> Method {
        Method { access: Access::Writes, ..Method::reads(name, about, run) }
    }

    /// Adds errors specific to the method.
    pub(crate) fn errors(mut self, errors: &[&'static str]) -> Method {
        self.errors.extend(errors);
        self
    }
}

/// Every method that acts on a work tree, in the order of the documentation.
pub static METHODS: LazyLock<Vec<Method>> = LazyLock::new(methods::all);

/// Returns the method with this name.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// Environment of a call.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Opens work trees.
    pub host: &'a dyn Host,
    /// Progress counters and the cancellation flag.
    pub progress: &'a Progress,
}

/// Response to a call.
pub struct Answer {
    /// The result, as JSON.
    pub result: Box<RawValue>,
    /// The work tree, for [`Host::rest`], if the call recorded or wrote something.
    pub worked_on: Option<Workspace>,
    /// Whether its snapshots still borrow from the user's repository. The caller should then call
    /// [`Workspace::absorb`] when it is idle.
    pub borrowing: bool,
}

/// One call, with its open work tree.
pub struct Call<'a> {
    /// Refuses what the caller must not read. `None` if the caller may read everything.
    pub(crate) host: Option<&'a dyn Host>,
    pub(crate) opened: &'a Opened,
    pub(crate) workspace: &'a Workspace,
    pub(crate) progress: &'a Progress,
    /// The directory that relative paths start from.
    pub(crate) base: &'a Path,
    /// The directory that the request named.
    pub(crate) dir: Option<WirePath>,
    pub(crate) hide_ignored: bool,
    pub(crate) borrowing: Cell<bool>,
}

impl<'a> Call<'a> {
    /// Creates a call of the user, whose relative paths start from `base`.
    pub fn of_user(opened: &'a Opened, base: &'a Path, progress: &'a Progress) -> Call<'a> {
        Call {
            host: None,
            opened,
            workspace: &opened.workspace,
            progress,
            base,
            dir: None,
            hide_ignored: false,
            borrowing: Cell::new(false),
        }
    }

    fn of_program(place: &Place, opened: &'a Opened, context: &Context<'a>) -> Call<'a> {
        Call {
            host: Some(context.host),
            dir: place.dir.clone(),
            hide_ignored: place.decided_options().hide_ignored.unwrap_or(false),
            ..Call::of_user(opened, opened.workspace.root(), context.progress)
        }
    }

    /// Refuses a path that a step of the caller must not name.
    pub(crate) fn check_named(&self, path: &Path) -> Result<(), WireError> {
        self.host.map_or(Ok(()), |host| host.check_named(path))
    }

    /// Returns the snapshot that a request names, if the caller is allowed to read it.
    pub(crate) fn snapshot(&self, hash: &Hash) -> Result<ObjectId, MethodError> {
        let id = hash.id()?;
        self.check_snapshot(&id)?;
        Ok(id)
    }

    /// Refuses a snapshot that the caller must not read.
    pub(crate) fn check_snapshot(&self, id: &ObjectId) -> Result<(), WireError> {
        self.host.map_or(Ok(()), |host| host.check_snapshot(self.workspace, id))
    }

    /// Resolves a path of a request, which is relative to `base` or absolute inside the work tree.
    /// Returns `None` for the work tree itself.
    fn locate(&self, path: &WirePath) -> Result<Option<TreePath>, NotATreePath> {
        let root = self.workspace.root();
        let by_name = TreePath::locate(root, self.base, path.as_path());
        by_name.or_else(|error| {
            // The path of the work tree may contain a symlink; the file itself is not followed.
            let path = path.as_path();
            let real = path
                .parent()
                .filter(|_| path.is_absolute())
                .and_then(|parent| Some(parent.canonicalize().ok()?.join(path.file_name()?)));
            let located = real.map(|real| TreePath::locate(root, root, &real));
            located.and_then(Result::ok).ok_or(error)
        })
    }

    /// Resolves a path and refuses the work tree itself.
    pub fn file(&self, path: &WirePath) -> Result<TreePath, NotATreePath> {
        let why = "is the work tree itself";
        self.locate(path)?.ok_or_else(|| NotATreePath { path: path.as_bytes().to_vec(), why })
    }

    /// Resolves the paths that a request is limited to. Returns an empty list if there is no limit,
    /// or if one of the paths is the whole work tree.
    pub fn paths(&self, paths: &[WirePath]) -> Result<Vec<TreePath>, NotATreePath> {
        let located: Vec<Option<TreePath>> =
            paths.iter().map(|path| self.locate(path)).collect::<Result<_, _>>()?;
        if located.contains(&None) {
            return Ok(Vec::new());
        }
        Ok(located.into_iter().flatten().collect())
    }

    /// Returns an error if the call was cancelled. Called between two units of work.
    pub(crate) fn check(&self) -> Result<(), ctrlz::Error> {
        if self.progress.cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            Err(ctrlz::Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Calls a method with parameters as JSON text.
pub fn dispatch(name: &str, params: &str, context: &Context<'_>) -> Result<Answer, WireError> {
    let method = find(name)
        .ok_or_else(|| WireError::new("method_not_found", format!("no method {name:?}")))?;
    let (place, fields) = Fields::parse(params)?.split()?;
    let place: Place = place.read()?;
    let opened = context.host.open(&place)?;
    let disabled = !opened.workspace.options().enabled;
    let access = method.access(fields.up_to());
    if disabled && (access == Access::Records || fields.has_empty_hash()) {
        let result = to_raw_value(&Disabled::answer()).expect("plain data has a JSON form");
        return Ok(Answer { result, worked_on: None, borrowing: false });
    }
    let call = Call::of_program(&place, &opened, context);
    call.check()?;
    let result = (method.run)(&call, fields)?;
    let borrowing = call.borrowing.get();
    let worked_on = (access != Access::Reads).then_some(opened.workspace);
    Ok(Answer { result, worked_on, borrowing })
}

/// Calls `run` with parameters as JSON text and the work tree they name.
pub(crate) fn with_call<P: DeserializeOwned>(
    params: &str,
    context: &Context<'_>,
    run: impl FnOnce(&Call<'_>, &P) -> Result<(), MethodError>,
) -> Result<(), WireError> {
    let (place, fields) = Fields::parse(params)?.split()?;
    let place: Place = place.read()?;
    let opened = context.host.open(&place)?;
    let call = Call::of_program(&place, &opened, context);
    call.check()?;
    Ok(run(&call, &fields.read()?)?)
}

/// Parameter names that every method accepts.
const SHARED_KEYS: [&str; 7] =
    ["dir", "data_dir", "store", "work_tree", "profile", "options", "progress"];

/// Parameters by name, each as raw JSON, so that memory is allocated only for parameters that the
/// method uses.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn parse(params: &'a str) -> Result<Fields<'a>, WireError> {
        let invalid = |error: serde_json::Error| WireError::invalid_params(error.to_string());
        serde_json::from_str(params).map_err(invalid)
    }

    /// Splits the parameters into the shared ones and those of the method.
    fn split(self) -> Result<(Fields<'a>, Fields<'a>), WireError> {
        let (mut place, mut rest) = (Vec::new(), Vec::new());
        for (key, value) in self.0 {
            let into = if SHARED_KEYS.contains(&&*key) { &mut place } else { &mut rest };
            // Duplicate keys are ambiguous.
            if into.iter().any(|(known, _)| *known == key) {
                return Err(WireError::invalid_params(format!("{key:?} is given twice")));
            }
            into.push((key, value));
        }
        Ok((Fields(place), Fields(rest)))
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        let fields = self.0.iter().map(|(key, value)| (key.as_str(), *value));
        T::deserialize(MapDeserializer::<_, serde_json::Error>::new(fields))
            .map_err(|error| WireError::invalid_params(error.to_string()))
    }

    fn up_to(&self) -> UpTo {
        let is_given = |(key, value): &(String, &RawValue)| key == "to" && value.get() != "null";
        if self.0.iter().any(is_given) { UpTo::Snapshot } else { UpTo::Now }
    }

    fn has_empty_hash(&self) -> bool {
        let is_hash = |key: &str| ["hash", "from", "to"].contains(&key);
        self.0.iter().any(|(key, value)| is_hash(key) && value.get() == "\"\"")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        /// Upper bound on the number of parameters, larger than any method needs.
        const MAX_FIELDS: usize = 64;
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("parameters by name")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Fields<'de>, E> {
                Ok(Fields(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if fields.len() == MAX_FIELDS {
                        return Err(A::Error::custom("too many parameters"));
                    }
                    fields.push((key.into_owned(), map.next_value::<&'de RawValue>()?));
                }
                Ok(Fields(fields))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut sequence: A,
            ) -> Result<Fields<'de>, A::Error> {
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                Err(A::Error::custom("parameters are given by name, not by position"))
            }
        }
        deserializer.deserialize_any(FieldsVisitor)
    }
}
