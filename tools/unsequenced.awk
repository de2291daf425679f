# unsequenced.awk - finds effects that C leaves without an order: in two arguments of a call, two operands of an operator
# or two items of an initializer. What they make would depend on the compiler.
#
# usage: awk -v roots=NAMES -f tools/unsequenced.awk SOURCE..    (sources without comments and strings)
#
# The functions and macros `roots` (separated by blanks) have effects, and so has what calls one that has, by its text.
BEGIN {
    for (n = split(roots, name_of, " "); n > 0; n--) is_root[name_of[n]] = 1
    statements = "^(if|for|while|switch)$"
}

# Functions (from column 0 to the brace in column 0) and macros are kept as tokens.
FNR == 1 { head = ""; in_function = in_macro = in_call = 0 }
in_macro { keep($0); in_macro = /\\$/; next }
/^#define [A-Za-z_0-9]+\(/ {
    text = substr($0, 9)
    begin(text, FILENAME ~ /\.h$/)
    keep(substr(text, index(text, ")") + 1))
    in_macro = /\\$/
    next
}
/^#/ { in_macro = 0; next }
!in_function && /^[A-Z][A-Z_0-9]*\(/ { # a function made by a macro: its arguments, in any order
    begin(head = "", 0)
    open = 0
    in_call = 1
    sub(/^[A-Z_0-9]+/, "")
}
in_call {
    keep($0)
    open += gsub(/\(/, "") - gsub(/\)/, "")
    in_call = open > 0
    next
}
!in_function && /^[A-Za-z_].*\(/ { head = $0 }
head != "" && (/^\{/ || (/^[A-Za-z_].*\{.*\}$/ && !/^typedef/)) {
    match(head, /[A-Za-z_0-9]+\(/)
    begin(substr(head, RSTART), head !~ /^static/ || FILENAME ~ /\.h$/)
    $0 = substr($0, index($0, "{"))
    in_function = 1
}
in_function { keep($0) }
/^\}/ || (in_function && /^\{.*\}$/) { in_function = 0; head = "" }

function begin(text, is_global) {
    functions++
    sub(/\(.*/, "", text)
    file_of[functions] = FILENAME
    name_of[functions] = text
    first[functions] = tokens + 1
    local[FILENAME, text] = functions
    if (is_global) global[text] = functions
}
function keep(text) {
    while (match(text, /[A-Za-z_0-9.]+|->|&&|[|][|]|[^ ]/)) {
        token[++tokens] = substr(text, RSTART, RLENGTH)
        line[tokens] = FNR
        text = substr(text, RSTART + RLENGTH)
    }
    end[functions] = tokens
}

function is_call(i) { return token[i + 1] == "(" && token[i] ~ /^[A-Za-z_]/ && token[i] !~ /^(if|for|while|switch|return|sizeof)$/ }
function meaning(name, file) {
    return (file, name) in local ? local[file, name] : name in global ? global[name] : 0
}
function acts(i,    f) { return token[i] in is_root || ((f = meaning(token[i], file)) && f in effects) }

# Parses from `at` to the bracket that closes. Returns whether something acts. `kind`: list, whose items have no order;
# group; block.
function parse(kind,    any, item, items, operand, term, t, called, inner, before) {
    any = item = items = operand = called = 0
    for (; at <= stop; at++) {
        t = token[at]
        if (t ~ /^[])}]$/) break
        if (t ~ /^[[({]$/) {
            before = token[at - 1]
            inner = t == "(" ? (is_call(at - 1) ? "list" : "group") : t == "[" ? "group" : \
                kind == "block" && (called || before ~ /^([;{}:]|else|do)$/ || at == start) ? "block" : "list"
            term = t == "(" && is_call(at - 1) && acts(at - 1)
            called = t == "(" && before ~ /^[A-Za-z_]/ # a brace that follows opens a block, not a literal
            if (inner == "block") item = items = operand = 0
            at++
            if (parse(inner) && before != "sizeof") term = 1
            if (term) {
                any = 1
                if (operand) report("operands")
                item = operand = 1
            }
            if (inner == "block" || (t == "(" && before ~ statements)) item = items = operand = 0
            continue
        }
        called = 0
        if (t == ",") {
            if (kind == "list" && item && items) report("items")
            items += item
            item = operand = 0
        } else if (t == ";")
            item = items = operand = 0
        else if (t ~ /^(&&|[|][|]|[?]|:)$/)
            operand = 0
    }
    if (kind == "list" && item && items) report("items")
    return any
}
function report(what) {
    print file ":" line[at] ": two " what " act, and C leaves their order open: use variables" | "sort -u"
}

END {
    # Who calls whom, and what acts.
    for (f = 1; f <= functions; f++) {
        file = file_of[f]
        for (i = first[f]; i <= end[f]; i++)
            if (is_call(i)) {
                if (token[i] in is_root) mark(f)
                else if ((g = meaning(token[i], file)) && g != f) callers[g] = callers[g] " " f
            }
        if (name_of[f] in is_root) mark(f)
    }
    for (q = 1; q <= marked; q++)
        for (n = split(callers[queue[q]], caller, " "); n > 0; n--) mark(caller[n])
    for (f = 1; f <= functions; f++) {
        file = file_of[f]
        at = start = first[f]
        stop = end[f]
        while (at <= stop) {
            parse("block")
            at++
        }
    }
}
function mark(f) {
    if (f in effects) return
    effects[f] = 1
    queue[++marked] = f
}
