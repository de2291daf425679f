/* ops.c - expands ops.def into the table that ir_op_get reads.
 *
 * Each op has an array of slots in the order inputs, outputs, attributes. The counts are computed from the slot structs
 * of ops.h, so they always agree with IR_IN, IR_OUT and IR_ATTR. */
#include "ir/ops/ops.h"

#include <string.h>

#define WORDS(set) const char *const ir_words_##set[] = {
#define WORD(set, word) #word,
/* clang-format off */
#define END NULL};
/* clang-format on */
#include "ir/ops/words.def"

int ir_words_find(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

/* The slot array of each op. */
#define SAME IR_NO_DTYPE
#define f32 IR_f32
#define i64 IR_i64
#define SLOT(slot_name, slot_kind, slot_group) {.name = #slot_name, .kind = slot_kind, .group = slot_group},
#define ATTR(slot_name, slot_kind, ...) {.name = #slot_name, .kind = slot_kind, .initial = __VA_ARGS__},

#define OP(name, amp, traits, infer, fold, grad, kernel) static const ir_slot slots_##name[] = {
/* clang-format off */
#define END {.name = NULL}};
/* clang-format on */
#define IN(name, type) SLOT(name, IR_SLOT_IN, IR_GROUP_##type)
#define OPT(name, type) SLOT(name, IR_SLOT_OPT, IR_GROUP_##type)
#define INS(name, type) SLOT(name, IR_SLOT_INS, IR_GROUP_##type)
#define OPERAND(slot_name, slot_kind, slot_group, ...) \
    {.name = #slot_name, .kind = IR_SLOT_##slot_kind, .group = IR_GROUP_##slot_group, __VA_ARGS__},
#define STOPS(kind, name, type) OPERAND(name, kind, type, .stops = true)
#define FIXED(kind, name, type) OPERAND(name, kind, type, .fixed = true)
#define SCALAR(kind, name, type) OPERAND(name, kind, type, .fixed = true, .scalar = true, .once = true)
#define ONCE(kind, name, type) OPERAND(name, kind, type, .once = true)
#define INDEXES(kind, name, type, axis) OPERAND(name, kind, type, .indexed = IR_INDEXED_##axis)
#define LABEL(kind, name, type) OPERAND(name, kind, type, .indexed = IR_INDEXED_SECOND, .label = true)
#define OUT(name, type) SLOT(name, IR_SLOT_OUT, IR_GROUP_##type)
#define OUTS(name, type) SLOT(name, IR_SLOT_OUTS, IR_GROUP_##type)
#define INT(name, value) ATTR(name, IR_SLOT_INT, {.i = value})
#define INTS(name) ATTR(name, IR_SLOT_INTS, {.list = {0}})
#define FLOAT(name, value) ATTR(name, IR_SLOT_FLOAT, {.f = (double)(float)(value)})
#define DOUBLE(name, value) ATTR(name, IR_SLOT_DOUBLE, {.f = value})
#define BOOL(name, value) ATTR(name, IR_SLOT_BOOL, {.i = value})
#define DTYPE(name, value) ATTR(name, IR_SLOT_DTYPE, {.dtype = value})
#define STR(name, value) ATTR(name, IR_SLOT_STR, {.s = value})
#define ONE_OF(slot_name, set, word) \
    {.name = #slot_name, .kind = IR_SLOT_ONE_OF, .initial = {.i = IR_WORD(set, word)}, .words = ir_words_##set},
#define DIMS(name) ATTR(name, IR_SLOT_DIMS, {.list = {0}})
#define FIELDS(name) ATTR(name, IR_SLOT_FIELDS, {.fields = {0}})
#include "ir/ops/ops.def"

/* The preprocessor cannot compute the position of a variadic slot, so it is searched for at startup. */
static int find_variadic(const ir_slot *slots, int n, ir_slot_kind kind)
{
    for (int i = 0; i < n; i++)
        if (slots[i].kind == kind) return i;
    return -1;
}

#define WHITE IR_WHITE
#define BLACK IR_BLACK
#define GRAY IR_GRAY
#define CLEAR IR_CLEAR
#define KEEP IR_KEEP
enum {
#define TRAIT(name, sentence) name = IR_##name,
#include "ir/ops/traits.def"
};
#define COUNT_IN(name) ((int)sizeof(struct ir_in_##name) - 1)
#define COUNT_OUT(name) ((int)sizeof(struct ir_out_##name) - 1)
#define COUNT_ATTR(name) ((int)sizeof(struct ir_attr_##name) - 1)

static ir_op_info infos[IR_OP_COUNT] = {
#define OP(op_name, amp, op_traits, infer, fold, grad, kernel) \
    {.name = #op_name, \
     .colour = amp, \
     .traits = (unsigned)(op_traits), \
     .n_in = COUNT_IN(op_name), \
     .n_out = COUNT_OUT(op_name), \
     .n_attr = COUNT_ATTR(op_name), \
     .in = slots_##op_name, \
     .out = slots_##op_name + COUNT_IN(op_name), \
     .attr = slots_##op_name + COUNT_IN(op_name) + COUNT_OUT(op_name)},
#include "ir/ops/ops.def"
};

/* Fills in the two positions that are not known at compile time, before main. */
__attribute__((constructor)) static void find_variadic_slots(void)
{
    for (int i = 0; i < IR_OP_COUNT; i++) {
        infos[i].variadic_in = find_variadic(infos[i].in, infos[i].n_in, IR_SLOT_INS);
        infos[i].variadic_out = find_variadic(infos[i].out, infos[i].n_out, IR_SLOT_OUTS);
    }
}

const ir_op_info *const ir_op_infos = infos;

const char *ir_colour_name(ir_colour c)
{
    static const char *const names[] = {"white", "black", "gray", "clear", "keep"};
    return names[c];
}

bool ir_op_find(const char *name, ir_op *out)
{
    for (int i = 0; i < IR_OP_COUNT; i++)
        if (strcmp(infos[i].name, name) == 0) {
            *out = (ir_op)i;
            return true;
        }
    return false;
}

/* The slot of element i of n, given `count` slots of which slot `variadic` (if not -1) may be repeated or absent. */
static const ir_slot *slot_at(const ir_slot *slots, int count, int variadic, int i, int n)
{
    if (i < 0 || i >= n) return NULL;
    if (variadic < 0) return n <= count ? &slots[i] : NULL;
    int repeated = n - (count - 1); /* number of operands in the variadic slot */
    if (repeated < 0) return NULL;
    if (i < variadic) return &slots[i];
    return i < variadic + repeated ? &slots[variadic] : &slots[i - repeated + 1];
}

const ir_slot *ir_op_in_slot(ir_op op, int i, int n)
{
    return slot_at(infos[op].in, infos[op].n_in, infos[op].variadic_in, i, n);
}

const ir_slot *ir_op_out_slot(ir_op op, int i, int n)
{
    return slot_at(infos[op].out, infos[op].n_out, infos[op].variadic_out, i, n);
}

static int find_slot(const ir_slot *slots, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(slots[i].name, name) == 0) return i;
    return -1;
}

int ir_op_find_label(ir_op op)
{
    const ir_op_info *info = ir_op_get(op);
    for (int i = 0; i < info->n_in; i++)
        if (info->in[i].label) return i;
    return -1;
}

int ir_op_find_in(ir_op op, const char *name) { return find_slot(infos[op].in, infos[op].n_in, name); }
int ir_op_find_attr(ir_op op, const char *name) { return find_slot(infos[op].attr, infos[op].n_attr, name); }

int ir_op_out_attr(ir_op op)
{
    const ir_op_info *info = &infos[op];
    for (int i = 0; i < info->n_attr; i++)
        if (info->attr[i].kind == IR_SLOT_DTYPE && strcmp(info->attr[i].name, "out") == 0) return i;
    return -1;
}

static bool field_equal(const ir_field *a, const ir_field *b)
{
    if (a->kind != b->kind || strcmp(a->name, b->name) != 0) return false;
    switch (a->kind) {
    case 'f': return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case 's': return strcmp(a->s, b->s) == 0;
    case 'I':
    case 'F': {
        const size_t bytes = (size_t)a->count * (a->kind == 'I' ? sizeof *a->ints : sizeof *a->floats);
        return a->count == b->count && (!bytes || memcmp(a->ints, b->ints, bytes) == 0);
    }
    default: return a->i == b->i;
    }
}

static bool fields_equal(const ir_attr *a, const ir_attr *b)
{
    bool equal = a->fields.count == b->fields.count;
    for (int i = 0; equal && i < a->fields.count; i++) equal = field_equal(&a->fields.items[i], &b->fields.items[i]);
    return equal;
}

const ir_field *ir_field_find(const ir_field *fields, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

static const void *copy_list(arena *a, const void *items, int count, size_t size)
{
    void *copy = arena_array(a, (size_t)count + 1, size);
    return count ? memcpy(copy, items, (size_t)count * size) : copy;
}

const ir_field *ir_fields_copy(arena *a, const ir_field *fields, int count)
{
    ir_field *copy = arena_array(a, (size_t)count + 1, sizeof *copy);
    for (int i = 0; i < count; i++) {
        const ir_field *from = &fields[i];
        copy[i] = *from;
        copy[i].name = arena_strdup(a, from->name);
        if (from->kind == 's') copy[i].s = arena_strdup(a, from->s);
        if (from->kind == 'I') copy[i].ints = copy_list(a, from->ints, from->count, sizeof *from->ints);
        if (from->kind == 'F') copy[i].floats = copy_list(a, from->floats, from->count, sizeof *from->floats);
    }
    return copy;
}

bool ir_attr_equal(ir_slot_kind kind, const ir_attr *a, const ir_attr *b)
{
    switch (kind) {
    case IR_SLOT_FLOAT:
    case IR_SLOT_DOUBLE: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case IR_SLOT_DTYPE: return a->dtype == b->dtype;
    case IR_SLOT_STR: return strcmp(a->s, b->s) == 0;
    case IR_SLOT_INTS:
    case IR_SLOT_DIMS:
        return a->list.count == b->list.count &&
               (!a->list.count || memcmp(a->list.items, b->list.items, (size_t)a->list.count * sizeof(int64_t)) == 0);
    case IR_SLOT_FIELDS: return fields_equal(a, b);
    default: return a->i == b->i;
    }
}

bool ir_op_stops(ir_op op, int i) { return i < infos[op].n_in && infos[op].in[i].stops; }
bool ir_op_fixes(ir_op op, int i) { return i < infos[op].n_in && infos[op].in[i].fixed; }
