/* print.c - prints a module as canonical text (docs/ir.md).
 *
 * All text goes to one buffer. The nodes of a phase are printed in two steps because their columns are aligned: first
 * the cells (results, operation) of all nodes, then the lines, padded to the widest cell. Cells wider than a limit do
 * not widen the column, so a single long name does not shift all lines. */
#include "ir/base/text_buffer.h"
#include "ir/ops/number.h"
#include "ir/text/text.h"

#include <stdio.h>
#include <string.h>

enum { NAME_COLUMN = 24, RESULT_COLUMN = 20, OPERATION_COLUMN = 44 }; /* wider cells do not widen a column */

const char *const ir_phase_names[IR_PHASE_COUNT] = {"forward", "backward", "update"};
const char *const ir_storage_kind_names[] = {"param", "state", "const"};

typedef struct writer {
    const ir_module *module;
    text_buffer text; /* in the arena of everything else */
    size_t line_start;
    int line;      /* number of completed lines */
    int indent;    /* of the labels of the current graph */
    ir_dump *dump; /* NULL: lines are not recorded */
} writer;

static void put_bytes(writer *w, const char *s, size_t n) { text_add_bytes(&w->text, s, n); }

static void put(writer *w, const char *s) { text_put(&w->text, s); }

static void put_int(writer *w, int64_t v) { text_add(&w->text, "%lld", (long long)v); }

static void pad(writer *w, size_t have, size_t width)
{
    for (; have < width; have++) put_bytes(w, " ", 1);
}

/* Ends the line and records that it shows `what`. */
static void end_line(writer *w, const void *what)
{
    ir_line line = {what, ++w->line, w->line_start, w->text.length - w->line_start};
    if (w->dump && what) vec_push(w->text.arena, &w->dump->lines, line);
    put_bytes(w, "\n", 1);
    w->line_start = w->text.length;
}

/* ---- strings and names ----------------------------------------------------------------------------------- */

static void put_string(writer *w, const char *s) { ir_add_string(&w->text, s); }

static void put_name(writer *w, const char *sigil, const char *name) { ir_add_name(&w->text, sigil, name ? name : ""); }

/* Prints a note on one line, trimmed. */
static void put_note(writer *w, const char *note)
{
    if (!note) return;
    size_t n = strlen(note);
    while (n && (unsigned char)note[n - 1] <= ' ') n--;
    while (n && (unsigned char)*note <= ' ') note++, n--;
    if (!n) return;
    put(w, "  # ");
    ir_add_note(&w->text, note, n);
}

/* ---- types and attributes -------------------------------------------------------------------------------- */

static void put_dims(writer *w, const ir_dim *dims, int count)
{
    put(w, "[");
    for (int i = 0; i < count; i++) {
        if (i) put(w, ",");
        if (ir_dim_is_symbolic(dims[i])) put(w, ir_dim_print(w->module->dims, dims[i], w->text.arena));
        else put_int(w, dims[i]);
    }
    put(w, "]");
}

static void put_ints(writer *w, const int64_t *items, int count)
{
    put(w, "[");
    for (int i = 0; i < count; i++) {
        if (i) put(w, ",");
        put_int(w, items[i]);
    }
    put(w, "]");
}

static void put_type(writer *w, const ir_type *type)
{
    if (type->dtype == IR_NO_DTYPE) {
        put(w, "_");
        return;
    }
    put(w, ir_dtype_name(type->dtype));
    put_dims(w, type->dims, type->rank);
}

static void put_number(writer *w, ir_dtype t, double v)
{
    char number[IR_NUMBER_SIZE];
    ir_float_print(number, t, v);
    put(w, number);
}

