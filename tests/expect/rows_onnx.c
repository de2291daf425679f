/* rows_onnx.c - the kinds of rows whose input is an ONNX model in text: statements that are separated by ";" or by ends of
 * lines, and "{ .. }" around those of a graph that is an attribute.
 *
 *     13                          the opset; "opset DOMAIN N" and "ir N" are the other versions
 *     x f32[2,N]                  an input; f32[2,N] = 1,2 after the name makes it an initializer
 *     a,b = Op(x,,w) axis=1 !n    a node with its attributes (node_attributes; value=f32[2]=1,2 is a tensor) and its name;
 *                                 "domain:Op" is of another domain, and without results it has one, "y"
 *     s seq                       an input that is a sequence of f32; "out s seq" is an output
 *     function F(a,b) y k {..}    a function of domain "own" with its operands, result and attribute; k=@a in it refers to a
 *     out y f32[2,N]              an output; without any, the first result of the last node, unless there is
 *                                 "none". "info" declares a value
 *     dim N=8; bind x i64[2] = 1; batch 8; opaque   options of the import
 *     operands Op = TYPE, ..      for emission: a line of [operands] of a list
 *     O0; bf16; lowered           for emission: another level than O1, another type than f16, no opaque operators
 *     for tensorrt; to 18         for emission: the consumer, the opset
 *     all                         the result has the remarks, the batch, the inputs, the initializers and the nodes' places, too */
#include "tests/expect/rows_onnx.h"

static const char *text_between(const char *from, const char *to)
{
    while (from < to && *from == ' ') from++;
    while (to > from && to[-1] == ' ') to--;
    return arena_strndup(memory, from, (size_t)(to - from));
}

/* ---- tensors ------------------------------------------------------------------------------------------------- */

static int read_element_type(const char *text)
{
    const size_t n = strcspn(text, "[");
    if (n == 6 && !strncmp(text, "string", n)) return ONNX_string;
    const ir_dtype t = ir_dtype_parse(arena_strndup(memory, text, n));
    if (t == IR_NO_DTYPE) stop("not a type", text);
    return (int)onnx_type_of(t);
}

/* "2,N" of "f32[2,N]"; NULL without brackets. */
static const char *read_dims(const char *text)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    return close ? text_between(open + 1, close) : NULL;
}

/* Fills `data` with the numbers of "1,2,3"; 0,1,2,.. without any. */
static size_t read_numbers(const char *text, int type, const char *dims, char *data, size_t limit)
{
    const ir_dtype t = onnx_type_dtype(type);
    const size_t size = ir_dtype_size(t);
    size_t count = 1;
    for (const char *p = dims; p && *p; p += strcspn(p, ","), p += *p == ',') count *= strtoull(p, NULL, 10);
    if (count * size > limit) stop("too many numbers", dims);
    for (size_t i = 0; i < count; i++) {
        char *end = (char *)text;
        if (ir_dtype_is_float(t)) ir_store_f64(t, data + i * size, *text ? strtod(text, &end) : (double)i);
        else ir_store_i64(t, data + i * size, *text ? strtoll(text, &end, 10) : (int64_t)i);
        text = end + (*end == ',');
    }
    return count * size;
}

/* "f32[2] = 1,2", with or without blanks */
static wire read_tensor(const char *name, const char *text)
{
    char data[1 << 12];
    const char *dims = read_dims(text), *equals = strchr(text, '=');
    const int type = read_element_type(text);
    return tensor_new(name, type, dims, data,
                      read_numbers(equals + 1 + strspn(equals + 1, " "), type, dims, data, sizeof data));
}

/* ---- statements ---------------------------------------------------------------------------------------------- */

static void read_statements(text_model *t, const char *text);

static void function_operand(wire *w, const char *name) { wire_text(w, 4, name); }
static void function_result(wire *w, const char *name) { wire_text(w, 5, name); }

static void import_into(wire *function, const char *domain, int version)
{
    wire set = {0};
    if (domain) wire_text(&set, 1, domain);
    wire_int(&set, 2, version);
    wire_message(function, 9, &set);
}

