//! Every attack on every route. The routes come from the router's own list, so new routes are
//! attacked automatically.

use ctrlz_server::{Route, routes};
use serde_json::json;

use crate::lab::{Lab, Reply};

/// A request that would have an effect if it were accepted.
struct Target {
    verb: &'static str,
    path: String,
    body: String,
}

impl Lab {
    /// Returns a request to every route, with all parameters filled in.
    fn targets(&self) -> Vec<Target> {
        let target = |Route { verb, path }: Route| {
            let body = match path.rsplit('/').next() {
                Some("revert") if path.starts_with("/session") => json!({ "messageID": "m1" }),
                Some("purge") => json!({ "path": "b.txt", "confirm": true }),
                Some("gc") => json!({ "keep_days": 0, "confirm": true }),
                Some("release_session") => json!({ "session": "s1", "confirm": true }),
                Some("begin_step") => json!({ "session": "intruder" }),
                Some("note_failure") => json!({ "client": "x", "event": "x", "why": "x" }),
                Some("login") => json!({ "code": "0" }),
                _ => json!({}),
            };
            let path = path.replace("{project}", &self.project).replace("{id}", "s1");
            Target { verb, path, body: body.to_string() }
        };
        let targets: Vec<Target> = routes().into_iter().map(target).collect();
        assert!(targets.len() > 90, "{}", targets.len());
        targets
    }

    fn try_with(&self, target: &Target, lines: &str) -> Reply {
        let kind = if target.verb == "POST" { "Content-Type: application/json\r\n" } else { "" };
        let lines = format!("{lines}{kind}");
        let mut row = xtask::Row::of(13, "requests to every route, from outside and in");
        let reply = self.ask(target.verb, &target.path, &lines, &target.body);
        check_headers(target, &reply);
        row.done();
        reply
    }
}

/// Checks the security headers, which every response must have.
fn check_headers(Target { verb, path, .. }: &Target, reply: &Reply) {
    let about = format!("{verb} {path}: {}", reply.head);
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{about}");
    assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{about}");
    assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{about}");
    assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"), "{about}");
    let policy = reply.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'"), "{about}");
    assert!(policy.contains("frame-ancestors 'none'"), "{about}");
    assert!(!policy.contains("unsafe"), "{about}");
    assert!(!reply.head.to_ascii_lowercase().contains("access-control-"), "{about}");
}

/// Attacks every route with these header lines. All responses must have the expected status, and
/// nothing may change.
#[track_caller]
fn check_refused(lab: &Lab, attacks: &[String], expected: u16, except: &[&str]) {
    let before = lab.state();
    for target in lab.targets() {
        if except.contains(&target.path.as_str()) {
            continue;
        }
        for lines in attacks {
            let reply = lab.try_with(&target, lines);
            let about = format!("{} {} with {lines:?}", target.verb, target.path);
            assert_eq!(reply.status, expected, "{about}: {}", reply.head);
            assert!(!String::from_utf8_lossy(&reply.body).contains(&lab.token), "{about}");
        }
    }
    assert_eq!(lab.state(), before, "nothing has changed");
}

#[test]
fn every_route_requires_a_token() {
    let lab = Lab::new();
    let host = format!("Host: {}\r\n", lab.address);
    let upgrade = format!(
        "{host}Upgrade: websocket\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n"
    );
    let before = lab.state();
    let cookies = format!("{host}Cookie: ctrlz_page={}\r\n", lab.token);
    for target in lab.targets() {
        for lines in [&host, &upgrade, &cookies] {
            let reply = lab.try_with(&target, lines);
            let expected = match (target.path.as_str(), lines == &upgrade) {
                ("/healthz", false) => 204,
                ("/healthz" | "/v1/login", true) => 400,
                _ => 401,
            };
            assert_eq!(reply.status, expected, "{} {}", target.verb, target.path);
            if reply.status == 204 {
                assert!(reply.body.is_empty());
            }
        }
    }
    assert_eq!(lab.state(), before, "nothing has changed");
}

#[test]
fn every_http_method_requires_a_token() {
    let lab = Lab::new();
    let host = format!("Host: {}\r\n", lab.address);
    for path in ["/", "/v1/projects", "/session/s1/revert", "/v1/nothing", "/nothing"] {
        for verb in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            let reply = lab.ask(verb, path, &host, "");
            assert_eq!(reply.status, 401, "{verb} {path}");
            assert!(!reply.head.to_ascii_lowercase().contains("access-control-"));
        }
    }
}