static void put_field(writer *w, const ir_field *f)
{
    if (f->kind != 's') put(w, f->kind == 'i' || f->kind == 'I' ? "i64 " : "f32 ");
    put_string(w, f->name);
    put(w, "=");
    switch (f->kind) {
    case 'f': put_number(w, IR_f32, f->f); break;
    case 's': put_string(w, f->s); break;
    case 'I': put_ints(w, f->ints, f->count); break;
    case 'F':
        put(w, "[");
        for (int i = 0; i < f->count; i++) {
            if (i) put(w, ",");
            put_number(w, IR_f32, (double)f->floats[i]);
        }
        put(w, "]");
        break;
    default: put_int(w, f->i); break;
    }
}

static void put_fields(writer *w, const ir_field *fields, int count)
{
    put(w, "{");
    for (int i = 0; i < count; i++) {
        if (i) put(w, ", ");
        put_field(w, &fields[i]);
    }
    put(w, "}");
}

static void put_attr(writer *w, const ir_slot *slot, const ir_attr *attr)
{
    put(w, slot->name);
    put(w, "=");
    switch (slot->kind) {
    case IR_SLOT_FLOAT:
    case IR_SLOT_DOUBLE: put_number(w, slot->kind == IR_SLOT_FLOAT ? IR_f32 : IR_f64, attr->f); break;
    case IR_SLOT_BOOL: put(w, attr->i ? "true" : "false"); break;
    case IR_SLOT_DTYPE: put(w, ir_dtype_name(attr->dtype)); break;
    case IR_SLOT_STR: put_string(w, attr->s ? attr->s : ""); break;
    case IR_SLOT_ONE_OF: put_string(w, slot->words[attr->i]); break;
    case IR_SLOT_INTS: put_ints(w, attr->list.items, attr->list.count); break;
    case IR_SLOT_DIMS: put_dims(w, attr->list.items, attr->list.count); break;
    case IR_SLOT_FIELDS: put_fields(w, attr->fields.items, attr->fields.count); break;
    default: put_int(w, attr->i); break;
    }
}

static void put_attrs(writer *w, const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    const char *before = " {";
    for (int i = 0; i < info->n_attr; i++) {
        if (ir_attr_equal(info->attr[i].kind, &n->attr[i], &info->attr[i].initial)) continue;
        put(w, before);
        put_attr(w, &info->attr[i], &n->attr[i]);
        before = ", ";
    }
    if (*before == ',') put(w, "}");
}

/* ---- nodes ----------------------------------------------------------------------------------------------- */

static void put_operand(writer *w, const ir_value *v)
{
    if (!v) put(w, "_");
    else put_name(w, v->kind == IR_VALUE_RESULT ? "%" : "@", v->name);
}

/* Omits absent operands at the end, and those that regions capture. */
static void put_operands(writer *w, const ir_node *n)
{
    int count = n->n_regions ? ir_declared_operands(n) : n->n_in;
    while (count > 0 && !n->in[count - 1].value) count--;
    for (int i = 0; i < count; i++) {
        put(w, i ? ", " : " ");
        put_operand(w, n->in[i].value);
    }
}

/* Prints " [t_x:tx]", the marks of operands and results; nothing if all are present and have mark x. */
static void put_layout(writer *w, const ir_node *n)
{
    const ir_layout *l = &n->layout;
    bool plain = l->n_in == (n->n_regions ? ir_declared_operands(n) : n->n_in) && l->n_out == n->n_out;
    for (int i = 0; i < l->n_in + l->n_out; i++) plain &= l->marks[i] == 'x';
    if (plain || !l->marks) return;
    put(w, " [");
    put_bytes(w, l->marks, (size_t)l->n_in);
    put(w, ":");
    put_bytes(w, l->marks + l->n_in, (size_t)l->n_out);
    put(w, "]");
}

static void put_results(writer *w, const ir_node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        if (i) put(w, ", ");
        put_name(w, "%", n->out[i]->name);
    }
}

