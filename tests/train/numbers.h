/* numbers.h - numbers for inputs and parameters of networks. */
#ifndef TESTS_TRAIN_NUMBERS_H
#define TESTS_TRAIN_NUMBERS_H

#include "ir/base/philox.h"
#include "tests/session.h"
#include "tests/unit/scratch.h"

static inline void must(const scratch *t, ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static inline size_t count(const rt_tensor *v)
{
    size_t elements = 1;
    for (int i = 0; i < v->rank; i++) elements *= (size_t)v->dims[i];
    return elements;
}

/* Fills an input or a parameter with numbers that differ by stream: labels are 0 to 2. */
static inline void fill(rt_tensor *v, uint64_t stream)
{
    for (size_t i = 0; i < count(v); i++) {
        double u = philox_unit(philox_word(5, stream, i));
        if (v->dtype == IR_i64) ((int64_t *)v->data)[i] = (int64_t)(u * 3);
        else ir_store_f64(v->dtype, (char *)v->data + i * ir_dtype_size(v->dtype), 1.6 * u - 0.8);
    }
}

/* Makes the inputs of the graph, which the caller frees; returns their number. */
static inline int make_inputs(const ir_graph *g, rt_tensor *in)
{
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        in[i] = (rt_tensor){.name = v->name, .dtype = v->type.dtype, .rank = v->type.rank};
        for (int k = 0; k < in[i].rank; k++) in[i].dims[k] = v->type.dims[k];
        in[i].data = calloc(count(&in[i]), 8);
        fill(&in[i], i);
    }
    return (int)g->inputs.count;
}

static inline void set_parameters(scratch *t, rt_session *s)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        ir_storage_kind kind;
        rt_session_storage_at(s, i, &v, &kind);
        if (kind != IR_PARAM) continue;
        v.data = calloc(count(&v), sizeof(float));
        fill(&v, 100 + (uint64_t)v.name[0] * 256 + (uint64_t)v.name[1]);
        must(t, rt_session_write(s, i, v.data, t->d));
        free(v.data);
    }
}

#endif