static void read_graph(node *n, const char *name, const char *text, size_t length)
{
    text_model inner = {.m = model_new(0), .given = ""};
    read_statements(&inner, arena_strndup(memory, text, length));
    if (!inner.has_output && inner.last) model_output(&inner.m, inner.last, 0, NULL);
    node_graph(n, name, &inner.m);
}

/* The length of "{ .. }" without the braces. */
static size_t length_in_braces(const char *text)
{
    int depth = 1;
    for (size_t i = 1; text[i]; i++) {
        depth += (text[i] == '{') - (text[i] == '}');
        if (!depth) return i - 1;
    }
    stop("no end of", text);
}

/* An integer that is an attribute of the function. */
static void refer(node *n, const char *name, const char *to)
{
    wire reference = {0};
    wire_text(&reference, 21, to);
    node_attr(n, name, 2, &reference);
}

static void read_node_attributes(node *n, const char *text)
{
    while (*(text += strspn(text, " "))) {
        const size_t length = strcspn(text, "= "), end = strcspn(text, " ");
        const char *name = arena_strndup(memory, text, length), *value = text + length + 1;
        const char *word = arena_strndup(memory, text, end), *equals = strstr(word, "]=");
        if (*text == '!') wire_text(n, 3, word + 1);
        else if (*value == '{') read_graph(n, name, value + 1, length_in_braces(value));
        else if (*value == '@') refer(n, name, word + length + 2);
        else if (equals && word[length + 1] != '[') node_tensor(n, name, read_tensor("", word + length + 1));
        else node_attributes(n, word);
        text = *text != '!' && *value == '{' ? value + length_in_braces(value) + 2 : text + end;
    }
}

static void read_node(text_model *t, const char *text)
{
    const char *open = strchr(text, '('), *close = strchr(open, ')'), *equals = strstr(text, " = ");
    const bool named = equals && equals < open;
    const char *op = text_between(named ? equals + 3 : text, open), *colon = strrchr(op, ':');
    const char *results = named ? text_between(text, equals) : "y";
    if (!close) stop("no operands", text);
    node n = node_new(colon ? colon + 1 : op, text_between(open + 1, close), results);
    if (colon) wire_bytes(&n, 7, op, (size_t)(colon - op));
    read_node_attributes(&n, close + 1);
    wire_message(&t->m.graph, t->node_field ? t->node_field : 1, &n);
    t->last = arena_strndup(memory, results, strcspn(results, ","));
}

static void read_function(text_model *t, const char *text)
{
    const char *open = strchr(text, '('), *close = strchr(open, ')'), *brace = strchr(close, '{');
    const char *rest = text_between(close + 1, brace), *results = next_word(&rest), *attribute = next_word(&rest);
    text_model inner = {.node_field = 7, .given = ""};
    wire *f = &inner.m.graph;
    wire_text(f, 1, text_between(text, open));
    model_split(text_between(open + 1, close), f, function_operand);
    model_split(results, f, function_result);
    if (attribute) wire_text(f, 6, attribute);
    read_statements(&inner, arena_strndup(memory, brace + 1, length_in_braces(brace)));
    import_into(f, NULL, 17);
    import_into(f, "own", 1);
    wire_text(f, 10, "own");
    wire_message(&t->m.functions, 25, f);
}

static void read_binding(text_model *t, const char *name, const char *text)
{
    char *data = arena_alloc(memory, 256);
    onnx_constant *c = &t->constants[t->o.n_constants++];
    const char *dims = read_dims(text), *equals = strchr(text, '=');
    const int type = read_element_type(text);
    const size_t n = read_numbers(equals + 2, type, dims, data, 256);
    *c = (onnx_constant){name, {.dtype = onnx_type_dtype(type), .rank = *dims != 0}, data};
    c->type.dims[0] = (int64_t)(n / ir_dtype_size(c->type.dtype));
}

static void add_sequence(model *m, uint32_t field, const char *name)
{
    wire tensor = {0}, item = {0}, list = {0}, proto = {0}, info = {0};
    wire_int(&tensor, 1, ONNX_float32);
    wire_message(&item, 1, &tensor);
    wire_message(&list, 1, &item);
    wire_message(&proto, 4, &list);
    wire_text(&info, 1, name);
    wire_message(&info, 2, &proto);
    wire_message(&m->graph, field, &info);
}