/* Prints operation, operands and attributes; ops with the trait NAMED have their own form. */
static void put_operation(writer *w, const ir_node *n)
{
    put(w, ir_op_get(n->op)->name);
    if (ir_op_has(n->op, IR_NAMED)) {
        put(w, " ");
        put_string(w, n->attr[IR_ATTR(output, name)].s);
        put(w, " =");
        put_operands(w, n);
        return;
    }
    put_operands(w, n);
    put_layout(w, n);
    put_attrs(w, n);
}

static void put_origin(writer *w, const char *mark, const char *op, const char *node)
{
    put_name(w, mark, op);
    put(w, " ");
    put_string(w, node ? node : "");
}

/* Prints " as gradient @w", or nothing for the first role of a kind. */
static void put_role(writer *w, int role, const char *word, const char *of)
{
    if (!role) return;
    put(w, " as ");
    put(w, word);
    if (of) put_name(w, " @", of);
}

/* Prints result types, role, location and note. */
static void put_activation(writer *w, const ir_node *n)
{
    put_role(w, n->role, ir_output_words[n->role], n->of ? n->of->name : NULL);
    for (int i = 0; i < n->n_out; i++) {
        put(w, i ? ", " : " : ");
        put_type(w, &n->out[i]->type);
    }
    if (n->loc.op) {
        put_origin(w, " !", n->loc.op, n->loc.node);
        for (const ir_origin *p = n->loc.fused_from; p && p->op; p++)
            put_origin(w, p == n->loc.fused_from ? " (" : ", ", p->op, p->node);
        if (n->loc.fused_from) put(w, ")");
    }
    put_note(w, n->note);
}

typedef struct row { /* cells of a node, in the buffer of cells */
    const ir_node *node;
    size_t start, results, operation; /* offset, lengths */
} row;

static row cells_of(writer *cells, const ir_node *n)
{
    row r = {.node = n, .start = cells->text.length};
    put_results(cells, n);
    r.results = cells->text.length - r.start;
    put_operation(cells, n);
    r.operation = cells->text.length - r.start - r.results;
    return r;
}

static void put_lines(writer *w, const ir_graph *g);

static void put_captures(writer *w, const ir_node *n, const ir_region *r)
{
    const char *before = " captures ";
    for (size_t i = 0; i < r->graph->inputs.count; i++) {
        const int operand = ir_capture_of(r, i);
        if (operand < 0) continue;
        put(w, before);
        put_operand(w, ir_in(n, operand));
        before = ", ";
    }
}

/* Prints " (body: graph(@x : f32[4]) {", the lines of the graph and "} captures %x)". Alone, a node has no lines. */
static void put_regions(writer *w, const ir_node *n, bool alone)
{
    for (int i = 0; i < n->n_regions; i++) {
        const ir_region *r = &n->regions[i];
        if (alone) put(w, i ? ", " : " (");
        else if (!i) put(w, " (");
        else {
            end_line(w, NULL);
            pad(w, 0, (size_t)w->indent + 4);
        }
        put_name(w, "", r->name);
        if (!alone) {
            put(w, ": graph");
            w->indent += 4;
            put_lines(w, r->graph);
            w->indent -= 4;
        }
        put_captures(w, n, r);
    }
    if (n->n_regions) put(w, ")");
}

static void put_row(writer *w, const char *cells, row r, size_t results, size_t operation, bool alone)
{
    const char *cell = cells + r.start;
    put_bytes(w, cell, r.results);
    if (r.node->n_out) {
        pad(w, r.results, results);
        put(w, " = ");
    }
    put_bytes(w, cell + r.results, r.operation);
    put_regions(w, r.node, alone);
    if (r.node->n_out && !r.node->n_regions) pad(w, r.operation, operation);
    put_activation(w, r.node);
}

static size_t widest(size_t so_far, size_t width, size_t limit)
{
    return width > so_far && width <= limit ? width : so_far;
}

