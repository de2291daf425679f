/* run_metrics.c - the metrics that options choose, and evaluations as text and JSON. */
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

ampc_status run_parse_metrics(run_context *c, rt_metric_choices *out)
{
    const pass_strings *names = &c->tool->o.metrics;
    *out = (rt_metric_choices){.count = 0};
    for (int i = 0; i < names->count; i++) TRY(rt_metrics_parse(names->items[i], OPTION_metrics, c->tool->diag, out));
    return AMPC_OK;
}

/* "loss" is shown as `loss`. */
static const char *shown(const rt_eval_value *v, const char *loss)
{
    return strcmp(v->name, "loss") == 0 ? loss : v->name;
}

void run_print_values(const rt_eval *e, const char *loss)
{
    for (int i = 0; i < e->count; i++) {
        const rt_eval_value *v = &e->value[i];
        if (!v->named && !isfinite(v->value)) continue;
        printf("%s ", shown(v, loss));
        printf(v->format, v->value);
        printf("  ");
    }
}

void run_print_confusion(const rt_eval *e)
{
    int width = 1;
    for (int64_t i = 0; e->confusion && i < e->classes * e->classes; i++) {
        const int n = snprintf(NULL, 0, "%" PRId64, e->confusion[i]);
        width = n > width ? n : width;
    }
    for (int64_t row = 0; e->confusion && row < e->classes; row++) {
        printf("label %" PRId64, row);
        if ((size_t)row < e->names.count) diag_print(stdout, " (%s)", e->names.items[row]);
        putchar(':');
        for (int64_t i = 0; i < e->classes; i++) printf(" %*" PRId64, width, e->confusion[row * e->classes + i]);
        putchar('\n');
    }
}

void run_write_values(json_writer *w, const rt_eval *e, const char *loss)
{
    for (int i = 0; i < e->count; i++) json_write_real(w, shown(&e->value[i], loss), "%.9g", e->value[i].value);
    if (!e->confusion) return;
    for (size_t i = 0; i < e->names.count; i++) {
        if (i == 0) json_begin(w, "classes", '[');
        json_write_string(w, NULL, e->names.items[i]);
        if (i + 1 == e->names.count) json_end(w, ']');
    }
    json_begin(w, "confusion", '[');
    for (int64_t row = 0; row < e->classes; row++) {
        json_begin(w, NULL, '[');
        for (int64_t i = 0; i < e->classes; i++) json_write_integer(w, NULL, e->confusion[row * e->classes + i]);
        json_end(w, ']');
    }
    json_end(w, ']');
}