static void read_value(text_model *t, const char *word, const char *rest)
{
    const bool out = !strcmp(word, "out");
    const char *name = out || !strcmp(word, "info") ? next_word(&rest) : word, *type = rest + strspn(rest, " ");
    t->has_output |= out;
    if (!strcmp(type, "seq")) {
        add_sequence(&t->m, out ? 12 : 11, name);
        return;
    }
    model_value(&t->m, out ? 12 : name == word ? 11 : 13, name, *type ? read_element_type(type) : 0, read_dims(type));
}

static void read_statement(text_model *t, const char *text)
{
    const char *rest = text, *word = next_word(&rest), *equals = strchr(rest, '=');
    if (!word) return;
    rest += strspn(rest, " ");
    if (!strcmp(word, "function")) read_function(t, rest);
    else if (strchr(text, '(')) read_node(t, text);
    else if (isdigit((unsigned char)*word) || *word == '-') t->m.opset = atoi(word);
    else if (!strcmp(word, "ir")) t->m.ir_version = atoi(rest);
    else if (!strcmp(word, "opaque")) t->o.opaque = true;
    else if (!strcmp(word, "batch")) t->o.batch = atoi(rest);
    else if (!strcmp(word, "none") && !*rest) t->has_output = true;
    else if (!strcmp(word, "lowered")) t->o.opaque = false;
    else if (!strcmp(word, "O0")) t->level = PASS_O0;
    else if (!strcmp(word, "bf16")) t->low = IR_bf16;
    else if (!strcmp(word, "for")) t->consumer = next_word(&rest);
    else if (!strcmp(word, "operands"))
        t->list = arena_printf(memory, "%s[operands]\n%s\n", t->list ? t->list : "", rest);
    else if (!strcmp(word, "to")) t->written = atoi(rest);
    else if (!strcmp(word, "all")) t->given = NULL;
    else if (!strcmp(word, "opset")) word = next_word(&rest), model_opset(&t->opsets, word, atoi(rest));
    else if (!strcmp(word, "dim"))
        t->dims[t->o.n_dims++] = (onnx_dim_binding){text_between(rest, equals), strtoll(equals + 1, NULL, 10)};
    else if (!strcmp(word, "bind")) word = next_word(&rest), read_binding(t, word, rest + strspn(rest, " "));
    else if (equals) {
        model_tensor(&t->m, read_tensor(word, rest));
        if (t->given) t->given = arena_printf(memory, "%s @%s ", t->given, word);
    } else read_value(t, word, rest);
}

static void read_statements(text_model *t, const char *text)
{
    int depth = 0;
    const char *from = text + strspn(text, " \n");
    for (const char *at = from;; at++) {
        depth += (*at == '{') - (*at == '}');
        if (*at && (depth || (*at != ';' && *at != '\n'))) continue;
        read_statement(t, text_between(from, at));
        if (!*at) return;
        from = at + 1;
    }
}

/* ---- importing ----------------------------------------------------------------------------------------------- */

static wire finish(text_model *t)
{
    if (!t->has_output && t->last) model_output(&t->m, t->last, 0, NULL);
    wire file = model_finish(&t->m);
    wire_raw(&file, t->opsets.bytes, t->opsets.size);
    wire_free(&t->opsets);
    return file;
}

void collect_errors(void *user, diag_level level, const char *message)
{
    text_model *t = user;
    const char *at = strncmp(message, "m.onnx: ", 8) ? message : message + 8, *error = strstr(at, "error: ");
    const char **all = error ? &t->errors : &t->remarks, *text = error ? error + strlen("error: ") : at;
    if (level == DIAG_ERROR || level == DIAG_REMARK)
        *all = arena_printf(memory, "%s%s%.*s%.*s", *all, **all ? " | " : "", error ? (int)(error - at) : 0, at,
                            (int)strcspn(text, "\n"), text);
}

