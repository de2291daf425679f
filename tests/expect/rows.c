/* rows.c - the results of small cases of the IR, a line each, for tests/expect/run-expect. A file NAME.rows is
 *
 *     # comments
 *     let NAME = TEXT            $NAME stands for TEXT in the rows after it; a backslash at its end, for the end of a line
 *     let NAME                   $NAME stands for the lines up to the line "end"
 *     INPUT -> RESULT            a row; TITLE :: INPUT -> RESULT has a title
 *
 * A result ".. TEXT .." is one that contains the text.
 *
 * usage: rows KIND FILE   prints FILE with the results that the rows have in this build
 *
 * KIND    INPUT, RESULT
 * text    the text of a module, the version being 3 if it does not begin with "ampc-ir N"; "ok", or the errors of parsing
 *         it, as LINE:COLUMN: MESSAGE, or of verifying it, with the line of the dump, separated by " | "
 * infer   OP TYPE.. {ATTRIBUTE=VALUE..}; the types of the results, or the error. `_` is an absent operand, `@TYPE` a
 *         state, `#TYPE` a constant; "*N" after the operands is the number of results if the op has any number
 * fold    OP TYPE=VALUE,.. .. {ATTRIBUTE=VALUE..}; the results, or "?" if it does not fold
 * dim     an operation on dimensions, from the table `dim_calls`
 * list    the text of a list file, with \n for the end of a line; "ok", or the errors as for text
 * amp     a module, then PROFILE LEVEL and the text of a list file; the number of casts of pass `amp` in f16, and the type
 *         of the first result of each node of the model. That bf16 replaces f16 everywhere with --dtype=bf16 is checked
 * import  an ONNX model (rows_onnx.c); the lines of the imported module that are not in the input, or the errors
 * types   the same; the types of the outputs
 * emit    the same, compiled for inference and written as ONNX; the versions, the number of
 *         added casts, inputs, initializers (of up to four elements, with values), nodes and outputs
 * colour  PROFILE white=OPERATOR.. black=OPERATOR.. OPERATOR..; the colours of the last in the effective list */
#include "tests/expect/rows.h"
#include "passes/amp/list.h"
#include "passes/passes.h"

static ir_module *module;
static diag *messages;
arena *memory;

_Noreturn void stop(const char *what, const char *text)
{
    fprintf(stderr, "rows: %s: %s\n", what, text);
    exit(2);
}

