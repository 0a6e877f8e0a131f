//! Handover of the health of endpoints between processes.

use std::collections::BTreeSet;

use sheave_model::{FrontendSource, Protocol, ServicePort};

use super::reports::EndpointKey;
use super::suspect::Suspect;
use super::{Health, now};
use crate::handover::{HandedVerdict, HealthRecord, before, millis_since, source};

impl Health {
    /// Records of every endpoint whose state differs from that of a new endpoint.
    pub(crate) fn records(&self) -> Vec<HealthRecord> {
        let now = now();
        let ago = |then| millis_since(then, now);
        let keys: BTreeSet<&EndpointKey> =
            self.since.keys().chain(self.suspects.keys()).chain(self.slow_start.growing()).collect();
        let record = |key: &EndpointKey| {
            let EndpointKey { service, addr } = key;
            let why = || Some(self.known.of(service)?.reason(*addr)?.to_string());
            HealthRecord {
                namespace: service.namespace.to_string(),
                name: service.name.to_string(),
                port: service.port_name.to_string(),
                of_fleet: service.source == FrontendSource::MultiClusterService,
                of_gateway: service.source == FrontendSource::Gateway,
                settings_of: service.settings_of.as_deref().map(str::to_owned),
                udp: service.protocol == Protocol::Udp,
                endpoint: *addr,
                unhealthy: self
                    .since
                    .get(key)
                    .map(|since| HandedVerdict { why: why().unwrap_or_default(), for_millis: ago(*since) }),
                failures: self.suspects.get(key).map(|suspect| suspect.record(now)),
                growing_millis: self.slow_start.began(key).map(ago),
            }
        };
        keys.into_iter().map(record).collect()
    }

    /// Restores the records of another process for endpoints that are still served.
    pub(crate) fn restore(&mut self, records: Vec<HealthRecord>) {
        let now = now();
        for record in records {
            let key = key_of(&record);
            let HealthRecord { unhealthy, failures, growing_millis, .. } = record;
            if !self.serving.contains(&key) {
                continue;
            }
            if let Some(began) = growing_millis {
                let parts = self.slow_start.resume(&key, now, before(now, began));
                self.show_slow_start(&key, parts);
            }
            if let Some(record) = failures {
                self.watches += 1;
                let suspect = Suspect::restored(&record, self.watches, now);
                self.suspects.insert(key.clone(), suspect);
                self.suspects_changed = true;
                self.watch(key.clone());
            }
            let Some(HandedVerdict { why, for_millis }) = unhealthy else { continue };
            // An endpoint that is neither checked here nor ejected there would never be marked as healthy again.
            if self.checks.eject(&key) || self.suspects.get(&key).is_some_and(Suspect::is_ejected) {
                self.set_unhealthy(&key, why);
                self.since.insert(key, before(now, for_millis));
            }
        }
        self.publish_suspects();
    }
}

fn key_of(record: &HealthRecord) -> EndpointKey {
    let HealthRecord { namespace, name, port, of_fleet, of_gateway, settings_of, udp, endpoint, .. } = record;
    let service = ServicePort {
        source: source(*of_fleet, *of_gateway),
        namespace: namespace.as_str().into(),
        name: name.as_str().into(),
        port_name: port.as_str().into(),
        protocol: if *udp { Protocol::Udp } else { Protocol::Tcp },
        settings_of: settings_of.as_deref().map(Into::into),
    };
    EndpointKey { service, addr: *endpoint }
}
