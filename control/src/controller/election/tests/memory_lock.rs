//! A Lease in memory behind a server that may fail. It implements resource versions but no part of the election.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use tokio::time::sleep;

use crate::controller::election::lease_lock::{LeaseLock, LeaseWrite};

/// Probability of each fault, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// The request fails without effect.
    fails: u8,
    /// The request is never answered. A write takes effect, or not, some seconds later.
    hangs: u8,
    /// A write takes effect, but the answer is an error.
    loses: u8,
}

impl Faults {
    pub(super) const NONE: Self = Self { fails: 0, hangs: 0, loses: 0 };
    pub(super) const HANGS: Self = Self { fails: 0, hangs: 100, loses: 0 };
    pub(super) const LOST_ANSWERS: Self = Self { fails: 0, hangs: 0, loses: 100 };

    /// No faults, a mixture, or one kind of fault alone.
    pub(super) fn any() -> Self {
        match fastrand::u8(0..6) {
            0 => Self::NONE,
            1 => Self::HANGS,
            2 => Self::LOST_ANSWERS,
            3 => Self { fails: 100, ..Self::NONE },
            _ => Self { fails: fastrand::u8(0..40), hangs: fastrand::u8(0..40), loses: fastrand::u8(0..40) },
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct MemoryLeaseLock(Arc<Mutex<LockState>>);

#[derive(Default)]
struct LockState {
    lease: Option<Lease>,
    version: u64,
    faults: Faults,
    writes: u64,
}

enum RequestFate {
    Fine,
    Fails,
    Hangs,
    Loses,
}

impl MemoryLeaseLock {
    pub(super) fn set(&self, faults: Faults) {
        self.0.lock().unwrap().faults = faults;
    }

    pub(super) fn spec(&self) -> Option<LeaseSpec> {
        self.0.lock().unwrap().lease.as_ref().and_then(|it| it.spec.clone())
    }

    pub(super) fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    /// Number of writes that took effect.
    pub(super) fn writes(&self) -> u64 {
        self.0.lock().unwrap().writes
    }

    fn fate(&self) -> RequestFate {
        let Faults { fails, hangs, loses } = self.0.lock().unwrap().faults;
        match fastrand::u8(0..100) {
            n if n < fails => RequestFate::Fails,
            n if n < fails.saturating_add(hangs) => RequestFate::Hangs,
            n if n < fails.saturating_add(hangs).saturating_add(loses) => RequestFate::Loses,
            _ => RequestFate::Fine,
        }
    }

    async fn write(&self, lease: &Lease) -> LeaseWrite {
        let fate = self.fate();
        sleep(Duration::from_millis(fastrand::u64(0..20))).await;
        match fate {
            RequestFate::Fine => self.apply(lease),
            RequestFate::Fails => LeaseWrite::Unknown("500".to_owned()),
            RequestFate::Loses => {
                drop(self.apply(lease));
                LeaseWrite::Unknown("connection reset".to_owned())
            }
            RequestFate::Hangs => {
                if fastrand::bool() {
                    let (late, lease) = (self.clone(), lease.clone());
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(fastrand::u64(0..30_000))).await;
                        drop(late.apply(&lease));
                    });
                }
                std::future::pending().await
            }
        }
    }

    fn apply(&self, lease: &Lease) -> LeaseWrite {
        let mut state = self.0.lock().unwrap();
        let present = state.lease.as_ref().map(|it| it.metadata.resource_version.clone());
        if present != lease.metadata.resource_version.clone().map(Some) {
            return LeaseWrite::Refused;
        }
        state.version += 1;
        state.writes += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(state.version.to_string());
        // Serialized as on the wire.
        let lease: Lease = serde_json::from_value(serde_json::to_value(lease).unwrap()).unwrap();
        state.lease = Some(lease.clone());
        LeaseWrite::Yes(Box::new(lease))
    }
}

impl LeaseLock for MemoryLeaseLock {
    async fn get(&self) -> Result<Option<Lease>, String> {
        let fate = self.fate();
        sleep(Duration::from_millis(fastrand::u64(0..20))).await;
        match fate {
            RequestFate::Fine | RequestFate::Loses => Ok(self.0.lock().unwrap().lease.clone()),
            RequestFate::Fails => Err("500".to_owned()),
            RequestFate::Hangs => std::future::pending().await,
        }
    }

    async fn create(&self, lease: &Lease) -> LeaseWrite {
        self.write(lease).await
    }

    async fn replace(&self, lease: &Lease) -> LeaseWrite {
        self.write(lease).await
    }
}
