/* input_rank.c - the rank of a graph input that the model declares without a shape: from the sizes that the caller
 * binds, or from the first operator that requires a rank. The sizes themselves are unknown. */
#include "frontend/lower/lower.h"

#include <string.h>

/* Operators that require a rank of operand 0. */
static const struct rank_row {
    const char *op;
    int rank;              /* or 0: */
    int weight;            /* the operand that has the same rank */
    const char *attribute; /* a list with `more` fewer entries than the rank */
    int more;
} rank_rows[] = {
    {"Conv", 0, 1, NULL, 0},
    {"ConvTranspose", 0, 1, NULL, 0},
    {"ConvInteger", 0, 1, NULL, 0},
    {"QLinearConv", 0, 3, NULL, 0},
    {"DeformConv", 0, 1, NULL, 0},
    {"AveragePool", 0, 0, "kernel_shape", 2},
    {"MaxPool", 0, 0, "kernel_shape", 2},
    {"LpPool", 0, 0, "kernel_shape", 2},
    {"Transpose", 0, 0, "perm", 0},
    {"Gemm", 2, 0, NULL, 0},
    {"LSTM", 3, 0, NULL, 0},
    {"GRU", 3, 0, NULL, 0},
    {"RNN", 3, 0, NULL, 0},
    {"DepthToSpace", 4, 0, NULL, 0},
    {"SpaceToDepth", 4, 0, NULL, 0},
    {"RoiAlign", 4, 0, NULL, 0},
};

/* Operators whose result has the rank of operand 0. For the binary ones, the other operand is an initializer of a
 * lower rank than the one that is found. */
static const char *const same_rank[] = {"Cast", "Identity", "Relu",           "Dropout", "BatchNormalization",
                                        "LRN",  "Pad",      "Clip",           "Div",     "Mul",
                                        "Sub",  "Add",      "QuantizeLinear", "Abs",     "Sigmoid"};

static const onnx_tensor *initializer_of(const onnx_scope *scope, const Onnx__NodeProto *n, size_t i)
{
    const onnx_binding *b = i < n->n_input ? strmap_get(scope->bindings, n->input[i]) : NULL;
    return b ? b->initializer : NULL;
}

static int list_length(const Onnx__NodeProto *n, const char *attribute)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, attribute) == 0) return (int)n->attribute[i]->n_ints;
    return -1;
}

/* The rank that the node requires of operand 0; 0: none. */
static int required_rank(const onnx_scope *scope, const Onnx__NodeProto *n)
{
    for (size_t i = 0; i < sizeof rank_rows / sizeof *rank_rows; i++) {
        const struct rank_row *row = &rank_rows[i];
        if (strcmp(row->op, n->op_type) != 0) continue;
        const onnx_tensor *weight = row->weight ? initializer_of(scope, n, (size_t)row->weight) : NULL;
        const int listed = row->attribute ? list_length(n, row->attribute) : -1;
        return row->rank ? row->rank : weight ? weight->rank : listed >= 0 ? listed + row->more : 0;
    }
    return 0;
}

static bool keeps_rank(const onnx_scope *scope, const Onnx__NodeProto *n, int *least)
{
    bool keeps = false;
    for (size_t i = 0; i < sizeof same_rank / sizeof *same_rank; i++) keeps |= strcmp(same_rank[i], n->op_type) == 0;
    if (!keeps || n->n_input != 2) return keeps;
    const onnx_tensor *other = initializer_of(scope, n, 1);
    if (other && other->rank >= *least) *least = other->rank + 1;
    return other != NULL;
}

static int rank_from_nodes(onnx_importer *im, const onnx_scope *scope, const char *input)
{
    strmap *followed = strmap_new(im->scratch);
    strmap_put(followed, input, im);
    int least = 0;
    for (size_t i = 0; i < scope->graph->n_node; i++) {
        const Onnx__NodeProto *n = scope->graph->node[i];
        if (!n->n_input || !n->n_output || !onnx_is_default_domain(n->domain) || !strmap_get(followed, n->input[0]))
            continue;
        const int rank = required_rank(scope, n);
        if (rank) return rank >= least && rank <= ONNX_MAX_RANK ? rank : -1;
        if (keeps_rank(scope, n, &least)) strmap_put(followed, n->output[0], im);
    }
    return -1;
}

int onnx_input_rank(onnx_importer *im, const onnx_scope *scope, const char *input)
{
    for (int rank = 0;; rank++) {
        const char *name = arena_printf(im->scratch, "%s_dim%d", input, rank);
        int i = 0;
        while (i < im->options->n_dims && strcmp(im->options->dims[i].name, name) != 0) i++;
        if (i == im->options->n_dims) return rank ? rank : rank_from_nodes(im, scope, input);
        if (rank == ONNX_MAX_RANK) return -1;
    }
}
