//! Whether endpoints may see clients' own addresses: the return path that answers need, set up when a frontend first wants it.

use std::future::pending;
use std::sync::Arc;

use sheave_model::{ClientSource, Frontend, RoutingTable};

use crate::transparent::Transparency;
use crate::transparent::return_path::{ReturnPath, ReturnPathError};

/// The return path, and what workers know of it.
#[derive(Debug)]
pub(super) struct ClientAddresses {
    transparency: Arc<Transparency>,
    /// None until a frontend asks for it. Once established it stays: connections depend on it.
    return_path: Option<Result<ReturnPath, ReturnPathError>>,
    /// Why the one that was established does not lead back now.
    interruption: Option<ReturnPathError>,
}

impl ClientAddresses {
    /// No frontend wants them yet.
    pub(super) fn new(transparency: Arc<Transparency>) -> Self {
        Self { transparency, return_path: None, interruption: None }
    }

    /// Establishes the return path if one of the frontends that changed wants it, or if that failed before.
    pub(super) fn apply<'a>(
        &mut self,
        table: &RoutingTable,
        mut changed: impl Iterator<Item = &'a Frontend>,
    ) {
        if self.return_path.is_some() || changed.any(wants_client_address) {
            self.establish(table);
        }
    }

    /// Tries again what failed, and restores what others on this machine have removed of it.
    pub(super) fn retry(&mut self, table: &RoutingTable) {
        self.establish(table);
        self.interruption = match &mut self.return_path {
            Some(Ok(path)) => path.restore().err(),
            _ => None,
        };
        self.publish();
    }

    /// Waits until the addresses of this machine may have changed. Cancel safe.
    pub(super) async fn changed(&mut self) {
        match &mut self.return_path {
            Some(Ok(path)) => path.local.changed().await,
            _ => pending().await,
        }
    }

    /// Shows the workers the addresses of this machine, if these have changed.
    pub(super) fn refresh(&mut self) {
        if let Some(Ok(path)) = &self.return_path
            && path.local.is_outdated()
        {
            self.publish();
        }
    }

    fn establish(&mut self, table: &RoutingTable) {
        if matches!(self.return_path, Some(Ok(_))) {
            return;
        }
        let wanted = table.frontends().iter().any(|frontend| wants_client_address(frontend));
        self.return_path = wanted.then(ReturnPath::establish);
        self.publish();
    }

    /// Without the addresses of this machine, nobody knows which replies would come back.
    fn publish(&mut self) {
        let local = match &mut self.return_path {
            Some(Ok(path)) => path.local_addresses().map_err(|error| self.interruption = Some(error)).ok(),
            _ => None,
        };
        self.transparency.set(local.filter(|_| self.interruption.is_none()));
    }

    /// Why endpoints do not see clients' addresses though a frontend wants that, as of the latest attempt.
    pub(super) fn status(&self) -> Result<(), &ReturnPathError> {
        match (&self.return_path, &self.interruption) {
            (Some(Err(error)), _) | (_, Some(error)) => Err(error),
            (None | Some(Ok(_)), None) => Ok(()),
        }
    }
}

fn wants_client_address(frontend: &Frontend) -> bool {
    frontend.client_sources.any(ClientSource::Transparent)
}
