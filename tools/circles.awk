# circles.awk - dependency cycles: strongly connected components of the source files by the symbols they use.
#
# usage: nm -A OBJECT.. | awk -f tools/circles.awk
#
# There is an edge from one file to another if object NAME.dir/FILE.c.o of the first uses a symbol that the second
# defines. Prints a line for each cycle, "N FILES: FILE FILE ..", largest first, and "N circles" at the end. Exit
# status 1 if there is a cycle.
{
    file = $1
    sub(/^.*\.dir\//, "", file)
    sub(/\.o:.*$/, "", file)
    if ($(NF - 1) ~ /U$/) { user[++uses] = file; used[uses] = $NF }
    else if ($(NF - 1) ~ /[BDRTVW]$/) owner[$NF] = file
}
# Tarjan's algorithm.
function visit(file,    i, next_file, members, names) {
    order[file] = low[file] = ++visited
    stack[++depth] = file
    on_stack[file] = 1
    for (i = 1; i <= degree[file]; i++) {
        next_file = target[file, i]
        if (!(next_file in order)) visit(next_file)
        if (on_stack[next_file] && low[next_file] < low[file]) low[file] = low[next_file]
    }
    if (low[file] < order[file]) return
    do {
        names = names " " stack[depth]
        members++
        on_stack[stack[depth]] = 0
    } while (stack[depth--] != file)
    if (members == 1) return
    circles++
    print members " files:" names | "sort -rn"
}
END {
    for (i = 1; i <= uses; i++) {
        from = user[i]
        to = owner[used[i]]
        if (to == "" || to == from || seen[from, to]++) continue
        target[from, ++degree[from]] = to
    }
    for (file in degree) if (!(file in order)) visit(file)
    close("sort -rn")
    print circles + 0 " circles"
    exit circles > 0
}
