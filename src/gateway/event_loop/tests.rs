//! Tests of the loop's answers: before the first table, while draining, without a worker.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use sheave_console::http::metrics;
use sheave_console::http::metrics::exposition::Exposition;
use sheave_console::views::status::ProcessView;
use sheave_control::api::store::ControlPlane;
use sheave_control::api::store::ServiceKey;
use sheave_control::sources::{Update, manifests};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use super::*;
use crate::config::Overrides;

mod handing_over;

/// Long enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// A gateway inside the test process.
struct RunningLoop {
    queries: mpsc::Sender<Query>,
    observer: Observer,
    stop: oneshot::Sender<Duration>,
    app: JoinHandle<Ended>,
}

fn app(manifests: &Path) -> Box<EventLoop> {
    app_of(Sources { local: Source::files(manifests::watch(manifests)), karmada: None })
}

fn config() -> Config {
    let mut config = Config::load(None, &Overrides::of_node("n")).unwrap();
    config.workers = 2;
    config.timeouts.drain = DEADLINE;
    config
}

fn app_of(sources: Sources) -> Box<EventLoop> {
    let config = config();
    let shares = Capacity::of_process(&config);
    EventLoop::start(&config, &shares, sources, None).unwrap()
}

/// Starts a gateway on a folder, and waits until its first objects are in force.
async fn start(manifests: &Path) -> RunningLoop {
    let (queries, asked) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel();
    let inbox = Inbox { queries: asked, configs: mpsc::channel(1).1, stop: stopped };
    let (ready, is_ready) = oneshot::channel();
    let app = app(manifests);
    let observer = app.observer();
    let running = app.run(inbox, |_| Servers::default(), || ready.send(()).unwrap(), oneshot::channel().0);
    let app = tokio::spawn(running);
    is_ready.await.unwrap();
    RunningLoop { queries, observer, stop, app }
}

/// Text of a scrape, from the data plane and the loop.
async fn scraped(queries: &mpsc::Sender<Query>, observer: &Observer) -> String {
    let facts = ask(queries, Query::Metrics).await;
    let mut text = Exposition::default();
    metrics::of_gateway(&mut text, &facts, observer);
    text.finish().unwrap()
}

async fn ask<T>(queries: &mpsc::Sender<Query>, query: fn(oneshot::Sender<T>) -> Query) -> T {
    let (answer, answered) = oneshot::channel();
    queries.send(query(answer)).await.unwrap();
    tokio::time::timeout(DEADLINE, answered).await.unwrap().unwrap()
}

/// A Service on a loopback address, with one endpoint.
fn manifest(protocol: &str, frontend: SocketAddr, endpoint: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: d}}\nspec: {{type: LoadBalancer, \
         loadBalancerClass: sheave.dev/l4, ports: [{{name: p, port: {}, protocol: {protocol}}}]}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: {}}}]}}}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, namespace: d, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: [{{name: p, port: {}, protocol: {protocol}}}]\n\
         endpoints: [{{addresses: [{}], conditions: {{ready: true}}}}]\n",
        frontend.port(),
        frontend.ip(),
        endpoint.port(),
        endpoint.ip()
    )
}

/// An address with a free port, used by this test only.
async fn unused_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::new(127, 83, 72, 1), 0)).await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn while_draining_questions_are_answered_and_open_connections_finish() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let frontend = unused_address().await;
    let text = manifest("TCP", frontend, endpoint.local_addr().unwrap());
    fs::write(folder.path().join("web.yaml"), text).unwrap();
    let RunningLoop { queries, observer, stop, app } = start(folder.path()).await;
    assert_eq!(ask(&queries, Query::Ready).await, Ok(()));

    let mut client = TcpStream::connect(frontend).await.unwrap();
    let (mut served, _) = endpoint.accept().await.unwrap();
    stop.send(Duration::ZERO).unwrap();
    assert_eq!(ask(&queries, Query::Ready).await, Err("draining"));
    assert_eq!(ask(&queries, Query::Live).await, Ok(()));
    assert!(scraped(&queries, &observer).await.contains("sheave_table_frontends 1"));
    assert!(ask(&queries, Query::Routes).await.contains("d/web"));
    let status: ProcessView = serde_json::from_str(&ask(&queries, Query::Status).await).unwrap();
    assert!(status.draining && status.source.synced && status.frontends == 1, "{status:?}");
    client.write_all(b"x").await.unwrap();
    assert_eq!(served.read_u8().await.unwrap(), b'x');
    drop((client, served));
    assert_eq!(app.await.unwrap(), Ended::Stopped(Drained::Completely));
}

