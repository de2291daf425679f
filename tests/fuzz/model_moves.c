/* model_moves.c - random nodes that move elements: transposes, reshapes, slices, pads, splits, gathers. */
#include "tests/fuzz/model.h"

#include <stdio.h>
#include <string.h>

/* A node that moves the elements of x. */
typedef struct movement {
    tensor x;
    int axis, rank; /* rank: of the result */
    char operands[128];
    int64_t dims[MAX_RANK + 1], list[2 * MAX_RANK];
    node a;
} movement;

/* Each draw_OP completes a movement whose result has the shape of x; false: x does not allow the op. */
static bool draw_transpose(drawing *w, movement *m)
{
    char text[128];
    (void)w;
    for (int i = 0; i < m->x.rank; i++) {
        m->list[i] = (i + m->axis) % m->x.rank; /* rotates the axes */
        m->dims[i] = m->x.dims[m->list[i]];
    }
    node_ints(&m->a, "perm", format_list(m->list, m->x.rank, text));
    return true;
}

/* Merges two axes. */
static bool draw_reshape(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    const int axis = m->axis;
    char text[128];
    for (int i = 0; i < x->rank; i++) m->list[i] = i == axis ? -1 : 0;
    if (axis + 1 < x->rank) {
        memmove(&m->list[axis + 1], &m->list[axis + 2], sizeof *m->list * (size_t)(x->rank - axis - 2));
        for (int i = axis + 1; i < x->rank - 1; i++) m->list[i] = m->dims[i] = x->dims[i + 1];
        m->dims[axis] = x->dims[axis] >= 0 && x->dims[axis + 1] >= 0 ? x->dims[axis] * x->dims[axis + 1] : UNKNOWN;
        m->rank--;
    }
    for (int i = axis + 1; i < x->rank - 1; i++)
        if (m->list[i] < 0) m->list[i] = 2;
    snprintf(m->operands, sizeof m->operands, "%s,%s", x->name, add_numbers(w, m->list, m->rank, text));
    return true;
}

static bool draw_unsqueeze(drawing *w, movement *m)
{
    if (m->x.rank == MAX_RANK) return false;
    memmove(&m->dims[m->axis + 1], &m->dims[m->axis], sizeof *m->dims * (size_t)(m->x.rank - m->axis));
    m->dims[m->axis] = 1;
    m->rank++;
    add_list(w, 13, "axes", (int64_t[]){m->axis}, 1, m->operands, &m->a);
    return true;
}

static bool draw_squeeze(drawing *w, movement *m)
{
    if (m->x.dims[m->axis] != 1) return false;
    memmove(&m->dims[m->axis], &m->dims[m->axis + 1], sizeof *m->dims * (size_t)(m->x.rank - m->axis - 1));
    m->rank--;
    add_list(w, 13, "axes", (int64_t[]){axis_or_negative(w, &m->x, m->axis)}, 1, m->operands, &m->a);
    return true;
}

static bool draw_concat(drawing *w, movement *m)
{
    const tensor *x = &m->x, y = pick_like(w, x);
    snprintf(m->operands, sizeof m->operands, "%s,%s,%s", x->name, y.name, x->name);
    node_int(&m->a, "axis", axis_or_negative(w, x, m->axis));
    m->dims[m->axis] = x->dims[m->axis] < 0 ? UNKNOWN : 3 * x->dims[m->axis];
    return true;
}

static bool draw_slice(drawing *w, movement *m)
{
    const int64_t size = m->x.dims[m->axis];
    int64_t *list = m->list;
    char text[128];
    if (size < 0) return false;
    list[0] = choose(w->c, (int)size + 1) - choose(w->c, 2);
    list[1] = choose(w->c, (int)size + 2);
    m->dims[m->axis] = list[0] >= 0 && list[1] > list[0] && list[1] <= size ? list[1] - list[0] : UNKNOWN;
    if (w->m.opset < 10) {
        node_ints(&m->a, "axes", format_list((int64_t[]){m->axis}, 1, text));
        node_ints(&m->a, "starts", format_list(&list[0], 1, text));
        node_ints(&m->a, "ends", format_list(&list[1], 1, text));
    } else {
        for (int i = 0; i < 2; i++) add_list(w, 0, "", &list[i], 1, m->operands, &m->a);
        add_list(w, 0, "", (int64_t[]){axis_or_negative(w, &m->x, m->axis)}, 1, m->operands, &m->a);
    }
    return true;
}

static bool draw_pad(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    int64_t *list = m->list;
    for (int i = 0; i < 2 * x->rank; i++) list[i] = rarely(w->c, 3) ? choose(w->c, 4) - 1 : 0;
    for (int i = 0; i < x->rank; i++) m->dims[i] = x->dims[i] < 0 ? UNKNOWN : x->dims[i] + list[i] + list[x->rank + i];
    if (rarely(w->c, 3)) node_text(&m->a, "mode", choose(w->c, 2) ? "reflect" : "edge");
    add_list(w, 11, "pads", list, 2 * x->rank, m->operands, &m->a);
    return true;
}

