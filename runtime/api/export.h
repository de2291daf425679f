/* export.h - what the programs and the public API share: compiling a module, and export of the trained model, or of a
 * compiled graph, as ONNX. */
#ifndef RT_EXPORT_H
#define RT_EXPORT_H

#include "frontend/onnx.h"
#include "passes/passes.h"
#include "runtime/session/session.h"

/* Runs the passes over an imported module. External data are read from their original files, relative to the current
 * folder. */
ampc_status rt_compile_module(ir_module *m, compile *c);

/* Writes a copy of the module's ONNX file for inference, with the parameters and buffers of the session. The ONNX
 * file is looked up by the path in the module and relative to `folder` (that of the module's text; NULL: none).
 * External data goes to PATH.data. Both files are replaced atomically, the data first; on failure both are unchanged.
 * Fails with AMPC_IO (the ONNX file does not exist), AMPC_REJECTED (it has changed, or the module names none),
 * AMPC_UNSUPPORTED or AMPC_NO_MEMORY; see onnx_export_trained. `model` names a model of a recipe; NULL: the module is
 * not made from a recipe. */
ampc_status rt_export_onnx(rt_session *s, const ir_module *m, const char *model, const char *folder, const char *path,
                           diag *d);

/* Writes the same parameters and buffers alone, by their names in the ONNX file and in the types in which they are
 * trained, as safetensors. The ONNX file is not read. */
ampc_status rt_export_weights(rt_session *s, const ir_module *m, const char *model, const char *path, diag *d);

/* What a compilation says about the model that is written: its opset, the consumer's, and where to count casts. */
onnx_emit_options rt_emit_options(compile *c);
/* Writes a graph of the module as an ONNX model (onnx_emit); data too large for one file goes to PATH.data. On
 * failure both files are unchanged. `o`: rt_emit_options; NULL: the defaults. The rest is set here. */
ampc_status rt_emit_onnx(const ir_module *m, const char *graph, const char *path, const onnx_emit_options *o, diag *d);
/* The same in memory, malloced. AMPC_UNSUPPORTED: the model is too large for one file. */
ampc_status rt_emit_onnx_memory(const ir_module *m, const char *graph, const onnx_emit_options *o, diag *d,
                                void **bytes, size_t *n);

#endif