#[test]
fn only_the_exact_token_is_accepted() {
    let lab = Lab::new();
    let (host, token) = (format!("Host: {}\r\n", lab.address), lab.token.clone());
    let with = |value: &str| format!("{host}Authorization: {value}\r\n");
    let attacks = [
        with(&format!("Bearer {}", "0".repeat(64))),
        with(&format!("Bearer {}", &token[..63])),
        with(&format!("Bearer {token}0")),
        with(&format!("Bearer {token} {token}")),
        with(&format!("Bearer  {token}")),
        with("Bearer "),
        with("Bearer"),
        with(&format!("Basic {token}")),
        with(&token),
        with(&format!("Bearer {}", token.to_uppercase())),
        format!("{host}Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n"),
        format!("{host}X-Token: {token}\r\nCookie: token={token}\r\n"),
    ];
    for lines in &attacks {
        let reply = lab.ask("GET", "/v1/projects", lines, "");
        assert_eq!(reply.status, 401, "{lines:?}");
        assert_eq!(reply.kind(), "unauthorized");
    }
    let reply = lab.ask("GET", &format!("/v1/projects?token={token}"), &host, "");
    assert_eq!(reply.status, 401, "a token in the URL is not accepted");
    assert_eq!(lab.ask("GET", "/v1/projects", &with(&format!("bearer {token}")), "").status, 200);
}

#[test]
fn wrong_tokens_are_refused_without_locking_out_the_right_one() {
    let lab = Lab::new();
    let wrong = format!("Host: {}\r\nAuthorization: Bearer x\r\n", lab.address);
    for _ in 0..120 {
        assert_eq!(lab.ask("GET", "/v1/projects", &wrong, "").status, 401);
    }
    assert_eq!(lab.get("/v1/projects").status, 200);
}

#[test]
fn a_foreign_host_header_is_refused_even_with_the_token() {
    let lab = Lab::new();
    let token = format!("Authorization: Bearer {}\r\n", lab.token);
    let port = lab.address.port();
    let host = |host: &str| format!("{token}Host: {host}\r\n");
    let own = host(&lab.address.to_string());
    check_refused(
        &lab,
        &[
            host("evil.com"),
            host(&format!("evil.com:{port}")),
            host(&format!("127.0.0.1.evil.com:{port}")),
            host(&format!("localhost.evil:{port}")),
            host("127.0.0.1"),
            host("localhost"),
            host(&format!("127.0.0.1:{}", port ^ 1)),
            host(&format!("0.0.0.0:{port}")),
            host(""),
            token.clone(),
            format!("{own}Host: {}\r\n", lab.address),
            format!("{own}X-Forwarded-Host: evil.com\r\n"),
            format!("{own}Forwarded: host=evil.com\r\n"),
        ],
        403,
        &[],
    );
    let absolute = format!("GET http://evil.com/v1/projects HTTP/1.1\r\n{own}\r\n");
    assert_eq!(
        lab.send(absolute.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes()).status,
        403
    );
    let own_name = host(&format!("LOCALHOST:{port}"));
    assert_eq!(lab.ask("GET", "/v1/projects", &own_name, "").status, 200);
}

