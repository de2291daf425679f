/* infer_resample.c - resize and its gradient. */
#include "ir/infer.h"

#include <inttypes.h>

/* Checks a list of quotients: numerators, and denominators that are not 0. */
static ampc_status check_quotients(const inference *x, const char *name, int count, int64_t low)
{
    const ir_attr *list = infer_attr(x, name);
    if (!list->list.count) return AMPC_OK;
    if (list->list.count != 2 * count)
        return infer_reject(x, "%s needs %d entries, has %d", name, 2 * count, list->list.count);
    for (int i = 0; i < count; i++)
        if (list->list.items[2 * i] < low || list->list.items[2 * i + 1] < 1)
            return infer_reject(x, "%s %" PRId64 "/%" PRId64 " is out of range", name, list->list.items[2 * i],
                                list->list.items[2 * i + 1]);
    return AMPC_OK;
}

/* `from` has the sizes before resizing, `to` those after it; they differ only in the listed axes. */
static ampc_status check_resize(const inference *x, const ir_type *from, const ir_type *to)
{
    const ir_attr *axes = infer_attr(x, "axes");
    bool resized[IR_MAX_RANK] = {false};
    for (int i = 0; i < axes->list.count; i++) {
        const int64_t axis = axes->list.items[i];
        if (axis < 0 || axis >= from->rank || resized[axis])
            return infer_reject(x, "axis %" PRId64 " is out of range or listed twice", axis);
        resized[axis] = true;
    }
    bool same = from->rank == to->rank;
    for (int i = 0; i < from->rank && same; i++) {
        same = resized[i] || from->dims[i] == to->dims[i];
        if (resized[i] && from->dims[i] == 0 && to->dims[i] != 0 && !ir_dim_is_symbolic(to->dims[i]))
            return infer_reject(x, "axis %d has no elements to resize", i);
    }
    if (!same) return infer_reject(x, "cannot resize %s to %s", infer_show(x, from), infer_show(x, to));
    TRY(check_quotients(x, "scales", axes->list.count, 1));
    return check_quotients(x, "region", 2 * axes->list.count, INT64_MIN);
}

ampc_status infer_resize(const inference *x)
{
    ir_type to;
    TRY(infer_shape(x, "shape", &to));
    TRY(check_resize(x, infer_in(x, 0), &to));
    return infer_result(x, 0, to);
}

ampc_status infer_resize_grad(const inference *x)
{
    ir_type from;
    TRY(infer_shape(x, "shape", &from));
    TRY(check_resize(x, &from, infer_in(x, 0)));
    return infer_result(x, 0, from);
}