/* Prints the nodes from `first` that have its phase; returns the node after them. */
static const ir_node *put_phase(writer *w, const ir_node *first)
{
    writer cells = {.text = {.arena = w->text.arena}, .module = w->module};
    VEC(row) rows = {0};
    size_t results = 0, operation = 0;
    const ir_node *n = first;
    for (; n && n->phase == first->phase; n = n->next) {
        row r = cells_of(&cells, n);
        vec_push(w->text.arena, &rows, r);
        if (!n->n_out) continue;
        results = widest(results, r.results, RESULT_COLUMN);
        if (!n->n_regions) operation = widest(operation, r.operation, OPERATION_COLUMN);
    }
    pad(w, 0, (size_t)w->indent);
    put(w, ir_phase_names[first->phase]);
    put(w, ":");
    end_line(w, NULL);
    for (size_t i = 0; i < rows.count; i++) {
        pad(w, 0, (size_t)w->indent + 2);
        put_row(w, cells.text.data, rows.items[i], results, operation, false);
        end_line(w, rows.items[i].node);
    }
    return n;
}

/* Prints what follows the name of a graph, without the end of the last line. */
static void put_lines(writer *w, const ir_graph *g)
{
    put(w, "(");
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        put_name(w, i ? ", @" : "@", v->name);
        put(w, " : ");
        put_type(w, &v->type);
        put_role(w, v->role, ir_input_words[v->role], NULL);
    }
    put(w, ")");
    put_role(w, g->role, ir_graph_words[g->role], NULL);
    put(w, " {");
    end_line(w, g);
    for (const ir_node *n = g->first; n;) n = put_phase(w, n);
    pad(w, 0, (size_t)w->indent);
    put(w, "}");
}

static void put_graph(writer *w, const ir_graph *g)
{
    end_line(w, NULL);
    put_name(w, "graph @", g->name);
    put_lines(w, g);
    end_line(w, NULL);
}

/* ---- storage --------------------------------------------------------------------------------------------- */