#[test]
fn cross_origin_requests_are_refused_even_with_the_token() {
    let lab = Lab::new();
    let head = lab.head();
    let with = |line: &str| format!("{head}{line}\r\n");
    check_refused(
        &lab,
        &[
            with("Origin: https://evil.com"),
            with("Origin: null"),
            with(&format!("Origin: https://{}", lab.address)),
            with(&format!("Origin: http://127.0.0.1:{}", lab.address.port() ^ 1)),
            with("Origin: http://127.0.0.1"),
            with("Origin: "),
            with(&format!("Origin: http://{0}\r\nOrigin: http://{0}", lab.address)),
            with("Sec-Fetch-Site: cross-site"),
            with("Sec-Fetch-Site: same-site"),
            with("Sec-Fetch-Site: nonsense"),
            with("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors"),
        ],
        403,
        &[],
    );
    let own = with(&format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin", lab.address));
    assert_eq!(lab.ask("GET", "/v1/projects", &own, "").status, 200, "the page itself");
}

#[test]
fn a_cross_site_link_shows_only_the_sign_in_page() {
    let lab = Lab::new();
    let from_elsewhere = format!(
        "Host: {}\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: ",
        lab.address
    );
    let reply = lab.ask("GET", "/", &format!("{from_elsewhere}document\r\n"), "");
    assert_eq!(reply.status, 401);
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(String::from_utf8_lossy(&reply.body).contains("ctrlz ui"));
    assert_eq!(lab.ask("GET", "/", &format!("{from_elsewhere}iframe\r\n"), "").status, 403);
    let data = lab.ask("GET", "/v1/projects", &format!("{from_elsewhere}document\r\n"), "");
    assert_eq!(data.status, 403);
}

#[test]
fn cors_preflight_requests_are_refused() {
    let lab = Lab::new();
    for lines in [
        format!(
            "{}Origin: https://evil.com\r\nAccess-Control-Request-Method: POST\r\n",
            lab.head()
        ),
        format!("{}Access-Control-Request-Private-Network: true\r\n", lab.head()),
    ] {
        for target in lab.targets() {
            let reply = lab.ask("OPTIONS", &target.path, &lines, "");
            assert!([403, 405].contains(&reply.status), "{} {}", target.path, reply.head);
            check_headers(&target, &reply);
        }
    }
}

#[test]
fn only_json_content_types_are_accepted() {
    let lab = Lab::new();
    let before = lab.state();
    for target in lab.targets().iter().filter(|target| target.verb == "POST") {
        for kind in [
            "",
            "Content-Type: text/plain\r\n",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "Content-Type: multipart/form-data; boundary=x\r\n",
            "Content-Type: application/jsonp\r\n",
            "Content-Type: text/plain; application/json\r\n",
            "Content-Type: application/json; charset=utf-7\r\n",
            "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
        ] {
            let lines = format!("{}{kind}", lab.head());
            let reply = lab.ask("POST", &target.path, &lines, &target.body);
            assert_eq!(reply.status, 415, "{} {kind:?}", target.path);
            assert_eq!(reply.kind(), "not_json");
        }
    }
    assert_eq!(lab.state(), before, "nothing has changed");
}

#[test]
fn get_requests_change_nothing() {
    let lab = Lab::new();
    std::fs::write(lab.root().join("unrecorded.txt"), "by nobody\n").unwrap();
    let before = lab.state();
    for target in lab.targets().iter().filter(|target| target.verb == "GET") {
        if target.path.ends_with("/events") {
            continue;
        }
        for query in ["", "?hash=0000000000000000000000000000000000000000", "?paths=a.txt"] {
            let reply = lab.get(&format!("{}{query}", target.path));
            assert!(reply.status < 500, "{} {}", target.path, reply.head);
            check_headers(target, &reply);
        }
    }
    // A comparison with the current state would record a snapshot.
    let hash = lab.workspace().log(1).unwrap()[0].snapshot;
    for method in ["diff", "diff_full", "changes", "patch"] {
        let key = if method == "patch" { "hash" } else { "from" };
        let reply = lab.get(&lab.at(&format!("{method}?{key}={hash}")));
        assert_eq!((reply.status, reply.kind().as_str()), (400, "invalid_params"), "{method}");
    }
    assert_eq!(lab.state(), before, "nothing has changed");
}

#[test]
fn path_traversal_is_refused() {
    let lab = Lab::new();
    let before = lab.state();
    let hash = lab.workspace().log(1).unwrap()[0].snapshot;
    let project = lab.project.clone();
    for path in [
        "/../../etc/passwd".into(),
        "/%2e%2e/%2e%2e/etc/passwd".into(),
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd".into(),
        "/..%5c..%5cetc".into(),
        "/%252e%252e%252fetc".into(),
        "/index.html%00.js".into(),
        "//etc/passwd".into(),
        format!("/v1/projects/{project}/../{project}/status"),
        format!("/v1/projects/{project}%2fstatus"),
        "/v1/projects/%2e%2e/status".into(),
        "/v1/projects/..%2f..%2fetc/status".into(),
        "/session/..%2f..%2f/diff".into(),
        "/session/%00/diff".into(),
    ] {
        let reply = lab.get(&path);
        assert_eq!(reply.status, 400, "{path}: {}", reply.head);
    }
    for (path, status) in [
        ("/v1/projects/0000000000000000/status", 404),
        ("/v1/projects/etc/status", 404),
        ("/etc/passwd", 404),
        ("/assets/../index.html", 400),
    ] {
        assert_eq!(lab.get(path).status, status, "{path}");
    }
    for path in ["/etc/passwd", "../data/serve/token", "..", ".git/config", "a.txt/../../x"] {
        for method in ["show", "file", "get_file_at", "file_exists_at", "blame", "versions"] {
            let query = match method {
                "blame" | "versions" => format!("{method}?path={path}"),
                _ => format!("{method}?hash={hash}&path={path}"),
            };
            let reply = lab.get(&lab.at(&query));
            assert_eq!(reply.status, 400, "{query}: {}", reply.head);
            assert_eq!(reply.kind(), "not_a_tree_path", "{query}");
        }
    }
    assert_eq!(lab.state(), before, "nothing has changed");
}

#[test]
fn a_request_cannot_name_another_directory() {
    let lab = Lab::new();
    let before = lab.state();
    let link = lab.root().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    for place in [
        json!({ "dir": "/etc" }),
        json!({ "dir": "~" }),
        json!({ "dir": "../.." }),
        json!({ "dir": link }),
        json!({ "dir": lab.root() }),
        json!({ "data_dir": "/tmp" }),
        json!({ "store": "/tmp/store" }),
        json!({ "work_tree": "dir" }),
        json!({ "options": { "allow_dangerous_root": true } }),
        json!({ "options": { "ref_prefix": "refs/heads" } }),
        json!({ "options": { "threads": 1000 } }),
    ] {
        for method in ["status", "track", "timeline"] {
            let reply = lab.method(method, &place);
            assert_eq!((reply.status, reply.kind().as_str()), (400, "invalid_params"), "{place}");
        }
    }
    let fork = lab.method("fork", &json!({ "session": "s1", "into": "/tmp/elsewhere" }));
    assert_eq!((fork.status, fork.kind().as_str()), (403, "forbidden"));
    let add = lab.post("/v1/projects", &json!({ "path": "/etc" }));
    assert_eq!((add.status, add.kind().as_str()), (403, "forbidden"), "not over TCP");
    std::fs::remove_file(link).unwrap();
    assert_eq!(lab.state(), before, "nothing has changed");
}

#[test]
fn changing_files_requires_a_plan_and_removing_history_a_confirmation() {
    let lab = Lab::new();
    let before = lab.state();
    let hash = lab.workspace().log(10).unwrap().last().unwrap().snapshot.to_string();
    for (method, body) in [
        ("undo", json!({})),
        ("redo", json!({})),
        ("apply", json!({})),
        ("restore", json!({ "hash": hash, "exact": true })),
        ("revert", json!({ "patches": [{ "hash": hash, "files": ["a.txt"] }] })),
        ("recover", json!({ "path": "a.txt" })),
        ("revert_to", json!({ "message": "m1" })),
        ("unrevert", json!({ "plan": null })),
    ] {
        let reply = lab.method(method, &body);
        assert_eq!((reply.status, reply.kind().as_str()), (428, "plan_required"), "{method}");
    }
    for (method, body) in [
        ("gc", json!({ "keep_days": 0 })),
        ("gc", json!({ "keep_days": 0, "confirm": false })),
        ("release_session", json!({ "session": "s1", "confirm": "true" })),
        ("purge", json!({ "path": "a.txt" })),
    ] {
        let reply = lab.method(method, &body);
        assert_eq!((reply.status, reply.kind().as_str()), (428, "not_confirmed"), "{method}");
    }
    let made_up = json!({ "plan": "0000000000000000000000000000000000000000" });
    assert_eq!(lab.method("undo", &made_up).kind(), "stale_plan");
    assert_eq!(lab.method("apply", &made_up).kind(), "unknown_plan");
    assert_eq!(lab.state(), before, "nothing has changed");
}

/// A new method in the table is served automatically, so it must be reviewed and added here: can a
/// parameter name something outside the work tree, and does the method remove anything?
#[test]
fn every_served_method_has_been_reviewed() {
    let reviewed = "\
        apply begin_step blame changes checkpoint checkpoints commit_revert deeds deeds_diff \
        deeds_full diff diff_full du end_step file_exists_at fork gc get_file_at list_files log \
        lost note_failure open_steps operation patch plan_recover plan_redo plan_restore \
        plan_revert plan_revert_to plan_undo plan_unrevert purge recover redo release_session \
        repair restore revert revert_state revert_to sessions show snapshot_before status step \
        step_changes step_diff step_diff_full steps timeline track undo unrevert verify versions \
        walk_back";
    let mut served: Vec<&str> = ctrlz_api::METHODS.iter().map(|method| method.name).collect();
    served.sort_unstable();
    assert_eq!(served, reviewed.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn a_sign_in_code_works_once_and_the_cookie_gives_no_access_to_data() {
    let lab = Lab::new();
    let code = lab.post("/v1/codes", &json!({})).json();
    let lines = format!(
        "Host: {0}\r\nOrigin: http://{0}\r\nContent-Type: application/json\r\n",
        lab.address
    );
    let body = json!({ "code": code["code"] }).to_string();
    let reply = lab.ask("POST", "/v1/login", &lines, &body);
    assert_eq!(reply.status, 200, "{}", reply.head);
    let token = reply.json()["token"].as_str().unwrap().to_owned();
    let cookie = reply.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(&token), "the cookie is not the token");
    assert_eq!(lab.ask("POST", "/v1/login", &lines, &body).status, 401, "a code works once");

    let cookie = cookie.split(';').next().unwrap();
    let with_cookie = format!("Host: {}\r\nCookie: x=1; {cookie}\r\n", lab.address);
    let page = lab.ask("GET", "/", &with_cookie, "");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").unwrap().contains("script-src 'self';"));
    for target in lab.targets().iter().filter(|target| target.path.starts_with("/v1/projects")) {
        assert_eq!(lab.try_with(target, &with_cookie).status, 401, "{}", target.path);
    }
    let with_token = format!("Host: {}\r\nAuthorization: Bearer {token}\r\n", lab.address);
    assert_eq!(lab.ask("GET", "/v1/projects", &with_token, "").status, 200);
    let logout = format!("{with_token}Content-Type: application/json\r\n");
    assert_eq!(lab.ask("POST", "/v1/logout", &logout, "{}").status, 204);
    assert_eq!(lab.ask("GET", "/v1/projects", &with_token, "").status, 401);
}

#[test]
fn snapshot_content_is_never_served_as_a_page() {
    let lab = Lab::new();
    let evil = "<script>alert(1)</script>";
    std::fs::write(lab.root().join("evil.svg"), evil).unwrap();
    std::fs::write(lab.root().join("<img src=x onerror=alert(1)>.html"), evil).unwrap();
    let hash = lab.method("track", &json!({})).json()["hash"].as_str().unwrap().to_owned();
    for name in ["evil.svg", "%3Cimg%20src=x%20onerror=alert(1)%3E.html"] {
        let reply = lab.get(&lab.at(&format!("file?hash={hash}&path={name}")));
        assert_eq!(reply.body, evil.as_bytes());
        assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
        assert_eq!(reply.header("content-disposition"), Some("attachment"));
    }
    for path in [lab.at("timeline"), lab.at(&format!("show?hash={hash}&path=evil.svg"))] {
        let reply = lab.get(&path);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
}

/// The limits are those of the engine, as over RPC.
#[test]
fn long_names_are_refused_and_long_labels_cut() {
    let lab = Lab::new();
    let long = "L".repeat(5_000);
    for key in ["session", "message", "part", "tool", "who"] {
        let mut step = json!({ "session": "s9", "message": "m9" });
        step[key] = json!(long);
        let reply = lab.method("begin_step", &step);
        assert_eq!((reply.status, reply.kind().as_str()), (400, "invalid_params"), "{key}");
    }
    let parent = json!({ "session": "s9", "parent": { "session": long } });
    let reply = lab.method("begin_step", &parent);
    assert_eq!((reply.status, reply.kind().as_str()), (400, "too_long"));
    let step = json!({ "session": "s9", "message": "m9", "label": long });
    assert_eq!(lab.method("begin_step", &step).status, 200);
    let named = lab.method("checkpoint", &json!({ "label": long }));
    assert_eq!((named.status, named.kind().as_str()), (400, "too_long"));
}
