/* info_data.c - describes data: samples, fields, classes, images, and what was left out. */
#include "runtime/data/data_summary.h"
#include "runtime/data/kinds.h"
#include "tools/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 32 };               /* classes that are printed */
static const double SECONDS = 1.5; /* for each field */

typedef struct data {
    tool *tool;
    const char *spec;
    rt_dataset *set;
    int64_t evaluation; /* samples for --eval-data; 0: none */
    rt_field_summary *fields;
    size_t count;
    info_messages notes, problems;
} data;

/* ---- texts ------------------------------------------------------------------------------------- */

static const char *type_text(const data *c, const rt_field *f)
{
    const char *text = ir_dtype_name(f->dtype);
    for (int i = 0; i < f->rank; i++)
        text = arena_printf(c->tool->arena, "%s%s%" PRId64, text, i ? "," : "[", f->dims[i]);
    return arena_printf(c->tool->arena, "%s%s", text, f->rank ? "]" : "");
}

/* Three numbers as the options mean and std accept them. */
static const char *channels_text(const rt_field_summary *f, bool deviation, arena *a)
{
    const char *text = "";
    for (int i = 0; i < f->channels; i++)
        text = arena_printf(a, "%s%s%.4g", text, i ? "/" : "",
                            deviation ? rt_moments_deviation(&f->channel[i]) : f->channel[i].mean);
    return text;
}

static const char *values_text(const data *c, const rt_field_summary *f)
{
    arena *a = c->tool->arena;
    const char *text = "no values";
    if (f->channels)
        text = arena_printf(a, "%.6g to %.6g, mean %s, std %s", f->min, f->max, channels_text(f, false, a),
                            channels_text(f, true, a));
    else if (f->all.n)
        text = arena_printf(a, "%.6g to %.6g, mean %.6g, std %.6g", f->min, f->max, f->all.mean,
                            rt_moments_deviation(&f->all));
    if (f->missing) text = arena_printf(a, "%s, %s", text, info_count(f->missing, "missing value", a));
    if (f->infinite) text = arena_printf(a, "%s, %s", text, info_count(f->infinite, "infinite value", a));
    return text;
}

/* " (100 of 50000 read)", or nothing. */
static const char *part_text(const data *c, const rt_field *field, const rt_field_summary *f)
{
    const int64_t rows = rt_dataset_rows(c->set);
    if (field->whole) return ", the same in every sample";
    return f->rows == rows ? "" : arena_printf(c->tool->arena, " (%" PRId64 " of %" PRId64 " read)", f->rows, rows);
}

static bool is_label(const rt_field *f)
{
    bool found = false;
    for (const char *const *name = rt_label_names; *name && !found; name++) found = strcmp(f->name, *name) == 0;
    return found;
}

/* The names of the numbers in a field; NULL: none. */
static const rt_names *names_of(const data *c, size_t i)
{
    const rt_field *f = rt_dataset_field(c->set, i);
    const rt_code *code = rt_codebook_find(rt_dataset_codes(c->set), is_label(f) ? RT_CODE_LABEL : f->name);
    return code && code->names.count ? &code->names : NULL;
}

/* Whether the numbers are those of classes or categories. */
static bool has_classes(const data *c, size_t i)
{
    const rt_field_summary *f = &c->fields[i];
    return f->counts && f->classes && (names_of(c, i) || is_label(rt_dataset_field(c->set, i)));
}

static const char *class_text(const data *c, size_t i, int64_t number)
{
    const rt_names *names = names_of(c, i);
    const char *name = names && (size_t)number < names->count ? names->items[number] : NULL;
    if (!name) return arena_printf(c->tool->arena, "%" PRId64, number);
    return arena_printf(c->tool->arena, "%" PRId64 " (%s)", number, *name ? name : "missing");
}

/* ---- sections ---------------------------------------------------------------------------------- */

static void print_samples(const void *subject)
{
    const data *c = subject;
    info_line("data", "%s", c->spec);
    info_line("samples", "%" PRId64 " for --data, %s for --eval-data", rt_dataset_rows(c->set),
              c->evaluation ? arena_printf(c->tool->arena, "%" PRId64, c->evaluation) : "none");
}

static void write_samples(const void *subject, json_writer *w)
{
    const data *c = subject;
    json_write_string(w, "data", c->spec);
    json_write_integer(w, "samples", rt_dataset_rows(c->set));
    json_write_integer(w, "evaluation_samples", c->evaluation);
}

static void print_classes(const data *c, size_t i)
{
    const rt_field_summary *f = &c->fields[i];
    for (int64_t k = 0; k < f->classes && k < SHOWN; k++)
        info_line("", "    %s: %" PRId64, class_text(c, i, k), f->counts[k]);
    if (f->classes > SHOWN) info_line("", "    and %" PRId64 " more classes, which --json lists", f->classes - SHOWN);
}

static void print_images(const rt_field_summary *f)
{
    const int *low = f->min_size, *high = f->max_size;
    if (!f->images) return;
    info_line("", "    files of %dx%d to %dx%d pixels (width, height), %d%s channel%s", low[0], low[1], high[0],
              high[1], low[2],
              low[2] == high[2] ? ""
              : low[2] == 1     ? " or 3"
                                : "",
              high[2] == 1 ? "" : "s");
}

static void print_fields(const void *subject)
{
    const data *c = subject;
    for (size_t i = 0; i < c->count; i++) {
        const rt_field *field = rt_dataset_field(c->set, i);
        const rt_field_summary *f = &c->fields[i];
        info_line(i ? "" : "arrays", "%s: %s, %s%s", field->name, type_text(c, field), values_text(c, f),
                  part_text(c, field, f));
        if (has_classes(c, i)) print_classes(c, i);
        print_images(f);
    }
    if (!c->count) info_line("arrays", "those that the model reads");
}

