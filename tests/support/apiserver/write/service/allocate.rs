//! Allocation and release of cluster addresses, node ports and health check ports of a Service. After
//! `pkg/registry/core/service/storage/alloc.go`.

use serde_json::{Value, json};

use super::super::allocations::{Allocations, Family, Unavailable};
use super::super::causes::refused;
use super::{
    families, gets_node_ports, is_headless, needs_cluster_ip, needs_health_check_port, port_number, ports,
    ports_mut, spec_mut, text, texts,
};
use crate::apiserver::kind::Kind;
use crate::apiserver::status::{Cause, Status};

/// Allocations of a write, which are undone if it fails, and values that it frees if it succeeds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    addresses: Vec<String>,
    ports: Vec<u16>,
    freed_addresses: Vec<String>,
    freed_ports: Vec<u16>,
}

impl Held {
    /// Undoes the allocations of a failed write.
    pub(crate) fn give_back(self, allocations: &mut Allocations) {
        self.addresses.iter().for_each(|address| allocations.free_address(address));
        self.ports.into_iter().for_each(|port| allocations.free_port(port));
    }

    /// Frees what a successful write no longer needs.
    pub(crate) fn settle(self, allocations: &mut Allocations) {
        self.freed_addresses.iter().for_each(|address| allocations.free_address(address));
        self.freed_ports.into_iter().for_each(|port| allocations.free_port(port));
    }
}

/// Allocates what the Service needs and does not have. On failure, `held` has the allocations so far.
pub(crate) fn allocate(
    kind: &Kind,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
    allocations: &mut Allocations,
    held: &mut Held,
) -> Result<(), Status> {
    let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if old.is_none() {
        pair_cluster_ips(service, None);
    }
    let causes = families::complete(service, old, allocations);
    if !causes.is_empty() {
        return Err(refused(kind, &name, &causes));
    }
    let mut allocator = Allocator { dry_run, allocations, held };
    allocator.addresses(service, old).map_err(|cause| refused(kind, &name, &[cause]))?;
    allocator.node_ports(service, old).map_err(|causes| refused(kind, &name, &causes))?;
    allocator.health_check_port(kind, &name, service, old)
}

struct Allocator<'a> {
    dry_run: bool,
    allocations: &'a mut Allocations,
    held: &'a mut Held,
}

