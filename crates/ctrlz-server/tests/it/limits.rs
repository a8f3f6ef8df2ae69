//! Limits on size, time and connections, and ambiguous requests.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::lab::{Lab, exchange};

#[test]
fn oversized_requests_are_refused_before_they_are_read() {
    let lab = Lab::new();
    let head = format!("{}Content-Type: application/json\r\n", lab.head());
    let path = lab.at("track");
    for (lines, statuses) in [
        ("Content-Length: 10000000000\r\n".to_owned(), vec![413]),
        (format!("Content-Length: {}\r\n", (8 << 20) + 1), vec![413]),
        ("Content-Length: 99999999999999999999999\r\n".into(), vec![400]),
        ("Content-Length: -1\r\n".into(), vec![400]),
        ("Content-Length: 2\r\nContent-Length: 3\r\n".into(), vec![400]),
        ("Transfer-Encoding: chunked\r\n".into(), vec![400]),
        ("Transfer-Encoding: gzip, chunked\r\n".into(), vec![400]),
        (format!("X-Large: {}\r\n", "x".repeat(1 << 20)), vec![431]),
        ("X-Many: x\r\n".repeat(100_000), vec![431]),
        ("X-Many: x\r\n".repeat(100), vec![431]),
    ] {
        let request = format!("POST {path} HTTP/1.1\r\n{head}{lines}Connection: close\r\n\r\n");
        let reply = exchange(lab.connect(), request.as_bytes());
        let about = &lines[..lines.len().min(60)];
        // The server may refuse the request and close while the client still writes.
        if let Some(reply) = reply {
            assert!(statuses.contains(&reply.status), "{about:?}: {}", reply.head);
        }
    }
    let deep = "[".repeat(1_000_000);
    let body = format!("{{\"paths\":{deep}}}");
    let reply = lab.ask("POST", &path, &head, &body);
    assert_eq!(reply.status, 400, "{}", reply.head);
    let long = "x".repeat(100 << 10);
    let request = format!("GET /v1/{long} HTTP/1.1\r\n{}\r\n", lab.head());
    let reply = exchange(lab.connect(), request.as_bytes());
    assert!(reply.is_none_or(|reply| [414, 431].contains(&reply.status)));
    assert_eq!(lab.get("/v1/projects").status, 200);
}

#[test]
fn a_truncated_body_changes_nothing() {
    let lab = Lab::new();
    let before = lab.state();
    let mut stream = lab.connect();
    let head = format!("{}Content-Type: application/json\r\nContent-Length: 100\r\n", lab.head());
    write!(stream, "POST {} HTTP/1.1\r\n{head}\r\n{{}}", lab.at("track")).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(lab.state(), before);
}

#[test]
fn incomplete_requests_and_idle_connections_time_out() {
    let lab = Lab::new();
    let head = format!("{}Content-Type: application/json\r\nContent-Length: 100\r\n", lab.head());
    let start = Instant::now();
    let (half_head, half_body, idle) = std::thread::scope(|scope| {
        let closed = |bytes: String| {
            let mut stream = lab.connect();
            stream.write_all(bytes.as_bytes()).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).ok();
            start.elapsed()
        };
        let half_head = scope.spawn(move || closed("GET /v1/projects HTTP/1.1\r\nHo".into()));
        let body = format!("POST {} HTTP/1.1\r\n{head}\r\n{{", lab.at("track"));
        let half_body = scope.spawn(move || closed(body));
        let whole = format!("GET /v1/projects HTTP/1.1\r\n{}\r\n", lab.head());
        let idle = scope.spawn(move || closed(whole));
        (half_head.join().unwrap(), half_body.join().unwrap(), idle.join().unwrap())
    });
    for (what, took) in [("head", half_head), ("body", half_body), ("idle", idle)] {
        assert!(took < Duration::from_secs(25), "{what} {took:?}");
    }
}

