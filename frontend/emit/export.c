/* export.c - writes a trained copy of the imported model file.
 *
 *     decode -> count the readers of each name -> rope (rope.h) -> data part, model part
 *
 * The copy differs from the original in
 *   values of trained initializers      replaced, as raw data in place of the original field
 *   tensors that an exporter merged     become initializers of their own (ties.c) and replace the Identity nodes
 *   values in other files               are moved to the data part, one after the other
 *   operators in training form          are changed to inference form according to the table below
 *   readers of a normalised input       read the result of a Sub and a Div (export_normalize.h)
 *   training information                is removed
 *   values only the training form used  are removed: constants and inputs for the training mode, and the declared
 *                                       types of results that no longer exist */
#include "frontend/emit/export_normalize.h"
#include "frontend/lower/lower.h"
#include "frontend/read/external.h"
#include "frontend/read/fields.h"

#include <string.h>

/* Fields of a TensorProto that contain or locate its values. */
enum {
    TENSOR_VALUE_FIELDS = 1 << TENSOR_FLOAT_DATA | 1 << TENSOR_INT32_DATA | 1 << TENSOR_STRING_DATA |
                          1 << TENSOR_INT64_DATA | 1 << TENSOR_RAW_DATA | 1 << TENSOR_DOUBLE_DATA |
                          1 << TENSOR_UINT64_DATA | 1 << TENSOR_EXTERNAL_DATA | 1 << TENSOR_DATA_LOCATION
};

/* The inference form of an operator with a training form. If a result beyond `results` is still read, it is replaced
 * by operand same_as[its position - results]; -1: it does not exist in inference. */
typedef struct inference_form {
    const char *op;
    size_t operands, results;
    const char *attribute; /* removed; NULL: none */
    int same_as[4];
} inference_form;

static const inference_form forms[] = {
    {"BatchNormalization", 5, 1, "training_mode", {3, 4, -1, -1}}, /* running, saved mean and var */
    {"Dropout", 2, 2, NULL, {-1, -1, -1, -1}},                     /* operand 2: training_mode */
};

typedef struct name_state {
    size_t readers;
    bool lost; /* lost a reader or the node that defines it */
} name_state;

typedef struct data_item {       /* values of a tensor in the data part */
    const onnx_trained *trained; /* NULL: unchanged, from `range` */
    onnx_range range;
    ir_dtype dtype;
    size_t count, size, offset;
} data_item;

typedef struct exporter {
    onnx_file *file;
    const onnx_export_options *o;
    diag *d;
    arena *a;
    strmap *trained;      /* name -> onnx_trained */
    onnx_trained *values; /* those of the options; then the copies that are computed from them */
    bool *found;          /* by position in `values` */
    strmap *names;        /* name -> name_state */
    onnx_ties *ties;
    export_normalization normalization;
    VEC(data_item) data;
    size_t data_size;
} exporter;

/* ---- names ----------------------------------------------------------------------------------- */

static const inference_form *form_of(const Onnx__NodeProto *n)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (onnx_is_default_domain(n->domain) && strcmp(forms[i].op, n->op_type) == 0) return &forms[i];
    return NULL;
}

static name_state *state_of(exporter *e, const char *name)
{
    name_state *s = strmap_get(e->names, name);
    if (s) return s;
    s = arena_alloc(e->a, sizeof *s);
    strmap_put(e->names, name, s);
    return s;
}

static bool is_gone(exporter *e, const char *name)
{
    const name_state *s = strmap_get(e->names, name);
    return s && s->lost && !s->readers;
}

/* Whether the module has a separate tensor for one that is merged in the file. */
static bool is_separate(exporter *e, const onnx_tie *tie) { return e->o->untied || strmap_get(e->trained, tie->name); }

/* The separated tensor that replaces an operand; NULL: the operand in the file is right. */
static const onnx_tie *tie_at(exporter *e, const Onnx__GraphProto *g, size_t node, size_t operand)
{
    const onnx_tie *tie = g == e->file->model->graph ? onnx_tie_at(e->ties, node, operand) : NULL;
    return tie && is_separate(e, tie) ? tie : NULL;
}

