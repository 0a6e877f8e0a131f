//! Server names of a frontend compiled for picking: the target of a connection, by the name that its client asks for.
//!
//! Each target is compiled as the frontend that it would be alone. Its endpoints are those of the whole frontend, so that an endpoint of
//! two targets has one load. There may be thousands of targets, so those that a new table does not change are carried over.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::Arc;

use sheave_model::{Frontend, ServerNames, ServicePort};

/// The server names of a frontend with their compiled targets.
#[derive(Debug)]
pub(super) struct ActiveServerNames<T> {
    names: Arc<ServerNames>,
    /// In the order of the names' targets.
    targets: Box<[Arc<T>]>,
}

/// Identity of a target across tables, however its names, its backends and its place change: the listener and the route.
type TargetKey<'a> = (&'a ServicePort, Option<&'a str>);

fn key_of(target: &Frontend) -> TargetKey<'_> {
    (&target.service, target.split.as_ref().map(|split| &*split.route))
}

impl<T> ActiveServerNames<T> {
    /// Compiles server names. `compile_target` compiles a target, from that of the same route in `previous`.
    pub(super) fn compile(
        names: &Arc<ServerNames>,
        previous: Option<&Self>,
        compile_target: impl Fn(&Arc<Frontend>, Option<&Arc<T>>) -> Arc<T>,
    ) -> Self {
        let known = || previous.into_iter().flat_map(Self::specs);
        // Not needed while routes only change in place.
        let by_key = LazyCell::new(|| -> HashMap<_, _> { known().map(|(s, t)| (key_of(s), t)).collect() });
        let mut same_place = known();
        let target = |spec: &Arc<Frontend>| {
            let here = same_place.next().filter(|(before, _)| key_of(before) == key_of(spec));
            let before = here.map(|(_, target)| target).or_else(|| by_key.get(&key_of(spec)).copied());
            compile_target(spec, before)
        };
        let targets = names.targets().iter().map(target).collect();
        Self { names: Arc::clone(names), targets }
    }

    fn specs(&self) -> impl Iterator<Item = (&Frontend, &Arc<T>)> {
        self.names.targets().iter().map(AsRef::as_ref).zip(&self.targets)
    }

    /// The compiled targets.
    pub(super) fn targets(&self) -> impl Iterator<Item = &T> {
        self.targets.iter().map(AsRef::as_ref)
    }

    /// The target of a name.
    pub(super) fn target(&self, name: &str) -> Option<&Arc<T>> {
        self.targets.get(self.names.target(name)?)
    }
}
