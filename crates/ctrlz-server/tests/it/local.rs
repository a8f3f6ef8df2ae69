//! Files of a server on disk: their permissions, their lock and their removal.

use std::os::unix::net::UnixListener;
use std::path::Path;

use ctrlz_api::{Host, Opened, Place, WireError};
use ctrlz_server::{ServeError, Server, ServerOptions, connect};
use serde_json::json;

use crate::lab::{Lab, exchange, mode};

impl Lab {
    pub(crate) fn socket(&self, verb: &str, path: &str, body: &str) -> crate::lab::Reply {
        let stream = connect(&self.files()).unwrap();
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        exchange(stream, request.as_bytes()).unwrap()
    }

    pub(crate) fn add_through_socket(&self, dir: &Path) -> String {
        let body = json!({ "path": dir }).to_string();
        let reply = self.socket("POST", "/v1/projects", &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["project"].as_str().unwrap().to_owned()
    }
}

#[test]
fn server_files_are_private() {
    let lab = Lab::new();
    assert_eq!(mode(&lab.files()), 0o700);
    for name in ["socket", "token", "url", "lock"] {
        assert_eq!(mode(&lab.files().join(name)), 0o600, "{name}");
    }
}

#[test]
fn the_socket_needs_no_token_but_checks_the_host_header() {
    let lab = Lab::new();
    assert_eq!(lab.socket("GET", "/v1/projects", "").status, 200);
    assert_eq!(lab.socket("GET", &lab.at("timeline"), "").status, 200);
    for host in ["evil.com", "127.0.0.1", &lab.address.to_string()] {
        let stream = connect(&lab.files()).unwrap();
        let request =
            format!("GET /v1/projects HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(exchange(stream, request.as_bytes()).unwrap().status, 403, "{host}");
    }
}

#[test]
fn a_work_tree_is_added_through_the_socket() {
    let lab = Lab::new();
    let other = lab.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let project = lab.add_through_socket(&other);
    assert_eq!(lab.add_through_socket(&other), project, "idempotent");
    let projects = lab.get("/v1/projects").json();
    assert_eq!(projects["projects"].as_array().unwrap().len(), 2);
    assert_eq!(lab.get(&format!("/v1/projects/{project}/status")).status, 200);
    for path in ["/etc", "/", "/does/not/exist"] {
        let reply = lab.socket("POST", "/v1/projects", &json!({ "path": path }).to_string());
        assert!((400..500).contains(&reply.status), "{path}: {}", reply.head);
    }
}

#[test]
fn the_server_listens_only_on_loopback() {
    let lab = Lab::new();
    assert_eq!(lab.address.ip().to_string(), "127.0.0.1");
    let tcp = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", lab.address.port());
    let listening: Vec<&str> = tcp
        .lines()
        .filter(|line| line.split_whitespace().nth(3) == Some("0A"))
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter(|address| address.ends_with(&port))
        .collect();
    assert_eq!(listening, [format!("0100007F{port}")]);
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        let options = ServerOptions {
            dirs: vec![lab.root()],
            files: lab.dir.path().join("elsewhere"),
            tcp: Some(address.parse().unwrap()),
        };
        let refused = Server::bind(&options, std::sync::Arc::new(NoHost));
        assert!(matches!(refused, Err(ServeError::NotLoopback { .. })), "{address}");
        assert!(!options.files.exists(), "no files are left");
    }
}

struct NoHost;

impl Host for NoHost {
    fn open(&self, _: &Place) -> Result<Opened, WireError> {
        Err(WireError::new("no_data_dir", "no work tree is opened here"))
    }

    fn owner(&self) -> Option<u32> {
        None
    }
}

/// Binds a server without work trees, to test its files.
fn bind(files: &Path) -> Result<Server, ServeError> {
    let tcp = Some("127.0.0.1:0".parse().unwrap());
    let options = ServerOptions { dirs: Vec::new(), files: files.to_owned(), tcp };
    Server::bind(&options, std::sync::Arc::new(NoHost))
}

#[test]
fn a_second_server_in_the_same_directory_is_refused() {
    let lab = Lab::new();
    match bind(&lab.files()) {
        Err(ServeError::AlreadyServed { dir }) => assert_eq!(dir, lab.files()),
        other => panic!("{:?}", other.map(|_| ())),
    }
    assert_eq!(lab.get("/v1/projects").status, 200, "the first server still works");
}

#[test]
fn a_stopped_server_leaves_only_its_lock_file() {
    let lab = Lab::new();
    let (files, token) = (lab.files(), lab.token.clone());
    let kept = tempfile::tempdir().unwrap();
    let server = bind(&kept.path().join("serve")).unwrap();
    let own = std::fs::read_to_string(server.token_file().unwrap()).unwrap();
    assert_ne!(own.trim(), token, "every server has its own token");
    let dir = lab.dir.path().to_owned();
    // Dropping the lab stops its server and removes its directory, so a second server is checked.
    let names = |files: &Path| -> Vec<String> {
        let found = std::fs::read_dir(files).map(|entries| {
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        });
        found.unwrap_or_default()
    };
    assert!(names(&files).contains(&"token".to_owned()));
    drop(server);
    assert_eq!(names(&kept.path().join("serve")), ["lock"]);
    drop(lab);
    assert!(!dir.exists());
}

#[test]
fn stale_files_and_symlinks_in_the_server_directory_are_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("serve");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("token"), "old\n").unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "not ours").unwrap();
    std::os::unix::fs::symlink(&victim, files.join("url")).unwrap();
    drop(UnixListener::bind(files.join("socket")).unwrap());
    assert!(connect(&files).is_none(), "no server listens there");
    let server = bind(&files).unwrap();
    let token = std::fs::read_to_string(files.join("token")).unwrap();
    assert_eq!(token.trim().len(), 64);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "not ours", "no symlink is followed");
    assert_eq!(mode(&files), 0o700, "it was made private");
    assert!(connect(&files).is_some());
    drop(server);
    std::fs::remove_file(files.join("lock")).unwrap();
    std::os::unix::fs::symlink(&victim, files.join("lock")).unwrap();
    assert!(bind(&files).is_err(), "a lock that is a link is refused");
}

#[test]
fn socket_paths_longer_than_108_bytes_work() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("d".repeat(120)).join("serve");
    let server = bind(&files).unwrap();
    assert!(server.socket().as_os_str().len() > 108);
    assert!(connect(&files).is_some());
}
