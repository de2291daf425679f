/* attribute.c - typed access to node attributes.
 *
 * Attributes that a handler asks for are marked as read. The rest are not attributes of the operator in this version
 * and are rejected, because ignoring them could change the meaning of the node. */
#include "frontend/lower/lower.h"

#include <string.h>

static const char *type_name(int type)
{
    static const char *const names[] = {
        "undefined", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",      "INTS",
        "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS",
    };
    return names[type];
}

const Onnx__AttributeProto *onnx_attr(onnx_node *n, const char *name, int type)
{
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->proto->attribute[i];
        if (strcmp(a->name, name) != 0) continue;
        n->attr_read[i] = true;
        if ((int)a->type == type) return a;
        onnx_reject(n, "attribute '%s' has type %s, not %s", name, type_name((int)a->type), type_name(type));
        return NULL;
    }
    return NULL;
}

bool onnx_has(onnx_node *n, const char *name)
{
    for (size_t i = 0; i < n->proto->n_attribute; i++)
        if (strcmp(n->proto->attribute[i]->name, name) == 0) return true;
    return false;
}

int64_t onnx_int(onnx_node *n, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    return a ? a->i : otherwise;
}

bool onnx_bool(onnx_node *n, const char *name, bool otherwise)
{
    int64_t v = onnx_int(n, name, otherwise);
    if (v != 0 && v != 1) onnx_reject(n, "attribute '%s' is %lld, not 0 or 1", name, (long long)v);
    return v == 1;
}

double onnx_float(onnx_node *n, const char *name, double otherwise)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    return a ? (double)a->f : otherwise;
}

const char *onnx_text(onnx_node *n, const char *name, const char *otherwise)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    const char *text = a ? onnx_bytes_text(a->s) : otherwise;
    if (text || !a) return text;
    onnx_reject(n, "attribute '%s' contains a NUL byte", name);
    return otherwise;
}

int onnx_word(onnx_node *n, const char *name, const char *const *words, int otherwise)
{
    int count = 0;
    while (words[count]) count++;
    return onnx_word_of(n, name, words, count, otherwise);
}

int onnx_word_of(onnx_node *n, const char *name, const char *const *words, int count, int otherwise)
{
    const char *text = onnx_text(n, name, words[otherwise]);
    const int i = ir_words_find(words, text);
    if (i < 0) onnx_reject(n, "unknown %s '%s'", name, text);
    else if (i >= count) onnx_reject(n, "unknown %s '%s' in opset %d", name, text, n->opset);
    return n->failed ? otherwise : i;
}

onnx_list onnx_ints(onnx_node *n, const char *name)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    if (!a) return (onnx_list){0};
    ir_dim *items = arena_array(n->importer->scratch, a->n_ints + 1, sizeof *items);
    for (size_t i = 0; i < a->n_ints; i++) items[i] = ir_dim_number(a->ints[i]);
    return (onnx_list){items, (int)a->n_ints, true};
}

const float *onnx_floats(onnx_node *n, const char *name, int *count)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
    *count = a ? (int)a->n_floats : 0;
    return a ? a->floats : NULL;
}

const Onnx__TensorProto *onnx_tensor_attr(onnx_node *n, const char *name)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    if (a && !a->t) onnx_reject(n, "attribute '%s' has no tensor", name);
    return a ? a->t : NULL;
}

const Onnx__GraphProto *onnx_graph_attr(onnx_node *n, const char *name)
{
    const Onnx__AttributeProto *a = onnx_attr(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH);
    if (a && !a->g) onnx_reject(n, "attribute '%s' has no graph", name);
    return a ? a->g : NULL;
}

void onnx_ignore(onnx_node *n, const char *name)
{
    for (size_t i = 0; i < n->proto->n_attribute; i++)
        if (strcmp(n->proto->attribute[i]->name, name) == 0) n->attr_read[i] = true;
}

void onnx_check_attributes(onnx_node *n)
{
    for (size_t i = 0; i < n->proto->n_attribute && !n->failed; i++)
        if (!n->attr_read[i])
            onnx_reject(n, "unknown attribute '%s' in opset %d", n->proto->attribute[i]->name, n->opset);
}

void onnx_check_attribute_names(onnx_node *n)
{
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->proto->attribute[i];
        if (*a->ref_attr_name)
            onnx_reject(n, "attribute '%s' refers to a function's attribute outside a function", a->name);
        else if (!a->type) onnx_reject(n, "attribute '%s' has no type", a->name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(a->name, n->proto->attribute[k]->name) == 0) onnx_reject(n, "duplicate attribute '%s'", a->name);
    }
}
