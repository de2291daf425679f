/* api_rows.h - the rows of test_api_arguments.c, and the comparison with the declarations of ampc.h. */
#ifndef TESTS_API_ROWS_H
#define TESTS_API_ROWS_H

#include "tests/unit/scratch.h"

#include <ctype.h>

enum { MAX_ROWS = 1024, NAME_SIZE = 96 };
static char row_names[MAX_ROWS][NAME_SIZE];
static int n_rows;

static inline void record_row(const char *owner, const char *part)
{
    assert_in_range(n_rows, 0, MAX_ROWS - 1);
    int n = snprintf(row_names[n_rows++], NAME_SIZE, "%s.%s", owner, part);
    assert_in_range(n, 3, NAME_SIZE - 1);
}

static inline bool has_row(const char *owner, const char *part)
{
    size_t n = strlen(owner);
    for (int i = 0; i < n_rows; i++)
        if (strncmp(row_names[i], owner, n) == 0 && row_names[i][n] == '.' && strcmp(row_names[i] + n + 1, part) == 0)
            return true;
    return false;
}

/* ---- the declarations of ampc.h and ampc_operator.h ---- */

static inline size_t append_file(char *text, size_t n, size_t limit, const char *path)
{
    FILE *file = fopen(path, "re");
    size_t more = file ? fread(text + n, 1, limit - n, file) : 0;
    if (file) fclose(file);
    assert_in_range(more, 1000, limit - n - 1);
    return n + more;
}

/* Returns the headers without comments. */
static inline char *read_headers(void)
{
    enum { LIMIT = 1 << 17 };
    char *text = calloc(1, LIMIT + 1);
    assert_non_null(text);
    size_t n = append_file(text, 0, LIMIT, AMPC_SOURCE_DIR "/runtime/api/ampc.h");
    append_file(text, n, LIMIT, AMPC_SOURCE_DIR "/ir/ops/ampc_operator.h");
    for (char *open; (open = strstr(text, "/*"));) {
        char *end = strstr(open, "*/");
        assert_non_null(end);
        memset(open, ' ', (size_t)(end + 2 - open));
    }
    return text;
}

/* Finds the last name in [from, end): a parameter, member or function. False: none. */
static inline bool last_name(const char *from, const char *end, char name[NAME_SIZE])
{
    while (end > from && (end[-1] == ']' || isspace((unsigned char)end[-1])))
        if (*--end == ']')
            while (end > from && *end != '[') end--;
    const char *start = end;
    while (start > from && (isalnum((unsigned char)start[-1]) || start[-1] == '_')) start--;
    if (start == end || end - start >= NAME_SIZE) return false;
    memcpy(name, start, (size_t)(end - start));
    name[end - start] = '\0';
    return true;
}

/* Checks the names separated by `separator` or commas in [from, end). Returns the number of names without a row. */
static inline int check_parts(const char *owner, const char *from, const char *end, char separator)
{
    int missing = 0;
    for (const char *at = from; at < end;) {
        const char *stop = at;
        int depth = 0;
        for (; stop < end && (depth || (*stop != separator && *stop != ',')); stop++) {
            depth += *stop == '(';
            depth -= *stop == ')';
        }
        const char *function = memchr(at, '(', (size_t)(stop - at)); /* a function pointer: "(*log)" */
        char name[NAME_SIZE];
        const char *name_end = function ? strchr(function, ')') : stop;
        if (last_name(at, name_end, name) && strcmp(name, "void") != 0 && !has_row(owner, name)) {
            print_error("no row for %s of %s\n", name, owner);
            missing++;
        }
        at = stop + 1;
    }
    return missing;
}

/* Runs last: everything that the header declares has been tested. */
static inline void expect_all_rows(void)
{
    char *text = read_headers(), name[NAME_SIZE];
    static const char *const kinds[] = {"_options {", "ampc_operator {"};
    int functions = 0, structs = 0, missing = 0;
    for (const char *at = text; (at = strstr(at, "AMPC_API"));) {
        const char *open = strchr(at, '('), *close = strstr(at, ");");
        assert_true(open && close && last_name(at, open, name));
        missing += check_parts(name, open + 1, close, ',');
        functions++;
        at = close;
    }
    for (int i = 0; i < 2; i++)
        for (const char *at = text; (at = strstr(at, kinds[i]));) {
            const char *open = strchr(at, '{'), *close = strchr(at, '}');
            assert_true(open && close && last_name(text, open, name));
            missing += check_parts(name, open + 1, close, ';');
            structs++;
            at = close;
        }
    free(text);
    assert_in_range(functions, 35, 200);
    assert_int_equal(structs, 8);
    assert_int_equal(missing, 0);
}

#endif
