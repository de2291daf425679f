/* normalize.c - normalises an input at the start of the network (--normalize), so that training, evaluation, inference
 * and exported models read the same raw data.
 *
 * (x / divide - mean) / std is computed as (x - divide * mean) / (divide * std): pixels up to 255 and their differences
 * from a mean are within the range of every float type. */
#include "passes/pass.h"

#include "ir/base/limits.h"
#include "ir/ops/settings.h"

#include <string.h>

typedef struct normalize_spec {
    const char *input; /* NULL: the first float input */
    double divide;
    const char *mean_text, *std_text; /* A/B/.. */
    double *mean, *std;
    int n_mean, n_std;
} normalize_spec;

static const setting keys[] = {
    SETTING_FROM(normalize_spec, "divide", divide, REAL, "1", "the divisor of the input", LIMITS_POSITIVE),
    SETTING_FROM(normalize_spec, "mean", mean_text, REALS, "0",
                 "the mean after the division, of all channels or of each", LIMITS_MEAN),
    SETTING_FROM(normalize_spec, "std", std_text, REALS, "1", "the standard deviation after the division, likewise",
                 LIMITS_POSITIVE),
};

const setting *pass_normalize_key(int index) { return index < (int)(sizeof keys / sizeof *keys) ? &keys[index] : NULL; }

static double *numbers(const char *text, arena *a, int *n)
{
    const size_t count = settings_numbers(text, NULL, 0);
    double *out = arena_array(a, count, sizeof *out);
    settings_numbers(text, out, count);
    *n = (int)count;
    return out;
}

static ampc_status parse_spec(char *text, arena *a, diag *d, normalize_spec *s)
{
    settings read = {.option = OPTION_normalize, .rows = keys, .count = sizeof keys / sizeof *keys};
    char *equals = text + strcspn(text, "="), *colon = memrchr(text, ':', (size_t)(equals - text));
    *s = (normalize_spec){.input = NULL};
    settings_defaults(keys, sizeof keys / sizeof *keys, s);
    if (colon) {
        *colon = '\0';
        s->input = text;
        text = colon + 1;
    }
    if (!*text || (s->input && !*s->input))
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(normalize), "expected [INPUT:]KEY=VALUE,..");
    TRY(settings_read(&read, text, s, d));
    s->mean = numbers(s->mean_text, a, &s->n_mean);
    s->std = numbers(s->std_text, a, &s->n_std);
    return AMPC_OK;
}

static ir_value *find_input(const ir_graph *g, const char *name)
{
    if (name) return ir_graph_find_input(g, name);
    for (size_t i = 0; i < g->inputs.count; i++)
        if (ir_dtype_is_float(g->inputs.items[i]->type.dtype)) return g->inputs.items[i];
    return NULL;
}

/* Channels are axis 1, or the last axis if only that has as many. Returns the number of axes after it; -1: none has. */
static int axes_after_channels(const ir_type *x, int channels)
{
    if (x->rank >= 2 && (x->dims[1] == channels || ir_dim_is_symbolic(x->dims[1]))) return x->rank - 2;
    if (x->rank >= 2 && (x->dims[x->rank - 1] == channels || ir_dim_is_symbolic(x->dims[x->rank - 1]))) return 0;
    return -1;
}

static ampc_status resolve(const normalize_spec *s, const ir_value *x, arena *a, diag *d, ir_normalization *out)
{
    const int count = s->n_mean > s->n_std ? s->n_mean : s->n_std;
    *out = (ir_normalization){.input = x->name, .count = count};
    if ((s->n_mean != 1 && s->n_mean != count) || (s->n_std != 1 && s->n_std != count))
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(normalize), "mean has %d numbers, std has %d", s->n_mean,
                          s->n_std);
    out->after = count == 1 ? 0 : axes_after_channels(&x->type, count);
    if (out->after < 0)
        return diag_error(d, AMPC_REJECTED, DIAG_OPTION(normalize), "input '%s' has no axis of %d channels", x->name,
                          count);
    out->shift = arena_array(a, (size_t)count, sizeof *out->shift);
    out->scale = arena_array(a, (size_t)count, sizeof *out->scale);
    for (int i = 0; i < count; i++) {
        out->shift[i] = (float)(s->divide * s->mean[s->n_mean == 1 ? 0 : i]);
        out->scale[i] = (float)(s->divide * s->std[s->n_std == 1 ? 0 : i]);
    }
    return AMPC_OK;
}

static ir_value *constant(ir_builder *b, const ir_value *x, const char *part, const ir_normalization *n,
                          const float *values)
{
    int64_t dims[IR_MAX_RANK];
    arena *a = b->graph->module->arena;
    const ir_type type = ir_type_make(x->type.dtype, ir_normalization_dims(n, dims), dims);
    void *bytes = arena_array(a, (size_t)n->count, ir_dtype_size(type.dtype));
    ir_convert(type.dtype, bytes, IR_f32, values, (size_t)n->count);
    return ir_constant(b, arena_printf(a, "%s.%s", x->name, part), &type, bytes);
}

static ampc_status insert(ir_graph *g, ir_value *x, const ir_normalization *n, diag *d)
{
    for (const ir_node *o = ir_first_output(g); o; o = ir_next_output(o))
        if (ir_in(o, 0) == x)
            return diag_error(d, AMPC_UNSUPPORTED, DIAG_OPTION(normalize), "input '%s' is also an output", x->name);
    ir_builder b = ir_builder_before(g->first, d);
    b.loc.op = b.loc.node = NULL;
    ir_value *shifted = ir_binary(&b, IR_OP_sub, x, constant(&b, x, "shift", n, n->shift));
    ir_value *y = ir_binary(&b, IR_OP_div, shifted, constant(&b, x, "scale", n, n->scale));
    if (!y) return diag_status(d);
    ir_value_replace(x, y);
    ir_node_set_input(ir_def(shifted), 0, x);
    ir_value_rename(y, arena_printf(g->module->arena, "%s.normalized", x->name));
    return AMPC_OK;
}

ampc_status pass_normalize(ir_module *m, compile *c)
{
    normalize_spec spec;
    ir_normalization n;
    ir_graph *g = ir_graph_by_role(m, IR_GRAPH_forward);
    if (!c->options->normalize) return AMPC_OK;
    if (!g || m->training.recipe)
        return diag_error(c->diag, AMPC_UNSUPPORTED, DIAG_OPTION(normalize), "a recipe has several models");
    TRY(parse_spec(arena_strdup(m->arena, c->options->normalize), m->arena, c->diag, &spec));
    ir_value *x = find_input(g, spec.input);
    if (!x || !ir_dtype_is_float(x->type.dtype))
        return diag_error(c->diag, AMPC_REJECTED, DIAG_OPTION(normalize), "the model has no float input%s%s%s",
                          spec.input ? " '" : "", spec.input ? spec.input : "", spec.input ? "'" : "");
    TRY(resolve(&spec, x, m->arena, c->diag, &n));
    TRY(insert(g, x, &n, c->diag));
    m->training.normalization = n;
    return AMPC_OK;
}
