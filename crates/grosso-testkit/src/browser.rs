//! Checks of pages in a real browser: headless Chromium, if it is installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio, id},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Opens a page on a narrow screen and on a wide one, light and dark, and returns its defects: console messages, text
/// smaller than 11 pixels, text cut off at the sides, and a dark page that looks the same as the light one. If no
/// browser is installed, prints a note and returns `None`.
///
/// # Panics
/// Panics if the browser does not print the page.
#[must_use]
pub fn defects(page: &str) -> Option<Vec<String>> {
    let Some(browser) = find() else {
        println!("skipped: cannot open the page in a browser, because Chromium is not installed");
        return None;
    };
    let folder = Folder::new();
    let mut found = Vec::new();
    for width in WIDTHS {
        let papers = SCHEMES.map(|(name, scheme)| {
            let shown = show(&browser, &folder, page, (width, scheme));
            let (paper, defects) = shown.split_last().expect("the print style comes last");
            found.extend(defects.iter().map(|what| format!("{width} pixels, {name}: {what}")));
            paper.clone()
        });
        if papers[0] == papers[1] {
            found.push(format!("{width} pixels: light and dark have the same {}", papers[0]));
        }
    }
    Some(found)
}

/// Returns the path of an installed browser.
fn find() -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let mut programs = PROGRAMS.iter().flat_map(|name| folders.iter().map(move |f| f.join(name)));
    programs.find(|program| program.is_file())
}

/// Displays the page at this width in this color scheme, and returns the console output followed by the result of the
/// probe.
fn show(browser: &Path, folder: &Folder, page: &str, (width, scheme): (u32, u32)) -> Vec<String> {
    // A browser window cannot be as narrow as the narrow screen, so the page is displayed inside another page.
    let probed = page.replace("</html>", &format!("{PROBE}</html>"));
    let quoted = probed.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!doctype html><meta charset=\"utf-8\">\n<iframe style=\"width:{width}px;height:4000px;border:0\" \
         srcdoc=\"{quoted}\"></iframe>\n<pre id=\"found\">the probe did not run</pre>\n"
    );
    let file = folder.0.join("page.html");
    fs::write(&file, frame).expect("the page is written");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--window-size=1600,4200", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.0.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .expect("the browser starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    let marked =
        text.rsplit_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = marked.unwrap_or_else(|| panic!("the browser printed no page: {errors}"));
    let console = errors.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned);
    console.chain(found.lines().map(str::to_owned)).collect()
}

/// A directory that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("grosso-browser-{}-{number}", id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The browser may still be writing to the directory; leftover files are harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names under which the browser may be installed.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Page widths in pixels: a narrow screen and a wide one.
const WIDTHS: [u32; 2] = [375, 1280];
/// Color schemes with the numbers that the browser uses for them.
const SCHEMES: [(&str, u32); 2] = [("light", 1), ("dark", 0)];
/// Script that reports problems of the inner page to the outer one, followed by the background color. Text in a
/// scrollable element does not count as truncated.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  const found = [];
  const width = document.documentElement.clientWidth;
  const scrolls = (element) => {
    for (let e = element; e && e !== document.body; e = e.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true;
    return false;
  };
  for (const e of document.querySelectorAll("body *")) {
    if (["script", "style", "title"].includes(e.tagName.toLowerCase())) continue;
    if (![...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const words = e.textContent.trim().slice(0, 30);
    const scale = e.getScreenCTM ? e.getScreenCTM().a : 1;
    const size = parseFloat(getComputedStyle(e).fontSize) * scale;
    if (size < 11) found.push("text of " + size.toFixed(1) + " pixels: " + words);
    const at = e.getBoundingClientRect();
    if (!scrolls(e) && (at.left < -1 || at.right > width + 1)) found.push("cut off: " + words);
    const drawing = e.ownerSVGElement && e.ownerSVGElement.getBoundingClientRect();
    if (drawing && (at.left < drawing.left - 1 || at.right > drawing.right + 1))
      found.push("outside its drawing: " + words);
  }
  if (document.documentElement.scrollWidth > width + 1) found.push("the page is wider than the screen");
  found.push("paper: " + getComputedStyle(document.body).backgroundColor);
  parent.document.getElementById("found").textContent = found.join("\n");
});
</script>"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defects_of_a_page_are_found() {
        let page = |style: &str, body: &str| {
            format!(
                "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>a page</title>\n\
                 <style>:root {{ color-scheme: light dark; --paper: #fff; }}\n{style}\n\
                 body {{ background: var(--paper); }}</style>\n{body}\n</html>\n"
            )
        };
        let dark = "@media (prefers-color-scheme: dark) { :root { --paper: #000; } }";
        let Some(found) = defects(&page(dark, "<p>words</p>")) else { return };
        assert_eq!(found, [""; 0]);
        let wrong = page(
            "",
            "<p style=\"font-size: 9px\">small</p><p style=\"width: 900px\">wide</p>\
             <svg viewBox=\"0 0 800 20\" style=\"width: 100%\"><text x=\"790\" y=\"15\">beyond</text></svg>\
             <script>nobody();</script>",
        );
        let found = defects(&wrong).unwrap_or_default();
        let is_said = |what: &str| found.iter().any(|line| line.contains(what));
        for what in [
            "375 pixels, light: text of 9.0 pixels: small",
            "375 pixels, dark: cut off: wide",
            "375 pixels, light: outside its drawing: beyond",
            "1280 pixels, dark: outside its drawing: beyond",
            "the page is wider than the screen",
            "nobody is not defined",
            "light and dark have the same paper",
        ] {
            assert!(is_said(what), "{what}: {found:#?}");
        }
        assert!(!is_said("1280 pixels, light: cut off: wide"), "{found:#?}");
    }
}
