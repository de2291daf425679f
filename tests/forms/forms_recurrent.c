/* forms_recurrent.c - generators of RNN, GRU, LSTM. */
#include "tests/forms/form.h"

typedef struct network {
    int gates, activations, directions;
    bool batch_first;
    int64_t hidden;
    tensor x;
} network;

static tensor draw_matrix(drawing *w, const form *f, const network *net, int64_t rows, int64_t columns)
{
    tensor shape = {0};
    push_size(&shape, net->directions);
    push_size(&shape, rows);
    if (columns >= 0) push_size(&shape, columns);
    return new_operand(w, f, &shape);
}

/* An initial state. */
static tensor draw_state(drawing *w, const form *f, const network *net)
{
    tensor shape = {0};
    if (!net->batch_first) push_size(&shape, net->directions);
    push_axis(&shape, &net->x, net->batch_first ? 0 : 1);
    if (net->batch_first) push_size(&shape, net->directions);
    push_size(&shape, net->hidden);
    return new_operand(w, f, &shape);
}

static tensor draw_lengths(drawing *w, const network *net)
{
    tensor shape = {0};
    push_axis(&shape, &net->x, net->batch_first ? 0 : 1);
    return new_tensor(w, ONNX_int32, (values){0, (double)net->x.dims[net->batch_first ? 1 : 0] + 1}, &shape, false);
}

/* Smooth activations, since operands of gates have any value. */
static void draw_activations(drawing *w, node *n, const network *net)
{
    static const char *const names[] = {"Sigmoid", "Tanh", "Softplus", "Affine", "ScaledTanh"};
    wire list = {0}, alpha = {0}, beta = {0};
    for (int i = 0; i < net->activations * net->directions; i++) {
        const char *name = CHOOSE(w->c, names);
        wire_text(&list, 9, name);
        if (name != names[3] && name != names[4]) continue;
        wire_float(&alpha, 7, 0.75f);
        wire_float(&beta, 7, 0.25f);
    }
    node_attr(n, "activations", 8, &list);
    node_attr(n, "activation_alpha", 6, &alpha);
    node_attr(n, "activation_beta", 6, &beta);
}

static void draw_attributes(drawing *w, node *n, const network *net)
{
    static const char *const directions[] = {"forward", "reverse"};
    if (net->directions == 2) node_text(n, "direction", "bidirectional");
    else if (choose(w->c, 2)) node_text(n, "direction", CHOOSE(w->c, directions));
    node_int(n, "hidden_size", net->hidden);
    if (net->batch_first) node_int(n, "layout", 1);
    if (rarely(w->c, 4)) draw_activations(w, n, net);
    if (rarely(w->c, 4)) node_float(n, "clip", 2.5f);
    if (net->gates == 3) node_int_or_default(w, n, "linear_before_reset", choose(w->c, 2), 0);
    if (net->gates == 4) node_int_or_default(w, n, "input_forget", rarely(w->c, 3), 0);
}

/* Operands from number 3 on; the last ones may be left out. */
static void draw_options(drawing *w, const form *f, node *n, const network *net)
{
    const int count = choose(w->c, net->gates == 4 ? 6 : 4);
    for (int i = 0; i < count; i++) {
        const bool exists = choose(w->c, 3) != 0;
        tensor t = {0};
        if (exists && i == 0) t = draw_matrix(w, f, net, 2 * net->gates * net->hidden, -1);
        if (exists && i == 1) t = draw_lengths(w, net);
        if (exists && (i == 2 || i == 3)) t = draw_state(w, f, net);
        if (exists && i == 4) t = draw_matrix(w, f, net, 3 * net->hidden, -1);
        node_operand(w, n, exists ? &t : NULL);
    }
}

static void draw_network(drawing *w, const form *f, int gates)
{
    node n = {0};
    network net = {.gates = gates, .activations = gates == 1 ? 1 : gates - 1, .directions = 1 + rarely(w->c, 3)};
    net.x = any_operand(w, f, 3, 3);
    net.hidden = some_size(w);
    net.batch_first = w->m.opset >= 14 && rarely(w->c, 4);
    if (net.x.symbol[2]) {
        const tensor shape = fixed_shape(3, net.x.dims); /* weights have fixed dimensions */
        net.x = new_operand(w, f, &shape);
    }
    node_operand(w, &n, &net.x);
    const tensor weight = draw_matrix(w, f, &net, gates * net.hidden, net.x.dims[2]);
    const tensor r = draw_matrix(w, f, &net, gates * net.hidden, net.hidden);
    node_operand(w, &n, &weight);
    node_operand(w, &n, &r);
    draw_options(w, f, &n, &net);
    draw_attributes(w, &n, &net);
    form_add(w, f, &n, choose(w->c, gates == 4 ? 3 : 2) + 1);
}

static void draw_rnn(drawing *w, const form *f) { draw_network(w, f, 1); }
static void draw_gru(drawing *w, const form *f) { draw_network(w, f, 3); }
static void draw_lstm(drawing *w, const form *f) { draw_network(w, f, 4); }

const form forms_recurrent[] = {
    {"RNN", draw_rnn, "f", -1, 1, NULL, false},
    {"GRU", draw_gru, "f", -1, 1, NULL, false},
    {"LSTM", draw_lstm, "f", -1, 1, NULL, false},
    {0},
};
