//! Self-contained HTML pages in light and dark colors, without scripts or network access.

pub mod bars;
pub mod lines;
pub mod setup;

/// Creates a page with a title, a style sheet and a body. The arguments are inserted as they are, so they must be valid
/// HTML and CSS.
#[must_use]
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n\
         <title>{title}</title>\n<style>{style}</style>\n{body}</html>\n"
    )
}

/// Escapes text for HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
