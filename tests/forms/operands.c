/* operands.c - the operands, shapes and attributes that generators draw. */
#include "tests/forms/form.h"

#include <math.h>

/* ---- types ---- */

static int type_of_letter(drawing *w, char letter)
{
    static const int floats[] = {ONNX_float32, ONNX_float32, ONNX_float32, ONNX_float32,
                                 ONNX_float64, ONNX_float16, ONNX_bfloat16};
    static const int ints[] = {ONNX_int64, ONNX_int64, ONNX_int32}, small[] = {ONNX_int8, ONNX_uint8, ONNX_int16};
    switch (letter) {
    case 'F': return ONNX_float32;
    case 'f': return w->exact ? w->exact : floats[choose(w->c, w->m.opset < 13 ? 6 : 7)];
    case 'i': return CHOOSE(w->c, ints);
    case 's': return CHOOSE(w->c, small);
    default: return ONNX_bool;
    }
}

static char letter_of(int type)
{
    switch (type) {
    case ONNX_int32:
    case ONNX_int64: return 'i';
    case ONNX_int8:
    case ONNX_uint8:
    case ONNX_int16: return 's';
    case ONNX_bool: return 'b';
    case ONNX_uint16:
    case ONNX_uint32:
    case ONNX_uint64: return 'u'; /* of no form: few operators have them */
    default: return 'f';
    }
}

int draw_type(drawing *w, const char *types)
{
    const int n = (int)strlen(types);
    if (w->exact) return type_of_letter(w, *types);
    for (int attempt = 0; attempt < 3 && w->n_pool; attempt++) {
        const int type = w->pool[w->n_pool - 1 - choose(w->c, w->n_pool)].type;
        if (strchr(types, letter_of(type))) return type;
    }
    return type_of_letter(w, choose(w->c, 3) ? types[0] : types[choose(w->c, n)]);
}

/* ---- shapes ---- */

int64_t some_size(drawing *w)
{
    static const int8_t sizes[] = {1, 2, 3, 4, 2, 3, 5, 6};
    return CHOOSE(w->c, sizes);
}

int64_t any_size(drawing *w) { return rarely(w->c, 24) ? 0 : some_size(w); }

void push_size(tensor *shape, int64_t size) { shape->dims[shape->rank++] = size; }

void push_axis(tensor *shape, const tensor *x, int axis)
{
    const int symbol = x->symbol[axis];
    shape->symbol[shape->rank] = symbol > 0 ? symbol : 0;
    shape->dims[shape->rank++] = x->dims[axis];
}

int64_t count_of(const tensor *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) n *= shape->dims[i];
    return n;
}

static void push_any(drawing *w, tensor *shape)
{
    if (rarely(w->c, 6)) {
        const int symbol = rarely(w->c, 3);
        shape->symbol[shape->rank] = symbol + 1;
        push_size(shape, w->sizes[symbol]);
    } else {
        push_size(shape, any_size(w));
    }
}

tensor any_shape(drawing *w, int min, int max)
{
    static const int8_t ranks[] = {2, 3, 2, 4, 1, 3, 5, 0};
    tensor shape = {0};
    int rank = CHOOSE(w->c, ranks);
    rank = rank < min ? min : rank > max ? max : rank;
    while (shape.rank < rank) push_any(w, &shape);
    return shape;
}

tensor fixed_shape(int rank, const int64_t *dims)
{
    tensor shape = {0};
    for (int i = 0; i < rank; i++) push_size(&shape, dims[i]);
    return shape;
}

int64_t either_sign(drawing *w, int axis, int rank) { return choose(w->c, 2) ? axis : axis - rank; }

int any_axis(drawing *w, int rank) { return (int)either_sign(w, choose(w->c, rank), rank); }

double any_real(drawing *w, double low, double high)
{
    return low + 0.1 * choose(w->c, (int)lround(10 * (high - low)) + 1);
}

/* ---- values ---- */

static double unit(choices *c) { return choices_word(c) * 0x1p-32; }

/* Values of gradient tests are distinct, and none is near a multiple of 0.1, where kinks are. */
static double distinct(drawing *w, values v, int64_t i)
{
    const int64_t steps = llround(10 * (v.high - v.low));
    const double offset = (double)(i + 37 * w->n_inputs) * 0.6180339887498949;
    return v.low + 0.1 * (double)(choices_word(w->c) % (uint32_t)(steps ? steps : 1)) + 0.02 +
           0.06 * (offset - floor(offset));
}

static double drawn_real(drawing *w, values v, int way, int64_t i)
{
    static const double wide[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e30, -1e-30, 65504};
    if (w->exact) return distinct(w, v, i);
    if (way == 2 && rarely(w->c, 6)) return CHOOSE(w->c, wide);
    const double real = v.low + (v.high - v.low) * unit(w->c);
    return way == 1 ? fmin(v.high, fmax(v.low, round(2 * real) / 2)) : real;
}

