/* data_summary.c - summarises the fields of a data set. */
#include "runtime/data/data_summary.h"

#include "runtime/backend/memory.h"
#include "runtime/data/image_columns.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_ROWS = 1 << 20, MAX_FAILED = 16, FIRST_ROWS = 4 };

typedef struct summary {
    const rt_dataset *ds;
    size_t index;
    const rt_field *field;
    diag *d;
    rt_field_summary *out;
    double *values; /* of a row */
    int64_t elements;
    rt_image_layout layout; /* of images */
} summary;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(rt_moments *m, double value)
{
    const double before = value - m->mean;
    m->mean += before / (double)++m->n;
    m->squares += before * (value - m->mean);
}

double rt_moments_deviation(const rt_moments *m) { return m->n ? sqrt(m->squares / (double)m->n) : 0; }

/* ---- one row ----------------------------------------------------------------------------------- */

static int channel_of(const summary *s, int64_t element)
{
    const rt_image_layout *l = &s->layout;
    return (int)(l->depth > 1 ? element % l->depth : element / (l->height * l->width));
}

static void count(rt_field_summary *out, double value)
{
    if (!out->counts) return;
    if (value < 0 || value >= RT_SUMMARY_CLASSES) {
        free(out->counts);
        out->counts = NULL;
        out->classes = 0;
        return;
    }
    out->counts[(int)value]++;
    if (value >= (double)out->classes) out->classes = (int64_t)value + 1;
}

static void add_value(const summary *s, int64_t element)
{
    rt_field_summary *out = s->out;
    const double value = s->values[element];
    out->missing += isnan(value);
    out->infinite += isinf(value);
    if (!isfinite(value)) return;
    if (!out->all.n || value < out->min) out->min = value;
    if (!out->all.n || value > out->max) out->max = value;
    add(&out->all, value);
    if (out->channels) add(&out->channel[channel_of(s, element)], value);
    count(out, value);
}

static void add_size(rt_field_summary *out, const int size[3])
{
    for (int i = 0; i < 3; i++) {
        if (!out->images || size[i] < out->min_size[i]) out->min_size[i] = size[i];
        if (!out->images || size[i] > out->max_size[i]) out->max_size[i] = size[i];
    }
    out->images++;
}

static ampc_status read_row(const summary *s, int64_t row)
{
    int size[3];
    ampc_status status = rt_dataset_image_size(s->ds, rt_dataset_row(s->ds, row), s->index, s->d, size);
    if (status == AMPC_OK) add_size(s->out, size);
    if (status == AMPC_OK || status == AMPC_UNSUPPORTED)
        status = rt_dataset_slice(s->ds, row, 1, s->index, s->values, IR_f64, s->d);
    if (status == AMPC_NO_MEMORY) return status;
    s->out->rows++;
    if (status != AMPC_OK) s->out->failed++;
    for (int64_t i = 0; status == AMPC_OK && i < s->elements; i++) add_value(s, i);
    return AMPC_OK;
}

/* ---- the rows ---------------------------------------------------------------------------------- */

/* How many rows can be read in the time, at the pace of the first ones. */
static int64_t choose_rows(const summary *s, double seconds)
{
    const int64_t all = rt_dataset_rows(s->ds), first = all < FIRST_ROWS ? all : FIRST_ROWS;
    const int64_t most = all < MAX_ROWS ? all : MAX_ROWS;
    diag *quiet = diag_new(NULL, NULL);
    const double start = now();
    if (!quiet || s->field->whole) {
        diag_free(quiet);
        return 1;
    }
    rt_field_summary unused = {.channels = s->out->channels};
    summary trial = *s;
    trial.d = quiet;
    trial.out = &unused;
    for (int64_t i = 0; i < first; i++) read_row(&trial, i);
    diag_free(quiet);
    const double possible = seconds / ((now() - start) / (double)first + 1e-9);
    if (possible >= (double)most) return most;
    return possible < (double)first ? first : (int64_t)possible;
}

static ampc_status read_rows(const summary *s, double seconds)
{
    const int64_t all = s->field->whole ? 1 : rt_dataset_rows(s->ds), n = choose_rows(s, seconds);
    const bool counts = ir_dtype_is_int(s->field->dtype) && s->elements == 1 && !s->field->whole;
    if (counts && !(s->out->counts = calloc(RT_SUMMARY_CLASSES, sizeof *s->out->counts))) return rt_no_memory(s->d);
    for (int64_t i = 0; i < n && s->out->failed < MAX_FAILED; i++)
        TRY(read_row(s, n == all ? i : (int64_t)((double)i * ((double)all / (double)n))));
    return AMPC_OK;
}

ampc_status rt_dataset_summarize(const rt_dataset *ds, size_t index, double seconds, diag *d, rt_field_summary *out)
{
    summary s = {.ds = ds, .index = index, .field = rt_dataset_field(ds, index), .d = d, .out = out};
    *out = (rt_field_summary){.rows = 0};
    s.elements = rt_field_elements(s.field);
    const bool image = ir_dtype_is_float(s.field->dtype) && s.field->rank == 3 &&
                       rt_image_layout_of(s.field, &s.layout);
    const int64_t channels = image ? s.layout.planes * s.layout.depth : 0;
    if (channels == 1 || channels == RT_SUMMARY_CHANNELS) out->channels = (int)channels;
    s.values = malloc((size_t)s.elements * sizeof *s.values + 1);
    const ampc_status status = s.values ? read_rows(&s, seconds) : rt_no_memory(d);
    free(s.values);
    return status;
}

void rt_field_summary_clear(rt_field_summary *s)
{
    free(s->counts);
    s->counts = NULL;
}
