//! Reading credentials again, from files and from plugins that hang.

use std::fs;

use super::*;

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: {server}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {user}}}]\n"
    )
}

#[tokio::test]
async fn what_the_file_says_by_now_is_used_after_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    fs::write(&file, kubeconfig("http://192.0.2.1/", "{token: old}")).unwrap();
    let connection = Connection::open(Some(&file)).await.unwrap();
    fs::write(&file, kubeconfig("http://192.0.2.2/", "{token: new}")).unwrap();
    assert_eq!(&*connection.server(), "http://192.0.2.1/");
    connection.reopen().await;
    assert_eq!(&*connection.server(), "http://192.0.2.2/");
}

/// Time is simulated, but the plugin is real: once the runtime is idle, the plugin has exceeded every timeout.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_is_not_waited_for_and_not_started_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (file, plugin) = (folder.path().join("kubeconfig"), folder.path().join("plugin"));
    let (calls, hang) = (folder.path().join("calls"), folder.path().join("hang"));
    let script = format!(
        "echo called >> {}\n[ ! -e {} ] || sleep 20\n\
         echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {{\"token\": \"t\"}}}}'\n",
        calls.display(),
        hang.display()
    );
    fs::write(&plugin, script).unwrap();
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}], interactiveMode: Never}}}}",
        plugin.display()
    );
    fs::write(&file, kubeconfig("http://192.0.2.1/", &user)).unwrap();
    let connection = Connection::open(Some(&file)).await.unwrap();
    let called = || fs::read_to_string(&calls).unwrap().lines().count();
    let before = called();
    fs::write(&hang, "").unwrap();
    for _ in 0..3 {
        let begun = Instant::now();
        assert!(!connection.reopen().await);
        assert!(begun.elapsed() <= REREAD + Duration::from_millis(1));
    }
    assert!(called() <= before + 1, "{} calls, {before} before", called());
}

#[test]
fn a_server_is_known_by_the_certificates_that_it_is_trusted_by() {
    let mut config = Config::new("https://10.96.0.1/".parse().unwrap());
    assert!(authorities(&config).is_empty());
    let of = |config: &mut Config, certificates: &[&[u8]]| {
        config.root_cert = Some(certificates.iter().map(|it| it.to_vec()).collect());
        authorities(config)
    };
    let (old, both) = (of(&mut config, &[b"old"]), of(&mut config, &[b"new", b"old"]));
    assert_eq!((old.len(), both.len()), (1, 2));
    assert!(old.is_subset(&both), "{old:?} {both:?}");
}

#[tokio::test]
async fn a_context_is_used_in_place_of_the_current_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: u, user: {token: t}}]\n\
                clusters: [{name: a, cluster: {server: http://192.0.2.1/}}, {name: b, cluster: {server: http://192.0.2.2/}}]\n\
                contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u, namespace: shop}}]\n";
    fs::write(&file, text).unwrap();
    for (context, server, namespace) in
        [(None, "http://192.0.2.1/", None), (Some("b"), "http://192.0.2.2/", Some("shop"))]
    {
        let connection = Connection::open_as(Some(&file), context, "test").await.unwrap();
        assert_eq!(&*connection.server(), server);
        assert_eq!(default_namespace(Some(&file), context).as_deref(), namespace);
    }
    assert!(Connection::open_as(Some(&file), Some("c"), "test").await.is_err());
    assert_eq!(default_namespace(Some(&file), Some("c")), None);
}
