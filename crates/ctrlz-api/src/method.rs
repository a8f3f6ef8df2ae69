//! The table of methods, and the function that calls them.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use ctrlz::{Maintenance, NotATreePath, ObjectId, Progress, TreePath, Workspace};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

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
    /// Effect on the work tree. The parameters of a call may reduce it; see
    /// [`Method::access_of()`].
    pub access: Access,
    /// Precondition of a call over HTTP.
    pub precondition: Precondition,
    /// Whether the result depends only on snapshots; see [`Method::is_permanent()`].
    pub(crate) permanence: Permanence,
    /// Parameter that names a directory outside of the work tree, if there is one.
    pub outside: Option<&'static str>,
    /// Errors specific to this method, beyond those that any call can return.
    pub errors: Vec<&'static str>,
    pub(crate) params: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) result: fn(&mut SchemaGenerator) -> Schema,
    run: Run,
}

/// Types of the parameters of methods.
pub(crate) trait Parameters: DeserializeOwned + JsonSchema + 'static {}

impl<T: DeserializeOwned + JsonSchema + 'static> Parameters for T {}

/// The typed function of a method.
type Typed<P, R> = fn(&Call<'_>, &P) -> Result<R, MethodError>;
type Run = Box<dyn Fn(&Call<'_>, &Params) -> Result<Box<RawValue>, WireError> + Send + Sync>;

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

/// Precondition of a method where the caller may be a web page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// None: the method changes no file and removes nothing.
    Nothing,
    /// A plan that the user has seen.
    Plan,
    /// An explicit confirmation, because the removal is permanent.
    Confirmation,
}

/// Whether a result never changes, because it depends only on snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permanence {
    /// The result may change.
    Changing,
    /// The result never changes.
    Permanent,
    /// The result never changes if the call gives this parameter.
    PermanentWith(&'static str),
}

impl Method {
    /// Returns the effect of a call. Comparing two recorded snapshots only reads.
    pub fn access_of(&self, params: &Params) -> Access {
        match self.access {
            Access::Records if params.get("to").is_some() => Access::Reads,
            access => access,
        }
    }

    /// Returns whether the result of a call never changes. A call that compares with the present
    /// state is not taken into account.
    pub fn is_permanent(&self, params: &Params) -> bool {
        match self.permanence {
            Permanence::Changing => false,
            Permanence::Permanent => true,
            Permanence::PermanentWith(parameter) => params.get(parameter).is_some(),
        }
    }

    /// Sets the precondition.
    pub(crate) fn requires(self, precondition: Precondition) -> Method {
        Method { precondition, ..self }
    }

    /// Sets the permanence of the result.
    pub(crate) fn lasts(self, permanence: Permanence) -> Method {
        Method { permanence, ..self }
    }

    /// Declares the parameter that names a directory outside of the work tree.
    pub(crate) fn reaches_outside(self, parameter: &'static str) -> Method {
        Method { outside: Some(parameter), ..self }
    }

    /// Creates an entry of the table, for a method that reads.
    pub(crate) fn reads<P: Parameters, R: Described + 'static>(
        name: &'static str,
        about: &'static str,
        run: Typed<P, R>,
    ) -> Method {
        let run = move |call: &Call<'_>, params: &Params| {
            let params: P = params.read()?;
            let result = run(call, &params)?;
            to_raw_value(&result)
                .map_err(|error| WireError::new("json", format!("no JSON form: {error}")))
        };
        Method {
            name,
            about,
            access: Access::Reads,
            precondition: Precondition::Nothing,
            permanence: Permanence::Changing,
            outside: None,
            errors: Vec::new(),
            params: |schemas| schemas.subschema_for::<P>(),
            result: |schemas| schemas.subschema_for::<R>(),
            run: Box::new(run),
        }
    }

    /// Creates an entry of the table, for a method that records.
    pub(crate) fn records<P: Parameters, R: Described + 'static>(
        name: &'static str,
        about: &'static str,
        run: Typed<P, R>,
    ) -> Method {
        Method { access: Access::Records, ..Method::reads(name, about, run) }
    }

    /// Creates an entry of the table, for a method that changes files.
    pub(crate) fn writes<P: Parameters, R: Described + 'static>(
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

/// Returns the method with this name, or the error for a caller who asked for it.
pub fn named(name: &str) -> Result<&'static Method, WireError> {
    find(name).ok_or_else(|| WireError::new("method_not_found", format!("no method {name:?}")))
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
    /// [`Workspace::copy_borrowed`] when it is idle.
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

    pub(crate) fn maintenance(&self) -> Maintenance<'a> {
        self.workspace.maintenance()
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

