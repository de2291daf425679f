/* run_export.c - the verb export: a checkpoint's weights in the model that they were trained from. */
#include "tools/run.h"

#include "runtime/api/export.h"

#include <string.h>

ampc_status run_export(run_context *c)
{
    const tool_options *o = &c->tool->o;
    if (!o->output || strcmp(o->output, "-") == 0)
        return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run"),
                          "no output: name a file with -o FILE.onnx");
    if (!o->checkpoint)
        return diag_error(c->tool->diag, AMPC_USAGE, DIAG_FILE("ampc-run"),
                          "no weights: name a checkpoint with --checkpoint FILE");
    return rt_export_onnx(c->session, c->tool->module, c->tool->weights_dir, o->output,
                          c->tool->diag);
}