#[test]
fn slow_connections_do_not_block_other_clients() {
    let mut row = xtask::Row::of(13, "slow connections, in nobody's way");
    let count = xtask::sized(200, 1000);
    let lab = Lab::new();
    let slow: Vec<_> = (0..count)
        .map(|_| {
            let mut stream = lab.connect();
            stream.write_all(b"G").unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(lab.get("/v1/projects").status, 200);
    }
    row.add(slow.len() as u64);
    drop(slow);
}

/// Requests whose end two parsers could see in different places (request smuggling).
#[test]
fn requests_with_an_ambiguous_end_are_refused() {
    let lab = Lab::new();
    let before = lab.state();
    let head = format!("{}Content-Type: application/json\r\n", lab.head());
    let path = lab.at("track");
    let hidden =
        format!("POST {path} HTTP/1.1\r\n{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    std::fs::write(lab.root().join("new.txt"), "would be recorded\n").unwrap();
    let files = lab.state();
    for request in [
        // Both lengths, in both orders: the chunks end at once, the content length says otherwise.
        format!(
            "POST {path} HTTP/1.1\r\n{head}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
            hidden.len() + 5
        ),
        format!(
            "POST {path} HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "POST {path} HTTP/1.1\r\n{head}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "POST {path} HTTP/1.1\r\n{head}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!("GET /v1/projects HTTP/1.1\r\n{}X-Fold: a\r\n b\r\n\r\n", lab.head()),
        format!("GET /v1/projects HTTP/1.1\r\n{}Content-Length: 3\r\n\r\nabc", lab.head()),
        format!("GET /v1/projects HTTP/1.1\n{}\n", lab.head().replace("\r\n", "\n")),
        format!("GET /v1/projects HTTP/1.1\r\n{}X: a\nY: b\r\n\r\n", lab.head()),
        format!("GET /v1/projects HTTP/1.1\r\n{}X: a\rY: b\r\n\r\n", lab.head()),
        format!("GET /v1/projects HTTP/1.1\r\n{}X: a\0b\r\n\r\n", lab.head()),
    ] {
        let mut stream = lab.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        assert!(!answer.contains(" 200 OK"), "{request:?} -> {answer}");
        assert!(answer.matches("HTTP/1.1").count() <= 1, "{request:?} -> {answer}");
    }
    assert_eq!(lab.state().0, before.0, "nothing was recorded");
    assert_eq!(lab.state(), files);
}

#[test]
fn http2_websocket_and_tls_are_refused() {
    let lab = Lab::new();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let upgrade = format!(
        "GET /v1/projects HTTP/1.1\r\n{}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        lab.head()
    );
    let socket = format!(
        "GET /v1/projects HTTP/1.1\r\n{}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        lab.head()
    );
    for bytes in [preface, upgrade.into_bytes(), socket.into_bytes(), vec![0x16, 3, 1, 2, 0, 1]] {
        let mut stream = lab.connect();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
}

/// Waits until the other end closes, and returns how long that took.
fn closed_after(mut stream: std::net::TcpStream, start: Instant) -> Duration {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).ok();
    start.elapsed()
}

#[test]
fn connections_must_authenticate_soon_and_with_their_first_request() {
    let lab = Lab::new();
    let start = Instant::now();
    let took = closed_after(lab.connect(), start);
    assert!(took < Duration::from_secs(6), "{took:?}");
    let host = format!("Host: {}\r\n", lab.address);
    for path in ["/v1/projects", "/healthz"] {
        let mut stream = lab.connect();
        let start = Instant::now();
        write!(stream, "GET {path} HTTP/1.1\r\n{host}\r\n").unwrap();
        assert!(closed_after(stream, start) < Duration::from_secs(2), "{path}");
    }
    // An authenticated connection may stay open for longer.
    let mut known = lab.connect();
    let ask = format!("GET /v1/projects HTTP/1.1\r\n{}\r\n", lab.head());
    for _ in 0..2 {
        known.write_all(ask.as_bytes()).unwrap();
        let mut answer = [0; 12];
        known.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        std::thread::sleep(Duration::from_secs(3));
        known.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut rest = [0; 4096];
        assert!(known.read(&mut rest).is_ok_and(|count| count > 0), "the rest of the answer");
        known.set_read_timeout(None).unwrap();
    }
}

#[test]
fn unauthenticated_connections_do_not_block_authenticated_ones() {
    let lab = Lab::new();
    let oldest = lab.connect();
    let strangers: Vec<_> = (0..300).map(|_| lab.connect()).collect();
    let took = closed_after(oldest, Instant::now());
    assert!(took < Duration::from_secs(1), "a new connection closes the oldest: {took:?}");
    let asked = Instant::now();
    for _ in 0..20 {
        assert_eq!(lab.get("/v1/projects").status, 200);
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    drop(strangers);
}

#[test]
fn unauthenticated_requests_have_small_size_limits() {
    let lab = Lab::new();
    let head = format!("Host: {}\r\nContent-Type: application/json\r\n", lab.address);
    let body = format!("{{\"code\":\"{}\"}}", "x".repeat(2_000));
    let reply = lab.ask("POST", "/v1/login", &head, &body);
    assert_eq!(reply.status, 413, "{}", reply.head);
    let endless = format!("POST /v1/login HTTP/1.1\r\n{head}Content-Length: 8000000\r\n\r\n");
    let reply = exchange(lab.connect(), endless.as_bytes()).unwrap();
    assert_eq!(reply.status, 413, "{}", reply.head);
    for bytes in [66_000, 80_000] {
        let long = format!("{}X-Long: {}\r\n", lab.head(), "x".repeat(bytes));
        assert_eq!(lab.ask("GET", "/v1/projects", &long, "").status, 431, "{bytes}");
    }
    let twice =
        format!("{}Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n", lab.head());
    assert_eq!(lab.ask("GET", "/v1/projects", &twice, "").status, 403);
}
