/* api_data.c - data sets in the memory of the caller, or read by a function of the caller. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"

#include <stdlib.h>
#include <string.h>

static void clear(ampc_data *data)
{
    for (size_t i = 0; data->fields && i < data->source.n_fields; i++)
        free((char *)(uintptr_t)data->fields[i].field.name);
    free(data->fields);
    free((char *)(uintptr_t)data->source.options);
    free(data);
}

static ampc_status check_field(const ampc_data_field *f, size_t i, diag *d)
{
    const char *why = NULL;
    if (!f->name) why = "has no name";
    else if ((int)f->dtype <= IR_NO_DTYPE || (int)f->dtype >= IR_DTYPE_COUNT) why = "has an unknown element type";
    else if (f->rank < 0 || f->rank > AMPC_MAX_RANK) why = "has an invalid rank";
    for (int k = 0; !why && k < f->rank; k++)
        if (f->dims[k] < 0) why = "has a negative dimension";
    return why ? diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "field %zu of the data %s", i, why) : AMPC_OK;
}

static ampc_status copy_field(const ampc_data_field *from, rt_source_field *to, diag *d)
{
    *to = (rt_source_field){.field = {.name = strdup(from->name),
                                      .dtype = (ir_dtype)from->dtype,
                                      .whole = from->whole != 0,
                                      .rank = from->rank},
                            .data = from->data};
    memcpy(to->field.dims, from->dims, (size_t)from->rank * sizeof *from->dims);
    return to->field.name ? AMPC_OK : rt_no_memory(d);
}

static ampc_status copy_source(const ampc_data_options *o, ampc_data *data, diag *d)
{
    data->source = (rt_source){.n_fields = o->n_fields,
                               .rows = o->rows,
                               .read = o->read,
                               .user = o->user,
                               .one_thread = o->one_thread != 0,
                               .options = o->options ? strdup(o->options) : NULL};
    data->source.fields = data->fields = calloc(o->n_fields + 1, sizeof *data->fields);
    if (!data->fields || !o->options != !data->source.options) return rt_no_memory(d);
    for (size_t i = 0; i < o->n_fields; i++) TRY(copy_field(&o->fields[i], &data->fields[i], d));
    return AMPC_OK;
}

/* Opening it shows whether the description is valid. */
static ampc_status try_source(const ampc_data *data, diag *d)
{
    rt_dataset *opened;
    TRY(rt_dataset_open_source(&data->source, RT_TRAIN, NULL, d, &opened));
    rt_dataset_close(opened);
    return AMPC_OK;
}

ampc_status ampc_data_create(ampc_context *context, const ampc_data_options *options, ampc_data **data)
{
    ampc_data_options o;
    diag *d;
    TRY(api_enter(context, &d));
    NEED(options);
    TRY(api_options(options, &o, sizeof o, d));
    NEED(data);
    if (o.n_fields) NEED(o.fields);
    if (o.n_fields == 0 || o.n_fields > INT32_MAX)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: invalid number of fields", __func__);
    for (size_t i = 0; i < o.n_fields; i++) TRY(check_field(&o.fields[i], i, d));
    ampc_data *made = calloc(1, sizeof *made);
    if (!made) return rt_no_memory(d);
    ampc_status status = copy_source(&o, made, d);
    if (status == AMPC_OK) status = try_source(made, d);
    if (status == AMPC_OK) *data = made;
    else clear(made);
    return status;
}

void ampc_data_free(ampc_data *data)
{
    if (data) clear(data);
}
