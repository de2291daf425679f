/* csv_table.c - drives libcsv over the bytes of a file, and converts each row at its end.
 *
 * libcsv's callbacks cannot stop it, so the first failure is kept and everything after it is ignored. */
#include "runtime/data/csv_table.h"

#include "ir/base/utf8.h"
#include "runtime/backend/memory.h"
#include "runtime/files/io.h"

#include <csv.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PIECE = 1 << 18, FIRST_CAPACITY = 256, LONGEST_ROW = 64 << 20 };

typedef struct reader {
    rt_csv *t;
    rt_csv_choose *choose;
    void *user;
    diag *d;
    struct csv_parser parser;
    ampc_status status;
    char *text; /* the fields of the current row, each with a terminating 0 */
    size_t length, capacity;
    size_t fields;
    int line, row_line; /* the current one, and that where the row began */
    uint64_t row_bytes; /* of the row that has not ended yet, in whole pieces */
    int64_t rows_capacity;
} reader;

static diag_loc here(const reader *r) { return (diag_loc){.file = r->t->path, .line = r->row_line}; }

/* Doubles the capacity until it is at least `needed` bytes. */
static bool grow(char **text, size_t needed, size_t *capacity)
{
    size_t larger = *capacity ? *capacity : FIRST_CAPACITY;
    while (larger < needed) larger *= 2;
    if (larger == *capacity) return true;
    char *moved = realloc(*text, larger);
    if (!moved) return false;
    *text = moved;
    *capacity = larger;
    return true;
}

/* ---- names ---- */

static const char *next_field(const char *field) { return field + strlen(field) + 1; }

/* By name, and then by position: both are elements of one array. */
static int compare_names(const void *a, const void *b)
{
    char *const *x = *(char *const *const *)a, *const *y = *(char *const *const *)b;
    const int order = strcmp(*x, *y);
    return order ? order : (x > y) - (x < y);
}

/* A row may have millions of fields, so names are sorted to compare them. */
static ampc_status check_names(const reader *r)
{
    char **names = r->t->names;
    const size_t n = r->t->columns;
    char ***sorted = malloc(n * sizeof *sorted), **second = NULL, **first = NULL;
    if (!sorted) return rt_no_memory(r->d);
    for (size_t i = 0; i < n; i++) sorted[i] = &names[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    for (size_t i = 1; i < n; i++)
        if (strcmp(*sorted[i - 1], *sorted[i]) == 0 && (!second || sorted[i] < second))
            second = sorted[i], first = sorted[i - 1];
    free(sorted);
    if (!second) return AMPC_OK;
    return diag_error(r->d, AMPC_REJECTED, here(r), "columns %zu and %zu have the same name '%s'",
                      (size_t)(first - names) + 1, (size_t)(second - names) + 1, *first);
}

/* The first row determines the columns. */
static ampc_status set_names(const reader *r)
{
    rt_csv *t = r->t;
    t->names = calloc(r->fields, sizeof *t->names);
    t->chosen = calloc(r->fields + 3, sizeof *t->chosen);
    if (!t->names || !t->chosen) return rt_no_memory(r->d);
    for (const char *field = r->text; t->columns < r->fields; field = next_field(field)) {
        char **name = &t->names[t->columns];
        if (t->header) *name = strdup(field);
        else if (asprintf(name, "column%zu", t->columns + 1) < 0) *name = NULL;
        if (!*name) return rt_no_memory(r->d);
        t->columns++;
        if (!**name) return diag_error(r->d, AMPC_REJECTED, here(r), "column %zu has no name", t->columns);
    }
    TRY(check_names(r));
    return r->choose(r->user, t, r->d);
}

/* ---- rows ---- */

bool rt_csv_parse_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && isfinite(*out);
}

static bool says_missing(const char *text)
{
    static const char *const words[] = {"", "NA", "N/A", "NaN", "null", "?"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) return true;
    return false;
}

static ampc_status refuse(const reader *r, const rt_csv_column *c, const char *text, const char *why)
{
    return diag_error(r->d, AMPC_REJECTED, here(r), "column '%s': '%.40s' %s", r->t->names[c->index], text, why);
}

static ampc_status refuse_missing(const reader *r, const rt_csv_column *c, const char *text)
{
    static const char hint[] = "missing values need missing=drop, missing=mean or missing=VALUE";
    const char *name = r->t->names[c->index];
    if (!*text) return diag_error(r->d, AMPC_REJECTED, here(r), "column '%s' is empty; %s", name, hint);
    return diag_error(r->d, AMPC_REJECTED, here(r), "column '%s': '%.40s' is not a finite number; %s", name, text,
                      hint);
}

static bool resize(void **array, size_t capacity, size_t size)
{
    void *more = reallocarray(*array, capacity, size);
    if (more) *array = more;
    return more;
}

