//! Self-contained HTML pages: no network, no script, light and dark.

pub mod bars;
pub mod lines;

/// The page with this title, style sheet and body, which are HTML and CSS already.
#[must_use]
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n\
         <title>{title}</title>\n<style>{style}</style>\n{body}</html>\n"
    )
}

/// The text as HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
