/* csv_table.c - drives libcsv over the bytes of a file, and converts each row at its end.
 *
 * libcsv's callbacks cannot stop it, so the first failure is kept and everything after it is ignored. */
#include "runtime/data/csv_table.h"

#include "runtime/backend/memory.h"
#include "runtime/files/io.h"

#include <csv.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 18, FIRST_CAPACITY = 256 };

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

static ampc_status check_name(const reader *r, size_t index)
{
    char *const *names = r->t->names;
    if (!*names[index]) return diag_error(r->d, AMPC_REJECTED, here(r), "column %zu has no name", index + 1);
    for (size_t i = 0; i < index; i++)
        if (strcmp(names[i], names[index]) == 0)
            return diag_error(r->d, AMPC_REJECTED, here(r), "columns %zu and %zu have the same name '%s'", i + 1,
                              index + 1, names[i]);
    return AMPC_OK;
}

/* The first row determines the columns. */
static ampc_status set_names(const reader *r)
{
    rt_csv *t = r->t;
    t->names = calloc(r->fields, sizeof *t->names);
    t->features = calloc(r->fields, sizeof *t->features);
    if (!t->names || !t->features) return rt_no_memory(r->d);
    for (const char *field = r->text; t->columns < r->fields; field = next_field(field)) {
        char **name = &t->names[t->columns];
        if (t->header) *name = strdup(field);
        else if (asprintf(name, "column%zu", t->columns + 1) < 0) *name = NULL;
        if (!*name) return rt_no_memory(r->d);
        TRY(check_name(r, t->columns++));
    }
    t->label = t->columns;
    return r->choose(r->user, t, r->d);
}

/* ---- rows ---- */

static bool parse_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && isfinite(*out);
}

static ampc_status read_number(const reader *r, size_t column, const char *text, double *out)
{
    const char *name = r->t->names[column];
    if (parse_number(text, out)) return AMPC_OK;
    if (!*text) return diag_error(r->d, AMPC_REJECTED, here(r), "column '%s' is empty", name);
    return diag_error(r->d, AMPC_REJECTED, here(r), "column '%s': '%.40s' is not a finite number", name, text);
}

static bool reserve_row(reader *r)
{
    rt_csv *t = r->t;
    if (t->rows < r->rows_capacity) return true;
    size_t capacity = r->rows_capacity ? (size_t)r->rows_capacity * 2 : FIRST_CAPACITY;
    const size_t width = t->n_features ? t->n_features : 1;
    double *values = reallocarray(t->values, capacity * width, sizeof *values);
    if (values) t->values = values;
    double *labels = reallocarray(t->labels, capacity, sizeof *labels);
    if (labels) t->labels = labels;
    int *lines = reallocarray(t->lines, capacity, sizeof *lines);
    if (lines) t->lines = lines;
    char **texts = t->texts ? reallocarray(t->texts, capacity, sizeof *texts) : NULL;
    if (texts) t->texts = texts;
    if (!values || !labels || !lines || (t->texts && !texts)) return false;
    r->rows_capacity = (int64_t)capacity;
    return true;
}

/* Stores the label: as a text if that of the first row is not a number. */
static ampc_status set_label(const reader *r, const char *text)
{
    rt_csv *t = r->t;
    double *value = &t->labels[t->rows];
    if (!t->rows && *text && !parse_number(text, value)) {
        t->texts = calloc((size_t)r->rows_capacity, sizeof *t->texts);
        if (!t->texts) return rt_no_memory(r->d);
    }
    if (!t->texts || !*text) return read_number(r, t->label, text, value);
    t->texts[t->rows] = strdup(text);
    return t->texts[t->rows] ? AMPC_OK : rt_no_memory(r->d);
}

/* Converts the row, whose texts are to be pointed at by `fields`. */
static ampc_status store_row(const reader *r, const char **fields)
{
    rt_csv *t = r->t;
    const char *field = r->text;
    double *values = t->values + (size_t)t->rows * t->n_features;
    for (size_t i = 0; i < t->columns; i++, field = next_field(field)) fields[i] = field;
    for (size_t i = 0; i < t->n_features; i++) TRY(read_number(r, t->features[i], fields[t->features[i]], &values[i]));
    if (t->label < t->columns) TRY(set_label(r, fields[t->label]));
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

static ampc_status parse(reader *r, int fd, char *piece)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'}; /* of the encoding UTF-8 */
    const diag_loc loc = DIAG_FILE(r->t->path);
    uint64_t size, after;
    if (!rt_io_size(fd, &size)) return diag_errno(r->d, loc, "cannot read");
    for (uint64_t at = 0; at < size; at += PIECE) {
        const size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        TRY(read_piece(r, fd, piece, n, at));
        const size_t skip = at == 0 && n >= sizeof mark && memcmp(piece, mark, sizeof mark) == 0 ? sizeof mark : 0;
        csv_parse(&r->parser, piece + skip, n - skip, on_field, on_row, r);
        TRY(check_parser(r));
    }
    csv_fini(&r->parser, on_field, on_row, r);
    TRY(check_parser(r));
    if (!rt_io_size(fd, &after)) return diag_errno(r->d, loc, "cannot read");
    return after == size ? AMPC_OK : diag_error(r->d, AMPC_REJECTED, loc, "the file changed while it was read");
}

ampc_status rt_csv_read(rt_csv *t, rt_csv_choose *choose, void *user, diag *d)
{
    reader r = {.t = t, .choose = choose, .user = user, .d = d, .line = 1, .row_line = 1};
    const int fd = rt_io_open(t->path, O_RDONLY, 0);
    if (fd < 0) return diag_errno(d, DIAG_FILE(t->path), "cannot open");
    char *piece = malloc(PIECE);
    ampc_status s = piece ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK && csv_init(&r.parser, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL) == 0) {
        csv_set_delim(&r.parser, (unsigned char)t->delimiter);
        s = parse(&r, fd, piece);
        csv_free(&r.parser);
    }
    free(piece);
    free(r.text);
    rt_io_close(fd);
    if (s != AMPC_OK || t->rows) return s;
    return diag_error(d, AMPC_REJECTED, DIAG_FILE(t->path), "the file has no rows");
}

void rt_csv_clear(rt_csv *t)
{
    for (size_t i = 0; t->names && i < t->columns; i++) free(t->names[i]);
    for (int64_t i = 0; t->texts && i < t->rows; i++) free(t->texts[i]);
    free(t->names);
    free(t->features);
    free(t->values);
    free(t->labels);
    free(t->texts);
    free(t->lines);
}
