"""The reference of the C API as pages in Markdown, from the comments and declarations of the public headers.

Usage: c_reference.py --check        list the public declarations without a comment; exit status 1 if there are any
       c_reference.py FOLDER         write the pages, FOLDER/NAME.md

docs/site/hooks.py adds the same pages to the site, as c/NAME.md. A declaration is documented by the comment above it, by one
after its opening brace or its end, or by the comment of the declaration on the line before: a group is declared without blank lines.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
API, OPERATOR, STATUS = "runtime/api/ampc.h", "ir/ops/ampc_operator.h", "ir/base/ampc_status.h"
HEADERS = (API, OPERATOR, STATUS)
SKIPPED = re.compile(r'#|extern "C"|\}$')
SECTION = re.compile(r"/\* ---- (.*?) -+ \*/$")
# Of a comment: what is in backticks, documents, manual pages, headers, identifiers, and keys such as opt/SLOT/NAME.
NAMES = re.compile(r"`[^`]*`|\bdocs/[a-z-]+\.md\b|\b[a-z-]+\([1-9]\)|\bampc\w*\.h\b|[.*\w/]*\w*_\w+(?:/\w+)*|\b[a-z]+(?:/[A-Z]+)+\b|\b(?:state|rng)/\w+|\{\..*?\}")


class Entry:
    """A group of declarations with one comment. `line` is that of the first declaration."""

    def __init__(self, header, line, section, comment):
        self.header, self.line, self.section, self.comment = header, line, section, comment
        self.names, self.code = [], []

    def is_type(self):
        return self.code[0].startswith(("typedef", "enum"))


def declared_names(code):
    """The names that a declaration makes public."""
    if code.startswith("enum"):
        return re.findall(r"\b(AMPC_\w+) *=", code)
    if code.startswith("typedef") and "{" in code:
        return [re.search(r"\} *(\w+);$", code).group(1)]
    if code.startswith("typedef") and "(" not in code:
        return [re.search(r"(\w+);$", code).group(1)]
    return [re.search(r"\b(ampc_\w+)\(", code.replace("\n", " ")).group(1)]


def read_comment(lines, at):
    """The text of the comment that begins at this line, without its margin, and the line after it."""
    end = at
    while "*/" not in lines[end]:
        end += 1
    text = "\n".join(lines[at : end + 1]).strip()[2:-2]
    return "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in text.strip().split("\n")), end + 1


def read_header(header):
    """The comment at the head of a header, and its entries."""
    lines = (ROOT / header).read_text().split("\n")
    head, at = read_comment(lines, 0)
    entries, section, comment, joined = [], "", "", None
    while at < len(lines):
        line = lines[at]
        titled = SECTION.match(line)
        if titled:
            section, comment, joined, at = titled.group(1), "", None, at + 1
        elif line.startswith("/*"):
            comment, at = read_comment(lines, at)
            joined = None
        elif not line or SKIPPED.match(line):
            while lines[at].endswith("\\"):
                at += 1
            at += 1
            comment, joined = "", None
        else:
            start, depth = at, 0
            while True:
                bare = re.sub(r"/\*.*?(\*/|$)", "", lines[at])
                depth += bare.count("{") - bare.count("}")
                at += 1
                if depth == 0 and bare.rstrip().endswith(";"):
                    break
            code = "\n".join(lines[start:at])
            inside = re.match(r"[^\n]*(?:\{ /\* (.*?) \*/\n|; /\* (.*?) \*/$)", code)
            if not joined:
                joined = Entry(header, start + 1, section, comment or (inside.group(1) or inside.group(2) if inside else ""))
                entries.append(joined)
            joined.names += declared_names(code)
            joined.code.append(re.sub(r"\n {9}", "\n", code[9:]) if code.startswith("AMPC_API ") else code)
    return head, entries


def prose(text, places):
    """A line of a comment in Markdown: escaped, with links to declarations and documents."""

    def link(found):
        word = found.group(0)
        if word.startswith("`"):
            name = word.strip("`")
            return f"[{word}]({places[name]})" if name in places else word
        if word.startswith("docs/"):
            return f"[{word[5:]}](../{word[5:]})"
        return f"[`{word}`]({places[word]})" if word in places else f"`{word}`"

    out, at = "", 0
    for found in NAMES.finditer(text):
        out += re.sub(r"([*_<\[\]])", r"\\\1", text[at : found.start()]) + link(found)
        at = found.end()
    return out + re.sub(r"([*_<\[\]])", r"\\\1", text[at:])


def markdown(comment, places):
    """A comment in Markdown. A paragraph that begins with four spaces is code."""
    out = []
    for block in comment.split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("    "):
            code = "\n".join(line[4:] for line in lines)
            out.append(f"```{'c' if ';' in code else 'text'}\n{code}\n```")
            continue
        text = ""
        for line in lines:
            bullet = line.startswith("  - ")
            text += ("\n\n- " if bullet else "\n    " if line.startswith("    ") else "\n") + prose(line.strip()[2 * bullet :], places)
        out.append(text.strip("\n"))
    return "\n\n".join(out)


def status_table(places):
    """The table of AMPC_STATUS_MAP."""
    rows = re.findall(r'X\((\w+), (\d+), "(.*?)"\)', (ROOT / STATUS).read_text())
    return "".join(
        [f'| <a id="{rows[0][0]}"></a>status | exit code of the programs | meaning |\n|---|---|---|\n']
        + [f'| `{name}`{"" if i == 0 else anchor(name)} | {code} | {prose(text, places)} |\n' for i, (name, code, text) in enumerate(rows)]
    )


def sentence(text):
    return text[:1].upper() + text[1:]


def anchor(name):
    return f'<a id="{name}"></a>'


def pages():
    """The pages: {name: Markdown}."""
    (head, entries), (operator_head, operator_entries), (status_head, status_entries) = map(read_header, HEADERS)
    sections = list(dict.fromkeys(e.section for e in entries if e.section))
    page_of = {title: title.split(":")[0] for title in sections}

    def page(entry):
        if entry.header == API:
            return page_of.get(entry.section, "index")
        return "operators" if entry.header == OPERATOR else "status"

    everything = entries + operator_entries + status_entries
    places = {name: f"{page(e)}.md#{name}" for e in everything for name in e.names}
    for name in re.findall(r"X\((AMPC_\w+)", (ROOT / STATUS).read_text()):
        places[name] = f"status.md#{name}"
    functions = [(e.names[i], e.code[i]) for e in everything if not e.is_type() for i in range(len(e.names))]

    def render(entry):
        names = ", ".join(f"`{name}`" for name in entry.names)
        more = "".join(anchor(name) for name in entry.names[1:])
        users = [f for f, code in functions if any(re.search(rf"\b{n}\b", code) for n in entry.names)]
        out = f"### {names} {{#{entry.names[0]}}}\n\n{more}\n\n```c\n" + "\n".join(entry.code) + "\n```\n\n"
        out += markdown(sentence(entry.comment), places) + "\n\n"
        if entry.is_type() and 0 < len(users) <= 8:
            out += "Used by " + ", ".join(f"[`{f}`]({places[f]})" for f in users) + ".\n\n"
        return out

    def body(some):
        return "".join(map(render, some))

    def table(some):
        rows = ""
        for entry in some:
            first = re.match(r"(?:\([^)]*\)|[^(])*?(?=[:;]\s|(?<=\.)\s|$)", re.sub(r"\s+", " ", entry.comment)).group(0)
            rows += "| " + "<br>".join(f"[`{n}`](#{n})" for n in entry.names) + f" | {prose(sentence(first), places)} |\n"
        return f"| | |\n|---|---|\n{rows}\n"

    made = {}
    first, rest = head.split("\n\n", 1)
    title, summary = first.split(" - ", 1)
    overview = "".join(
        f"| [{page_of[s]}]({page_of[s]}.md) | "
        + ", ".join(f"[`{n}`]({places[n]})" for e in entries if e.section == s and not e.is_type() for n in e.names)
        + " |\n"
        for s in sections
    )
    made["index"] = (
        f"# {title}\n\n{markdown(sentence(summary), places)}\n\n"
        "These pages are made from the header that is installed. [The C API](../api.md) shows how its parts fit together.\n\n"
        f"| | functions |\n|---|---|\n{overview}| [operators](operators.md) | "
        + ", ".join(f"[`{n}`]({places[n]})" for e in operator_entries if not e.is_type() for n in e.names)
        + f" |\n| [status](status.md) | what functions return |\n\n## Example and rules\n\n{markdown(rest, places)}\n\n"
        "## Common declarations\n\n" + body(e for e in entries if not e.section)
    )
    for section in sections:
        some = [e for e in entries if e.section == section]
        name, _, more = section.partition(": ")
        made[page_of[section]] = (
            f"# {name.capitalize()}\n\n" + (f"{sentence(more)}.\n\n" if more else "") + table(some) + body(some)
        )
    first, rest = operator_head.split("\n\n", 1)
    made["operators"] = (
        f"# ampc_operator.h\n\n{markdown(sentence(first.split(' - ', 1)[1]), places)}\n\n{markdown(rest, places)}\n\n"
        + table(operator_entries) + body(operator_entries)
    )
    made["status"] = (
        f"# ampc_status.h\n\n{markdown(sentence(status_head.split(' - ', 1)[1]), places)}\n\n" + status_table(places)
        + "\n" + body(status_entries)
    )
    return made


def main():
    if sys.argv[1:] == ["--check"]:
        missing = [e for h in HEADERS for e in read_header(h)[1] if not e.comment]
        for entry in missing:
            print(f"{entry.header}:{entry.line}: {', '.join(entry.names)} has no comment")
        return bool(missing)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / f"{name}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
