/* infer_foreign.c - results of an operator that is only carried along: the types that are written with it. */
#include "ir/infer.h"

/* "f32[N,3]" at *at; steps over it. */
static bool read_type(ir_dim_table *dims, const char **at, ir_type *out)
{
    const char *p = *at;
    char name[8];
    size_t n = 0;
    while (*p && *p != '[' && n + 1 < sizeof name) name[n++] = *p++;
    name[n] = '\0';
    *out = (ir_type){.dtype = ir_dtype_parse(name)};
    if (out->dtype == IR_NO_DTYPE || *p++ != '[') return false;
    while (*p != ']') {
        if (out->rank == IR_MAX_RANK || (out->rank && *p++ != ',')) return false;
        ir_dim d = ir_dim_parse(dims, p, &p);
        if (d == IR_DIM_NONE || (!ir_dim_is_symbolic(d) && d < 0)) return false;
        out->dims[out->rank++] = d;
    }
    *at = p + 1;
    return true;
}

ampc_status infer_foreign(const inference *x)
{
    const char *at = infer_attr(x, "types")->s, *all = at;
    for (int i = 0; i < x->node->n_out; i++) {
        ir_type type;
        if ((i && *at++ != ',') || !read_type(x->dims, &at, &type))
            return infer_reject(x, "types \"%s\" are not %d types", all, x->node->n_out);
        TRY(infer_result(x, i, type));
    }
    return *at ? infer_reject(x, "types \"%s\" are not %d types", all, x->node->n_out) : AMPC_OK;
}
