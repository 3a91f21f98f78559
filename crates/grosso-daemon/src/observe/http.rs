//! Parses HTTP requests, and creates the responses for `/metrics` and `/healthz`.

use super::PathReading;
use crate::name::harmless;

/// A parsed HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A request for the counters.
    Metrics { head: bool },
    /// A request for the health status: whether there are data paths, and whether they all respond.
    Health { head: bool },
    /// A request for a page that does not exist, or with a method that is not supported.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed,
    TooLong,
    NotFound { head: bool },
    Method,
}

/// Parses the request in `bytes`; returns `None` if the request is incomplete.
pub(super) fn wanted(bytes: &[u8], is_full: bool) -> Option<Wanted> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if is_full => return Some(Wanted::Refused(Refusal::TooLong)),
        Ok(httparse::Status::Partial) => return None,
        Err(httparse::Error::TooManyHeaders) => return Some(Wanted::Refused(Refusal::TooLong)),
        Err(_) => return Some(Wanted::Refused(Refusal::Malformed)),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(Wanted::Refused(Refusal::Method)),
    };
    let target = request.path.unwrap_or_default();
    Some(match target.split(['?', '#']).next() {
        Some("/metrics") => Wanted::Metrics { head },
        Some("/healthz") => Wanted::Health { head },
        _ => Wanted::Refused(Refusal::NotFound { head }),
    })
}

/// Returns the response with the page of counters.
pub(super) fn metrics(page: &str, head: bool) -> Vec<u8> {
    response("200 OK", "text/plain; version=0.0.4; charset=utf-8", "", page, head)
}

/// Returns the health response: whether there are data paths and no path is stuck.
pub(super) fn health(paths: &[PathReading], head: bool) -> Vec<u8> {
    let stuck = paths.iter().filter(|path| path.stuck.is_some());
    let stuck: Vec<String> = stuck.map(|path| harmless(&path.name).into_owned()).collect();
    let (status, body) = match (paths.is_empty(), stuck.is_empty()) {
        (false, true) => ("200 OK", "ok\n".to_owned()),
        (true, _) => ("503 Service Unavailable", "no data path is running\n".to_owned()),
        (false, false) => ("503 Service Unavailable", format!("stuck: {}\n", stuck.join(", "))),
    };
    response(status, PLAIN, "", &body, head)
}

/// Returns the response to a refused request.
pub(super) fn refused(refusal: Refusal) -> Vec<u8> {
    let (status, extra, body) = match refusal {
        Refusal::Malformed => ("400 Bad Request", "", "not an HTTP request\n"),
        Refusal::TooLong => {
            ("431 Request Header Fields Too Large", "", "the request is too long\n")
        }
        Refusal::NotFound { .. } => {
            ("404 Not Found", "", "available pages: /metrics and /healthz\n")
        }
        Refusal::Method => ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "use GET\n"),
    };
    let head = matches!(refusal, Refusal::NotFound { head: true });
    response(status, PLAIN, extra, body, head)
}

fn response(status: &str, content_type: &str, extra: &str, body: &str, head: bool) -> Vec<u8> {
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n{extra}\r\n",
        body.len()
    );
    if !head {
        response.push_str(body);
    }
    response.into_bytes()
}

const PLAIN: &str = "text/plain; charset=utf-8";
/// Maximum number of header fields of a request; a scraper sends five.
const HEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_understood_when_they_are_whole() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(wanted(&whole[..end], false), None, "{end}");
        }
        assert_eq!(wanted(whole, false), Some(Wanted::Metrics { head: false }));
        let of = |text: &str| wanted(text.as_bytes(), false);
        assert_eq!(of("HEAD /healthz HTTP/1.0\r\n\r\n"), Some(Wanted::Health { head: true }));
        for (text, refusal) in [
            ("GET / HTTP/1.1\r\n\r\n", Refusal::NotFound { head: false }),
            ("HEAD / HTTP/1.1\r\n\r\n", Refusal::NotFound { head: true }),
            ("POST /metrics HTTP/1.1\r\n\r\n", Refusal::Method),
            ("\u{1}\u{2}\u{3}\r\n\r\n", Refusal::Malformed),
        ] {
            assert_eq!(of(text), Some(Wanted::Refused(refusal)), "{text:?}");
        }
        let long = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(of(&long), Some(Wanted::Refused(Refusal::TooLong)));
        assert_eq!(wanted(b"GET /aaaaa", true), Some(Wanted::Refused(Refusal::TooLong)));
    }
}
