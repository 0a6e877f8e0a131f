//! Port-forward through the API server to a Pod, as a stream of bytes for each connection.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;

/// Pods of a namespace that a port-forward may lead to.
#[derive(Clone, Debug)]
pub struct PodSelector {
    /// Namespace of the Pods.
    pub namespace: String,
    /// Label selector.
    pub labels: &'static str,
    /// Node that the Pod must run on, if any.
    pub node: Option<String>,
}

/// Reason why a port is not forwarded.
#[derive(Debug, Error)]
pub enum PortForwardError {
    /// No Pod runs that is selected.
    #[error("no Pod with the labels {} runs there in namespace {}", .0.labels, .0.namespace)]
    NoPod(PodSelector),
    /// The API server refuses or does not answer.
    #[error("{0}")]
    Api(#[from] kube::Error),
}

impl Connection {
    /// Name of a running Pod, of a ready one if there is one.
    ///
    /// # Errors
    /// If there is none, or if the API server does not list them.
    pub async fn running_pod(&self, selector: &PodSelector) -> Result<String, PortForwardError> {
        let on_node = selector.node.as_ref().map(|node| format!(",spec.nodeName={node}")).unwrap_or_default();
        let running =
            ListParams::default().labels(selector.labels).fields(&format!("status.phase=Running{on_node}"));
        let pods = Api::<Pod>::namespaced(self.writer(), &selector.namespace).list(&running).await?;
        let chosen = pods
            .items
            .into_iter()
            .max_by_key(|pod| (pod.metadata.deletion_timestamp.is_none(), is_ready(pod)));
        chosen.and_then(|pod| pod.metadata.name).ok_or_else(|| PortForwardError::NoPod(selector.clone()))
    }

    /// A connection to a port of a Pod, on the Pod's loopback.
    ///
    /// # Errors
    /// If the API server refuses it or does not answer.
    pub async fn forward(
        &self,
        selector: &PodSelector,
        pod: &str,
        port: u16,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, PortForwardError> {
        let pods = Api::<Pod>::namespaced(self.reader(), &selector.namespace);
        let stream = pods.portforward(pod, &[port]).await?.take_stream(port);
        stream.ok_or_else(|| PortForwardError::NoPod(selector.clone()))
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