static void put_hex(writer *w, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    put(w, "bytes \"");
    for (size_t i = 0; i < n; i++) {
        const char pair[2] = {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
        put_bytes(w, pair, 2);
    }
    put(w, "\"");
}

/* Prints a few elements as numbers. Returns false and prints nothing if there are many, if they would not read back as
 * the same bytes, or if there is no data (in a damaged module, which the verifier must still be able to print). */
static bool put_elements(writer *w, const ir_storage *s)
{
    char number[IR_NUMBER_SIZE];
    size_t bytes = (size_t)ir_storage_bytes(s), size = ir_dtype_size(s->type.dtype), length = w->text.length;
    if (!s->data.bytes || bytes / size > IR_INLINE_ELEMENTS) return false;
    if (s->type.rank) put(w, "[");
    for (size_t at = 0; at < bytes; at += size) {
        if (!ir_element_print(number, s->type.dtype, (const unsigned char *)s->data.bytes + at)) {
            w->text.length = length;
            return false;
        }
        if (at) put(w, ", ");
        put(w, number);
    }
    if (s->type.rank) put(w, "]");
    return true;
}

static void put_data(writer *w, const ir_storage *s)
{
    if (s->data.kind == IR_DATA_SIDECAR) return;
    put(w, " = ");
    if (s->data.kind == IR_DATA_ZERO) {
        put(w, "zero");
    } else if (s->data.kind == IR_DATA_FILE) {
        put(w, "file(");
        put_string(w, s->data.path);
        put(w, ", ");
        put_int(w, s->data.offset);
        put(w, ", ");
        put_int(w, s->data.length);
        put(w, ")");
    } else if (!put_elements(w, s)) {
        put_hex(w, s->data.bytes, s->data.bytes ? (size_t)ir_storage_bytes(s) : 0);
    }
}

static void put_storage_head(writer *w, const ir_storage *s)
{
    put(w, ir_storage_kind_names[s->kind]);
    put_name(w, " @", s->name);
}

/* Prints " as lr" or " as slot velocity @w shard 4". */
static void put_state_role(writer *w, const ir_storage *s)
{
    put_role(w, s->role, ir_state_words[s->role], NULL);
    if (s->slot) put_name(w, " ", s->slot);
    if (s->of) put_name(w, " @", s->of->name);
    if (s->shard && s->of) {
        put(w, " shard ");
        put_int(w, s->shard);
    }
}

static void put_storage(writer *w)
{
    writer cells = {.text = {.arena = w->text.arena}};
    size_t column = 0;
    for (size_t i = 0; i < w->module->storage.count; i++, cells.text.length = 0) {
        put_storage_head(&cells, w->module->storage.items[i]);
        column = widest(column, cells.text.length, NAME_COLUMN);
    }
    for (size_t i = 0; i < w->module->storage.count; i++) {
        const ir_storage *s = w->module->storage.items[i];
        put_storage_head(w, s);
        pad(w, w->text.length - w->line_start, column);
        put(w, " : ");
        put_type(w, &s->type);
        put_data(w, s);
        put_state_role(w, s);
        if (s->frozen) put(w, " frozen");
        ir_add_decision(&w->text, s);
        put_note(w, s->note);
        end_line(w, s);
    }
}

/* ---- module ---------------------------------------------------------------------------------------------- */

static void put_training(writer *w)
{
    ir_add_training(&w->text, w->module, w->text.arena);
    for (size_t i = w->line_start; i < w->text.length; i++)
        if (w->text.data[i] == '\n') {
            w->line++;
            w->line_start = i + 1;
        }
}

static void put_head(writer *w, bool sealed)
{
    const ir_module *m = w->module;
    put(w, IR_TEXT_HEAD " ");
    if (sealed) put(w, IR_TEXT_SEALED " ");
    put_int(w, IR_TEXT_VERSION);
    end_line(w, NULL);
    if (m->weights_path) {
        put(w, "weights ");
        put_string(w, m->weights_path);
        if (m->weights_hash) {
            put(w, " xxh3=");
            put(w, m->weights_hash);
        }
        end_line(w, NULL);
    }
    const char *source = ir_module_source(m);
    if (source) {
        put(w, "source ");
        put_string(w, source);
        end_line(w, NULL);
    }
    put_training(w);
    for (size_t i = 0; i < m->meta.count; i++) {
        put(w, "meta ");
        put_string(w, m->meta.items[i].key);
        put(w, " ");
        put_string(w, m->meta.items[i].value);
        end_line(w, NULL);
    }
}

static writer print_module(const ir_module *m, arena *a, ir_dump *dump, bool sealed)
{
    writer w = {.text = {.arena = a}, .module = m, .dump = dump};
    put_head(&w, sealed);
    put_storage(&w);
    for (size_t i = 0; i < m->graphs.count; i++) put_graph(&w, m->graphs.items[i]);
    return w;
}

const char *ir_print(const ir_module *m, arena *a) { return print_module(m, a, NULL, false).text.data; }

const char *ir_print_sealed(const ir_module *m, arena *a)
{
    writer w = print_module(m, a, NULL, true);
    char seal[IR_SEAL_DIGITS + 1];
    put(&w, "\n");
    ir_seal(w.text.data, w.text.length, seal);
    put(&w, "end xxh3=");
    put(&w, seal);
    end_line(&w, NULL);
    return w.text.data;
}

ir_dump ir_dump_make(const ir_module *m, arena *a)
{
    ir_dump dump = {0};
    dump.text = print_module(m, a, &dump, false).text.data;
    return dump;
}

const char *ir_print_node(const ir_node *n, arena *a)
{
    const ir_graph *g = n->graph;
    if (!g && n->n_out) g = n->out[0]->graph;
    if (!g && n->n_in && n->in[0].value) g = n->in[0].value->graph;
    writer w = {.text = {.arena = a}, .module = g ? g->module : NULL},
           cells = {.text = {.arena = a}, .module = w.module};
    row r = cells_of(&cells, n);
    put_row(&w, cells.text.data, r, 0, 0, true);
    return w.text.data;
}
