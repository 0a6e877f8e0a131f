//! Connection to an admin server in the cluster, which listens on loopback in its Pod: a listener on this machine's loopback, whose
//! connections lead there through the API server, as with `kubectl port-forward`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sheave_control::sources::connection::Connection;
use sheave_control::sources::port_forward::PodSelector;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::options::Options;

/// Labels of the controllers' Pods in the manifests and the chart of `deploy`, in the namespace of their Lease.
const CONTROLLERS: &str = "app.kubernetes.io/name=sheave,app.kubernetes.io/component=controller";
/// Labels of the gateways' Pods.
const GATEWAYS: &str = "app.kubernetes.io/name=sheave,app.kubernetes.io/component=gateway";
/// How long the API server may take; a credential plugin may ask the user.
const PATIENCE: Duration = Duration::from_secs(30);

/// Port-forward that ends when it is dropped. The admin server behind it has no authentication, so the forward must not outlive the command.
#[derive(Debug)]
pub(crate) struct PortForward {
    /// `host:port` on this machine.
    pub(crate) authority: String,
    /// Closes the listener and its connections when dropped.
    _end: oneshot::Sender<()>,
}

/// Target of a port-forward.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remote<'a> {
    /// One of the controllers.
    Controller,
    /// A ready gateway.
    AnyGateway,
    /// The gateway on this Node. During an update two Pods share the Node's ports, so either will do.
    GatewayOn(&'a str),
}

impl PortForward {
    /// Opens a port-forward to the admin server of a process, in the namespace of the configured Lease.
    ///
    /// # Errors
    /// If the port-forward fails, with the reason as text.
    pub(crate) fn open(remote: &Remote<'_>, config: &Options) -> Result<Self, String> {
        let (labels, node) = match remote {
            Remote::Controller => (CONTROLLERS, None),
            Remote::AnyGateway => (GATEWAYS, None),
            Remote::GatewayOn(node) => (GATEWAYS, Some((*node).to_owned())),
        };
        let namespace = config.namespace.clone();
        let (config, pods) = (config.clone(), PodSelector { namespace, labels, node });
        let ((tell, opened), (end, ended)) = (mpsc::channel(), oneshot::channel());
        // A thread with its own runtime, since some commands wait for answers without one.
        let forwarding = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(async {
                tokio::select! {
                    Err(error) = forward(&config, &pods, &tell) => drop(tell.send(Err(error))),
                    _ = ended => {}
                }
            }),
            Err(error) => drop(tell.send(Err(error.to_string()))),
        };
        thread::Builder::new()
            .name("port-forward".to_owned())
            .spawn(forwarding)
            .map_err(|error| error.to_string())?;
        let too_long = |_| format!("the API server took longer than {} s", PATIENCE.as_secs());
        let addr: SocketAddr = opened.recv_timeout(PATIENCE).map_err(too_long)??;
        Ok(Self { authority: addr.to_string(), _end: end })
    }
}

/// Forwards connections to a Pod until one fails, as when the Pod has ended: the command then sees that nothing listens any more. Sends the
/// address of the listener once the API server has opened the first one.
async fn forward(
    config: &Options,
    pods: &PodSelector,
    opened: &mpsc::Sender<Result<SocketAddr, String>>,
) -> Result<(), String> {
    let connection = Connection::open_as(config.kubeconfig.as_deref(), config.context.as_deref(), "command")
        .await
        .map_err(|error| error.to_string())?;
    let of_server = |error| format!("API server {}: {error}", connection.server());
    let pod = connection.running_pod(pods).await.map_err(of_server)?;
    let connect = || connection.forward(pods, &pod, config.admin_listen.port());
    let mut first = Some(connect().await.map_err(of_server)?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| error.to_string())?;
    let addr = listener.local_addr().map_err(|error| error.to_string())?;
    opened.send(Ok(addr)).unwrap_or_default();
    loop {
        let (mut here, _) = listener.accept().await.map_err(|error| error.to_string())?;
        let mut there = match first.take() {
            Some(first) => first,
            None => connect().await.map_err(of_server)?,
        };
        tokio::spawn(async move { copy_bidirectional(&mut here, &mut there).await });
    }
}