static void write_classes(json_writer *w, const data *c, size_t i)
{
    const rt_field_summary *f = &c->fields[i];
    const rt_names *names = names_of(c, i);
    json_begin(w, "classes", '[');
    for (int64_t k = 0; k < f->classes; k++) {
        json_begin(w, NULL, '{');
        if (names && (size_t)k < names->count) json_write_string(w, "name", names->items[k]);
        json_write_integer(w, "count", f->counts[k]);
        json_end(w, '}');
    }
    json_end(w, ']');
}

static void write_size(json_writer *w, const char *key, const int size[3])
{
    json_begin(w, key, '{');
    json_write_integer(w, "width", size[0]);
    json_write_integer(w, "height", size[1]);
    json_write_integer(w, "channels", size[2]);
    json_end(w, '}');
}

static void write_field(json_writer *w, const data *c, size_t i)
{
    const rt_field *field = rt_dataset_field(c->set, i);
    const rt_field_summary *f = &c->fields[i];
    json_begin(w, NULL, '{');
    json_write_string(w, "name", field->name);
    json_write_string(w, "type", type_text(c, field));
    json_write_bool(w, "whole", field->whole);
    json_write_integer(w, "rows_read", f->rows);
    json_write_integer(w, "rows_failed", f->failed);
    json_write_integer(w, "missing", f->missing);
    json_write_integer(w, "infinite", f->infinite);
    if (f->all.n) {
        json_write_real(w, "min", "%.9g", f->min);
        json_write_real(w, "max", "%.9g", f->max);
        json_write_real(w, "mean", "%.9g", f->all.mean);
        json_write_real(w, "std", "%.9g", rt_moments_deviation(&f->all));
    }
    if (f->channels) json_write_string(w, "channel_mean", channels_text(f, false, c->tool->arena));
    if (f->channels) json_write_string(w, "channel_std", channels_text(f, true, c->tool->arena));
    if (f->images) write_size(w, "smallest_image", f->min_size);
    if (f->images) write_size(w, "largest_image", f->max_size);
    if (has_classes(c, i)) write_classes(w, c, i);
    json_end(w, '}');
}

static void write_fields(const void *subject, json_writer *w)
{
    const data *c = subject;
    json_begin(w, "arrays", '[');
    for (size_t i = 0; i < c->count; i++) write_field(w, c, i);
    json_end(w, ']');
}

static void print_notes(const void *subject)
{
    const data *c = subject;
    info_messages_print(&c->notes, "notes");
    info_messages_print(&c->problems, "damaged");
}

static void write_notes(const void *subject, json_writer *w)
{
    const data *c = subject;
    info_messages_write(&c->notes, w, "notes");
    info_messages_write(&c->problems, w, "problems");
}

static const char *next_text(const data *c)
{
    bool missing = false;
    for (size_t i = 0; i < c->count; i++) missing |= c->fields[i].missing != 0;
    return arena_printf(c->tool->arena, "ampc-run train MODEL --data=%s%s --epochs=N", c->spec,
                        missing && strncmp(c->spec, "csv:", 4) == 0 ? ",missing=mean" : "");
}

static void print_next(const void *subject) { info_print_next(next_text(subject), true); }

static void write_next(const void *subject, json_writer *w)
{
    json_write_string(w, "next_command", next_text(subject));
}

static const info_section sections[] = {
    {print_samples, write_samples},
    {print_fields, write_fields},
    {print_notes, write_notes},
    {print_next, write_next},
    {NULL, NULL},
};

/* ---- the operand ------------------------------------------------------------------------------- */

ampc_status info_is_data(const char *operand, diag *d, bool *out)
{
    (void)d;
    *out = rt_kinds_detect(operand);
    return AMPC_OK;
}

static ampc_status open_part(const data *c, rt_split split, diag *d, rt_dataset **out)
{
    const rt_dataset_options o = {.split = split, .describes = true};
    return rt_dataset_open(c->spec, &o, d, out);
}

/* The number of samples that an evaluation reads. */
static ampc_status count_evaluation(data *c)
{
    rt_dataset *part = NULL;
    diag *quiet = diag_new(NULL, NULL);
    if (!quiet) return AMPC_NO_MEMORY;
    const ampc_status status = open_part(c, RT_TEST, quiet, &part);
    if (status == AMPC_OK) c->evaluation = rt_dataset_rows(part);
    rt_dataset_close(part);
    diag_free(quiet);
    return status == AMPC_NO_MEMORY ? status : AMPC_OK;
}

static ampc_status describe(data *c, diag *notes, diag *problems)
{
    TRY(open_part(c, RT_TRAIN, notes, &c->set));
    c->count = rt_dataset_field_count(c->set);
    c->fields = arena_array(c->tool->arena, c->count + 1, sizeof *c->fields);
    for (size_t i = 0; i < c->count; i++) TRY(rt_dataset_summarize(c->set, i, SECONDS, problems, &c->fields[i]));
    TRY(count_evaluation(c));
    info_report(c->tool, sections, c);
    return AMPC_OK;
}

ampc_status info_data(tool *t)
{
    data c = {.tool = t, .spec = t->o.operands.items[0]};
    diag *notes = info_messages_open(t, DIAG_REMARK, DIAG_NOTE, &c.notes);
    diag *problems = info_messages_open(t, DIAG_ERROR, DIAG_NOTE, &c.problems);
    const ampc_status status = notes && problems ? describe(&c, notes, problems) : AMPC_NO_MEMORY;
    for (size_t i = 0; i < c.count; i++) rt_field_summary_clear(&c.fields[i]);
    rt_dataset_close(c.set);
    diag_free(problems);
    diag_free(notes);
    return status;
}
