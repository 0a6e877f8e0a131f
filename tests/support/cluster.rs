//! Cluster of a test case: the test API server, or the real one of `SHEAVE_TEST_KUBECONFIG`; and next to it a Karmada control
//! plane, `SHEAVE_TEST_KARMADA_KUBECONFIG`, which may be the same server. Cases are independent of which one it is, and act like
//! an administrator: objects in, objects out.
//!
//! A real cluster is used by one case at a time, with a namespace of its own. The objects of a case are deleted at its end.

mod fleet;
mod paths;
mod rights;

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::paths::path;
use self::rights::Rights;
use super::apiserver::ApiServer;
use super::host::Host;
use super::road::Road;

/// Variable with the kubeconfig of a real cluster, for an administrator.
const REAL: &str = "SHEAVE_TEST_KUBECONFIG";
/// Files of `kubectl apply -k deploy/base` that matter to an API server.
const INSTALLED: [&str; 5] =
    ["namespace.yaml", DEFINITION, "rbac-gateway.yaml", "rbac-controller.yaml", "policy.yaml"];
/// The files among them with roles and bindings.
const RIGHTS: [&str; 2] = ["deploy/base/rbac-gateway.yaml", "deploy/base/rbac-controller.yaml"];
/// Definition of AddressPools.
const DEFINITION: &str = "crd.yaml";
/// Field manager of the cases.
const MANAGER: &str = "sheave-tests";

/// Account of a process at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The permissions of gateways in `deploy`.
    Gateway,
    /// The permissions of controllers in `deploy`.
    Controller,
    /// All permissions.
    Administrator,
}

/// Cluster with Sheave's definitions and roles, and nothing else of Sheave.
pub struct Cluster {
    runtime: Runtime,
    client: kube::Client,
    backing: Backing,
    folder: TempDir,
    namespace: String,
    rights: Rights,
    /// Paths of the objects that were created, in order.
    made: Mutex<Vec<String>>,
    _alone: Option<MutexGuard<'static, ()>>,
}

enum Backing {
    Test(Box<ApiServer>),
    Real(Value),
}

/// Unsuccessful response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `message` of the Status, or the body.
    pub message: String,
}

impl Cluster {
    /// The cluster of the environment, with an empty namespace whose name begins with `name`.
    pub fn start(name: &str) -> Self {
        let cluster = Self::empty(name, std::env::var_os(REAL));
        cluster.install(&INSTALLED);
        cluster
    }

    /// Like [`Cluster::start`], but always with the test API server, for conditions that cannot be produced on a real one.
    pub fn simulated(name: &str) -> Self {
        let cluster = Self::empty(name, None);
        cluster.install(&INSTALLED);
        cluster
    }

    /// Like [`Cluster::simulated`], but without the definition of AddressPools.
    pub fn without_definition(name: &str) -> Self {
        let cluster = Self::empty(name, None);
        let others: Vec<&str> = INSTALLED.into_iter().filter(|file| *file != DEFINITION).collect();
        cluster.install(&others);
        cluster
    }

