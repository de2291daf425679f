# op_tests.awk - finds facts of single ops that are not in a table of ops.
#
# usage: awk -v allowed=LINES -f tools/op_tests.awk SOURCE..    (sources without comments; paths relative to the tree)
#
# Reports comparisons with one op outside the files of its family, and arrays by op that no .def file fills. Each line
# "FILE OP: REASON" of `allowed` permits the comparisons of a file with an op; at most 20, and none without a use.
BEGIN {
    n = split(allowed, line, "\n")
    for (i = 1; i <= n; i++) {
        if (!line[i]) continue
        if (!match(line[i], /^[^ ]+ [a-z_0-9]+: ./)) { print "tools/lint:1: not FILE OP: REASON: " line[i]; continue }
        entry = line[i]
        sub(/:.*/, "", entry)
        permitted[entry] = ++entries
    }
    if (entries > 20) print "tools/lint:1: " entries " comparisons with single ops, at most 20 are allowed"
}
function is_family(file, op,    word, n) {
    if (file ~ /^(kernels\/|ir\/(infer|fold)\/|frontend\/lower\/lower_|passes\/train\/grad_)/) return 1
    for (n = split(op, word, "_"); n > 0; n--) if (file ~ ("[/_]" word[n] "s?[_.]")) return 1
    return 0
}
function check(op) {
    if (is_family(FILENAME, op)) return
    used[FILENAME " " op] = 1
    if (!((FILENAME " " op) in permitted)) print FILENAME ":" FNR ": comparison with op " op ": use a trait of ir/ops/ops.def"
}
{
    for (text = $0; match(text, /([=!]=|case)[ (]*IR_OP_[a-z0-9_]+|IR_OP_[a-z0-9_]+[ )]*[=!]=/);) {
        op = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/.*IR_OP_/, "", op)
        sub(/[^a-z0-9_].*/, "", op)
        check(op)
    }
}
/\[IR_OP_COUNT\]/ {
    table = FILENAME ":" FNR
    if (/;$/) report_table()
}
table && /#include ".*\.def"/ { table = "" }
table && /^};/ { report_table() }
function report_table() {
    if (table !~ /^ir\/ops\/ops\.[ch]:/) print table ": array by op that no .def file fills"
    table = ""
}
END {
    for (entry in permitted) if (!(entry in used)) print "tools/lint:1: not needed any more: " entry
}
