"""Hooks of mkdocs (see mkdocs.yml): pages that are not in docs/, and links that leave it.

A document links to other files of the tree by their relative paths, as in a checkout. Here, documents outside of docs/ become
pages of the site, and every other text file that is linked becomes a page with its contents, so that the site needs nothing
but itself, and a link to a file that does not exist fails the build.
"""

import pathlib
import posixpath
import re
import subprocess
import sys

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))
sys.dont_write_bytecode = True
import c_reference  # noqa: E402

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))|(<img [^>]*?src=\"|srcset=\")([^\"]+)(\")")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
INDEX = "index.md"  # README.md of the tree


def documents():
    """The documents outside of docs/: {name in the site: path in the tree}."""
    return {INDEX if path.name == "README.md" else path.name: path.name for path in ROOT.glob("*.md")}


def manual_page(path):
    """A manual page in HTML with headings in Markdown, from which mkdocs makes the table of contents."""
    html = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", path], check=True, capture_output=True, text=True).stdout
    body = re.search(r'<div class="manual-text">(.*)</div>\s*<table', html, re.S).group(1)
    body = re.sub(r"</?section[^>]*>|<a class=\"permalink\"[^>]*>|</a>| (?:id|class)=\"[^\"]*\"", "", body)
    body = re.sub(r"<h([12])>(.*?)</h\1>", lambda m: f"\n\n{'#' * (int(m.group(1)) + 1)} {' '.join(m.group(2).split()).capitalize()}\n\n", body, flags=re.S)
    return f"# {path.stem}({path.suffix[1:]})\n\n{body}"


def linked_file(path):
    kind = {".h": "c", ".c": "c", ".def": "c", ".py": "python"}.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT)}\n\n```{kind}\n{path.read_text()}\n```\n"


def on_files(files, config):
    def add(name, content):
        files.append(File.generated(config, name, content=content))

    for name, path in documents().items():
        add(name, (ROOT / path).read_text())
    for name, text in c_reference.pages().items():
        add(f"c/{name}.md", text)
    for path in sorted(ROOT.glob("docs/*.[15]")):
        add(f"man/{path.stem}.md", manual_page(path))
    sources = {}
    for file in list(files):
        if file.src_uri.endswith(".md"):
            for _, target in links(file.src_uri, file.content_string):
                path = tree_path(file.src_uri, target)
                if path and path not in sources and (ROOT / path).is_file():
                    sources[path] = True
                    add(f"source/{path}.md", linked_file(ROOT / path))
    config.extra["sources"] = sources
    return files


def links(name, text):
    for found in LINK.finditer(FENCE.sub("", text)):
        yield found, (found.group(2) or found.group(5)).partition("#")[0]


def tree_path(name, target):
    """The path in the tree that a link of this page leads to, if that is not in the site itself."""
    if not target or re.match(r"[a-z]+:", target) or name.startswith(("c/", "man/")):
        return None
    base = documents().get(name)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(base if base else f"docs/{name}"), target))
    return None if path in documents().values() or is_in_site(path) else path


def is_in_site(path):
    return path.startswith("docs/") and path.endswith((".md", ".svg", ".png")) and path != "docs/README.md"


def on_page_markdown(markdown, page, config, files):
    """Rewrites the links of a document to names in the site."""
    name = page.file.src_uri
    base = documents().get(name, f"docs/{name}")
    by_path = {path: site for site, path in documents().items()}

    def rewritten(found):
        before, link, after = found.group(1) or found.group(4), found.group(2) or found.group(5), found.group(3) or found.group(6)
        target, _, anchor = link.partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(base), target))
        if path in by_path:
            site = by_path[path]
        elif is_in_site(path):
            site = path[len("docs/") :]
        elif path in config.extra["sources"]:
            site = f"source/{path}.md"
        else:
            raise PluginError(f"{base}: the link {link} leads nowhere")
        relative = posixpath.relpath(site, posixpath.dirname(name) or ".")
        return before + relative + ("#" + anchor if anchor else "") + after

    if name.startswith(("c/", "man/", "source/")):
        return markdown
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(rewritten, markdown[at : fence.start()]), fence.group(0)]
        at = fence.end()
    return "".join(parts) + LINK.sub(rewritten, markdown[at:])
