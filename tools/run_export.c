/* run_export.c - export: the imported ONNX model with the weights of a checkpoint. */
#include "tools/run.h"

#include "runtime/api/export.h"

#include <string.h>

ampc_status run_export(run_context *c)
{
    const tool_options *o = &c->tool->o;
    if (!o->output || strcmp(o->output, "-") == 0)
        return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run"), "no output; use -o FILE.onnx");
    if (!o->checkpoint)
        return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run"), "no weights; use --checkpoint=FILE");
    return rt_export_onnx(c->session, c->tool->module, o->model, c->tool->weights_dir, o->output, c->tool->diag);
}
