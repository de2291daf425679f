/* run_export.c - export: the imported ONNX model with the weights of a checkpoint, or these weights alone. */
#include "tools/run.h"

#include "runtime/api/export.h"

ampc_status run_export(run_context *c)
{
    const tool_options *o = &c->tool->o;
    if (!o->checkpoint)
        return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run"), "no weights; use --checkpoint=FILE");
    if (options_output(o) == OUTPUT_SAFETENSORS)
        return rt_export_weights(c->session, c->tool->module, o->model, o->output, c->tool->diag);
    return rt_export_onnx(c->session, c->tool->module, o->model, c->tool->weights_dir, o->output, c->tool->diag);
}