const char *text_errors(const text_model *t, ampc_status status)
{
    const char *kind = status == AMPC_UNSUPPORTED ? "unsupported" : status == AMPC_REJECTED ? "rejected" : "usage";
    return arena_printf(memory, "%s: %s", kind, t->errors);
}

const char *import_text(text_model *t, const char *input, bool emits, ir_module **m)
{
    diag *d = diag_new(collect_errors, t);
    *t = (text_model){.m = model_new(17), .given = "", .errors = "", .remarks = "", .level = PASS_O1, .low = IR_f16};
    t->o.opaque = emits;
    t->o.dims = t->dims, t->o.constants = t->constants;
    read_statements(t, input);
    if (emits && t->o.opaque) t->o.emit_opset = onnx_opset_to_emit(t->low, t->consumer, t->written);
    wire file = finish(t);
    ampc_status status = onnx_import_memory(file.bytes, file.size, "m.onnx", &t->o, d, m);
    if (status == AMPC_OK) status = ir_verify(*m, d);
    wire_free(&file);
    diag_free(d);
    if (status == AMPC_OK) return NULL;
    ir_module_free(*m);
    return text_errors(t, status);
}

/* Whether the line of a module says nothing about its nodes and new constants. */
static bool is_frame(const text_model *t, const char *line)
{
    static const char *const heads[] = {"ampc-ir ", "source ", "opset ",   "batch ", "meta ",
                                        "graph ",   "}",       "forward:", "symbol "};
    const char *at = line + strspn(line, "abcdefghijklmnopqrstuvwxyz");
    if (!t->given && (!strncmp(line, "graph ", 6) || !strncmp(line, "batch ", 6))) return false;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (!strncmp(line, heads[i], strlen(heads[i]))) return true;
    return !*line || (t->given && strstr(t->given, arena_printf(memory, "%.*s ", (int)strcspn(at + 1, " ") + 1, at)));
}

/* Whether printing and parsing preserve the module. */
static bool reads_back(const char *text)
{
    ir_module *m = NULL;
    diag *d = diag_new(NULL, NULL);
    const bool same = ir_parse(text, strlen(text), "in.ir", d, &m) == AMPC_OK && ir_verify(m, d) == AMPC_OK &&
                      !strcmp(ir_print(m, memory), text);
    ir_module_free(m);
    diag_free(d);
    return same;
}

/* Without columns and places, " | " between the lines. */
static const char *show_module(const text_model *t, const ir_module *m)
{
    const char *text = ir_print(m, memory), *all = t->given ? "" : t->remarks;
    if (!reads_back(text)) return "does not read back";
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        char *line = arena_strndup(memory, text, n), *place = strstr(line, " !"), *to = line, *y;
        if (place && t->given) *place = 0;
        for (const char *p = line + strspn(line, " "); *p; p++)
            if (*p != ' ' || (p[1] != ' ' && p[1])) *to++ = *p;
        *to = 0;
        y = strstr(line, "\" = %");
        const bool plain = y && !strncmp(line, "output \"", 8) && strcmp(y + 5, "") &&
                           !strncmp(line + 8, y + 5, strlen(y + 5)) && strlen(y + 5) == (size_t)(y - line) - 8;
        if (!plain && !is_frame(t, line)) all = arena_printf(memory, "%s%s%s", all, *all ? " | " : "", line);
    }
    return all;
}

const char *rows_import(const char *input)
{
    text_model t;
    ir_module *m;
    const char *errors = import_text(&t, input, false, &m);
    if (errors) return errors;
    const char *text = show_module(&t, m);
    ir_module_free(m);
    return text;
}

const char *rows_types(const char *input)
{
    text_model t;
    ir_module *m;
    const char *errors = import_text(&t, input, false, &m), *text = "";
    if (errors) return errors;
    for (const ir_node *n = ir_first_output(m->graphs.items[0]); n; n = ir_next_output(n))
        text = arena_printf(memory, "%s%s%s%s", text, *text ? " " : "",
                            t.o.opaque && ir_in(n, 0)->def->op != IR_OP_opaque ? "lowered " : "",
                            ir_type_print(m, &ir_in(n, 0)->type, memory));
    ir_module_free(m);
    return text;
}