static bool draw_expand(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    char text[128];
    for (int i = 0; i < x->rank; i++)
        m->list[i] = m->dims[i] = x->dims[i] == 1 ? draw_size(w) : x->dims[i] < 0 ? 1 : x->dims[i];
    snprintf(m->operands, sizeof m->operands, "%s,%s", x->name, add_numbers(w, m->list, x->rank, text));
    for (int i = 0; i < x->rank; i++) m->dims[i] = x->dims[i] < 0 ? x->dims[i] : m->dims[i];
    return true;
}

static bool draw_tile(drawing *w, movement *m)
{
    const tensor *x = &m->x;
    char text[128];
    for (int i = 0; i < x->rank; i++) {
        m->list[i] = rarely(w->c, 3) ? choose(w->c, 3) : 1;
        m->dims[i] = x->dims[i] < 0 && m->list[i] != 1 ? UNKNOWN : x->dims[i] * m->list[i];
    }
    snprintf(m->operands, sizeof m->operands, "%s,%s", x->name, add_numbers(w, m->list, x->rank, text));
    return true;
}

void draw_movement(drawing *w)
{
    static const struct {
        const char *op;
        bool (*draw)(drawing *w, movement *m);
    } ops[] = {{"Transpose", draw_transpose},
               {"Reshape", draw_reshape},
               {"Unsqueeze", draw_unsqueeze},
               {"Squeeze", draw_squeeze},
               {"Concat", draw_concat},
               {"Slice", draw_slice},
               {"Pad", draw_pad},
               {"Expand", draw_expand},
               {"Tile", draw_tile}};
    movement m = {.x = pick_float(w, 1)};
    m.axis = draw_axis(w, &m.x);
    m.rank = m.x.rank;
    memcpy(m.dims, m.x.dims, sizeof m.x.dims);
    snprintf(m.operands, sizeof m.operands, "%s", m.x.name);
    const int i = choose(w->c, sizeof ops / sizeof *ops);
    if (ops[i].draw(w, &m)) add_node(w, ops[i].op, m.operands, &m.a, m.x.type, m.rank, m.dims);
}

void draw_split(drawing *w)
{
    const tensor x = pick_float(w, 1);
    const int axis = draw_axis(w, &x);
    if (x.dims[axis] < 0) return;
    const int64_t first = choose(w->c, (int)x.dims[axis] + 1), parts[] = {first, x.dims[axis] - first};
    char operands[128], names[32];
    tensor y[2] = {fresh_tensor(w, x.type, x.rank, x.dims), fresh_tensor(w, x.type, x.rank, x.dims)};
    node a = {0};
    snprintf(operands, sizeof operands, "%s", x.name);
    add_list(w, 13, "split", parts, 2, operands, &a);
    snprintf(names, sizeof names, "%s,%s", y[0].name, y[1].name);
    node n = node_new("Split", operands, names);
    if (a.size) wire_raw(&n, a.bytes, a.size);
    wire_free(&a);
    node_int(&n, "axis", axis);
    model_add(&w->m, &n);
    for (int i = 0; i < 2; i++) {
        y[i].dims[axis] = parts[i];
        pool_add(w, &y[i]);
    }
}

void draw_gather(drawing *w)
{
    const tensor x = pick_float(w, 1);
    const int axis = draw_axis(w, &x);
    const int64_t count[] = {draw_dim(w)};
    int64_t dims[MAX_RANK];
    char operands[48];
    node a = {0};
    const tensor at = new_source(w, INT64, 1, count);
    memcpy(dims, x.dims, sizeof dims);
    dims[axis] = at.dims[0];
    snprintf(operands, sizeof operands, "%s,%s", x.name, at.name);
    node_int(&a, "axis", axis);
    add_node(w, "Gather", operands, &a, x.type, x.rank, dims);
}

/* Modifies the shape of x and reshapes x with it. */
void draw_shape(drawing *w)
{
    const tensor x = pick_float(w, 1);
    char operands[48], name[12];
    const int64_t rank = x.rank, all = -1;
    const tensor s = add_node(w, "Shape", x.name, NULL, INT64, 1, &rank);
    switch (choose(w->c, 3)) {
    case 0:
        snprintf(operands, sizeof operands, "%s,%s", x.name, s.name);
        add_node(w, choose(w->c, 2) ? "Reshape" : "Expand", operands, NULL, x.type, x.rank, x.dims);
        return;
    case 1: add_node(w, "ConstantOfShape", s.name, NULL, FLOAT, x.rank, x.dims); return;
    default:
        snprintf(operands, sizeof operands, "%s,%s", x.name, add_numbers(w, &all, 1, name));
        add_node(w, "Reshape", operands, NULL, x.type, 1, (int64_t[]){UNKNOWN});
    }
}
