//! Arguments of `explain` and `watch`: a Service, Gateway or route, and which of its clients and frontends.

use std::net::IpAddr;

use clap::Args;
use sheave_control::api::store::ServiceKey;
use sheave_model::Protocol;

use super::object::{ObjectKind, ObjectName};
use crate::views::explain::{self, Client, Port, Question};

/// The object, and flags that select clients and frontends.
#[derive(Debug, PartialEq, Args)]
pub struct QuestionArgs {
    /// Service, MultiClusterService, Gateway or route: web, shop/web, svc/web, "svc web", mcs/web, "gateway shop/gw#listener" or "tcproute shop/web"
    ///
    /// svc and mcs stand for Service and MultiClusterService. Without mcs, the Service is meant if Sheave serves it, else the
    /// MultiClusterService of the same name.
    #[arg(value_name = "OBJECT", required = true, num_args = 1..=2)]
    object: Vec<String>,
    /// Namespace of the object [default: that of the kubeconfig context, else "default"]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Use the MultiClusterService of that name, as mcs/NAME does
    #[arg(long)]
    multi_cluster: bool,
    /// Port of the Service, by number or name [default: any; lowest address first, node ports last]
    #[arg(long, value_name = "PORT", value_parser = explain::parse_port)]
    port: Option<Port>,
    /// Protocol of the port, TCP or UDP [default: any]
    #[arg(long, value_name = "PROTOCOL", value_parser = explain::parse_protocol)]
    protocol: Option<Protocol>,
    /// Frontend address that the client uses [default: any of the client's family]
    #[arg(long, value_name = "IP", value_parser = explain::parse_address)]
    address: Option<IpAddr>,
    /// Client's address, and its port where the port decides, for example 198.51.100.7:5000 [default: a client outside the cluster]
    #[arg(long, value_name = "IP[:PORT]", value_parser = explain::parse_client)]
    client: Option<Client>,
    /// Server name that a TLS client asks for; chooses the route of a TLS listener
    #[arg(long, value_name = "NAME", value_parser = explain::parse_sni)]
    sni: Option<String>,
}

impl QuestionArgs {
    /// Refuses words that name no object.
    pub fn check(&self) -> Result<(), String> {
        self.object().map(drop)
    }

    fn object(&self) -> Result<ObjectName, String> {
        ObjectName::parse(&self.object, self.namespace.as_deref())
    }

    /// Builds the question; an object without a namespace is in `default_namespace`.
    ///
    /// # Errors
    /// If the object cannot be parsed, which [`Self::check`] refuses beforehand.
    pub fn question(&self, default_namespace: impl FnOnce() -> String) -> Result<Question, String> {
        let ObjectName { kind, namespace, name } = self.object()?;
        let namespace = namespace.unwrap_or_else(default_namespace);
        Ok(Question {
            service: ServiceKey::new(&namespace, &name),
            multi_cluster: self.multi_cluster || kind == ObjectKind::MultiClusterService,
            gateway_api: match kind {
                ObjectKind::Service | ObjectKind::MultiClusterService => None,
                ObjectKind::GatewayApi(object) => Some(object),
            },
            port: self.port.clone(),
            protocol: self.protocol,
            address: self.address,
            client: self.client,
            sni: self.sni.clone(),
        })
    }
}
