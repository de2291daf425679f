/* exporter.c - what exporters reveal about an initializer: metadata of torch.onnx, and generated names.
 *
 * torch.onnx (dynamo) records what torch.export knew about each value: whether it is a parameter, a buffer or a
 * constant, or which values it was folded from. Without this metadata, a tensor with one element and a generated name
 * is assumed to be a number from the source code, such as sqrt(d), a coefficient of GELU, or an epsilon. */
#include "frontend/lower/lower.h"

#include <ctype.h>
#include <string.h>

/* ---- generated names ------------------------------------------------------------------------- */

/* '*' matches any text, '#' one or more digits, '?' one character. In all of these exporters, the variables of a
 * model keep their own names. */
static const char *const generated[] = {
    "onnx::*",               /* torch.onnx, TorchScript: onnx::Mul_123 */
    "#",                     /* older versions of torch.onnx: 217 */
    "/*_output_#",           /* torch.onnx value names, folded by other tools: /attn/Sqrt_output_0 */
    "val_#",                 /* torch.onnx, dynamo: val_12 */
    "scalar_tensor_default", /* torch.onnx, dynamo: scalar_tensor_default_3 */
    "scalar_tensor_default_#",
    "lifted_tensor_#", /* torch.onnx, dynamo: torch.tensor(0.5) in forward() */
    "const_*__#",      /* tf2onnx: const_fold_opt__389 */
    "*_const__#",      /* tf2onnx: axes_const__9894 */
    "Const__#",        /* tf2onnx: Const__523 */
    "*Const:0",        /* tf2onnx, from TensorFlow's tf.constant: model/Const:0, model/Const_1:0 */
    "*Const_#:0",
    "*/x:0", /* a number in a TensorFlow expression: layer/batchnorm/add/y:0 */
    "*/y:0",
    "p2o.*",    /* Paddle2ONNX: p2o.helper.constant.14, p2o.pd_op.full.0.0 */
    "??_*cst",  /* skl2onnx: Ad_Addcst */
    "??_*cst#", /* skl2onnx: Ad_Addcst1 */
};

/* Exponential backtracking is acceptable because names and patterns are short. */
static bool matches(const char *pattern, const char *name)
{
    if (!*pattern) return !*name;
    bool any = *pattern == '*', digits = *pattern == '#';
    if (!any && !digits) return *name && (*pattern == '?' || *pattern == *name) && matches(pattern + 1, name + 1);
    if (any && matches(pattern + 1, name)) return true;
    if (!*name || (digits && !isdigit((unsigned char)*name))) return false;
    return (digits && matches(pattern + 1, name + 1)) || matches(pattern, name + 1);
}

bool onnx_is_generated(const char *name)
{
    for (size_t i = 0; i < sizeof generated / sizeof *generated; i++)
        if (matches(generated[i], name)) return true;
    return false;
}

/* ---- metadata of torch.onnx ------------------------------------------------------------------- */

const char *onnx_metadata(Onnx__StringStringEntryProto *const *entries, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (entries[i] && strcmp(entries[i]->key, key) == 0) return entries[i]->value;
    return NULL;
}

/* The signature of the exported program has a line "p_fc_weight: PARAMETER target='fc.weight'" for each parameter. */
static bool is_parameter_of(const char *signature, const char *name, size_t length)
{
    static const char before[] = "PARAMETER target='";
    for (const char *at = signature; (at = strstr(at, before));) {
        at += sizeof before - 1;
        if (strncmp(at, name, length) == 0 && at[length] == '\'') return true;
    }
    return false;
}

/* `sources` is a list in Python syntax: ['fc.weight', 'val_3']. */
static bool lists_parameter(const char *signature, const char *sources)
{
    for (const char *at = sources; (at = strchr(at, '\''));) {
        size_t length = strcspn(++at, "'");
        if (is_parameter_of(signature, at, length)) return true;
        at += length + (at[length] != '\0');
    }
    return false;
}

static onnx_declared declaration_of(const Onnx__ValueInfoProto *info, const char *signature)
{
    static const char kind_key[] = "pkg.torch.export.graph_signature.InputSpec.kind";
    const char *kind = onnx_metadata(info->metadata_props, info->n_metadata_props, kind_key);
    const char *sources = onnx_metadata(info->metadata_props, info->n_metadata_props, ONNX_FOLDED_FROM);
    if (kind && strcmp(kind, "PARAMETER") == 0) return ONNX_DECLARED_PARAMETER;
    if (kind && (strcmp(kind, "BUFFER") == 0 || strcmp(kind, "CONSTANT_TENSOR") == 0)) return ONNX_DECLARED_CONSTANT;
    if (!sources || !signature) return ONNX_NOT_DECLARED;
    return lists_parameter(signature, sources) ? ONNX_DECLARED_PARAMETER : ONNX_DECLARED_CONSTANT;
}

strmap *onnx_declarations(const Onnx__GraphProto *g, arena *a)
{
    static const onnx_declared kinds[] = {ONNX_NOT_DECLARED, ONNX_DECLARED_PARAMETER, ONNX_DECLARED_CONSTANT};
    strmap *declared = strmap_new(a);
    const char *signature = onnx_metadata(g->metadata_props, g->n_metadata_props, ONNX_SIGNATURE);
    for (size_t i = 0; i < g->n_value_info; i++) {
        onnx_declared kind = declaration_of(g->value_info[i], signature);
        if (kind) strmap_put(declared, g->value_info[i]->name, (void *)&kinds[kind]);
    }
    return declared;
}
