"""Hook of mkdocs: shows links to files outside of docs/, which the site does not contain, as paths, removes the
attributes that rustdoc reads behind the language of a code block, and keeps short code such as `--mtu` in one line."""

import re

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\((\.\./[^)\s]+)\)")
SHORT = re.compile(r"<code>(?=[^<]{1,24}</code>)")
ATTRIBUTES = re.compile(r"^(```[a-z]+),[a-z_,]+$", re.MULTILINE)


def on_page_markdown(markdown, page, **_):
    outside = "../" * (page.file.src_uri.count("/") + 1)

    def shown(link):
        text, target = link.groups()
        if not target.startswith(outside):
            return link.group(0)
        path = target.removeprefix(outside).partition("#")[0]
        name = text.strip("`")
        return text if path.endswith(name) else f"{text} (`{path}`)"

    return LINK.sub(shown, ATTRIBUTES.sub(r"\1", markdown))


def on_page_content(html, **_):
    return SHORT.sub('<code class="short">', html)
