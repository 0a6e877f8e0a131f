//! Clients' own addresses as seen by endpoints: sets up the return path of replies when a frontend first requests it.

use std::future::pending;
use std::sync::Arc;

use sheave_model::{ClientSource, Frontend, RoutingTable};

use crate::transparent::Transparency;
use crate::transparent::return_path::{ReturnPath, ReturnPathError};

/// The return path, and its state as published to the workers.
#[derive(Debug)]
pub(super) struct ClientAddresses {
    transparency: Arc<Transparency>,
    /// `None` until a frontend requests it. Once established it stays, since connections depend on it.
    return_path: Option<Result<ReturnPath, ReturnPathError>>,
    /// Reason why the established path does not lead back at present.
    interruption: Option<ReturnPathError>,
}

impl ClientAddresses {
    /// Creates the state before any frontend requests clients' addresses.
    pub(super) fn new(transparency: Arc<Transparency>) -> Self {
        Self { transparency, return_path: None, interruption: None }
    }

    /// Establishes the return path if a changed frontend requests it, or if an earlier attempt failed.
    pub(super) fn apply<'a>(
        &mut self,
        table: &RoutingTable,
        mut changed: impl Iterator<Item = &'a Frontend>,
    ) {
        if self.return_path.is_some() || changed.any(wants_client_address) {
            self.establish(table);
        }
    }

    /// Retries after a failure, and restores the parts that other programs on this machine have removed.
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

    /// Publishes the addresses of this machine to the workers, if they have changed.
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

    /// Publishes whether endpoints may see clients' addresses. Without this machine's addresses it is unknown which replies
    /// would return.
    fn publish(&mut self) {
        let local = match &mut self.return_path {
            Some(Ok(path)) => path.local_addresses().map_err(|error| self.interruption = Some(error)).ok(),
            _ => None,
        };
        self.transparency.set(local.filter(|_| self.interruption.is_none()));
    }

    /// Reason why endpoints do not see clients' addresses although a frontend requests it, as of the latest attempt.
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
