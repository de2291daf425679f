# documents.awk - copies Markdown documents for an installation; a link to a file that is not installed becomes its text.
#
# usage: awk -v out=FOLDER -v installed='FILE FILE ..' -f documents.awk DOCUMENT..
# All names are relative to the top of the tree, which is the current folder.

# The path of a link in a document, without "." and "..".
function resolve(document, link,    parts, i, n, path) {
    if (!sub(/[^\/]*$/, "", document)) document = ""
    sub(/#.*/, "", link)
    n = split(document link, parts, "/"); path = ""
    for (i = 1; i <= n; i++) {
        if (parts[i] == "..") { if (!sub(/\/[^\/]*$/, "", path)) path = "" }
        else if (parts[i] != "." && parts[i] != "") path = path (path == "" ? "" : "/") parts[i]
    }
    return path
}

BEGIN {
    RS = "\001"
    n = split(installed, names, " ")
    for (i = 1; i <= n; i++) is_installed[names[i]] = 1
}
{
    rest = $0; text = ""
    while (match(rest, /!?\[[^][]*\]\([^() \n]+\)/)) {
        whole = substr(rest, RSTART, RLENGTH); label = link = whole
        sub(/\]\([^() \n]*\)$/, "", label); sub(/^!?\[/, "", label)
        sub(/^.*\]\(/, "", link); sub(/\)$/, "", link)
        if (link !~ /^(#|[a-z]+:)/ && !(resolve(FILENAME, link) in is_installed)) whole = label
        text = text substr(rest, 1, RSTART - 1) whole
        rest = substr(rest, RSTART + RLENGTH)
    }
    printf "%s%s", text, rest > (out "/" FILENAME)
    close(out "/" FILENAME)
}