#[tokio::test]
async fn a_socket_that_cannot_be_opened_is_a_problem_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let occupant = TcpListener::bind((Ipv4Addr::new(127, 83, 72, 2), 0)).await.unwrap();
    let text = manifest("TCP", occupant.local_addr().unwrap(), endpoint);
    fs::write(folder.path().join("web.yaml"), text).unwrap();
    let mut app = app(folder.path());
    let update = Update::Files(Arc::new(manifests::load(folder.path())));
    app.take(SourceUpdate { plane: ControlPlane::Local, update });
    assert_eq!(app.problems.count(), 1);
    app.retry();
    assert_eq!(app.problems.count(), 1);
    drop(occupant);
    app.retry();
    assert!(app.problems.count() == 0);
}

#[tokio::test]
async fn problems_of_files_name_the_line_of_the_field_as_validate_does() {
    let folder = tempfile::tempdir().unwrap();
    let service = |name: &str, affinity: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: d}}\nspec:\n  type: LoadBalancer\n  \
             loadBalancerClass: sheave.dev/l4\n  sessionAffinity: {affinity}\n  ports: [{{port: 80}}]\n\
             status: {{loadBalancer: {{ingress: [{{ip: 127.83.72.9}}]}}}}\n"
        )
    };
    let write = |text: &str| {
        fs::write(folder.path().join("web.yaml"), text).unwrap();
        Update::Files(Arc::new(manifests::load(folder.path())))
    };
    let mut app = app(folder.path());
    let lines = |app: &EventLoop| app.problems().iter().filter_map(|it| it.line).collect::<Vec<_>>();
    let update = write(&(service("a", "None") + &service("b", "Often")));
    app.take(SourceUpdate { plane: ControlPlane::Local, update });
    // The other Service has the address and port.
    assert_eq!(lines(&app), [19, 18], "{:?}", app.problems());
    let update = write(&("# moved\n".to_owned() + &service("a", "None") + &service("b", "Often")));
    app.take(SourceUpdate { plane: ControlPlane::Local, update });
    assert_eq!(lines(&app), [20, 19]);
}

#[tokio::test]
async fn endpoints_that_are_reported_unreachable_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (frontend, endpoint) = (unused_address().await, unused_address().await);
    fs::write(folder.path().join("dns.yaml"), manifest("UDP", frontend, endpoint)).unwrap();
    let RunningLoop { queries, observer, stop, app } = start(folder.path()).await;
    // A worker that answers has its sockets.
    assert_eq!(ask(&queries, Query::Ready).await, Ok(()));
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    client.send_to(b"x", frontend).await.unwrap();
    let counted = async {
        let series =
            format!("sheave_udp_endpoint_errors_total{{frontend=\"{frontend}/UDP\",service=\"d/web\"}} ");
        let zero = format!("{series}0");
        loop {
            let text = scraped(&queries, &observer).await;
            assert!(text.contains(&series), "{text}");
            if !text.contains(&zero) {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, counted).await.unwrap();
    drop((stop, queries));
    app.abort();
}

#[tokio::test]
async fn before_the_first_objects_it_is_live_but_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let app = app(folder.path());
    assert_eq!(app.live(), Ok(()));
    assert_eq!(app.missing(), Some("no objects have been read yet"));
    assert!(!app.status().source.synced);
}

#[tokio::test]
async fn who_was_never_ready_is_no_lame_duck() {
    let folder = tempfile::tempdir().unwrap();
    let mut app = app(folder.path());
    assert_eq!(app.withdraw(DEADLINE), None);
    let update = Update::Files(Arc::new(manifests::load(folder.path())));
    app.take(SourceUpdate { plane: ControlPlane::Local, update });
    assert!(app.withdraw(DEADLINE).is_some());
    assert_eq!(app.missing(), Some("about to drain"));
}