static void *draw_values(drawing *w, const tensor *t, values v, int64_t count)
{
    const ir_dtype type = onnx_type_dtype(t->type);
    const size_t size = ir_dtype_size(type);
    const bool is_real = ir_dtype_is_float(type);
    const int way = w->special && choose(w->c, 2) ? 2 : rarely(w->c, 4) ? 1 : 0;
    char *data = calloc((size_t)count + 1, size);
    if (!data) abort();
    for (int64_t i = 0; i < count; i++) {
        void *at = data + (size_t)i * size;
        if (is_real) ir_store_f64(type, at, drawn_real(w, v, way, i));
        else if (type == IR_bool) *(uint8_t *)at = choices_word(w->c) >> 16 & 1;
        else ir_store_i64(type, at, (int64_t)floor(v.low + (v.high - v.low) * unit(w->c)));
    }
    return data;
}

/* "2,N,3" */
static const char *format_dims(const tensor *t, bool sizes, char text[128])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < t->rank; i++) {
        const char *comma = i ? "," : "";
        if (t->symbol[i] > 0 && !sizes)
            used += (size_t)snprintf(text + used, 128 - used, "%s%s", comma, t->symbol[i] == 1 ? "N" : "M");
        else used += (size_t)snprintf(text + used, 128 - used, "%s%lld", comma, (long long)t->dims[i]);
    }
    return text;
}

static tensor named(drawing *w, int type, const tensor *shape)
{
    tensor t = *shape;
    t.type = type;
    snprintf(t.name, sizeof t.name, "t%d", w->made++);
    return t;
}

static bool has_symbol(const tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->symbol[i]) return true;
    return false;
}

static form_role role_of(const drawing *w, const tensor *t, bool varied)
{
    if (t->type != w->exact || has_symbol(t)) return FORM_GIVEN;
    const form_role role = w->roles < FORM_ROLES ? w->roles : (w->roles + (unsigned)w->n_inputs) % FORM_ROLES;
    return varied || role == FORM_STORED ? role : FORM_GIVEN;
}

/* Adds an operand to the model. */
static void put_operand(drawing *w, const form_input *in)
{
    char dims[128], minus[24];
    const tensor *t = &in->t;
    const ir_dtype type = onnx_type_dtype(t->type);
    const size_t count = (size_t)count_of(t), size = ir_dtype_size(type);
    if (in->role == FORM_GIVEN) model_input(&w->m, t->name, t->type, format_dims(t, false, dims));
    if (in->role == FORM_STORED)
        model_tensor(&w->m, tensor_new(t->name, t->type, format_dims(t, true, dims), in->data, count * size));
    if (in->role != FORM_COMPUTED) return;
    char *negatives = calloc(count + 1, size);
    if (!negatives) abort();
    for (size_t i = 0; i < count; i++)
        ir_store_f64(type, negatives + i * size, -ir_load_f64(type, (char *)in->data + i * size));
    snprintf(minus, sizeof minus, "%s.minus", t->name);
    model_tensor(&w->m, tensor_new(minus, t->type, format_dims(t, true, dims), negatives, count * size));
    model_node(&w->m, "Neg", minus, t->name);
    free(negatives);
}

tensor new_tensor(drawing *w, int type, values v, const tensor *shape, bool varied)
{
    char text[128];
    const tensor t = named(w, type, shape);
    const int64_t count = count_of(&t);
    void *data = draw_values(w, &t, v, count);
    const bool is_input = w->exact || has_symbol(&t) || !rarely(w->c, 3);
    if (is_input && w->n_inputs < FORM_INPUTS) {
        const form_input in = {t, data, varied, role_of(w, &t, varied)};
        put_operand(w, &in);
        w->inputs[w->n_inputs++] = in;
    } else {
        const size_t size = ir_dtype_size(onnx_type_dtype(type));
        model_tensor(&w->m, tensor_new(t.name, type, format_dims(&t, true, text), data, (size_t)count * size));
        free(data);
    }
    return t;
}

/* ---- operands ---- */

static void mark_used(drawing *w, const tensor *t)
{
    for (int i = 0; i < w->n_results; i++)
        if (strcmp(w->results[i].name, t->name) == 0) w->used[i] = true;
}

tensor new_operand(drawing *w, const form *f, const tensor *shape)
{
    const tensor t = new_tensor(w, w->type, (values){f->low, f->high}, shape, true);
    if (!w->exact && w->n_pool < FORM_POOL) w->pool[w->n_pool++] = t;
    return t;
}

