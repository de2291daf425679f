/* calibration_file.c - the JSON file of statistics: an object per tensor. */
#include "ir/base/input_file.h"
#include "ir/base/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/json.h"
#include "runtime/inspect/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const rt_calibrated_kinds[RT_CALIBRATED_KINDS] = {"weight", "input", "activation", "gradient"};

int rt_calibration_shift(const rt_calibration *c, rt_calibrated_kind kind)
{
    return kind == RT_CALIBRATED_GRADIENT && c->scale > 0 ? ilogb(c->scale) : 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static void write_shares(json_writer *w, const char *key, ir_exponent_shares s)
{
    json_begin(w, key, '{');
    json_write_real(w, "below_subnormal", "%.9g", s.below_subnormal);
    json_write_real(w, "below_normal", "%.9g", s.below_normal);
    json_write_real(w, "flushed", "%.9g", s.flushed);
    json_write_real(w, "above", "%.9g", s.above);
    json_end(w, '}');
}

static void write_exponents(json_writer *w, const ir_exponents *e)
{
    int first = 0, end = IR_EXPONENTS;
    while (first < end && !e->bins[first]) first++;
    while (end > first && !e->bins[end - 1]) end--;
    json_begin(w, "exponents", '{');
    json_write_integer(w, "from", first < end ? first + IR_EXPONENT_LEAST : 0);
    json_begin(w, "counts", '[');
    for (int i = first; i < end; i++) json_write_integer(w, NULL, e->bins[i]);
    json_end(w, ']');
    json_end(w, '}');
}

static void write_tensor(json_writer *w, const rt_calibration *c, const rt_calibrated *t)
{
    const ir_exponents *e = &t->numbers;
    const bool any = ir_exponents_finite(e) > 0;
    json_begin(w, NULL, '{');
    json_write_string(w, "name", t->name);
    json_write_string(w, "node", t->node);
    json_write_string(w, "op", t->op);
    json_write_string(w, "kind", rt_calibrated_kinds[t->kind]);
    json_write_integer(w, "count", e->count);
    json_write_integer(w, "nan", e->nan);
    json_write_integer(w, "inf", e->inf);
    json_write_integer(w, "zero", e->zero);
    json_write_real(w, "min", "%.9g", any ? e->min : NAN);
    json_write_real(w, "max", "%.9g", any ? e->max : NAN);
    write_shares(w, "fp16", ir_exponents_in(e, IR_f16, 0));
    write_shares(w, "bf16", ir_exponents_in(e, IR_bf16, 0));
    const int shift = rt_calibration_shift(c, t->kind);
    if (shift) write_shares(w, "fp16_scaled", ir_exponents_in(e, IR_f16, shift));
    write_exponents(w, e);
    json_end(w, '}');
}

ampc_status rt_calibration_write(const rt_calibration *c, const char *path, diag *d)
{
    json_writer w;
    size_t n;
    if (!json_open_text(&w)) return rt_no_memory(d);
    json_begin(&w, NULL, '{');
    json_write_string(&w, "model", c->model);
    json_write_integer(&w, "samples", c->samples);
    json_write_real(&w, "scale", "%.9g", c->scale);
    json_begin(&w, "tensors", '[');
    for (size_t i = 0; i < c->tensors.count; i++) write_tensor(&w, c, c->tensors.items[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    char *text = json_close_text(&w, &n);
    const ampc_status status = text ? rt_atomic_save(path, text, n, d) : rt_no_memory(d);
    free(text);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------- */

enum { MAX_BYTES = 256 << 20 };
#define MAX_COUNT ((int64_t)1 << 53) /* exact as a double */

static const char *read_text(arena *a, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? arena_strdup(a, text) : NULL;
}

/* A count, of `most` elements; -1: missing, or none. */
static int64_t read_count(const json_t *object, const char *key, int64_t most)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) && json_integer_value(v) <= most ? json_integer_value(v) : -1;
}

/* The counts are those of the elements that no other count has. */
static bool read_exponents(const json_t *object, ir_exponents *e)
{
    const json_t *from = json_object_get(object, "from"), *counts = json_object_get(object, "counts");
    const size_t n = json_array_size(counts);
    const json_int_t least = json_integer_value(from);
    if (!json_is_integer(from) || !json_is_array(counts) || n > IR_EXPONENTS || least < IR_EXPONENT_LEAST ||
        least > IR_EXPONENT_MOST + 1 - (json_int_t)n)
        return false;
    int64_t left = ir_exponents_finite(e) - e->zero;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(counts, i);
        const json_int_t count = json_integer_value(v);
        if (!json_is_integer(v) || count < 0 || count > left) return false;
        e->bins[least - IR_EXPONENT_LEAST + (json_int_t)i] = count;
        left -= count;
    }
    return left == 0;
}

/* Null, of a tensor without finite elements, is 0. */
static bool read_number(const json_t *object, const char *key, double *x)
{
    const json_t *v = json_object_get(object, key);
    *x = json_number_value(v);
    return json_is_number(v) || json_is_null(v);
}

/* Returns the key that is wrong, or NULL. */
static const char *read_tensor(arena *a, const json_t *object, rt_calibrated *t)
{
    ir_exponents *e = &t->numbers;
    const char *kind = json_string_value(json_object_get(object, "kind"));
    int k = 0;
    while (kind && k < RT_CALIBRATED_KINDS && strcmp(kind, rt_calibrated_kinds[k]) != 0) k++;
    if (!kind || k == RT_CALIBRATED_KINDS) return "kind";
    t->kind = (rt_calibrated_kind)k;
    if (!(t->name = read_text(a, object, "name"))) return "name";
    if (!(t->node = read_text(a, object, "node"))) return "node";
    if (!(t->op = read_text(a, object, "op"))) return "op";
    if ((e->count = read_count(object, "count", MAX_COUNT)) < 0) return "count";
    if ((e->nan = read_count(object, "nan", e->count)) < 0) return "nan";
    if ((e->inf = read_count(object, "inf", e->count - e->nan)) < 0) return "inf";
    if ((e->zero = read_count(object, "zero", ir_exponents_finite(e))) < 0) return "zero";
    if (!read_number(object, "min", &e->min)) return "min";
    if (!read_number(object, "max", &e->max)) return "max";
    if (!read_exponents(json_object_get(object, "exponents"), e)) return "exponents";
    const double above = json_number_value(json_object_get(json_object_get(object, "fp16"), "above"));
    if (!(above >= 0 && above <= 1)) return "fp16";
    e->large = (int64_t)llround(above * (double)(ir_exponents_finite(e) - e->zero));
    return NULL;
}

static ampc_status read_tensors(const json_t *root, const char *path, arena *a, diag *d, rt_calibration *out)
{
    const json_t *tensors = json_object_get(root, "tensors");
    out->model = read_text(a, root, "model");
    out->samples = read_count(root, "samples", MAX_COUNT);
    out->scale = json_number_value(json_object_get(root, "scale"));
    if (!out->model || out->samples < 0 || !json_is_array(tensors))
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(path),
                          "no statistics of a calibration: 'model', 'samples' or 'tensors' is missing");
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        rt_calibrated *t = arena_alloc(a, sizeof *t);
        *t = (rt_calibrated){.name = NULL};
        const char *wrong = read_tensor(a, json_array_get(tensors, i), t);
        if (wrong)
            return diag_error(d, AMPC_REJECTED, DIAG_FILE(path), "no statistics of a calibration: '%s' of tensor %zu",
                              wrong, i);
        vec_push(a, &out->tensors, t);
    }
    return AMPC_OK;
}

ampc_status rt_calibration_read(const char *path, arena *a, diag *d, rt_calibration *out)
{
    char *text;
    size_t n;
    json_error_t e;
    json_t *root = NULL;
    *out = (rt_calibration){.model = NULL};
    TRY(input_read(path, MAX_BYTES, "no statistics of a calibration: 256 MiB or more", d, &text, &n));
    ampc_status status = rt_json_parse(text, n, false, &e, &root);
    free(text);
    if (status == AMPC_NO_MEMORY) return rt_no_memory(d);
    if (status != AMPC_OK)
        return diag_error(d, status, (diag_loc){.file = path, .line = e.line, .column = e.column},
                          "no statistics of a calibration: %s", e.text);
    status = read_tensors(root, path, a, d, out);
    json_decref(root);
    return status;
}
