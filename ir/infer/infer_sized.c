/* infer_sized.c - ops whose results are rows up to a bound and a count of the valid ones, and trim, which cuts them. */
#include "ir/infer/infer.h"

#include <inttypes.h>

/* With the sizes of all symbols known (bound.c), the size is the number that the run has computed. */
ampc_status infer_trim(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    const int64_t *size;
    TRY(infer_expect_rank(x, 0, 1, IR_MAX_RANK));
    TRY(infer_expect_scalar(x, 1));
    TRY(infer_list(x, "size", 1, &size));
    if (!ir_dim_is_symbolic(size[0]) && !ir_dim_is_symbolic(from->dims[0]) && size[0] > from->dims[0])
        return infer_reject(x, "the size of its result would be %" PRId64 ", but at most %" PRId64 " is possible",
                            size[0], from->dims[0]);
    ir_type to = infer_untyped(from->rank, from->dims);
    to.dims[0] = size[0];
    return infer_result(x, 0, to);
}

static ir_type rows_of(ir_dim bound, ir_dim width) { return infer_untyped(2, (const ir_dim[]){bound, width}); }

ampc_status infer_nonzero(const inference *x)
{
    const ir_type *from = infer_in(x, 0);
    TRY(infer_result(x, IR_OUT(nonzero, positions), rows_of(ir_type_count(x->dims, from), from->rank)));
    return infer_result(x, IR_OUT(nonzero, count), (ir_type){0});
}

static bool differ(const inference *x, ir_dim a, ir_dim b) { return !ir_dim_may_equal(x->dims, a, b); }

ampc_status infer_nms(const inference *x)
{
    const ir_type *boxes = infer_operand(x, "boxes"), *scores = infer_operand(x, "scores");
    const int64_t *limit;
    if (boxes->rank != 3 || differ(x, boxes->dims[2], 4))
        return infer_reject(x, "boxes must be [batch,N,4], are %s", infer_show(x, boxes));
    if (scores->rank != 3 || differ(x, scores->dims[0], boxes->dims[0]) || differ(x, scores->dims[2], boxes->dims[1]))
        return infer_reject(x, "scores must be [batch,class,N] for boxes %s, are %s", infer_show(x, boxes),
                            infer_show(x, scores));
    for (int i = IR_IN(nms, max); i <= IR_IN(nms, score); i++) TRY(infer_expect_scalar(x, i));
    TRY(infer_list(x, "limit", 1, &limit));
    if (!ir_dim_is_symbolic(limit[0]) && limit[0] < 0) return infer_reject(x, "limit is %" PRId64, limit[0]);
    const ir_dim bound = ir_dim_product(x->dims, (const ir_dim[]){scores->dims[0], scores->dims[1], limit[0]}, 3);
    TRY(infer_result(x, IR_OUT(nms, selected), rows_of(bound, 3)));
    return infer_result(x, IR_OUT(nms, count), (ir_type){0});
}

ampc_status infer_unique(const inference *x)
{
    TRY(infer_expect_rank(x, 0, 1, IR_MAX_RANK));
    const ir_type rows = infer_untyped(1, infer_in(x, 0)->dims);
    for (int i = 0; i < IR_OUT(unique, count); i++) TRY(infer_result(x, i, rows));
    return infer_result(x, IR_OUT(unique, count), (ir_type){0});
}