tensor any_operand(drawing *w, const form *f, int min, int max)
{
    for (int attempt = 0; attempt < 6 && w->n_pool && !rarely(w->c, 6); attempt++) {
        const int back = choose(w->c, 2) ? choose(w->c, w->n_pool) / 3 : choose(w->c, w->n_pool);
        const tensor *t = &w->pool[w->n_pool - 1 - back];
        if (t->type == w->type && t->rank >= min && t->rank <= max) return *t;
    }
    const tensor shape = any_shape(w, min, max);
    return new_operand(w, f, &shape);
}

static tensor existing_like(drawing *w, const tensor *x)
{
    for (int attempt = 0; attempt < 3 && w->n_pool; attempt++) {
        const tensor *t = &w->pool[choose(w->c, w->n_pool)];
        if (t->type == w->type && t->rank == x->rank && !memcmp(t->dims, x->dims, sizeof *x->dims * (size_t)x->rank))
            return *t;
    }
    return (tensor){.rank = -1};
}

tensor smaller_operand(drawing *w, const form *f, const tensor *x)
{
    tensor shape = {0}, same = existing_like(w, x);
    if (same.rank >= 0) return same;
    const int drop = rarely(w->c, 3) ? choose(w->c, x->rank + 1) : 0;
    for (int i = drop; i < x->rank; i++)
        if (rarely(w->c, 4)) push_size(&shape, 1);
        else push_axis(&shape, x, i);
    return new_operand(w, f, &shape);
}

tensor broadcast_operand(drawing *w, const form *f, const tensor *x)
{
    tensor shape = {0}, same = existing_like(w, x);
    if (same.rank >= 0) return same;
    const int drop = rarely(w->c, 3) ? choose(w->c, x->rank + 1) : 0;
    const int add = !drop && x->rank < FORM_MAX_RANK && rarely(w->c, 6) ? 1 : 0;
    if (add) push_any(w, &shape);
    for (int i = drop; i < x->rank; i++)
        if (rarely(w->c, 4)) push_size(&shape, 1);
        else if (x->dims[i] == 1 && !x->symbol[i]) push_any(w, &shape);
        else push_axis(&shape, x, i);
    return new_operand(w, f, &shape);
}

/* `size` bytes of elements. */
static tensor constant(drawing *w, int type, const tensor *shape, const void *data, size_t size)
{
    char text[128];
    const tensor t = named(w, type, shape);
    wire value = tensor_new(t.name, type, format_dims(&t, true, text), data, size);
    if (choose(w->c, 2)) model_tensor(&w->m, value);
    else model_constant(&w->m, t.name, value);
    return t;
}

tensor new_list(drawing *w, const int64_t *items, int n)
{
    const int64_t size = n;
    const tensor shape = fixed_shape(1, &size);
    return constant(w, ONNX_int64, &shape, items, (size_t)n * sizeof *items);
}

tensor new_numbers(drawing *w, int type, const tensor *shape, const double *items)
{
    const ir_dtype dtype = onnx_type_dtype(type);
    const size_t n = (size_t)count_of(shape), size = ir_dtype_size(dtype);
    char *data = calloc(n + 1, size);
    if (!data) abort();
    for (size_t i = 0; i < n; i++) ir_store_f64(dtype, data + i * size, items[i]);
    const tensor t = constant(w, type, shape, data, n * size);
    free(data);
    return t;
}

tensor new_setting(drawing *w, double value)
{
    const tensor scalar = {.rank = 0};
    if (w->exact) return new_tensor(w, w->type, (values){value, value + 1e-3}, &scalar, true);
    return new_scalar(w, w->type, value);
}

tensor new_scalar(drawing *w, int type, double value) { return new_numbers(w, type, &(tensor){.rank = 0}, &value); }

/* ---- nodes ---- */

void node_operand(drawing *w, node *n, const tensor *x)
{
    if (w->is_complete) w->n_operands = 0;
    w->is_complete = false;
    if (w->n_operands < FORM_OPERANDS)
        snprintf(w->operands[w->n_operands++], sizeof *w->operands, "%s", x ? x->name : "");
    wire_text(n, 1, x ? x->name : "");
    if (x) mark_used(w, x);
}

void node_int_or_default(drawing *w, node *n, const char *name, int64_t value, int64_t otherwise)
{
    if (value != otherwise || choose(w->c, 2)) node_int(n, name, value);
}

void node_float_or_default(drawing *w, node *n, const char *name, double value, double otherwise)
{
    if (fabs(value - otherwise) > 1e-9 || choose(w->c, 2)) node_float(n, name, (float)value);
}

void node_list(node *n, const char *name, const int64_t *items, int count)
{
    wire list = {0};
    for (int i = 0; i < count; i++) wire_int(&list, 8, items[i]);
    node_attr(n, name, 7, &list);
}

void node_list_since(drawing *w, node *n, int since, const char *name, const int64_t *items, int count)
{
    if (w->m.opset < since) {
        node_list(n, name, items, count);
    } else {
        const tensor t = new_list(w, items, count);
        node_operand(w, n, &t);
    }
}
