//! Authentication: the token of programs, the codes that sign in pages, and signed-in pages.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::limits;
use crate::secret::Secret;

/// Secrets of one run of the server. All of them expire with it.
pub(crate) struct Entry {
    token: Secret,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Unused codes, oldest first.
    codes: VecDeque<(Secret, Instant)>,
    /// Signed-in pages, oldest first.
    pages: VecDeque<Page>,
}

/// Credentials that a page receives for a code.
#[derive(Clone)]
pub(crate) struct Page {
    /// Grants full access. It is sent in a header that only the page's own script can set.
    pub(crate) token: Secret,
    /// Grants access to the files of the page, which contain no user data. Browsers send cookies to
    /// every server on the same host whatever its port, so the cookie must not be worth stealing.
    pub(crate) cookie: Secret,
}

/// Access that the credentials of a request grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Full access.
    Everything,
    /// The files of the page.
    Page,
    /// No access.
    None,
}

impl Entry {
    pub(crate) fn new() -> io::Result<Entry> {
        Ok(Entry { token: Secret::new()?, open: Mutex::default() })
    }

    pub(crate) fn token(&self) -> &Secret {
        &self.token
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new code that signs in one page, once and within a short time.
    pub(crate) fn new_code(&self) -> io::Result<Secret> {
        let code = Secret::new()?;
        let mut open = self.open();
        open.codes.push_back((code.clone(), Instant::now()));
        if open.codes.len() > limits::CODES {
            open.codes.pop_front();
        }
        Ok(code)
    }

    /// Signs in a page. Returns `None` if the code is wrong, expired or used.
    pub(crate) fn sign_in(&self, code: &str) -> io::Result<Option<Page>> {
        let page = Page { token: Secret::new()?, cookie: Secret::new()? };
        let mut open = self.open();
        open.codes.retain(|(_, made)| made.elapsed() < limits::CODE_TIME);
        let found = open.codes.iter().position(|(known, _)| known.is(code.as_bytes()));
        let Some(at) = found else { return Ok(None) };
        open.codes.remove(at);
        open.pages.push_back(page.clone());
        if open.pages.len() > limits::CODES {
            open.pages.pop_front();
        }
        Ok(Some(page))
    }

    /// Signs out a page.
    pub(crate) fn sign_out(&self, token: &[u8]) {
        self.open().pages.retain(|page| !page.token.is(token));
    }

    /// Returns the access that these credentials grant.
    pub(crate) fn pass(&self, bearer: Option<&[u8]>, cookie: Option<&[u8]>) -> Pass {
        let open = self.open();
        let is_page_token = |guess: &[u8]| open.pages.iter().any(|page| page.token.is(guess));
        let is_cookie = |guess: &[u8]| open.pages.iter().any(|page| page.cookie.is(guess));
        match (bearer, cookie) {
            // Both are compared, so that timing does not reveal which one matches.
            (Some(bearer), _) if self.token.is(bearer) | is_page_token(bearer) => Pass::Everything,
            (None, Some(cookie)) if is_cookie(cookie) => Pass::Page,
            _ => Pass::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_works_once() {
        let entry = Entry::new().unwrap();
        let code = entry.new_code().unwrap();
        assert!(entry.sign_in("").unwrap().is_none());
        assert!(entry.sign_in(&code.reveal()[1..]).unwrap().is_none());
        let page = entry.sign_in(code.reveal()).unwrap().unwrap();
        assert!(entry.sign_in(code.reveal()).unwrap().is_none(), "a code works once");
        let token = page.token.reveal().as_bytes();
        assert_eq!(entry.pass(Some(token), None), Pass::Everything);
        entry.sign_out(token);
        assert_eq!(entry.pass(Some(token), None), Pass::None);
    }

    #[test]
    fn a_cookie_gives_no_access_to_data() {
        let entry = Entry::new().unwrap();
        let code = entry.new_code().unwrap();
        let page = entry.sign_in(code.reveal()).unwrap().unwrap();
        let cookie = page.cookie.reveal().as_bytes();
        assert_eq!(entry.pass(None, Some(cookie)), Pass::Page);
        assert_eq!(entry.pass(Some(cookie), None), Pass::None);
        assert_eq!(entry.pass(Some(b"wrong"), Some(cookie)), Pass::None, "the token is wrong");
        assert_eq!(entry.pass(None, Some(entry.token().reveal().as_bytes())), Pass::None);
    }

    #[test]
    fn only_the_newest_codes_are_valid() {
        let entry = Entry::new().unwrap();
        let first = entry.new_code().unwrap();
        for _ in 0..limits::CODES {
            entry.new_code().unwrap();
        }
        assert!(entry.sign_in(first.reveal()).unwrap().is_none());
    }
}