#[tokio::test]
async fn without_its_source_it_is_not_live_and_drains_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    // Tasks end with their runtime.
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let watch = {
        let _inside = other.enter();
        manifests::watch(folder.path())
    };
    other.shutdown_background();
    let mut app = app_of(Sources { local: Source::files(watch), karmada: None });
    app.source_ended = true;
    assert_eq!(app.live(), Err("the object sources have ended"));
    let (_questions, queries) = mpsc::channel(1);
    let (_stop, stop) = oneshot::channel::<Duration>();
    let inbox = Inbox { queries, configs: mpsc::channel(1).1, stop };
    let ended =
        tokio::time::timeout(DEADLINE, app.run(inbox, |_| Servers::default(), || (), oneshot::channel().0))
            .await;
    assert_eq!(ended.unwrap(), Ended::Failed);
}

#[tokio::test]
async fn with_a_karmada_control_plane_it_is_ready_when_both_sources_have_said_what_there_is() {
    let (folder, fleet) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mcs = "apiVersion: networking.karmada.io/v1alpha1\nkind: MultiClusterService\n\
               metadata: {name: web, namespace: shop}\nspec: {types: [LoadBalancer]}\n";
    fs::write(fleet.path().join("web.yaml"), mcs).unwrap();
    let karmada = Source::files(manifests::watch_of(ControlPlane::Karmada, fleet.path()));
    let mut app =
        app_of(Sources { local: Source::files(manifests::watch(folder.path())), karmada: Some(karmada) });
    assert!(!app.pipeline.sources.is_loaded());
    let update = Update::Files(Arc::new(manifests::load(folder.path())));
    app.take(SourceUpdate { plane: ControlPlane::Local, update });
    assert_eq!(app.missing(), Some("no objects have been read yet"));
    let update = Update::Files(Arc::new(manifests::load_of(ControlPlane::Karmada, fleet.path())));
    app.take(SourceUpdate { plane: ControlPlane::Karmada, update });
    assert_eq!(app.missing(), None);
    assert!(app.pipeline.sources.is_loaded());
    let status = app.status();
    let kinds = status.karmada.unwrap().kinds;
    assert_eq!((kinds[0].kind.as_str(), kinds[0].objects), ("MultiClusterService", 1));
    let update = Update::Files(Arc::new(manifests::load(folder.path())));
    app.take(SourceUpdate { plane: ControlPlane::Local, update });
    assert_eq!(app.pipeline.objects().fleet.services.len(), 1, "what the one says is nothing to the other");
}

/// A MultiClusterService and a younger Service. The pool has one address.
#[tokio::test]
async fn the_older_one_gets_the_only_address_whichever_folder_is_read_first() {
    let (folder, fleet) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let service = |year: u16, kind: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\n\
             metadata: {{name: web, namespace: shop, creationTimestamp: '{year}-01-01T00:00:00Z'}}\n\
             spec: {{type: {kind}, loadBalancerClass: {}, ports: [{{port: 80}}]}}\n",
            if kind == "LoadBalancer" { "sheave.dev/l4" } else { "null" }
        )
    };
    let pool = "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: only}\n\
                spec: {addresses: [203.0.113.7/32]}\n";
    fs::write(folder.path().join("web.yaml"), format!("{pool}{}", service(2025, "LoadBalancer"))).unwrap();
    let mcs = "apiVersion: networking.karmada.io/v1alpha1\nkind: MultiClusterService\n\
               metadata: {name: web, namespace: shop, creationTimestamp: '2024-01-01T00:00:00Z'}\n\
               spec: {types: [LoadBalancer]}\n";
    fs::write(fleet.path().join("web.yaml"), format!("{mcs}{}", service(2024, "ClusterIP"))).unwrap();
    for order in [[ControlPlane::Local, ControlPlane::Karmada], [ControlPlane::Karmada, ControlPlane::Local]]
    {
        let karmada = Source::files(manifests::watch_of(ControlPlane::Karmada, fleet.path()));
        let mut app =
            app_of(Sources { local: Source::files(manifests::watch(folder.path())), karmada: Some(karmada) });
        for part in order {
            let update = match part {
                ControlPlane::Local => manifests::load(folder.path()),
                ControlPlane::Karmada => manifests::load_of(ControlPlane::Karmada, fleet.path()),
            };
            app.take(SourceUpdate { plane: part, update: Update::Files(Arc::new(update)) });
        }
        let served =
            |key: &ServiceKey| app.pipeline.projector.status(key).is_some_and(|it| !it.ingress.is_empty());
        let keys = [ServiceKey::multi_cluster("shop", "web"), ServiceKey::new("shop", "web")];
        assert_eq!(keys.each_ref().map(served), [true, false], "{order:?}: {:?}", app.problems().len());
    }
}
