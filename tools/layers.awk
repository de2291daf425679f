# layers.awk - checks includes and calls against tools/layers, or prints its rows for the documents.
#
# usage: awk -v task=includes -f tools/layers.awk tools/layers SOURCE..          (sources without comments)
#        nm -A OBJECT.. | awk -v task=calls -f tools/layers.awk tools/layers -   (objects NAME.dir/FILE.c.o)
#        awk -v task=print -f tools/layers.awk tools/layers
BEGIN {
    posix = "^(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|" \
        "stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|time|wchar|wctype|dirent|dlfcn|execinfo|" \
        "fcntl|fnmatch|getopt|glob|libgen|poll|pthread|regex|sched|spawn|termios|unistd|sys/[a-z]*)\\.h$"
    public = "^ampc(_status|_operator)?\\.h$"
}
FNR == NR { # a line that begins with a blank continues the row
    if (/^#/ || !NF) next
    row_text = /^ / ? row_text $0 : $0
    rows += !/^ /
    split(row_text, cell, /[ \t]*\|[ \t]*/)
    outer[rows] = cell[1]; folders[rows] = cell[2]; also[rows] = cell[3]; system_headers[rows] = cell[4]
    next
}
function folder_of(file) { sub(/\/[^\/]*$/, "", file); return file }
# The position of a folder in a row, from 1, or 0.
function place_of(row, folder,    n, name, i) {
    if (outer[row] == folder && folders[row] == ".") return 1
    for (i = n = split(folders[row], name, " "); i; i--)
        if (folder == (name[i] == "." ? outer[row] : outer[row] "/" name[i])) return i
    return 0
}
function covers(row, file) { return outer[row] == file || place_of(row, folder_of(file)) }
# Whether ALSO of a row names the folder of a file, or the file.
function is_also(row, file,    n, name, i, folder) {
    folder = folder_of(file)
    for (n = split(also[row], name, " "); n; n--)
        if (name[n] == file || name[n] == folder || (name[n] ~ /\/$/ && index(file, name[n]) == 1)) return 1
    return 0
}
function may_include(from, to,    row, place) {
    if (folder_of(from) == folder_of(to)) return 1
    for (row = 1; row <= rows; row++) {
        if (!covers(row, from)) continue
        if (is_also(row, to)) return 1
        place = place_of(row, folder_of(to))
        if (place && place > place_of(row, folder_of(from))) return 1
    }
    return 0
}
function may_call(from, to,    row, n, name) {
    if (may_include(from, to)) return 1
    for (row = 1; row <= rows; row++)
        for (n = covers(row, from) ? split(also[row], name, " ") : 0; n; n--)
            if (name[n] ~ /\.h$/ ? covers(row, to) && index(name[n], outer[row] "/") == 1 : index(to, name[n] "/") == 1)
                return 1
    return 0
}
function may_use_system(from, header,    row, n, name) {
    for (row = 1; row <= rows; row++)
        for (n = covers(row, from) ? split(system_headers[row], name, " ") : 0; n; n--)
            if (name[n] == header || (sub(/\*$/, "", name[n]) && index(header, name[n]) == 1)) return 1
    return header ~ posix
}
task == "includes" && /^[ \t]*#[ \t]*include[ \t]*["<]/ {
    match($0, /["<][^">]*/)
    header = substr($0, RSTART + 1, RLENGTH - 1)
    if (header ~ public) next
    if (substr($0, RSTART, 1) == "<" ? may_use_system(FILENAME, header) : may_include(FILENAME, header)) next
    print FILENAME ":" FNR ": " folder_of(FILENAME) " may not include " header
}
task == "calls" {
    file = $1
    sub(/^.*\.dir\//, "", file)
    sub(/\.o:.*$/, "", file)
    if ($(NF - 1) ~ /U$/) { user[++uses] = file; used[uses] = $NF }
    else if ($(NF - 1) ~ /[BDRTVW]$/) owner[$NF] = file
}
END {
    for (i = 1; i <= uses; i++)
        if (used[i] in owner && !may_call(user[i], owner[used[i]]))
            print user[i] ":1: " folder_of(user[i]) " may not call " used[i] " of " owner[used[i]]
    if (task != "print") exit
    print "| folder | its folders from top to bottom | may also include |"
    print "|---|---|---|"
    for (row = 1; row <= rows; row++) {
        gsub(/ /, "` -> `", folders[row])
        gsub(/ /, "`, `", also[row])
        print "| `" outer[row] (outer[row] ~ /\.c$/ ? "" : "/") "` | " (folders[row] ~ />/ ? "`" folders[row] "`" : "") \
            " | " (also[row] ? "`" also[row] "`" : "") " |"
    }
}
