//! Who may come in: the token of programs, the codes that sign a page in, and signed-in pages.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::limits;
use crate::secret::Secret;

/// The secrets of one run of the server. All of them end with it.
pub(crate) struct Entry {
    token: Secret,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Codes that nobody has used, oldest first.
    codes: VecDeque<(Secret, Instant)>,
    /// Pages that are signed in, oldest first.
    pages: VecDeque<Page>,
}

/// What a page gets for a code.
#[derive(Clone)]
pub(crate) struct Page {
    /// Opens everything; travels in a header that only the page's own script can set.
    pub(crate) token: Secret,
    /// Opens the files of the page, which hold nothing of the user's. Browsers hand cookies to any
    /// server on the same host whatever its port, so this must not be worth having.
    pub(crate) cookie: Secret,
}

/// What a request showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Everything.
    Everything,
    /// The files of the page.
    Page,
    /// Nothing.
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

    /// A code that signs one page in, once and soon.
    pub(crate) fn new_code(&self) -> io::Result<Secret> {
        let code = Secret::new()?;
        let mut open = self.open();
        open.codes.push_back((code.clone(), Instant::now()));
        if open.codes.len() > limits::CODES {
            open.codes.pop_front();
        }
        Ok(code)
    }

    /// Signs a page in; `None` if the code is wrong, too old, or used.
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

    /// Signs a page out.
    pub(crate) fn sign_out(&self, token: &[u8]) {
        self.open().pages.retain(|page| !page.token.is(token));
    }

    /// What these credentials open.
    pub(crate) fn pass(&self, bearer: Option<&[u8]>, cookie: Option<&[u8]>) -> Pass {
        let open = self.open();
        let is_page_token = |guess: &[u8]| open.pages.iter().any(|page| page.token.is(guess));
        let is_cookie = |guess: &[u8]| open.pages.iter().any(|page| page.cookie.is(guess));
        match (bearer, cookie) {
            // Both are looked at, so that the time it takes does not tell them apart.
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
        assert!(entry.sign_in(code.reveal()).unwrap().is_none(), "used");
        let token = page.token.reveal().as_bytes();
        assert_eq!(entry.pass(Some(token), None), Pass::Everything);
        entry.sign_out(token);
        assert_eq!(entry.pass(Some(token), None), Pass::None);
    }

    #[test]
    fn a_cookie_opens_no_data() {
        let entry = Entry::new().unwrap();
        let code = entry.new_code().unwrap();
        let page = entry.sign_in(code.reveal()).unwrap().unwrap();
        let cookie = page.cookie.reveal().as_bytes();
        assert_eq!(entry.pass(None, Some(cookie)), Pass::Page);
        assert_eq!(entry.pass(Some(cookie), None), Pass::None);
        assert_eq!(entry.pass(Some(b"wrong"), Some(cookie)), Pass::None, "a wrong token is wrong");
        assert_eq!(entry.pass(None, Some(entry.token().reveal().as_bytes())), Pass::None);
    }

    #[test]
    fn only_the_newest_codes_are_good() {
        let entry = Entry::new().unwrap();
        let first = entry.new_code().unwrap();
        for _ in 0..limits::CODES {
            entry.new_code().unwrap();
        }
        assert!(entry.sign_in(first.reveal()).unwrap().is_none());
    }
}
