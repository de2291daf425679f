/* rows_emit.c - the kind of rows that compiles an ONNX model and writes it as ONNX again. */
#include "tests/expect/rows_onnx.h"
#include "passes/passes.h"
#include "tests/compile.h"

static const char *show_type(int64_t type, const Onnx__TensorShapeProto *shape)
{
    const char *text = ir_dtype_name(onnx_type_dtype(type));
    for (size_t i = 0; shape && i < shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
        const bool named = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        text = named ? arena_printf(memory, "%s%c%s", text, i ? ',' : '[', d->dim_param)
                     : arena_printf(memory, "%s%c%lld", text, i ? ',' : '[', (long long)d->dim_value);
    }
    return shape ? arena_printf(memory, "%s%s", text, shape->n_dim ? "]" : "[]") : text;
}

static const char *show_values(const char *head, const Onnx__ValueInfoProto *const *values, size_t n)
{
    const char *text = "";
    for (size_t i = 0; i < n; i++) {
        const Onnx__TypeProto__Tensor *t = values[i]->type->tensor_type;
        text = arena_printf(memory, "%s%s%s %s | ", text, head, values[i]->name, show_type(t->elem_type, t->shape));
    }
    return text;
}

/* Of few elements, with the values. */
static const char *show_tensor(const Onnx__TensorProto *t)
{
    const ir_dtype type = onnx_type_dtype(t->data_type);
    const size_t size = ir_dtype_size(type), count = t->raw_data.len / size;
    const char *text = ir_dtype_name(type);
    for (size_t i = 0; i < t->n_dims; i++)
        text = arena_printf(memory, "%s%c%lld", text, i ? ',' : '[', (long long)t->dims[i]);
    text = arena_printf(memory, "%s%s =", text, t->n_dims ? "]" : "[]");
    for (size_t i = 0; i < count && count <= 4; i++)
        text = arena_printf(memory, "%s%c%.9g", text, i ? ',' : ' ', ir_load_f64(type, t->raw_data.data + i * size));
    return text;
}

static const char *show_graph(const Onnx__GraphProto *g);

static const char *show_attribute(const Onnx__AttributeProto *a)
{
    const char *list = "";
    switch (a->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT: return arena_printf(memory, "%lld", (long long)a->i);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT: return arena_printf(memory, "%.9g", (double)a->f);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING: return onnx_bytes_text(a->s);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR: return show_tensor(a->t);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH: return arena_printf(memory, "{%s}", show_graph(a->g));
    default: break;
    }
    for (size_t i = 0; i < a->n_ints; i++)
        list = arena_printf(memory, "%s%s%lld", list, i ? "," : "", (long long)a->ints[i]);
    for (size_t i = 0; i < a->n_floats; i++)
        list = arena_printf(memory, "%s%s%.9g", list, i ? "," : "", (double)a->floats[i]);
    return arena_printf(memory, "[%s]", list);
}

static const char *show_names(char *const *names, size_t n)
{
    const char *text = "";
    for (size_t i = 0; i < n; i++) text = arena_printf(memory, "%s%s%s", text, i ? "," : "", names[i]);
    return text;
}

static const char *show_node(const Onnx__NodeProto *n)
{
    const char *domain = *n->domain ? arena_printf(memory, "%s:", n->domain) : "";
    const char *text = arena_printf(memory, "%s = %s%s(%s)", show_names(n->output, n->n_output), domain, n->op_type,
                                    show_names(n->input, n->n_input));
    for (size_t i = 0; i < n->n_attribute; i++)
        text = arena_printf(memory, "%s %s=%s", text, n->attribute[i]->name, show_attribute(n->attribute[i]));
    return *n->name ? arena_printf(memory, "%s !%s", text, n->name) : text;
}

static const char *show_graph(const Onnx__GraphProto *g)
{
    const char *text = show_values("", (const Onnx__ValueInfoProto *const *)g->input, g->n_input);
    for (size_t i = 0; i < g->n_initializer; i++)
        text = arena_printf(memory, "%s%s %s | ", text, g->initializer[i]->name, show_tensor(g->initializer[i]));
    for (size_t i = 0; i < g->n_node; i++) text = arena_printf(memory, "%s%s | ", text, show_node(g->node[i]));
    text = arena_printf(memory, "%s%s", text,
                        show_values("out ", (const Onnx__ValueInfoProto *const *)g->output, g->n_output));
    const size_t n = strlen(text);
    return arena_strndup(memory, text, n > 3 ? n - 3 : n);
}

static const char *show_file(const wire *file, int casts, diag *d)
{
    onnx_file *f;
    const char *text = "";
    if (onnx_file_wrap(file->bytes, file->size, "row.onnx", d, &f) != AMPC_OK) return "is not a model";
    for (size_t i = 0; i < f->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = f->model->opset_import[i];
        text = arena_printf(memory, "%s%s%s%lld | ", text, o->domain, *o->domain ? " " : "", (long long)o->version);
    }
    text = arena_printf(memory, "%sir %lld | %d casts | %s", text, (long long)f->model->ir_version, casts,
                        show_graph(f->model->graph));
    onnx_file_close(f);
    return text;
}

static ampc_status collect(void *user, onnx_part part, const void *bytes, size_t n)
{
    (void)part; /* the only one of small models */
    wire_raw(user, bytes, n);
    return AMPC_OK;
}

const char *rows_emit(const char *input)
{
    text_model t;
    ir_module *m;
    const char *errors = import_text(&t, input, true, &m);
    if (errors) return errors;
    wire file = {0};
    int casts = 0;
    const onnx_emit_options emission = {
        .data_name = "row.data", .write = collect, .user = &file, .casts = &casts, .opset = t.written};
    diag *d = diag_new(collect_errors, &t);
    compile_options o = compile_options_default();
    o.level = t.level;
    o.low = t.low;
    o.consumer = t.consumer;
    o.list_text = t.list;
    o.opset = t.written;
    o.plain_runtime = true;
    ampc_status status = test_compile(m, &o, d);
    if (status == AMPC_OK) status = onnx_emit(m, "infer", &emission, d);
    const char *text = status == AMPC_OK ? show_file(&file, casts, d) : text_errors(&t, status);
    wire_free(&file);
    ir_module_free(m);
    diag_free(d);
    return text;
}