/// Calls a method.
pub fn dispatch(
    method: &Method,
    params: Params,
    context: &Context<'_>,
) -> Result<Answer, WireError> {
    let (place, params) = params.split()?;
    let place: Place = place.read()?;
    let opened = context.host.open(&place)?;
    let disabled = !opened.workspace.options().enabled;
    let access = method.access_of(&params);
    if disabled && (access == Access::Records || params.has_empty_hash()) {
        let result = to_raw_value(&Disabled::answer()).expect("plain data has a JSON form");
        return Ok(Answer { result, worked_on: None, borrowing: false });
    }
    let call = Call::of_program(&place, &opened, context);
    call.check()?;
    let result = (method.run)(&call, &params)?;
    let borrowing = call.borrowing.get();
    let worked_on = (access != Access::Reads).then_some(opened.workspace);
    Ok(Answer { result, worked_on, borrowing })
}

/// Calls `run` with parameters and the work tree they name.
pub(crate) fn with_call<P: DeserializeOwned>(
    params: Params,
    context: &Context<'_>,
    run: impl FnOnce(&Call<'_>, &P) -> Result<(), MethodError>,
) -> Result<(), WireError> {
    let (place, params) = params.split()?;
    let place: Place = place.read()?;
    let opened = context.host.open(&place)?;
    let call = Call::of_program(&place, &opened, context);
    call.check()?;
    Ok(run(&call, &params.read()?)?)
}

/// Parameter names that every method accepts.
const SHARED_KEYS: [&str; 7] =
    ["dir", "data_dir", "store", "work_tree", "profile", "options", "progress"];

/// Parameters of a call by name. Each stays raw JSON until the method reads it, so that unused
/// parameters take no more memory than their text.
#[derive(Clone, Debug, Default)]
pub struct Params(Vec<(String, Box<RawValue>)>);

impl Params {
    /// Parses parameters from JSON: an object, or `null` if there are none.
    pub fn parse(params: &str) -> Result<Params, WireError> {
        let invalid = |error: serde_json::Error| WireError::invalid_params(error.to_string());
        serde_json::from_str(params).map_err(invalid)
    }

    /// Returns a parameter as JSON. A parameter that is `null` counts as missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.get());
        values.find(|value| *value != "null")
    }

    /// Returns the names and values of all parameters, as JSON.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.get()))
    }

    /// Removes a parameter.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(key, _)| key != name);
    }

    /// Splits the parameters into the shared ones and those of the method.
    fn split(self) -> Result<(Params, Params), WireError> {
        let (mut place, mut rest) = (Vec::new(), Vec::new());
        for (key, value) in self.0 {
            let into = if SHARED_KEYS.contains(&&*key) { &mut place } else { &mut rest };
            // Duplicate keys are ambiguous.
            if into.iter().any(|(known, _)| *known == key) {
                return Err(WireError::invalid_params(format!("{key:?} is given twice")));
            }
            into.push((key, value));
        }
        Ok((Params(place), Params(rest)))
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        let fields = self.0.iter().map(|(key, value)| (key.as_str(), value.as_ref()));
        T::deserialize(MapDeserializer::<_, serde_json::Error>::new(fields))
            .map_err(|error| WireError::invalid_params(error.to_string()))
    }

    fn has_empty_hash(&self) -> bool {
        let is_hash = |key: &str| ["hash", "from", "to"].contains(&key);
        self.iter().any(|(key, value)| is_hash(key) && value == "\"\"")
    }
}

impl From<Map<String, Value>> for Params {
    fn from(fields: Map<String, Value>) -> Params {
        let raw = |value: &Value| to_raw_value(value).expect("JSON has a JSON form");
        Params(fields.into_iter().map(|(key, value)| (key, raw(&value))).collect())
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
        /// Upper bound on the number of parameters, larger than any method needs.
        const MAX_FIELDS: usize = 64;
        struct ParamsVisitor;
        impl<'de> Visitor<'de> for ParamsVisitor {
            type Value = Params;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("parameters by name")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Params, E> {
                Ok(Params::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if fields.len() == MAX_FIELDS {
                        return Err(A::Error::custom("too many parameters"));
                    }
                    fields.push((key.into_owned(), map.next_value()?));
                }
                Ok(Params(fields))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut sequence: A,
            ) -> Result<Params, A::Error> {
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                Err(A::Error::custom("parameters are given by name, not by position"))
            }
        }
        deserializer.deserialize_any(ParamsVisitor)
    }
}
