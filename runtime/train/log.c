/* log.c - the JSONL step log: truncation to a checkpoint, writing and reading by one table of fields. */
#include "runtime/train/log.h"
#include "ir/base/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/growing_file.h"
#include "runtime/files/io.h"
#include "runtime/files/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER_KEY "checkpoints"

struct rt_log {
    char *path;
    rt_growing_file file;
};

const rt_step_field rt_step_fields[RT_STEP_FIELDS] = {
    {"step", offsetof(rt_step_record, step), NULL, false},
    {"epoch", offsetof(rt_step_record, epoch), "%.6g", true},
    {"loss", offsetof(rt_step_record, loss), "%.9g", true},
    {"lr", offsetof(rt_step_record, lr), "%.9g", true},
    {"scale", offsetof(rt_step_record, scale), "%.17g", true},
    {"skipped", offsetof(rt_step_record, skipped), NULL, true},
    {"grad_norm", offsetof(rt_step_record, grad_norm), "%.9g", true},
    {"samples_s", offsetof(rt_step_record, samples_s), "%.6g", true},
    {"t", offsetof(rt_step_record, t), "%.3f", false},
};

double rt_step_value(const rt_step_field *f, const rt_step_record *s)
{
    const char *at = (const char *)s + f->offset;
    return f->format ? *(const double *)at : (double)*(const uint64_t *)at;
}

static ampc_status fail(const rt_log *log, const char *what) { return rt_growing_fail(&log->file, what); }

/* ---- truncation ---- */

/* State after scanning the file up to some line. `cut` is the start of the trailing lines of later steps of this run;
 * NOWHERE if the last line must stay. */
typedef struct log_cut {
    const rt_log_resume *resume;
    bool ours;           /* the last header belongs to this run */
    int64_t header, cut; /* header: offset of the last header if no line follows it, else NOWHERE */
} log_cut;
enum { NOWHERE = -1 };

static bool is_ours(const json_t *run, const rt_log_resume *resume)
{
    const char *folder = json_string_value(json_object_get(run, FOLDER_KEY));
    return folder && strcmp(folder, resume->folder) == 0;
}

static void pass_line(log_cut *c, const json_t *line, int64_t at)
{
    const json_t *run = json_object_get(line, "run"), *eval = json_object_get(line, "eval");
    const json_t *step = json_object_get(eval ? eval : line, "step");
    if (run) {
        c->ours = is_ours(run, c->resume);
        c->header = at;
        if (!c->ours) c->cut = NOWHERE;
        return;
    }
    bool later = !json_is_integer(step) || (uint64_t)json_integer_value(step) > c->resume->step;
    if (!c->ours || !later) c->cut = NOWHERE;
    else if (c->cut == NOWHERE) c->cut = c->header != NOWHERE ? c->header : at;
    c->header = NOWHERE;
}

static ampc_status find_cut(rt_log *log, FILE *f, log_cut *c)
{
    char *text = NULL;
    size_t capacity = 0;
    ssize_t n;
    ampc_status s = AMPC_OK;
    for (int64_t at = 0; s == AMPC_OK && (errno = 0, n = getline(&text, &capacity, f)) > 0; at += n) {
        json_error_t e;
        json_t *line;
        s = rt_json_parse(text, (size_t)n, false, &e, &line);
        if (s == AMPC_REJECTED) s = AMPC_OK; /* an unfinished line: line is NULL */
        if (s == AMPC_OK) pass_line(c, line, at);
        json_decref(line);
    }
    if (s == AMPC_NO_MEMORY || errno == ENOMEM) s = rt_no_memory(log->file.d);
    else if (ferror(f)) s = fail(log, "cannot read");
    if (c->cut == NOWHERE && c->ours) c->cut = c->header; /* a header of this run without any step */
    free(text);
    return s;
}