    fn empty(name: &str, real: Option<OsString>) -> Self {
        static ALONE: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);
        let alone = real.is_some().then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        let namespace = format!("{name}-{:06x}", fastrand::u32(..0x0100_0000));
        Self::connect(namespace, real, Rights::read(&RIGHTS), alone)
    }

    /// Connects to the API server of this kubeconfig, or starts one.
    fn connect(
        namespace: String,
        real: Option<OsString>,
        rights: Rights,
        alone: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let backing = match real {
            None => Backing::Test(Box::new(ApiServer::start())),
            Some(path) => {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                Backing::Real(serde_saphyr::from_str(&text).expect("a kubeconfig"))
            }
        };
        let admin = match &backing {
            Backing::Test(server) => server.kubeconfig("admin"),
            Backing::Real(config) => config.to_string(),
        };
        let client = runtime.block_on(client(&admin));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = Mutex::default();
        Self { runtime, client, backing, folder, namespace, rights, made, _alone: alone }
    }

    /// The test API server, if this is one, for functions that only it has.
    pub fn test_server(&self) -> Option<&ApiServer> {
        match &self.backing {
            Backing::Test(server) => Some(server),
            Backing::Real(_) => None,
        }
    }

    /// Namespace of the case.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Opens a road from `host` to the API server.
    pub fn road<'h>(&self, host: &'h Host) -> Road<'h> {
        Road::open(host, self.address())
    }

    /// Writes a kubeconfig for a process on the road's host, and returns its path.
    pub fn kubeconfig(&self, account: Account, road: &Road<'_>) -> PathBuf {
        let config = match &self.backing {
            Backing::Test(server) => {
                let text = server.kubeconfig(self.rights.user(account));
                text.replace(&server.url(), &format!("http://{}", road.address()))
            }
            Backing::Real(config) => {
                impersonating(config.clone(), self.rights.user(account), road.address()).to_string()
            }
        };
        let path = self.folder.path().join(format!("{account:?}-{}.kubeconfig", road.address().port()));
        fs::write(&path, config).expect("a file is written");
        path
    }

    /// Writes a token of an account for this audience, and returns its path.
    pub fn token(&self, account: Account, audience: &str) -> PathBuf {
        let user = self.rights.user(account);
        let token = match &self.backing {
            Backing::Test(server) => server.token_for(user, audience),
            Backing::Real(_) => {
                let account = user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'));
                let (namespace, name) = account.expect("a service account");
                let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
                let request = json!({"spec": {"audiences": [audience]}});
                let made = self.send("POST", &path, "application/json", &request).expect("a token");
                made["status"]["token"].as_str().expect("a token").to_owned()
            }
        };
        let path = self.folder.path().join(format!("{account:?}-{audience}.token"));
        fs::write(&path, token).expect("a file is written");
        path
    }

    /// Creates or changes objects, given as YAML documents, by server-side apply with another manager than Sheave. The default
    /// namespace is that of the case. A `status` is applied as well.
    pub fn apply(&self, documents: &str) {
        for object in documents_of(documents) {
            self.apply_object(object);
        }
    }

    fn apply_object(&self, mut object: Value) {
        self.place(&mut object);
        let path = path(&object);
        let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
        let query = format!("?fieldManager={MANAGER}&force=true");
        let apply = "application/apply-patch+yaml";
        let made = self.send("PATCH", &format!("{path}{query}"), apply, &object);
        made.unwrap_or_else(|error| panic!("{object}: {error:?}"));
        self.remember(path.clone());
        if let Some(status) = status {
            let name = object["metadata"].clone();
            let body = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": name, "status": status});
            let told = self.send("PATCH", &format!("{path}/status{query}"), apply, &body);
            told.unwrap_or_else(|error| panic!("{body}: {error:?}"));
        }
    }

    /// An object in the case's namespace, or a cluster-scoped one.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        match self.send("GET", &self.path_of(kind, name), "", &Value::Null) {
            Ok(object) => Some(object),
            Err(Refusal { code: 404, .. }) => None,
            Err(error) => panic!("{kind} {name}: {error:?}"),
        }
    }

    /// All objects of a kind in the case's namespace, or of the cluster.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let path = self.path_of(kind, "");
        let list = self.send("GET", path.trim_end_matches('/'), "", &Value::Null);
        let mut list = list.unwrap_or_else(|error| panic!("{kind}: {error:?}"));
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes an object by a JSON merge patch with the field manager `manager`.
    pub fn merge(&self, kind: &str, name: &str, manager: &str, patch: &Value) -> Result<Value, Refusal> {
        let path = format!("{}?fieldManager={manager}", self.path_of(kind, name));
        self.send("PATCH", &path, "application/merge-patch+json", patch)
    }

    /// Changes an object's status by a JSON merge patch with the field manager `manager`.
    pub fn merge_status(
        &self,
        kind: &str,
        name: &str,
        manager: &str,
        patch: &Value,
    ) -> Result<Value, Refusal> {
        let path = format!("{}/status?fieldManager={manager}", self.path_of(kind, name));
        self.send("PATCH", &path, "application/merge-patch+json", patch)
    }

    /// Replaces the roles of an account, keeping their names. The next case starts with those of `deploy/base` again.
    pub fn authorize(&self, account: Account, roles: &[Value]) {
        match &self.backing {
            Backing::Test(server) => server.authorize(self.rights.user(account), roles),
            Backing::Real(_) => {
                let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
                roles.iter().for_each(|role| self.apply_object(role.clone()));
                *self.made.lock().unwrap_or_else(PoisonError::into_inner) = made;
            }
        }
    }

    /// Requests the deletion of an object, which finalizers may delay.
    pub fn delete(&self, kind: &str, name: &str) {
        match self.send("DELETE", &self.path_of(kind, name), "", &Value::Null) {
            Ok(_) | Err(Refusal { code: 404, .. }) => {}
            Err(error) => panic!("{kind} {name}: {error:?}"),
        }
    }

    /// Sends any request, with `content_type` and `body` unless they are empty.
    pub fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value, Refusal> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut request = http::Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request.body(Body::from(bytes)).expect("a request");
        self.runtime.block_on(async {
            let response = self.client.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
            let status = response.status();
            let body = response.into_body().collect().await.expect("a whole answer").to_bytes();
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            if status.is_success() {
                return Ok(value);
            }
            let message = value["message"]
                .as_str()
                .map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
            Err(Refusal { code: status.as_u16(), message })
        })
    }

    /// Installs the definition of AddressPools, and waits until the server serves them.
    pub fn define(&self) {
        self.apply(&base_file(DEFINITION));
        self.wait_until_served("AddressPool");
    }

    fn wait_until_served(&self, kind: &str) {
        super::patience::eventually(&format!("{kind}s are served"), || {
            self.send("GET", &paths::everywhere(kind), "", &Value::Null).map_err(|error| format!("{error:?}"))
        });
    }

    fn install(&self, files: &[&str]) {
        for file in files.iter().filter(|file| **file != DEFINITION) {
            documents_of(&base_file(file)).into_iter().for_each(|object| self.install_object(object));
        }
        if files.contains(&DEFINITION) {
            self.define();
        }
        // A controller that was killed holds the Lease until it expires; the next case should not wait for that.
        self.delete("Lease", "sheave-system/sheave-controller");
        // These objects stay for the next case.
        self.keep_what_is_made();
        self.open();
    }

    /// Applies a part of an installation. The test API server does not evaluate admission policies. On a real server, they are
    /// adapted to the configurations of some cases: `handleUnclassified`, and the class of another installation.
    fn install_object(&self, object: Value) {
        let is_policy =
            object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"));
        if !is_policy {
            self.apply_object(object);
        } else if self.test_server().is_none() {
            let policy =
                object.to_string().replace("['sheave.dev/l4']", "['sheave.dev/l4', '', 'example.com/other']");
            self.apply_object(serde_json::from_str(&policy).expect("it is JSON again"));
        }
    }

    /// Excludes everything created so far from deletion at the end.
    fn keep_what_is_made(&self) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Creates the case's namespace, and restricts the accounts to their permissions.
    fn open(&self) {
        self.make_namespace(&self.namespace);
        if let Backing::Test(server) = &self.backing {
            for account in [Account::Gateway, Account::Controller] {
                server.authorize(self.rights.user(account), &self.rights.roles(account));
            }
        }
    }

    /// Creates a namespace.
    pub fn make_namespace(&self, name: &str) {
        self.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"));
    }

    /// User name of an account at the server.
    pub fn user(&self, account: Account) -> &str {
        self.rights.user(account)
    }

    #[expect(clippy::disallowed_methods, reason = "a test may wait for DNS; the data plane may not")]
    fn address(&self) -> SocketAddr {
        match &self.backing {
            Backing::Test(server) => server.address(),
            Backing::Real(config) => {
                let server = config["clusters"][0]["cluster"]["server"].as_str().expect("a server");
                let authority = server.trim_start_matches("https://").trim_end_matches('/');
                let authority =
                    if authority.contains(':') { authority.to_owned() } else { format!("{authority}:443") };
                std::net::ToSocketAddrs::to_socket_addrs(&authority)
                    .ok()
                    .and_then(|mut addresses| addresses.next())
                    .unwrap_or_else(|| panic!("{authority} has no address"))
            }
        }
    }

    fn place(&self, object: &mut Value) {
        let kind = object["kind"].as_str().expect("objects have a kind");
        if paths::is_namespaced(kind) && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
    }

    fn path_of(&self, kind: &str, name: &str) -> String {
        let (namespace, name) = name.split_once('/').unwrap_or((&self.namespace, name));
        paths::of(kind, namespace, name)
    }

    fn remember(&self, path: String) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains(&path) {
            made.push(path);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if matches!(self.backing, Backing::Test(_)) {
            return;
        }
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        for path in made.iter().rev() {
            // Finalizers of Sheave must not keep it, since the controller of the case has ended.
            let released = json!({"metadata": {"finalizers": null}});
            drop(self.send("PATCH", path, "application/merge-patch+json", &released));
            drop(self.send("DELETE", path, "", &Value::Null));
        }
    }
}

