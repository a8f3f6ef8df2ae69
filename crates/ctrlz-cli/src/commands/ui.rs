//! `ctrlz ui`: opens the web UI, signed in.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ctrlz_server::{connect, files_in};
use serde_json::{Value, json};

use super::{Done, serve};
use crate::args::GlobalArgs;
use crate::config::{self, Environment};
use crate::failure::Failure;
use crate::render;

/// Open the timeline in a browser
///
/// Uses the running server, or runs one until Ctrl-C. The printed link signs in one browser, once
/// and within two minutes. Without it, the page shows nothing.
#[derive(clap::Args, Debug)]
pub(crate) struct UiArgs {
    /// Only print the link
    #[arg(long)]
    no_open: bool,
    /// Listen on this port of 127.0.0.1 if no server is running; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

pub(crate) fn run(
    args: &UiArgs,
    global: &GlobalArgs,
    environment: Environment,
) -> Result<Done, Failure> {
    let settings = config::decide(global, &environment)?;
    let files = files_in(&settings.options.data_dir);
    if let Some(link) = running(&files, &settings.root)? {
        show(&link, &files, args.no_open)?;
        return Ok(Done::Complete);
    }
    let signals = serve::catch_signals()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let server = serve::bind(&[], Some(address), global, environment)?;
    let code = server.new_code().map_err(Failure::Output)?;
    let link = link(server.url().unwrap_or_default(), code.reveal());
    show(&link, &files, args.no_open)?;
    render::note("ctrlz: Ctrl-C ends the server");
    serve::answer(server, signals)
}

/// Returns the sign-in link. The code is in the fragment, which browsers do not send.
fn link(url: &str, code: &str) -> String {
    format!("{url}#code={code}")
}

/// Returns a link to the running server, or `None` if there is none. Fails if it has no page.
fn running(files: &Path, root: &Path) -> Result<Option<String>, Failure> {
    let ask = |path: &str, body: &Value| connect(files).and_then(|stream| post(stream, path, body));
    let root = ctrlz_api::WirePath::from(root);
    if ask("/v1/projects", &json!({ "path": root })).is_none() {
        return Ok(None);
    }
    let code = ask("/v1/codes", &json!({})).unwrap_or_default();
    match (code["url"].as_str(), code["code"].as_str()) {
        (Some(url), Some(code)) => Ok(Some(link(url, code))),
        _ => Err(Failure::NoPage),
    }
}

/// Sends one request over the Unix socket and returns the response, or `None` if it failed.
fn post(mut stream: UnixStream, path: &str, body: &Value) -> Option<Value> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| serde_json::from_str(body).ok())?
}

/// Prints the link, and opens it in a browser.
fn show(link: &str, files: &Path, no_open: bool) -> Result<(), Failure> {
    render::note(&format!("ctrlz: {link}"));
    if no_open {
        return Ok(());
    }
    // Command lines are visible to all users, so the link is passed in a file.
    let file = leave_link(link, files)?;
    #[expect(clippy::disallowed_methods, reason = "the user asked for a browser")]
    let opened = Command::new("xdg-open")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if opened.is_err() {
        render::note("ctrlz: no browser was found; open the link yourself");
    }
    Ok(())
}

/// Writes a page that redirects to the link and that only the user can read.
fn leave_link(link: &str, files: &Path) -> Result<PathBuf, Failure> {
    let path = files.join("open.html");
    let write = || {
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let page = format!(
            "<!doctype html><meta charset=utf-8><title>ctrlz</title>\
             <meta http-equiv=refresh content=\"0; url={link}\"><a href=\"{link}\">ctrlz</a>\n"
        );
        file.write_all(page.as_bytes())
    };
    write().map_err(|error| Failure::file("write", &path, error))?;
    Ok(path)
}