/* Removes the lines at the end that describe steps after the checkpoint. */
static ampc_status cut_back(rt_log *log, const rt_log_resume *resume)
{
    uint64_t size;
    log_cut c = {.resume = resume, .header = NOWHERE, .cut = NOWHERE};
    int fd;
    if (!rt_io_size(log->file.fd, &size)) return errno == ESPIPE ? AMPC_OK : fail(log, "cannot read");
    TRY(rt_io_open_input(log->path, log->file.d, &fd, &size));
    FILE *f = fdopen(fd, "r");
    if (!f) {
        rt_io_close(fd);
        return fail(log, "cannot read");
    }
    ampc_status s = find_cut(log, f, &c);
    fclose(f);
    if (s != AMPC_OK || c.cut == NOWHERE || rt_io_truncate(log->file.fd, (uint64_t)c.cut)) return s;
    return fail(log, "cannot truncate it to the checkpoint");
}

/* ---- writing ---- */

/* Ends the document and writes it as a line. */
static ampc_status finish_line(rt_log *log, json_writer *w)
{
    size_t n;
    json_end(w, '}');
    json_write_blank(w, '\n');
    char *text = json_close_text(w, &n);
    ampc_status s = text ? rt_growing_write(&log->file, text, n) : rt_no_memory(log->file.d);
    free(text);
    return s;
}

static ampc_status put_header(rt_log *log, const rt_log_field *fields, size_t n, const rt_log_resume *resume)
{
    json_writer w;
    if (!json_open_text(&w)) return rt_no_memory(log->file.d);
    json_begin(&w, NULL, '{');
    json_begin(&w, "run", '{');
    for (const rt_log_field *f = fields; f < fields + n; f++)
        if (f->text) json_write_string(&w, f->key, f->text);
        else json_write_real(&w, f->key, "%.17g", f->number);
    if (resume) json_write_string(&w, FOLDER_KEY, resume->folder);
    json_end(&w, '}');
    return finish_line(log, &w);
}

/* Terminates an unfinished line of a killed run, so that it is not merged with ours. */
static ampc_status end_torn_line(rt_log *log)
{
    uint64_t size;
    char last;
    if (!rt_io_size(log->file.fd, &size))
        return errno == ESPIPE || errno == EISDIR ? AMPC_OK : fail(log, "cannot read");
    if (size == 0) return AMPC_OK;
    if (!rt_io_pread(log->file.fd, &last, 1, size - 1)) return fail(log, "cannot read");
    return last == '\n' ? AMPC_OK : rt_growing_write(&log->file, "\n", 1);
}

static ampc_status open_file(rt_log *log, const rt_log_resume *resume)
{
    if (!log->path) return rt_no_memory(log->file.d);
    TRY(rt_growing_continue(&log->file));
    if (resume && resume->step != RT_LOG_NOT_RESUMED) TRY(cut_back(log, resume));
    return end_torn_line(log);
}

ampc_status rt_log_open(const char *path, const rt_log_field *fields, size_t n, const rt_log_resume *resume, diag *d,
                        rt_log **out)
{
    rt_log *log = malloc(sizeof *log);
    if (!log) return rt_no_memory(d);
    *log = (rt_log){.path = strdup(path), .file = {.d = d, .fd = -1}};
    log->file.path = log->path;
    ampc_status s = open_file(log, resume);
    if (s == AMPC_OK) s = put_header(log, fields, n, resume);
    if (s == AMPC_OK) *out = log;
    else rt_log_close(log);
    return s;
}

ampc_status rt_log_sync(rt_log *log) { return rt_growing_sync(&log->file); }

ampc_status rt_log_step(rt_log *log, const rt_step_record *s)
{
    json_writer w;
    if (!json_open_text(&w)) return rt_no_memory(log->file.d);
    json_begin(&w, NULL, '{');
    for (const rt_step_field *f = rt_step_fields; f < rt_step_fields + RT_STEP_FIELDS; f++)
        if (f->format) json_write_real(&w, f->key, f->format, rt_step_value(f, s));
        else json_write_integer(&w, f->key, (int64_t)rt_step_value(f, s));
    return finish_line(log, &w);
}