/* The name that the copy has at that operand; the very string of the node if it is unchanged. */
static const char *operand_name(exporter *e, const Onnx__GraphProto *g, size_t node, size_t operand)
{
    const onnx_tie *tie = tie_at(e, g, node, operand);
    const char *name = tie ? tie->name : g->node[node]->input[operand];
    const export_normalization *n = &e->normalization;
    return n->input && strcmp(name, n->input) == 0 ? n->result : name;
}

/* The number of operands in the inference form, without absent ones at the end. */
static size_t count_operands(const Onnx__NodeProto *n, const inference_form *form)
{
    size_t count = n->n_input;
    if (!form || count <= form->operands) return count;
    count = form->operands;
    while (count && !*n->input[count - 1]) count--;
    return count;
}

/* Enters the names that no node needs to read, so that new names differ from them too. */
static void enter_names(exporter *e, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_input; i++) state_of(e, g->input[i]->name);
    for (size_t i = 0; i < g->n_initializer; i++) state_of(e, g->initializer[i]->name);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++) state_of(e, g->node[i]->output[k]);
}

/* Counts the remaining readers of each name. Names are counted across all graphs because subgraphs read the names of
 * enclosing graphs. */
static void count_readers(exporter *e, const Onnx__GraphProto *g)
{
    enter_names(e, g);
    for (size_t i = 0; i < g->n_output; i++) state_of(e, g->output[i]->name)->readers++;
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        const inference_form *form = form_of(n);
        size_t count = count_operands(n, form);
        for (size_t k = 0; k < n->n_input; k++)
            if (k < count && !tie_at(e, g, i, k)) state_of(e, n->input[k])->readers++;
            else state_of(e, n->input[k])->lost = true;
        for (size_t k = form ? form->results : n->n_output; k < n->n_output; k++)
            state_of(e, n->output[k])->lost = true;
        for (size_t k = 0; k < n->n_attribute; k++) {
            const Onnx__AttributeProto *a = n->attribute[k];
            if (a->g) count_readers(e, a->g);
            for (size_t j = 0; j < a->n_graphs; j++) count_readers(e, a->graphs[j]);
        }
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Checks that the new values fit the tensor and that no other tensor has received them. */
static ampc_status check_trained(exporter *e, const onnx_trained *v, const char *name, const Onnx__TensorProto *t)
{
    diag_loc loc = {.file = e->file->path};
    bool same = (int)t->n_dims == v->type.rank && onnx_type_dtype(t->data_type) != IR_NO_DTYPE;
    for (int i = 0; same && i < v->type.rank; i++) same = t->dims[i] == v->type.dims[i];
    if (!same)
        return diag_error(
            e->d, AMPC_REJECTED, loc,
            "the trained value of initializer '%s' has another type or shape: this is not the model that was "
            "compiled",
            name);
    bool *found = &e->found[v - e->values];
    if (*found)
        return diag_error(e->d, AMPC_UNSUPPORTED, loc, "several tensors are named '%s': the trained one is ambiguous",
                          name);
    *found = true;
    return AMPC_OK;
}

static size_t count_of(const onnx_trained *v)
{
    size_t count = 1;
    for (int i = 0; i < v->type.rank; i++) count *= (size_t)v->type.dims[i];
    return count;
}

/* Reserves a range of the data part for the values and writes a reference to it into the tensor. */
static ampc_status put_external(exporter *e, const Onnx__TensorProto *t, const onnx_trained *v, rope *s)
{
    onnx_tensor described;
    TRY(onnx_tensor_describe(e->a, e->file, t, e->d, &described));
    size_t size = described.size;
    data_item item = {.trained = v, .size = size, .offset = rope_align(e->data_size)};
    item.dtype = described.dtype;
    item.count = (size_t)described.count;
    if (!v && size) TRY(onnx_external_locate(e->file, t, (int64_t)size, e->d, &item.range));
    vec_push(e->a, &e->data, item);
    e->data_size = item.offset + size;
    rope_add_external(e->a, s, e->o->data_name, item.offset, size);
    return AMPC_OK;
}

/* `name` identifies the values: the name of the tensor, or of the result of its Constant. `rename`: it also becomes
 * the name of the tensor. */
static ampc_status put_tensor(exporter *e, const wire_field *field, const Onnx__TensorProto *t, const char *name,
                              bool rename, rope *out)
{
    const onnx_trained *v = strmap_get(e->trained, name);
    bool replaced = v || onnx_is_external(t);
    if (!replaced && !rename) {
        rope_add_field(e->a, out, field);
        return AMPC_OK;
    }
    if (v) TRY(check_trained(e, v, name, t));
    rope tensor = {0};
    wire_field in = *field;
    unsigned dropped = (replaced ? TENSOR_VALUE_FIELDS : 0) | (rename ? 1u << TENSOR_NAME : 0);
    for (wire_field f; wire_next_field(&in, &f);)
        if (f.number >= 32 || !(dropped >> f.number & 1)) rope_add_field(e->a, &tensor, &f);
    if (rename) rope_add_text(e->a, &tensor, TENSOR_NAME, name);
    if (onnx_is_external(t)) {
        TRY(put_external(e, t, v, &tensor));
    } else if (v) {
        size_t count = count_of(v);
        rope_add_header(e->a, &tensor, TENSOR_RAW_DATA, count * onnx_type_size(t->data_type));
        rope_add_elements(e->a, &tensor, onnx_type_dtype(t->data_type), v->type.dtype, v->data, count);
    }
    rope_add_message(e->a, out, (uint32_t)field->number, &tensor);
    return AMPC_OK;
}

/* ---- nodes and graphs ------------------------------------------------------------------------ */

static ampc_status put_graph(exporter *e, const wire_field *field, const Onnx__GraphProto *g, rope *out);

/* Whether the attribute can be copied unchanged. */
static bool is_verbatim(exporter *e, const Onnx__AttributeProto *a, const char *result)
{
    bool external = a->t && onnx_is_external(a->t);
    for (size_t i = 0; i < a->n_tensors; i++) external |= onnx_is_external(a->tensors[i]);
    return !a->g && !a->n_graphs && !external && !(a->t && strmap_get(e->trained, result));
}

/* `result` is the first result of the node. */
static ampc_status put_attribute(exporter *e, const wire_field *field, const Onnx__AttributeProto *a,
                                 const char *result, rope *out)
{
    if (is_verbatim(e, a, result)) {
        rope_add_field(e->a, out, field);
        return AMPC_OK;
    }
    rope attribute = {0};
    wire_field in = *field;
    size_t tensors = 0, graphs = 0;
    for (wire_field f; wire_next_field(&in, &f);) {
        if (f.number == ATTRIBUTE_T && a->t) TRY(put_tensor(e, &f, a->t, result, false, &attribute));
        else if (f.number == ATTRIBUTE_TENSORS && tensors < a->n_tensors)
            TRY(put_tensor(e, &f, a->tensors[tensors++], "", false, &attribute));
        else if (f.number == ATTRIBUTE_G && a->g) TRY(put_graph(e, &f, a->g, &attribute));
        else if (f.number == ATTRIBUTE_GRAPHS && graphs < a->n_graphs)
            TRY(put_graph(e, &f, a->graphs[graphs++], &attribute));
        else rope_add_field(e->a, &attribute, &f);
    }
    rope_add_message(e->a, out, NODE_ATTRIBUTE, &attribute);
    return AMPC_OK;
}

/* Adds an Identity for result k if the inference form lacks it but something still reads it. AMPC_UNSUPPORTED: no
 * operand has its value. */
static ampc_status put_alias(exporter *e, const Onnx__GraphProto *g, size_t index, const inference_form *form, size_t k,
                             rope *out)
{
    const Onnx__NodeProto *n = g->node[index];
    const char *name = n->output[k];
    if (!*name || !state_of(e, name)->readers) return AMPC_OK;
    size_t i = k - form->results;
    int operand = i < sizeof form->same_as / sizeof *form->same_as ? form->same_as[i] : -1;
    if (operand < 0 || (size_t)operand >= n->n_input)
        return diag_error(e->d, AMPC_UNSUPPORTED, diag_node(e->file->path, n->name, n->op_type),
                          "its result '%s' is read, but exists in training only", name);
    rope node = {0};
    rope_add_text(e->a, &node, NODE_INPUT, operand_name(e, g, index, (size_t)operand));
    rope_add_text(e->a, &node, NODE_OUTPUT, name);
    rope_add_text(e->a, &node, NODE_NAME, arena_printf(e->a, "%s/%s", n->name, name));
    rope_add_text(e->a, &node, NODE_OP_TYPE, "Identity");
    rope_add_message(e->a, out, GRAPH_NODE, &node);
    return AMPC_OK;
}

/* Operands that the exporter of the model had removed. Fields of a message may be in any order. */
static void put_added_operands(exporter *e, const Onnx__GraphProto *g, size_t index, rope *node)
{
    const size_t count = g == e->file->model->graph ? onnx_ties_operands(e->ties, index) : 0;
    for (size_t k = g->node[index]->n_input; k < count; k++) {
        const onnx_tie *tie = tie_at(e, g, index, k);
        if (tie) rope_add_text(e->a, node, NODE_INPUT, tie->name);
    }
}

static ampc_status put_node(exporter *e, const wire_field *field, const Onnx__GraphProto *g, size_t index, rope *out)
{
    const Onnx__NodeProto *n = g->node[index];
    const inference_form *form = form_of(n);
    const char *result = n->n_output ? n->output[0] : "";
    if (!n->n_input && n->n_output == 1 && is_gone(e, result)) return AMPC_OK;
    if (g == e->file->model->graph && onnx_ties_rename(e->ties, index) && tie_at(e, g, index, 0)) return AMPC_OK;
    size_t operands = count_operands(n, form), inputs = 0, outputs = 0, attributes = 0;
    size_t results = form && form->results < n->n_output ? form->results : n->n_output;
    rope node = {0};
    wire_field in = *field;
    for (wire_field f; wire_next_field(&in, &f);) {
        const Onnx__AttributeProto *a = NULL;
        if (f.number == NODE_INPUT && inputs++ >= operands) continue;
        const char *name = f.number == NODE_INPUT ? operand_name(e, g, index, inputs - 1) : NULL;
        if (name && name != n->input[inputs - 1]) {
            rope_add_text(e->a, &node, NODE_INPUT, name);
            continue;
        }
        if (f.number == NODE_OUTPUT && outputs++ >= results) continue;
        if (f.number == NODE_ATTRIBUTE && attributes < n->n_attribute) a = n->attribute[attributes++];
        if (!a) rope_add_field(e->a, &node, &f);
        else if (!form || !form->attribute || strcmp(form->attribute, a->name) != 0)
            TRY(put_attribute(e, &f, a, result, &node));
    }
    put_added_operands(e, g, index, &node);
    const rope_piece *first = node.pieces.items;
    if (node.pieces.count == 1 && first->bytes == field->value && first->bytes + first->size == field->end)
        rope_add_field(e->a, out, field); /* unchanged */
    else rope_add_message(e->a, out, GRAPH_NODE, &node);
    for (size_t k = results; k < n->n_output; k++) TRY(put_alias(e, g, index, form, k, out));
    return AMPC_OK;
}

/* The value name in the i-th field with this number; NULL: none. */
static const char *field_name(const Onnx__GraphProto *g, uint64_t number, size_t i)
{
    if (number == GRAPH_INITIALIZER && i < g->n_initializer) return g->initializer[i]->name;
    if (number == GRAPH_INPUT && i < g->n_input) return g->input[i]->name;
    if (number == GRAPH_VALUE_INFO && i < g->n_value_info) return g->value_info[i]->name;
    return NULL;
}

/* Writes the tensors that an exporter merged into initializer `i`. */
static ampc_status put_separate(exporter *e, const wire_field *field, const Onnx__GraphProto *g, size_t i, rope *out)
{
    if (field->number != GRAPH_INITIALIZER || g != e->file->model->graph || i >= g->n_initializer) return AMPC_OK;
    for (const onnx_tie *tie = onnx_ties_of(e->ties, i); tie; tie = tie->next)
        if (is_separate(e, tie)) TRY(put_tensor(e, field, g->initializer[i], tie->name, true, out));
    return AMPC_OK;
}

/* Writes the biases that the exporter of the model had removed. */
static ampc_status put_restored(exporter *e, rope *out)
{
    for (const onnx_tie *tie = onnx_ties_of(e->ties, SIZE_MAX); tie; tie = tie->next) {
        const onnx_trained *v = strmap_get(e->trained, tie->name);
        const onnx_tensor *z = tie->zeros;
        const int64_t dims[] = {z->count};
        const Onnx__TensorProto shape = {.n_dims = 1, .dims = (int64_t *)(uintptr_t)dims, .data_type = (int)z->type};
        rope tensor = {0};
        if (!is_separate(e, tie)) continue;
        if (v) TRY(check_trained(e, v, tie->name, &shape));
        rope_add_int(e->a, &tensor, TENSOR_DIMS, (uint64_t)z->count);
        rope_add_int(e->a, &tensor, TENSOR_DATA_TYPE, (uint64_t)z->type);
        rope_add_text(e->a, &tensor, TENSOR_NAME, tie->name);
        rope_add_header(e->a, &tensor, TENSOR_RAW_DATA, z->size);
        if (v) rope_add_elements(e->a, &tensor, z->dtype, v->type.dtype, v->data, (size_t)z->count);
        else rope_add(e->a, &tensor, arena_alloc(e->a, z->size), z->size);
        rope_add_message(e->a, out, GRAPH_INITIALIZER, &tensor);
    }
    return AMPC_OK;
}

static ampc_status put_graph(exporter *e, const wire_field *field, const Onnx__GraphProto *g, rope *out)
{
    rope graph = {0};
    wire_field in = *field;
    const char *normalized = e->normalization.input;
    if (normalized && g == e->file->model->graph) rope_add_pieces(e->a, &graph, &e->normalization.fields);
    for (size_t i = 0; normalized && i < g->n_output; i++)
        if (strcmp(g->output[i]->name, normalized) == 0)
            return diag_error(e->d, AMPC_UNSUPPORTED, DIAG_FILE(e->file->path),
                              "the normalised input '%s' is also the output of a graph", normalized);
    size_t seen[MAX_GRAPH_FIELD] = {0}; /* by field number: position in the decoded list */
    for (wire_field f; wire_next_field(&in, &f);) {
        size_t i = f.number < MAX_GRAPH_FIELD ? seen[f.number]++ : 0;
        const char *name = field_name(g, f.number, i);
        TRY(put_separate(e, &f, g, i, &graph));
        if (name && is_gone(e, name)) continue;
        if (f.number == GRAPH_NODE && i < g->n_node) TRY(put_node(e, &f, g, i, &graph));
        else if (f.number == GRAPH_INITIALIZER && name) TRY(put_tensor(e, &f, g->initializer[i], name, false, &graph));
        else rope_add_field(e->a, &graph, &f);
    }
    if (g == e->file->model->graph) TRY(put_restored(e, &graph));
    rope_add_message(e->a, out, (uint32_t)field->number, &graph);
    return AMPC_OK;
}

static bool is_training_form(const Onnx__NodeProto *n)
{
    const inference_form *form = form_of(n);
    bool training = form && (n->n_input > form->operands || n->n_output > form->results);
    for (size_t i = 0; form && form->attribute && i < n->n_attribute; i++)
        training |= strcmp(n->attribute[i]->name, form->attribute) == 0 && n->attribute[i]->i != 0;
    return training;
}

/* Functions are copied unchanged. */
static ampc_status check_function(exporter *e, const Onnx__FunctionProto *f)
{
    for (size_t i = 0; i < f->n_node; i++)
        if (is_training_form(f->node[i]))
            return diag_error(e->d, AMPC_UNSUPPORTED, DIAG_FILE(e->file->path),
                              "function %s has %s in training form, which an export for inference cannot change",
                              f->name, f->node[i]->op_type);
    return AMPC_OK;
}

static bool is_replaced(const exporter *e, const Onnx__StringStringEntryProto *entry)
{
    return e->o->codes && strcmp(entry->key, ONNX_CODES) == 0;
}

static ampc_status put_model(exporter *e, rope *out)
{
    for (size_t i = 0; i < e->file->model->n_functions; i++) TRY(check_function(e, e->file->model->functions[i]));
    const Onnx__ModelProto *m = e->file->model;
    size_t props = 0;
    wire_field in = {.value = e->file->bytes.data, .end = e->file->bytes.data + e->file->bytes.size};
    for (wire_field f; wire_next_field(&in, &f);) {
        if (f.number == MODEL_TRAINING_INFO) continue;
        if (f.number == MODEL_METADATA_PROPS && props < m->n_metadata_props &&
            is_replaced(e, m->metadata_props[props++]))
            continue;
        if (f.number == MODEL_GRAPH && m->graph) TRY(put_graph(e, &f, m->graph, out));
        else rope_add_field(e->a, out, &f);
    }
    if (e->o->codes) rope_add_entry(e->a, out, MODEL_METADATA_PROPS, ONNX_CODES, e->o->codes);
    return AMPC_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Copies a range of the old model, most of which has not been loaded into its image. */
static ampc_status copy_old(const exporter *e, onnx_part part, size_t offset, size_t n)
{
    char buffer[1 << 16];
    for (size_t done = 0, chunk; done < n; done += chunk) {
        chunk = n - done < sizeof buffer ? n - done : sizeof buffer;
        TRY(onnx_bytes_copy(&e->file->bytes, offset + done, chunk, e->d, buffer));
        TRY(e->o->write(e->o->user, part, buffer, chunk));
    }
    return AMPC_OK;
}

static ampc_status write_bytes(void *user, onnx_part part, const void *bytes, size_t n)
{
    const exporter *e = user;
    const onnx_bytes *old = &e->file->bytes;
    if (old->image && onnx_bytes_hold(old, bytes))
        return copy_old(e, part, (size_t)((const uint8_t *)bytes - old->data), n);
    return e->o->write(e->o->user, part, bytes, n);
}

/* Copies a range of an external data file of the old model. */
static ampc_status copy_range(exporter *e, const data_item *item)
{
    enum { CHUNK = 1 << 16 };
    void *buffer = arena_alloc(e->a, CHUNK);
    for (size_t done = 0, n; done < item->size; done += n) {
        n = item->size - done < CHUNK ? item->size - done : CHUNK;
        onnx_range range = {item->range.path, item->range.offset + (int64_t)done};
        TRY(onnx_external_read(e->file, range, n, e->d, buffer));
        TRY(write_bytes(e, ONNX_PART_DATA, buffer, n));
    }
    return AMPC_OK;
}

static ampc_status write_data(exporter *e)
{
    static const char zeros[ROPE_ALIGNMENT];
    size_t written = 0;
    for (size_t i = 0; i < e->data.count; i++) {
        const data_item *item = &e->data.items[i];
        const onnx_trained *v = item->trained;
        rope values = {0};
        TRY(write_bytes(e, ONNX_PART_DATA, zeros, item->offset - written));
        if (v) rope_add_elements(e->a, &values, item->dtype, v->type.dtype, v->data, item->count);
        TRY(v ? rope_write(&values, ONNX_PART_DATA, write_bytes, e) : copy_range(e, item));
        written = item->offset + item->size;
    }
    return AMPC_OK;
}

/* ---- entry point ----------------------------------------------------------------------------- */

/* Checks that every trained value has an initializer; reports all that do not. */
static ampc_status check_found(exporter *e)
{
    for (int i = 0; i < e->o->n_trained; i++)
        if (!e->found[i])
            diag_error(e->d, AMPC_REJECTED, DIAG_FILE(e->file->path),
                       "there is no initializer '%s': this is not the model that was compiled", e->o->trained[i].name);
    return diag_status(e->d);
}

/* Elements of a trained matrix in the order of its transpose. */
static const void *transpose(exporter *e, const onnx_trained *v)
{
    const size_t rows = (size_t)v->type.dims[0], columns = (size_t)v->type.dims[1], size = ir_dtype_size(v->type.dtype);
    char *to = arena_array(e->a, count_of(v), size);
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < columns; k++)
            memcpy(to + (k * rows + i) * size, (const char *)v->data + (i * columns + k) * size, size);
    return to;
}

/* Computes copies of trained tensors that the module does not have. */
static void derive_copies(exporter *e, const Onnx__GraphProto *g)
{
    onnx_trained *copy = e->values + e->o->n_trained;
    for (size_t i = 0; i < g->n_initializer; i++) {
        const onnx_derived *d = onnx_ties_derived(e->ties, i);
        const onnx_trained *v = d ? strmap_get(e->trained, g->initializer[d->source]->name) : NULL;
        if (!v || strmap_get(e->trained, g->initializer[i]->name)) continue;
        const Onnx__TensorProto *t = g->initializer[i];
        *copy = (onnx_trained){t->name, ir_type_make(v->type.dtype, (int)t->n_dims, t->dims),
                               d->transposed ? transpose(e, v) : v->data};
        strmap_put(e->trained, t->name, copy++);
    }
}

static ampc_status export_model(exporter *e)
{
    rope model = {0};
    if (!e->file->model->graph)
        return diag_error(e->d, AMPC_REJECTED, DIAG_FILE(e->file->path), "the model has no graph");
    e->trained = strmap_new(e->a);
    e->names = strmap_new(e->a);
    const Onnx__GraphProto *g = e->file->model->graph;
    const size_t most = (size_t)e->o->n_trained + g->n_initializer;
    e->values = arena_array(e->a, most + 1, sizeof *e->values);
    e->found = arena_array(e->a, most + 1, sizeof *e->found);
    TRY(onnx_ties_find(e->file, e->o->untied, onnx_declarations(g, e->a), e->d, e->a, &e->ties));
    for (int i = 0; i < e->o->n_trained; i++) {
        e->values[i] = e->o->trained[i];
        strmap_put(e->trained, e->values[i].name, &e->values[i]);
    }
    derive_copies(e, g);
    count_readers(e, g);
    if (e->o->normalization)
        TRY(export_normalization_make(e->file, e->o->normalization, e->names, e->a, e->d, &e->normalization));
    TRY(put_model(e, &model));
    TRY(check_found(e));
    if (model.size > ONNX_FILE_MAX)
        return diag_error(e->d, AMPC_UNSUPPORTED, DIAG_FILE(e->file->path), "the trained model is larger than 2 GiB");
    TRY(write_data(e));
    return rope_write(&model, ONNX_PART_MODEL, write_bytes, e);
}

static ampc_status open_model(const char *model, const ir_image *image, diag *d, onnx_file **out)
{
    if (!image) return onnx_file_open(model, d, out);
    TRY(onnx_file_wrap(image->bytes, image->size, image->path, d, out));
    (*out)->has_folder = image->has_folder;
    return AMPC_OK;
}

static ampc_status no_memory(const char *model, diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(model), "out of memory while exporting it");
}

static ampc_status export_guarded(exporter *e, const char *model)
{
    jmp_buf guard;
    if (setjmp(guard)) return no_memory(model, e->d);
    arena_set_guard(e->a, &guard);
    return export_model(e);
}

ampc_status onnx_export_trained(const char *model, const onnx_export_options *o, diag *d)
{
    exporter e = {.o = o, .d = d};
    TRY(open_model(model, o->image, d, &e.file));
    e.a = arena_new(0);
    const ampc_status status = e.a ? export_guarded(&e, model) : no_memory(model, d);
    arena_free(e.a);
    onnx_file_close(e.file);
    return status;
}
