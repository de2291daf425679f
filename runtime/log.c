/* log.c - the JSONL step log, written and read by one table of fields. */
#include "runtime/log.h"
#include "runtime/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 512 };

struct rt_log {
    char *path;
    diag *d;
    int fd;
};

static const struct step_field {
    const char *key;
    size_t offset;
    const char *format; /* NULL: a count */
} step_fields[] = {
    {"step", offsetof(rt_step, step), NULL},
    {"epoch", offsetof(rt_step, epoch), "%.6g"},
    {"loss", offsetof(rt_step, loss), "%.9g"},
    {"lr", offsetof(rt_step, lr), "%.9g"},
    {"scale", offsetof(rt_step, scale), "%.17g"},
    {"skipped", offsetof(rt_step, skipped), NULL},
    {"grad_norm", offsetof(rt_step, grad_norm), "%.9g"},
    {"samples_s", offsetof(rt_step, samples_s), "%.6g"},
    {"t", offsetof(rt_step, t), "%.3f"},
};
enum { STEP_FIELDS = sizeof step_fields / sizeof *step_fields };

static ampc_status io_error(const char *path, diag *d, const char *what)
{
    return diag_error(d, AMPC_IO, DIAG_FILE(path), "cannot %s: %s", what, strerror(errno));
}

/* ---- writing ---- */

static ampc_status put_line(rt_log *log, const char *line, size_t n)
{
    return rt_io_write(log->fd, line, n) ? AMPC_OK : io_error(log->path, log->d, "write");
}

static json_t *header_value(const rt_log_field *f)
{
    if (f->text) return json_string(f->text);
    if (!isfinite(f->number)) return json_null();
    if (fabs(f->number) < 0x1p53 && f->number == floor(f->number))
        return json_integer((json_int_t)f->number);
    return json_real(f->number);
}

static ampc_status put_header(rt_log *log, const rt_log_field *fields, size_t n)
{
    json_t *run = json_object();
    for (size_t i = 0; i < n; i++)
        json_object_set_new(run, fields[i].key, header_value(&fields[i]));
    json_t *line = json_pack("{s:o}", "run", run);
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    if (!text) return AMPC_NO_MEMORY;
    size_t length = strlen(text);
    text[length] = '\n'; /* in place of the terminator: one write a line */
    ampc_status s = put_line(log, text, length + 1);
    free(text);
    return s;
}

/* A line that a killed run left unfinished must not run into ours. */
static ampc_status end_torn_line(rt_log *log)
{
    uint64_t size;
    char last;
    if (!rt_io_size(log->fd, &size) || size == 0) return AMPC_OK; /* new, or no regular file */
    if (!rt_io_pread(log->fd, &last, 1, size - 1)) return io_error(log->path, log->d, "read");
    return last == '\n' ? AMPC_OK : put_line(log, "\n", 1);
}

static ampc_status open_file(rt_log *log)
{
    log->fd = rt_io_open(log->path, O_RDWR | O_APPEND | O_CREAT, 0666);
    if (log->fd < 0) log->fd = rt_io_open(log->path, O_WRONLY | O_APPEND, 0666); /* a pipe */
    return log->fd < 0 ? io_error(log->path, log->d, "open") : end_torn_line(log);
}

ampc_status rt_log_open(const char *path, const rt_log_field *fields, size_t n, diag *d,
                        rt_log **out)
{
    rt_log *log = malloc(sizeof *log);
    if (!log) return AMPC_NO_MEMORY;
    *log = (rt_log){.path = strdup(path), .d = d, .fd = -1};
    ampc_status s = log->path ? open_file(log) : AMPC_NO_MEMORY;
    if (s == AMPC_OK) s = put_header(log, fields, n);
    if (s == AMPC_OK)
        *out = log;
    else
        rt_log_close(log);
    return s;
}