impl Allocator<'_> {
    fn addresses(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Cause> {
        let had = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default();
        if !needs_cluster_ip(service) || is_headless(service) {
            let has: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
            self.free_addresses(&had, &has);
            return Ok(());
        }
        let given: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
        let mut addresses = Vec::new();
        for (index, family) in texts(service, "ipFamilies").into_iter().enumerate() {
            let family = if family == Family::V4.name() { Family::V4 } else { Family::V6 };
            let asked = given.get(index).map(String::as_str);
            let address = match asked {
                Some(address) if had.contains(&address) => Ok(address.to_owned()),
                asked => self.address(family, asked),
            };
            addresses.push(address.map_err(|error| {
                let asked = asked.unwrap_or_default();
                let why = format!("failed to allocate IP {asked}: {error}");
                Cause::invalid("spec.clusterIPs", &json!([asked]), &why)
            })?);
        }
        self.free_addresses(&had, &addresses);
        if let Some(spec) = spec_mut(service)
            && !addresses.is_empty()
        {
            spec.insert("clusterIP".to_owned(), json!(addresses[0]));
            spec.insert("clusterIPs".to_owned(), json!(addresses));
        }
        Ok(())
    }

    fn free_addresses(&mut self, had: &[&str], has: &[String]) {
        let gone = had.iter().filter(|address| !has.iter().any(|kept| kept == *address));
        self.held.freed_addresses.extend(gone.map(|address| (*address).to_owned()));
    }

    fn address(&mut self, family: Family, asked: Option<&str>) -> Result<String, Unavailable> {
        let address = match asked {
            Some(address) if self.dry_run => return Ok(address.to_owned()),
            None if self.dry_run => return Ok(Allocations::dry_run_address(family)),
            Some(address) => self.allocations.take_address(address).map(|()| address.to_owned())?,
            None => self.allocations.next_address(family)?,
        };
        self.held.addresses.push(address.clone());
        Ok(address)
    }

    fn port(&mut self, asked: u16) -> Result<u16, Unavailable> {
        let port = match asked {
            0 if self.dry_run => return Ok(Allocations::dry_run_port()),
            asked if self.dry_run => return Ok(asked),
            0 => self.allocations.next_port()?,
            asked => self.allocations.take_port(asked).map(|()| asked)?,
        };
        self.held.ports.push(port);
        Ok(port)
    }

    /// Allocates node ports. One number may serve several protocols of the same port, or if the Service
    /// requests it.
    fn node_ports(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Vec<Cause>> {
        let node_port = |port: &Value| port_number(&port["nodePort"]);
        let had: Vec<u16> =
            old.map(ports).unwrap_or_default().iter().map(node_port).filter(|port| *port != 0).collect();
        let gets = gets_node_ports(service);
        let mut causes = Vec::new();
        let mut seen: Vec<(Value, u16)> = Vec::new();
        for (index, port) in ports_mut(service).enumerate() {
            let asked = node_port(port);
            let sibling = seen.iter().find(|(number, _)| *number == port["port"]).map(|(_, found)| *found);
            let found = match (asked, sibling) {
                (0, _) if !gets => continue,
                (0, Some(sibling)) => Ok(sibling),
                (asked, _) if asked != 0 && seen.iter().any(|(_, found)| *found == asked) => Ok(asked),
                (asked, _) if had.contains(&asked) => Ok(asked),
                (asked, _) => self.port(asked),
            };
            match found {
                Ok(found) => {
                    port["nodePort"] = json!(found);
                    seen.push((port["port"].clone(), found));
                }
                Err(error) => {
                    let field = format!("spec.ports[{index}].nodePort");
                    causes.push(Cause::invalid(&field, &json!(asked), &error.to_string()));
                }
            }
        }
        let gone = had.iter().filter(|port| !seen.iter().any(|(_, found)| found == *port));
        self.held.freed_ports.extend(gone);
        if causes.is_empty() { Ok(()) } else { Err(causes) }
    }

    fn health_check_port(
        &mut self,
        kind: &Kind,
        name: &str,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let field = "healthCheckNodePort";
        let asked = port_number(&service["spec"][field]);
        let had = old.map(|old| port_number(&old["spec"][field])).unwrap_or_default();
        if !needs_health_check_port(service) {
            if had != 0 {
                self.held.freed_ports.push(had);
            }
            if asked == 0
                && let Some(spec) = spec_mut(service)
            {
                spec.remove(field);
            }
            return Ok(());
        }
        if had != 0 && asked != had {
            let cause = Cause::forbidden("spec.healthCheckNodePort", "field is immutable");
            return Err(refused(kind, name, &[cause]));
        }
        if had == 0 {
            let port = self.port(asked).map_err(|error| internal(asked, error))?;
            service["spec"][field] = json!(port);
        }
        Ok(())
    }
}

/// 500: the server treats a health check port in use as an internal error.
fn internal(asked: u16, error: Unavailable) -> Status {
    let why = format!("failed to allocate requested HealthCheck NodePort {asked}: {error}");
    let cause = Cause { reason: None, message: why.clone(), field: None };
    Status::new(500, "InternalError", format!("Internal error occurred: {why}")).because(&[cause])
}

/// `normalizeClusterIPs` for a new Service.
pub(super) fn pair_cluster_ips(service: &mut Value, old: Option<&Value>) {
    let first = text(service, "clusterIP").to_owned();
    let all: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
    let unchanged = old.is_some_and(|old| texts(old, "clusterIPs") == all);
    let first_changed = old.is_some_and(|old| text(old, "clusterIP") != first);
    let Some(spec) = spec_mut(service) else { return };
    if !first.is_empty() && (all.is_empty() || first_changed && unchanged) {
        spec.insert("clusterIPs".to_owned(), json!([first]));
    } else if first.is_empty() && old.is_some() && unchanged {
        spec.remove("clusterIPs");
    }
}