static bool reserve_row(reader *r)
{
    rt_csv *t = r->t;
    if (t->rows < r->rows_capacity) return true;
    const size_t capacity = r->rows_capacity ? (size_t)r->rows_capacity * 2 : FIRST_CAPACITY;
    bool ok = resize((void **)&t->lines, capacity, sizeof *t->lines);
    for (size_t i = 0; ok && i < t->n_chosen; i++) {
        rt_csv_column *c = &t->chosen[i];
        if (c->kind == RT_CSV_TEXTS) ok = resize((void **)&c->texts, capacity, sizeof *c->texts);
        else ok = resize((void **)&c->values, capacity, sizeof *c->values);
    }
    if (ok) r->rows_capacity = (int64_t)capacity;
    return ok;
}

/* Decides what a column holds by its first value; the values before are missing. */
static ampc_status decide(const reader *r, rt_csv_column *c, const char *text)
{
    double number;
    c->kind = rt_csv_parse_number(text, &number) ? RT_CSV_NUMBERS : RT_CSV_TEXTS;
    if (c->kind == RT_CSV_NUMBERS) return AMPC_OK;
    if (!r->t->missing && says_missing(text)) return refuse_missing(r, c, text);
    c->texts = calloc((size_t)r->rows_capacity, sizeof *c->texts);
    return c->texts ? AMPC_OK : rt_no_memory(r->d);
}

static ampc_status store_text(const reader *r, const rt_csv_column *c, const char *text)
{
    char **to = &c->texts[r->t->rows];
    if (c->use != RT_CSV_FILE && !utf8_is_valid(text)) return refuse(r, c, text, "is not UTF-8");
    *to = strdup(text);
    return *to ? AMPC_OK : rt_no_memory(r->d);
}

static ampc_status store_number(const reader *r, const rt_csv_column *c, const char *text)
{
    if (rt_csv_parse_number(text, &c->values[r->t->rows])) return AMPC_OK;
    return says_missing(text) ? refuse_missing(r, c, text) : refuse(r, c, text, "is not a finite number");
}

static ampc_status store_field(const reader *r, rt_csv_column *c, const char *text)
{
    const int64_t row = r->t->rows;
    const bool missing = r->t->missing && says_missing(text);
    if (!*text && !missing) return refuse_missing(r, c, text);
    if (!missing && c->kind == RT_CSV_UNDECIDED) TRY(decide(r, c, text));
    if (c->kind != RT_CSV_TEXTS && missing) c->values[row] = NAN;
    if (c->kind == RT_CSV_TEXTS && missing) c->texts[row] = NULL;
    if (missing) return AMPC_OK;
    return c->kind == RT_CSV_TEXTS ? store_text(r, c, text) : store_number(r, c, text);
}

/* Stores the row, or nothing if one of its fields is refused. */
static ampc_status store_fields(const reader *r, const char *const *fields)
{
    const rt_csv *t = r->t;
    ampc_status s = AMPC_OK;
    size_t n = 0;
    while (n < t->n_chosen && s == AMPC_OK) {
        rt_csv_column *c = &t->chosen[n++];
        if (c->kind == RT_CSV_TEXTS) c->texts[t->rows] = NULL;
        s = store_field(r, c, fields[c->index]);
    }
    for (size_t i = 0; s != AMPC_OK && i < n; i++)
        if (t->chosen[i].texts) free(t->chosen[i].texts[t->rows]);
    return s;
}

/* Converts the row, whose texts are to be pointed at by `fields`. */
static ampc_status store_row(const reader *r, const char **fields)
{
    rt_csv *t = r->t;
    const char *field = r->text;
    for (size_t i = 0; i < t->columns; i++, field = next_field(field)) fields[i] = field;
    TRY(store_fields(r, fields));
    t->lines[t->rows++] = r->row_line;
    return AMPC_OK;
}

static ampc_status add_row(reader *r)
{
    const rt_csv *t = r->t;
    if (r->fields != t->columns)
        return diag_error(r->d, AMPC_REJECTED, here(r), "%zu field%s, but the first line has %zu", r->fields,
                          r->fields == 1 ? "" : "s", t->columns);
    if (t->rows == INT32_MAX) return diag_error(r->d, AMPC_REJECTED, here(r), "more than 2147483647 rows");
    const char **fields = malloc(t->columns * sizeof *fields);
    ampc_status s = fields && reserve_row(r) ? store_row(r, fields) : rt_no_memory(r->d);
    free(fields);
    return s;
}

/* The first row may be a header. */
static ampc_status end_row(reader *r)
{
    if (!r->t->names) {
        TRY(set_names(r));
        if (r->t->header) return AMPC_OK;
    }
    return add_row(r);
}

/* ---- libcsv ---- */