static size_t format_field(char *dst, size_t room, const struct step_field *f, const rt_step *s)
{
    const char *at = (const char *)s + f->offset;
    if (!f->format)
        return (size_t)snprintf(dst, room, "\"%s\":%" PRIu64, f->key, *(const uint64_t *)at);
    double v = *(const double *)at;
    size_t n = (size_t)snprintf(dst, room, "\"%s\":", f->key);
    return n + (size_t)snprintf(dst + n, room - n, isfinite(v) ? f->format : "null", v);
}

ampc_status rt_log_step(rt_log *log, const rt_step *s)
{
    char line[LINE_MAX_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < STEP_FIELDS; i++) {
        line[n++] = i ? ',' : '{';
        n += format_field(line + n, sizeof line - n, &step_fields[i], s);
    }
    memcpy(line + n, "}\n", 2);
    return put_line(log, line, n + 2);
}

ampc_status rt_log_close(rt_log *log)
{
    if (!log) return AMPC_OK;
    ampc_status s = log->fd < 0 || rt_io_close(log->fd) ? AMPC_OK
                                                        : io_error(log->path, log->d, "close");
    free(log->path);
    free(log);
    return s;
}

/* ---- reading ---- */

typedef struct log_reader {
    const char *path;
    diag *d;
    int line, torn; /* torn: a malformed line, fine if the log ends or a new run begins after it */
    rt_step *steps;
    size_t count, capacity;
} log_reader;

static rt_step step_of(const json_t *object)
{
    rt_step s;
    for (size_t i = 0; i < STEP_FIELDS; i++) {
        const json_t *value = json_object_get(object, step_fields[i].key);
        char *at = (char *)&s + step_fields[i].offset;
        double real = json_is_number(value) ? json_number_value(value) : NAN;
        uint64_t whole = (uint64_t)(json_is_integer(value) ? json_integer_value(value) : 0);
        if (step_fields[i].format)
            memcpy(at, &real, sizeof real);
        else
            memcpy(at, &whole, sizeof whole);
    }
    return s;
}

static ampc_status keep_step(log_reader *r, const rt_step *s)
{
    while (r->count && r->steps[r->count - 1].step >= s->step) r->count--;
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 1024;
        rt_step *steps = realloc(r->steps, capacity * sizeof *steps);
        if (!steps) return AMPC_NO_MEMORY;
        r->steps = steps;
        r->capacity = capacity;
    }
    r->steps[r->count++] = *s;
    return AMPC_OK;
}

static ampc_status read_line(log_reader *r, const char *text, size_t n)
{
    json_t *object = json_loadb(text, n, 0, NULL);
    bool header = json_object_get(object, "run") != NULL;
    bool good = header || json_is_integer(json_object_get(object, "step"));
    ampc_status s = AMPC_OK;
    r->line++;
    if (r->torn && !header)
        s = diag_error(r->d, AMPC_REJECTED, (diag_loc){.file = r->path, .line = r->torn},
                       "not a line of a step log");
    else if (good && !header) {
        rt_step step = step_of(object);
        s = keep_step(r, &step);
    }
    r->torn = good ? 0 : r->line;
    json_decref(object);
    return s;
}

ampc_status rt_log_read(const char *path, diag *d, rt_step **steps, size_t *count)
{
    log_reader r = {.path = path, .d = d};
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    ampc_status s = AMPC_OK;
    FILE *f = fopen(path, "re");
    if (!f) return io_error(path, d, "open");
    while (s == AMPC_OK && (n = getline(&text, &room, f)) > 0) s = read_line(&r, text, (size_t)n);
    if (s == AMPC_OK && ferror(f)) s = io_error(path, d, "read");
    if (s == AMPC_OK && r.torn && !r.count)
        s = diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "not a step log");
    fclose(f);
    free(text);
    if (s == AMPC_OK) {
        *steps = r.steps;
        *count = r.count;
    } else
        free(r.steps);
    return s;
}
