/* predict_output.c - the rows of an output that belong to samples. */
#include "runtime/train/prediction.h"

#include <inttypes.h>

int64_t rt_prediction_inner(const rt_tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < t->rank; i++) n *= t->dims[i];
    return n;
}

int64_t rt_prediction_outer(const rt_tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < axis; i++) n *= t->dims[i];
    return n;
}

ampc_status rt_prediction_output(const rt_prediction *p, int index, const rt_tensor **out)
{
    const rt_predicted_output *o = &p->outputs[index];
    const rt_tensor *t = rt_session_output(p->session, o->name);
    TRY(rt_session_fetched(p->session, p->d));
    *out = t;
    if (t && t->rank > o->axis && t->dims[o->axis] % rt_loader_samples(p->feed) == 0) return AMPC_OK;
    return diag_error(p->d, AMPC_UNSUPPORTED, DIAG_NOWHERE,
                      "output '%s' has %" PRId64 " rows for %" PRId64 " samples, so they cannot be told apart", o->name,
                      t && t->rank > o->axis ? t->dims[o->axis] : 0, rt_loader_samples(p->feed));
}