ampc_status rt_log_eval(rt_log *log, uint64_t step, const rt_eval *eval)
{
    json_writer w;
    if (!json_open_text(&w)) return rt_no_memory(log->file.d);
    json_begin(&w, NULL, '{');
    json_begin(&w, "eval", '{');
    json_write_integer(&w, "step", (int64_t)step);
    for (int i = 0; i < eval->count; i++) json_write_real(&w, eval->value[i].name, "%.9g", eval->value[i].value);
    json_end(&w, '}');
    return finish_line(log, &w);
}

ampc_status rt_log_close(rt_log *log)
{
    if (!log) return AMPC_OK;
    ampc_status s = rt_growing_close(&log->file);
    free(log->path);
    free(log);
    return s;
}

/* ---- reading ---- */

typedef struct log_reader {
    const char *path;
    diag *d;
    int line, torn; /* torn: number of a malformed line, which is valid if the log ends or a new run begins after it */
    rt_step_record *steps;
    size_t count, capacity;
} log_reader;

static rt_step_record step_of(const json_t *object)
{
    rt_step_record s;
    for (size_t i = 0; i < RT_STEP_FIELDS; i++) {
        const json_t *value = json_object_get(object, rt_step_fields[i].key);
        char *at = (char *)&s + rt_step_fields[i].offset;
        double real = json_is_number(value) ? json_number_value(value) : NAN;
        uint64_t integer = (uint64_t)(json_is_integer(value) ? json_integer_value(value) : 0);
        if (rt_step_fields[i].format) memcpy(at, &real, sizeof real);
        else memcpy(at, &integer, sizeof integer);
    }
    return s;
}

static ampc_status keep_step(log_reader *r, const rt_step_record *s)
{
    while (r->count && r->steps[r->count - 1].step >= s->step) r->count--;
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 1024;
        rt_step_record *steps = realloc(r->steps, capacity * sizeof *steps);
        if (!steps) return rt_no_memory(r->d);
        r->steps = steps;
        r->capacity = capacity;
    }
    r->steps[r->count++] = *s;
    return AMPC_OK;
}

static ampc_status read_line(log_reader *r, const char *text, size_t n)
{
    json_error_t e;
    json_t *object;
    if (rt_json_parse(text, n, false, &e, &object) == AMPC_NO_MEMORY) return rt_no_memory(r->d);
    bool header = json_object_get(object, "run") != NULL, step = json_is_integer(json_object_get(object, "step"));
    bool good = header || step || json_object_get(object, "eval");
    ampc_status s = AMPC_OK;
    r->line++;
    if (r->torn && !header)
        s = diag_error(r->d, AMPC_REJECTED, (diag_loc){.file = r->path, .line = r->torn}, "not a line of a step log");
    else if (step && !header) {
        rt_step_record record = step_of(object);
        s = keep_step(r, &record);
    }
    r->torn = good ? 0 : r->line;
    json_decref(object);
    return s;
}

ampc_status rt_log_read(const char *path, diag *d, rt_step_record **steps, size_t *count)
{
    log_reader r = {.path = path, .d = d};
    char *text = NULL;
    size_t capacity = 0;
    ssize_t n;
    ampc_status s = AMPC_OK;
    int fd;
    uint64_t size;
    TRY(rt_io_open_input(path, d, &fd, &size));
    FILE *f = fdopen(fd, "r");
    if (!f) {
        rt_io_close(fd);
        return diag_errno(d, DIAG_FILE(path), "cannot read");
    }
    while (s == AMPC_OK && (errno = 0, n = getline(&text, &capacity, f)) > 0) s = read_line(&r, text, (size_t)n);
    if (s == AMPC_OK && errno == ENOMEM) s = rt_no_memory(d);
    if (s == AMPC_OK && ferror(f)) s = diag_errno(d, DIAG_FILE(path), "cannot read");
    if (s == AMPC_OK && r.torn && !r.count) s = diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "not a step log");
    fclose(f);
    free(text);
    if (s == AMPC_OK) {
        *steps = r.steps;
        *count = r.count;
    } else free(r.steps);
    return s;
}