impl Account {
    /// User name at the cluster.
    pub fn user(self) -> &'static str {
        match self {
            Self::Gateway => "system:serviceaccount:sheave-system:sheave-gateway",
            Self::Controller => "system:serviceaccount:sheave-system:sheave-controller",
            Self::Administrator => rights::ADMINISTRATOR,
        }
    }

    /// The Roles and ClusterRoles that `deploy/base` gives it; empty for the administrator.
    pub fn roles(self) -> Vec<Value> {
        Rights::read(&RIGHTS).roles(self)
    }
}

/// The administrator's configuration, through the road, with impersonation for other accounts.
fn impersonating(mut config: Value, user: &str, road: SocketAddr) -> Value {
    let cluster = &mut config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().expect("a server").to_owned();
    let host = server.trim_start_matches("https://").trim_end_matches('/');
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    cluster["tls-server-name"] = json!(host);
    cluster["server"] = json!(format!("https://{road}"));
    if user != rights::ADMINISTRATOR {
        config["users"][0]["user"]["as"] = json!(user);
    }
    config
}

async fn client(kubeconfig: &str) -> kube::Client {
    let config = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a usable kubeconfig");
    config.read_timeout = Some(Duration::from_secs(30));
    kube::Client::try_from(config).expect("a client")
}

/// Text of a file of `kubectl apply -k deploy/base`.
fn base_file(file: &str) -> String {
    rights::text_of(&format!("deploy/base/{file}"))
}

fn documents_of(text: &str) -> Vec<Value> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}
