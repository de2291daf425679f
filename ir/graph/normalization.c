/* normalization.c - the entry "normalize": "AFTER SHIFT/SHIFT/.. SCALE/SCALE/.. INPUT". */
#include "ir/graph/normalization.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nine digits restore an f32. */
static const char *print_numbers(arena *a, const float *numbers, int n)
{
    const char *text = arena_printf(a, "%.9g", (double)numbers[0]);
    for (int i = 1; i < n; i++) text = arena_printf(a, "%s/%.9g", text, (double)numbers[i]);
    return text;
}

void ir_normalization_set(ir_module *m, const ir_normalization *n)
{
    arena *a = m->arena;
    ir_meta_set(m, IR_NORMALIZATION,
                arena_printf(a, "%d %s %s %s", n->after, print_numbers(a, n->shift, n->count),
                             print_numbers(a, n->scale, n->count), n->input));
}

/* Parses numbers up to a space, which it skips; returns their count, 0 if malformed. */
static int parse_numbers(const char **text, arena *a, float **out)
{
    int count = 1, n = 0;
    const size_t length = strcspn(*text, " ");
    for (size_t i = 0; i < length; i++) count += (*text)[i] == '/';
    *out = arena_array(a, (size_t)count, sizeof **out);
    for (char *end; n < count; *text = end + 1) {
        (*out)[n++] = strtof(*text, &end);
        if (end == *text || !isfinite((*out)[n - 1]) || *end != (n < count ? '/' : ' ')) return 0;
    }
    return count;
}

ampc_status ir_normalization_parse(const char *text, arena *a, diag *d, ir_normalization *out)
{
    char *end;
    ir_normalization n = {0};
    const long after = strtol(text, &end, 10);
    if (end != text && *end == ' ' && after >= 0 && after < IR_MAX_RANK) {
        text = end + 1;
        n.after = (int)after;
        n.count = parse_numbers(&text, a, &n.shift);
    }
    if (!n.count || parse_numbers(&text, a, &n.scale) != n.count || !*text)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the module's entry '" IR_NORMALIZATION "' is malformed");
    n.input = text;
    *out = n;
    return AMPC_OK;
}

int ir_normalization_dims(const ir_normalization *n, int64_t *dims)
{
    if (n->count == 1) return 0;
    dims[0] = n->count;
    for (int i = 1; i <= n->after; i++) dims[i] = 1;
    return n->after + 1;
}