static ampc_status add_field(reader *r, const char *bytes, size_t n)
{
    if (memchr(bytes, 0, n))
        return diag_error(r->d, AMPC_REJECTED, here(r), "field %zu contains a byte 0", r->fields + 1);
    if (!grow(&r->text, r->length + n + 1, &r->capacity)) return rt_no_memory(r->d);
    memcpy(r->text + r->length, bytes, n);
    r->length += n;
    r->text[r->length++] = 0;
    r->fields++;
    for (size_t i = 0; i < n; i++) r->line += bytes[i] == '\n';
    return AMPC_OK;
}

static void on_field(void *bytes, size_t n, void *user)
{
    reader *r = user;
    if (r->status == AMPC_OK) r->status = add_field(r, bytes, n);
}

/* Called for every line end outside of quotes, and with -1 at the end of a file without one. */
static void on_row(int terminator, void *user)
{
    reader *r = user;
    if (r->fields && r->status == AMPC_OK) r->status = end_row(r);
    r->fields = r->length = 0;
    r->line += terminator == '\n';
    r->row_line = r->line;
    r->row_bytes = 0;
}

static ampc_status check_parser(reader *r)
{
    const int error = csv_error(&r->parser);
    if (r->status != AMPC_OK || error == CSV_SUCCESS) return r->status;
    if (error == CSV_ENOMEM || error == CSV_ETOOBIG) return rt_no_memory(r->d);
    return diag_error(r->d, AMPC_REJECTED, here(r), "malformed quotes");
}

static ampc_status read_piece(const reader *r, int fd, char *piece, size_t n, uint64_t at)
{
    const diag_loc loc = DIAG_FILE(r->t->path);
    if (rt_io_pread(fd, piece, n, at)) return AMPC_OK;
    if (errno != ENODATA) return diag_errno(r->d, loc, "cannot read");
    return diag_error(r->d, AMPC_REJECTED, loc, "the file became shorter while it was read");
}

static ampc_status parse(reader *r, int fd, uint64_t size, char *piece)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* of the encoding UTF-8 */
    const diag_loc loc = DIAG_FILE(r->t->path);
    uint64_t after;
    for (uint64_t at = 0; at < size; at += PIECE) {
        const size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        TRY(read_piece(r, fd, piece, n, at));
        if (at == 0 && size > PIECE && memchr(piece, 0, n)) /* before the lines, which may be endless */
            return diag_error(r->d, AMPC_REJECTED, loc, "not a table, but a binary file: it contains bytes 0");
        const size_t skip = at == 0 && n >= sizeof mark && memcmp(piece, mark, sizeof mark) == 0 ? sizeof mark : 0;
        r->row_bytes += n;
        csv_parse(&r->parser, piece + skip, n - skip, on_field, on_row, r);
        TRY(check_parser(r));
        if (r->row_bytes > LONGEST_ROW)
            return diag_error(r->d, AMPC_REJECTED, here(r), "no line end, outside of quotes, within %d MiB",
                              LONGEST_ROW >> 20);
    }
    csv_fini(&r->parser, on_field, on_row, r);
    TRY(check_parser(r));
    if (!rt_io_size(fd, &after)) return diag_errno(r->d, loc, "cannot read");
    return after == size ? AMPC_OK : diag_error(r->d, AMPC_REJECTED, loc, "the file changed while it was read");
}

ampc_status rt_csv_read(rt_csv *t, rt_csv_choose *choose, void *user, diag *d)
{
    reader r = {.t = t, .choose = choose, .user = user, .d = d, .line = 1, .row_line = 1};
    int fd;
    uint64_t size;
    TRY(rt_io_open_input(t->path, d, &fd, &size));
    char *piece = malloc(PIECE);
    ampc_status s = piece ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK && csv_init(&r.parser, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL) == 0) {
        csv_set_delim(&r.parser, (unsigned char)t->delimiter);
        csv_set_blk_size(&r.parser, 4 * PIECE); /* its buffer grows by that, and is copied each time */
        s = parse(&r, fd, size, piece);
        csv_free(&r.parser);
    }
    free(piece);
    free(r.text);
    rt_io_close(fd);
    if (s != AMPC_OK || t->rows) return s;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(t->path), "the file has no rows");
}

static void clear_column(const rt_csv *t, rt_csv_column *c)
{
    for (int64_t i = 0; c->texts && i < t->rows; i++) free(c->texts[i]);
    free(c->texts);
    free(c->values);
}

void rt_csv_clear(rt_csv *t)
{
    for (size_t i = 0; t->names && i < t->columns; i++) free(t->names[i]);
    for (size_t i = 0; i < t->n_chosen; i++) clear_column(t, &t->chosen[i]);
    free(t->names);
    free(t->chosen);
    free(t->lines);
}