char *next_word(const char **text)
{
    *text += strspn(*text, " ");
    const size_t n = strcspn(*text, " ");
    if (!n) return NULL;
    char *word = arena_strndup(memory, *text, n);
    *text += n;
    return word;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* Adds "LINE:COLUMN: MESSAGE" for "PATH:LINE:COLUMN: error: MESSAGE", without the lines that follow. */
static void collect(void *user, diag_level level, const char *message)
{
    (void)level;
    const char **all = user, *place = strchr(message, ':');
    const char *error = place ? strstr(place, " error: ") : NULL;
    const char *head = error && error > place + 1 ? arena_strndup(memory, place + 1, (size_t)(error - place)) : "";
    const char *rest = error ? error + strlen(" error: ") : message;
    *all = arena_printf(memory, "%s%s%s%.*s", *all, **all ? " | " : "", head, (int)strcspn(rest, "\n"), rest);
}

static const char *read_text(const char *input)
{
    const char *errors = "", *head = strncmp(input, "ampc-ir ", 8) ? "ampc-ir 3\n" : "";
    const char *text = arena_printf(memory, "%s%s\n", head, input);
    ir_module *m = NULL;
    diag *d = diag_new(collect, &errors);
    if (ir_parse(text, strlen(text), "in.ir", d, &m) == AMPC_OK) (void)ir_verify(m, d);
    ir_module_free(m);
    diag_free(d);
    return *errors ? errors : "ok";
}

/* ---- types and attributes ------------------------------------------------------------------------------------ */

/* Parses a list such as "[1,N]"; "?" is the unknown dimension. */
static int read_list(const char *text, int64_t *items)
{
    int count = 0;
    if (*text++ != '[') stop("no list", text - 1);
    while (*text && *text != ']') {
        const char *end = text + 1;
        items[count++] = *text == '?' ? IR_DIM_NONE : ir_dim_parse(module->dims, text, &end);
        text = end + (*end == ',');
    }
    return count;
}

static ir_type read_type(const char *text)
{
    const size_t n = strcspn(text, "[");
    int64_t dims[40];
    const int rank = read_list(text + n, dims);
    return ir_type_make(ir_dtype_parse(arena_strndup(memory, text, n)), rank, dims);
}

static void read_attribute(ir_node *n, const char *word)
{
    const ir_op_info *info = ir_op_get(n->op);
    const size_t length = strcspn(word, "=");
    const char *value = word + length + 1;
    int64_t items[40];
    int i = 0;
    while (i < info->n_attr && (strncmp(info->attr[i].name, word, length) || info->attr[i].name[length])) i++;
    if (i == info->n_attr) stop("no such attribute", word);
    switch (info->attr[i].kind) {
    case IR_SLOT_INT:
    case IR_SLOT_BOOL: ir_set_int(n, i, strtoll(value, NULL, 10)); break;
    case IR_SLOT_FLOAT:
    case IR_SLOT_DOUBLE: ir_set_float(n, i, strtod(value, NULL)); break;
    case IR_SLOT_DTYPE: ir_set_dtype(n, i, ir_dtype_parse(value)); break;
    case IR_SLOT_STR: ir_set_str(n, i, value); break;
    case IR_SLOT_ONE_OF: ir_set_int(n, i, ir_words_find(info->attr[i].words, value)); break;
    default: ir_set_list(n, i, items, read_list(value, items));
    }
}

/* Builds the node of a row, with operands made by `operand`. */
static ir_node *read_node(ir_builder *b, ir_const_map *k, const char *input,
                          ir_value *(*operand)(ir_graph *g, ir_const_map *k, const char *word))
{
    ir_value *in[32];
    ir_op op;
    int n_in = 0, n_out = 0;
    const char *braces = strchr(input, '{'), *attributes = braces ? braces + 1 : "", *word;
    input = arena_strndup(memory, input, braces ? (size_t)(braces - input) : strlen(input));
    const char *name = next_word(&input);
    if (!name || !ir_op_find(name, &op)) stop("no such op", name ? name : "");
    while ((word = next_word(&input))) {
        if (*word == '*') n_out = atoi(word + 1);
        else in[n_in++] = strcmp(word, "_") ? operand(b->graph, k, word) : NULL;
    }
    ir_node *n = ir_new_array(b, op, n_in, in, n_out);
    attributes = arena_strndup(memory, attributes, strcspn(attributes, "}"));
    while ((word = next_word(&attributes))) read_attribute(n, word);
    return n;
}

static const char *first_error(void)
{
    const char *text = diag_first_error(messages), *error = strstr(text, "error: ");
    return arena_strndup(memory, error ? error : text, strcspn(error ? error : text, "\n"));
}

/* ---- inference ----------------------------------------------------------------------------------------------- */

static ir_value *make_operand(ir_graph *g, ir_const_map *k, const char *word)
{
    (void)k;
    const bool stored = *word == '@' || *word == '#';
    const ir_type type = read_type(word + stored);
    if (!stored) return ir_graph_input(g, "x", &type);
    return ir_graph_storage(g, ir_storage_new(module, *word == '@' ? IR_STATE : IR_CONST, "s", &type));
}

static const char *infer(const char *input)
{
    ir_builder b = ir_builder_at_end(ir_graph_new(module, "g"), messages);
    ir_node *n = read_node(&b, NULL, input, make_operand);
    if (ir_infer(n, messages) != AMPC_OK) return first_error();
    const char *text = n->n_out ? "" : "nothing";
    for (int i = 0; i < n->n_out; i++)
        text = arena_printf(memory, "%s%s%s", text, i ? " " : "", ir_type_print(module, &n->out[i]->type, memory));
    return text;
}

/* ---- folding ------------------------------------------------------------------------------------------------- */

static void read_values(const char *text, ir_const_value *constant)
{
    const bool real = ir_dtype_is_float(constant->type.dtype);
    int64_t *ints = arena_array(module->arena, 64, sizeof *ints);
    double *floats = arena_array(module->arena, 64, sizeof *floats);
    while (*text) {
        if (real) floats[constant->count++] = strtod(text, (char **)&text);
        else ints[constant->count++] = ir_dim_parse(module->dims, text, &text);
        if (*text == ',') text++;
    }
    if (real) constant->floats = floats;
    else constant->ints = ints;
}

/* Adds a graph input, with a known value after "=". */
static ir_value *make_constant(ir_graph *g, ir_const_map *k, const char *word)
{
    const size_t n = strcspn(word, "=");
    ir_const_value constant = {.type = read_type(arena_strndup(memory, word, n))};
    ir_value *v = ir_graph_input(g, "x", &constant.type);
    if (!word[n]) return v;
    read_values(word + n + 1, &constant);
    ir_const_set(k, v, &constant);
    return v;
}

static const char *show_constant(const ir_const_value *constant)
{
    const char *text = arena_printf(memory, "%s=", ir_type_print(module, &constant->type, memory));
    for (int64_t i = 0; i < constant->count; i++) {
        const char *comma = i ? "," : "";
        if (constant->floats) text = arena_printf(memory, "%s%s%.9g", text, comma, constant->floats[i]);
        else text = arena_printf(memory, "%s%s%s", text, comma, ir_dim_print(module->dims, constant->ints[i], memory));
    }
    return text;
}

static const char *fold(const char *input)
{
    ir_builder b = ir_builder_at_end(ir_graph_new(module, "g"), messages);
    ir_const_map *k = ir_const_map_new(module->arena, b.graph);
    ir_node *n = read_node(&b, k, input, make_constant);
    if (!ir_done_all(&b, n)) return first_error();
    if (!ir_fold(k, n, 1000)) return "?";
    const char *text = "";
    for (int i = 0; i < n->n_out; i++)
        text = arena_printf(memory, "%s%s%s", text, i ? " " : "", show_constant(ir_const_get(k, n->out[i])));
    return text;
}

/* ---- dimensions ---------------------------------------------------------------------------------------------- */

static const char *show(ir_dim d) { return ir_dim_print(module->dims, d, memory); }

static const char *show_number(int64_t n) { return arena_printf(memory, "%lld", (long long)n); }

static ir_dim dim(const char **text)
{
    const char *word = next_word(text), *end = "";
    if (!word) stop("no dimension", *text);
    if (!strcmp(word, "?")) return IR_DIM_NONE;
    const ir_dim d = ir_dim_parse(module->dims, word, &end);
    if (d == IR_DIM_NONE || *end) stop("not a dimension", word);
    return d;
}

/* The canonical text, which reads as the same dimension. */
static const char *dim_read(const char *text)
{
    const char *end;
    const ir_dim d = ir_dim_parse(module->dims, text, &end);
    if (d == IR_DIM_NONE) return arena_printf(memory, "malformed after %d", (int)(end - text));
    if (ir_dim_parse(module->dims, show(d), &(const char *){""}) != d) return "reads as another dimension";
    return *end ? arena_printf(memory, "%s, then %s", show(d), end) : show(d);
}

static const char *dim_broadcast(const char *text)
{
    const ir_type a = read_type(next_word(&text)), b = read_type(next_word(&text));
    ir_type out;
    return ir_broadcast(module->dims, &a, &b, &out) ? ir_type_print(module, &out, memory) : "no";
}

static const char *dim_bounds(const char *text)
{
    const ir_dim d = dim(&text);
    return arena_printf(memory, "%s to %s", show(ir_dim_lower_bound(module->dims, d)),
                        show(ir_dim_upper_bound(module->dims, d)));
}

static const char *dim_may_equal(const char *text)
{
    const ir_dim a = dim(&text), b = dim(&text);
    const bool equal = ir_dim_may_equal(module->dims, a, b);
    return ir_dim_may_equal(module->dims, b, a) != equal ? "depends on the order" : equal ? "yes" : "no";
}

/* In the order of the symbols that `sizes` sets: N is 5, T 3, U and V are unknown. */
static const int64_t sizes[] = {5, 3, -1, -1};

static void name_symbols(void)
{
    for (const char *name = "N\0T\0U\0V\0"; *name; name += 2) (void)ir_dim_symbol(module->dims, name);
}

static const char *dim_value(const char *text)
{
    name_symbols();
    int64_t value = 0;
    size_t unbound = 99;
    if (ir_dim_eval(module->dims, dim(&text), sizes, &value, &unbound)) return show_number(value);
    return arena_printf(memory, "%s is not bound", ir_dim_symbol_name(module->dims, unbound));
}

/* DIMENSION VALUE: the size of U with which it has this value. */
static const char *dim_solve(const char *text)
{
    name_symbols();
    int64_t found[] = {5, 3, -1, -1};
    const ir_dim d = dim(&text);
    const bool solved = ir_dim_solve(module->dims, d, strtoll(text, NULL, 10), found);
    if (memcmp(found, sizes, 2 * sizeof *found) != 0 || found[3] != -1) return "changes another size";
    return solved == (found[2] >= 0) ? solved ? show_number(found[2]) : "no" : "contradicts itself";
}

#define BINARY(name) \
    static const char *dim_##name(const char *text) \
    { \
        const ir_dim a = dim(&text); \
        return show(ir_dim_##name(module->dims, a, dim(&text))); \
    }
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)

static const struct {
    const char *name, *(*run)(const char *text);
} dim_calls[] = {
    {"read", dim_read},
    {"add", dim_add},
    {"sub", dim_sub},
    {"mul", dim_mul},
    {"div", dim_div},
    {"bounds", dim_bounds},
    {"value", dim_value},
    {"solve", dim_solve},
    {"may_equal", dim_may_equal},
    {"broadcast", dim_broadcast},
};

static const char *calculate(const char *input)
{
    const char *name = next_word(&input);
    for (size_t i = 0; name && i < sizeof dim_calls / sizeof *dim_calls; i++)
        if (!strcmp(name, dim_calls[i].name)) return dim_calls[i].run(input + (*input == ' '));
    stop("no such call", name ? name : "");
}

/* ---- lists and colours --------------------------------------------------------------------------------------- */

static const char list_path[] = "row.amplist";

/* Writes a list file, for which the options have to be read. */
static void write_list(const char *text, compile_options *o)
{
    static const char *const paths[] = {list_path};
    FILE *f = fopen(list_path, "we");
    if (!f) stop("cannot write", list_path);
    for (const char *p = text; *p; p++) {
        const char *escape = *p == '\\' ? strchr("n\nt\t", p[1]) : NULL;
        fputc(escape ? escape[1] : *p, f);
        p += escape != NULL;
    }
    fclose(f);
    o->lists = (pass_strings){paths, 1};
}

static const char *with_status(const char *errors, ampc_status status)
{
    if (status == AMPC_OK) return *errors ? errors : "ok";
    return status == AMPC_REJECTED ? errors : arena_printf(memory, "%s (status %d)", errors, (int)status);
}

static const char *read_amp_list(const char *input)
{
    const char *errors = "";
    diag *d = diag_new(collect, &errors);
    compile_options o = compile_options_default();
    amp_list *list;
    write_list(input, &o);
    const ampc_status status = amp_list_load(&o, memory, d, &list);
    diag_free(d);
    return with_status(errors, status);
}

/* Parses PROFILE LEVEL LIST. */
static compile_options read_options(const char *text)
{
    static const char *const levels[] = {"O0", "O1", "O2", "OD"};
    compile_options o = compile_options_default();
    o.profile = next_word(&text);
    const char *level = next_word(&text);
    for (int i = 0; level && i < 4; i++)
        if (!strcmp(level, levels[i])) o.level = (pass_level)i;
    if (*text) write_list(text + 1, &o);
    o.keep_io_types = false;
    o.pipeline.verify_each = true;
    return o;
}

static const char *show_types(const ir_module *m)
{
    const char *text = "";
    for (const ir_node *n = m->graphs.items[0]->first; n; n = n->next)
        if (n->loc.op && n->n_out)
            text = arena_printf(memory, "%s%s%s %s", text, *text ? ", " : "", n->loc.node,
                                ir_dtype_name(n->out[0]->type.dtype));
    return text;
}

/* Runs pass `amp`, and then the clean-up passes, which must keep the graph valid. */
static const char *choose_types(const char *text, compile_options *o, ir_dtype low)
{
    static const char *const clean[] = {"fold_casts", "cse", "dce"};
    const char *errors = "", *types = "";
    diag *d = diag_new(collect, &errors);
    ir_module *m = NULL;
    compile *c;
    o->low = low;
    ampc_status status = ir_parse(text, strlen(text), "in.ir", d, &m);
    if (status == AMPC_OK) status = compile_load(o, memory, d, &c);
    if (status == AMPC_OK) status = pass_run(m, "amp", c);
    if (status == AMPC_OK) types = arena_printf(memory, "%d casts: %s", c->report.casts_inserted, show_types(m));
    for (int i = 0; status == AMPC_OK && i < 3; i++) status = pass_run(m, clean[i], c);
    ir_module_free(m);
    diag_free(d);
    return status == AMPC_OK ? types : with_status(errors, status);
}

static const char *run_amp(const char *input)
{
    const char *options = strrchr(input, '\n');
    if (!options) stop("no module", input);
    const char *text = arena_printf(memory, "ampc-ir 3\n%.*s\n", (int)(options - input), input);
    compile_options o = read_options(options + 1);
    const char *types = choose_types(text, &o, IR_f16), *bf16 = "";
    if (strstr(text, "f16")) return types; /* also with bf16 */
    for (const char *p = types, *at; *p; p = at + strlen("f16")) {
        at = strstr(p, "f16");
        bf16 = arena_printf(memory, "%s%.*s%s", bf16, at ? (int)(at - p) : (int)strlen(p), p, at ? "bf16" : "");
        if (!at) break;
    }
    const char *other = choose_types(text, &o, IR_bf16);
    return strcmp(other, bf16) ? arena_printf(memory, "%s, but with bf16 %s", types, other) : types;
}

static const char *find_colours(const char *input)
{
    static const char text[] = "ampc-ir 3\ngraph @g(@x : f32[4,4]) {\n%y = matmul @x, @x : f32[4,4] !MatMul \"m\"\n}\n";
    const char *white[8], *black[8], *ops[8], *word, *colours = "";
    int n_ops = 0;
    compile_options o = compile_options_default();
    o.profile = next_word(&input);
    o.white.items = white;
    o.black.items = black;
    while ((word = next_word(&input))) {
        const char *value = strchr(word, '=');
        if (!value) ops[n_ops++] = word;
        else if (*word == 'w') white[o.white.count++] = value + 1;
        else black[o.black.count++] = value + 1;
    }
    amp_list *list;
    if (amp_list_load(&o, memory, messages, &list) != AMPC_OK) return first_error();
    ir_module *m = NULL;
    if (ir_parse(text, sizeof text - 1, "in.ir", messages, &m) != AMPC_OK) stop("not parsed", text);
    for (int i = 0; i < n_ops; i++) {
        const list_entry *line = amp_list_find(list, ops[i], m->graphs.items[0]->first, IR_f16);
        const char *colour = line ? ir_colour_name(line->colour) : "unlisted";
        colours = arena_printf(memory, "%s%s%s", colours, i ? " " : "", colour);
    }
    ir_module_free(m);
    return colours;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

typedef const char *row_kind(const char *input);

static const struct {
    const char *name;
    row_kind *run;
} kinds[] = {{"text", read_text},     {"infer", infer},   {"fold", fold},           {"dim", calculate},
             {"list", read_amp_list}, {"amp", run_amp},   {"colour", find_colours}, {"import", rows_import},
             {"types", rows_types},   {"emit", rows_emit}};

enum { MAX_LETS = 32, MAX_LINE = 1 << 14 };
static struct {
    const char *name, *text;
} lets[MAX_LETS];
static int n_lets;

/* Reads and prints the lines of a definition up to "end". */
static char *read_block(FILE *f, arena *a)
{
    char *text = arena_printf(a, "%s", ""), line[MAX_LINE];
    while (fgets(line, sizeof line, f) && strcmp(line, "end\n") != 0) {
        fputs(line, stdout);
        text = arena_printf(a, "%s%s", text, line);
    }
    puts("end");
    return text;
}

static void define(const char *line, FILE *f, arena *a)
{
    const char *name = line + strlen("let "), *equals = strstr(line, " = ");
    if (n_lets == MAX_LETS) stop("too many definitions", line);
    char *text = equals ? arena_printf(a, "%s", equals + 3) : read_block(f, a);
    const size_t n = strlen(text);
    if (n && text[n - 1] == '\\') text[n - 1] = '\n';
    lets[n_lets].name = arena_strndup(a, name, equals ? (size_t)(equals - name) : strlen(name));
    lets[n_lets++].text = text;
}

/* Replaces each $NAME; blanks after the end of a line are dropped. */
static const char *expand(const char *text)
{
    for (const char *at; (at = strchr(text, '$'));) {
        const size_t n = strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
        int i = 0;
        while (i < n_lets && (strlen(lets[i].name) != n || strncmp(lets[i].name, at + 1, n))) i++;
        if (i == n_lets) stop("not defined", at);
        const char *value = lets[i].text, *rest = at + 1 + n;
        if (*value && value[strlen(value) - 1] == '\n') rest += strspn(rest, " ");
        text = arena_printf(memory, "%.*s%s%s", (int)(at - text), text, value, rest);
    }
    return text;
}

/* TEXT of ".. TEXT ..", or NULL. */
static const char *part_of(const char *expected)
{
    const size_t n = strlen(expected);
    const bool is_part = n > 6 && !strncmp(expected, ".. ", 3) && !strcmp(expected + n - 3, " ..");
    return is_part ? arena_strndup(memory, expected + 3, n - 6) : NULL;
}

static void print_row(row_kind *run, const char *line)
{
    const char *arrow = strstr(line, " -> "), *title = strstr(line, " :: ");
    if (!arrow) stop("not a row", line);
    memory = arena_new(0);
    module = ir_module_new();
    messages = diag_new(NULL, NULL);
    const char *input = title && title < arrow ? title + 4 : line;
    const char *result = run(expand(arena_strndup(memory, input, (size_t)(arrow - input))));
    const char *part = part_of(arrow + 4);
    printf("%.*s -> %s\n", (int)(arrow - line), line, part && strstr(result, part) ? arrow + 4 : result);
    diag_free(messages);
    ir_module_free(module);
    arena_free(memory);
}

int main(int argc, char **argv)
{
    char line[MAX_LINE];
    row_kind *run = NULL;
    for (size_t i = 0; argc == 3 && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(argv[1], kinds[i].name)) run = kinds[i].run;
    FILE *f = run ? fopen(argv[2], "re") : NULL;
    if (!f) stop("usage", "rows KIND FILE");
    arena *a = arena_new(0);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const bool defines = !strncmp(line, "let ", 4);
        if (!*line || *line == '#' || defines) puts(line);
        else print_row(run, line);
        if (defines) define(line, f, a);
    }
    fclose(f);
    arena_free(a);
    return 0;
}
