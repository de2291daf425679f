/* export.h - the trained model, or a compiled graph, as ONNX. Its implementation, api_export.c, is one of the
 * files that see the frontend. */
#ifndef RT_EXPORT_H
#define RT_EXPORT_H

#include "runtime/session/session.h"

/* Writes the model file that the module was compiled from anew for inference, with the parameters
 * and buffers of the session. The model's path is tried as the module has it and from `folder` (of
 * the module's text; NULL: none). Values that lay in other files go into PATH.data. Both files are
 * written beside their places and then moved there, the values first; on failure both are as they
 * were. AMPC_IO when the model is gone, AMPC_REJECTED when it is another one or the module names
 * none, AMPC_UNSUPPORTED, AMPC_NO_MEMORY; see onnx_export_trained. */
ampc_status rt_export_onnx(rt_session *s, const ir_module *m, const char *folder, const char *path,
                           diag *d);

/* Writes a graph of the module as an ONNX model (onnx_emit), what does not fit into one file into PATH.data;
 * on failure
 * both are as they were. */
ampc_status rt_emit_onnx(const ir_module *m, const char *graph, const char *path, diag *d);

#endif
