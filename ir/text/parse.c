/* parse.c - parses IR text into a module by recursive descent over the tokens of lex.c (grammar: docs/ir.md).
 *
 * Nodes are created through the builder. Each is inferred immediately, and the result is compared with the types in the
 * text. Parsing stops at the first error. The text is untrusted: sizes are checked before use, nothing recurses except
 * regions (IR_MAX_NESTING) and dimensions (dim_text.c), and memory use depends only on the length of the text. */
#include "ir/text/file_kind.h"
#include "ir/base/input_file.h"
#include "ir/text/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GRAPHS = 4096, MAX_META = 1024, HASH_DIGITS = 32 };
static const size_t longest_text = (size_t)1 << 30;

/* ---- storage --------------------------------------------------------------------------------------------- */

static ampc_status size_of(ir_parser *p, const ir_type *type, const ir_token *at, int64_t *bytes)
{
    *bytes = (int64_t)ir_dtype_size(type->dtype);
    int64_t product = *bytes; /* detects an overflow even if another dimension is zero */
    for (int i = 0; i < type->rank; i++) {
        int64_t d = type->dims[i];
        if (!checked_mul(product, d ? d : 1, &product)) return FAIL_AT(p, at, "the storage is too large");
        *bytes *= d;
    }
    return AMPC_OK;
}

typedef VEC(unsigned char) byte_list;

static ampc_status parse_element(ir_parser *p, ir_dtype t, byte_list *out)
{
    unsigned char element[8] = {0};
    bool number = p->lex.token.kind == IR_TOKEN_NUMBER || p->lex.token.kind == IR_TOKEN_WORD;
    if (!number) return ir_fail_expected(p, "a value");
    if (!ir_element_parse(p->lex.token.text, t, element))
        return FAIL(p, "'%s' is not a value of type %s", p->lex.token.text, ir_dtype_name(t));
    for (size_t i = 0; i < ir_dtype_size(t); i++) vec_push(p->scratch, out, element[i]);
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

static ampc_status parse_elements(ir_parser *p, const ir_storage *s, byte_list *out)
{
    if (!s->type.rank) return parse_element(p, s->type.dtype, out);
    if (!ir_accept_mark(p, "[")) return ir_fail_expected(p, "zero, file(...), bytes \"...\" or a list of values");
    if (ir_accept_mark(p, "]")) return AMPC_OK;
    do TRY(parse_element(p, s->type.dtype, out));
    while (ir_accept_mark(p, ","));
    return ir_need_mark(p, "]");
}

static ampc_status parse_bytes(ir_parser *p, byte_list *out)
{
    const ir_token t = p->lex.token;
    const char *hex;
    TRY(ir_need(p, IR_TOKEN_STRING, "a string of hexadecimal digits", &hex));
    size_t n = strlen(hex);
    if (n % 2 || hex[strspn(hex, "0123456789abcdef")]) return FAIL_AT(p, &t, "expected pairs of hexadecimal digits");
    for (size_t i = 0; i < n; i += 2) {
        const char pair[3] = {hex[i], hex[i + 1], 0};
        vec_push(p->scratch, out, (unsigned char)strtoul(pair, NULL, 16));
    }
    return AMPC_OK;
}

static ampc_status parse_file(ir_parser *p, ir_storage *s)
{
    const char *path;
    TRY(ir_need_mark(p, "("));
    TRY(ir_need(p, IR_TOKEN_STRING, "a file name", &path));
    s->data = (ir_data){.kind = IR_DATA_FILE, .path = ir_parser_strdup(p, path)};
    TRY(ir_need_mark(p, ","));
    TRY(ir_need_int(p, &s->data.offset));
    TRY(ir_need_mark(p, ","));
    TRY(ir_need_int(p, &s->data.length));
    return ir_need_mark(p, ")");
}

/* Parses the data after '='. */
static ampc_status parse_data(ir_parser *p, ir_storage *s, int64_t bytes)
{
    const ir_token t = p->lex.token;
    if (ir_accept_word(p, "zero")) return AMPC_OK;
    if (ir_accept_word(p, "file")) return parse_file(p, s);
    byte_list data = {0};
    if (ir_accept_word(p, "bytes")) TRY(parse_bytes(p, &data));
    else TRY(parse_elements(p, s, &data));
    int64_t size = (int64_t)ir_dtype_size(s->type.dtype);
    if ((int64_t)data.count != bytes)
        return FAIL_AT(p, &t, "the type has %lld elements, the value has %lld%s", (long long)(bytes / size),
                       (long long)((int64_t)data.count / size), (int64_t)data.count % size ? " and a fraction" : "");
    vec_push(p->scratch, &data, 0); /* ensures that items is not NULL */
    ir_storage_set(p->module, s, data.items);
    return AMPC_OK;
}

static ampc_status parse_slot_name(ir_parser *p, ir_storage *s)
{
    const bool string = p->lex.token.kind == IR_TOKEN_STRING;
    TRY(ir_need(p, string ? IR_TOKEN_STRING : IR_TOKEN_WORD, "the name of a slot", &s->slot));
    s->slot = ir_parser_strdup(p, s->slot);
    return AMPC_OK;
}

/* Parses "as lr", "as average @w" or "as slot velocity @w shard 4". */
static ampc_status parse_state_role(ir_parser *p, ir_storage *s)
{
    int role;
    const char *of;
    if (s->kind != IR_STATE) return AMPC_OK;
    TRY(ir_parse_role(p, ir_state_words, IR_STATE_ROLE_COUNT, &role));
    s->role = (ir_state_role)role;
    if (ir_state_roles[role].of == IR_OF_ALONE) return AMPC_OK;
    if (s->role == IR_STATE_slot) TRY(parse_slot_name(p, s));
    const ir_token at = p->lex.token;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &of));
    s->of = ir_storage_find(p->module, of);
    if (!s->of) return FAIL_AT(p, &at, "'@%s' is not declared above this line", of);
    if (ir_accept_word(p, "shard")) TRY(ir_need_int(p, &s->shard));
    if (s->role == IR_STATE_master) s->of->shard = s->shard;
    return AMPC_OK;
}

static ampc_status parse_storage(ir_parser *p, ir_storage_kind kind)
{
    const ir_token at = p->lex.token;
    const char *name;
    ir_type type;
    int64_t bytes;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &name));
    if (ir_storage_find(p->module, name)) return FAIL_AT(p, &at, "storage '@%s' is declared twice", name);
    TRY(ir_parse_declared_type(p, false, &type));
    TRY(size_of(p, &type, &at, &bytes));
    ir_storage *s = ir_storage_new(p->module, kind, name, &type);
    s->data.kind = p->module->weights_path ? IR_DATA_SIDECAR : IR_DATA_ZERO;
    if (ir_accept_mark(p, "=")) {
        s->data.kind = IR_DATA_ZERO;
        TRY(parse_data(p, s, bytes));
    } else if (s->data.kind != IR_DATA_SIDECAR) {
        return FAIL_AT(p, &at, "'@%s' has no value (such as = zero), and there is no line 'weights'", name);
    }
    TRY(parse_state_role(p, s));
    s->frozen = ir_accept_word(p, "frozen");
    TRY(ir_parse_decision(p, s));
    s->note = ir_accept_note(p);
    return AMPC_OK;
}

/* ---- graphs and the head --------------------------------------------------------------------------------- */

static ampc_status parse_graph(ir_parser *p)
{
    const ir_token at = p->lex.token;
    const char *name;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &name));
    if (ir_graph_find(p->module, name)) return FAIL_AT(p, &at, "graph '@%s' is defined twice", name);
    if (p->module->graphs.count == MAX_GRAPHS) return FAIL_AT(p, &at, "more than %d graphs", MAX_GRAPHS);
    return ir_parse_graph(p, ir_graph_new(p->module, name));
}

static ampc_status parse_body(ir_parser *p)
{
    ir_graph *g;
    if (!p->v2) return FAIL_AT(p, &p->item, "expected the graph of a node within its node");
    TRY(ir_v2_add_body(p, &g));
    return ir_parse_graph(p, g);
}

static ampc_status parse_hash(ir_parser *p, size_t digits, const char **out)
{
    TRY(ir_need_mark(p, "="));
    const char *hash = p->lex.token.text;
    if (strlen(hash) != digits || hash[strspn(hash, "0123456789abcdef")])
        return ir_fail_expected(p, arena_printf(p->scratch, "%zu hexadecimal digits", digits));
    *out = ir_parser_strdup(p, hash);
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

static ampc_status parse_weights(ir_parser *p)
{
    const char *path;
    TRY(ir_need(p, IR_TOKEN_STRING, "a file name", &path));
    p->module->weights_path = ir_parser_strdup(p, path);
    if (!ir_accept_word(p, "xxh3")) return AMPC_OK;
    return parse_hash(p, HASH_DIGITS, &p->module->weights_hash);
}

static ampc_status parse_meta(ir_parser *p)
{
    const ir_token at = p->lex.token;
    const char *key, *value;
    TRY(ir_need(p, IR_TOKEN_STRING, "a key", &key));
    TRY(ir_need(p, IR_TOKEN_STRING, "a value", &value));
    if (ir_meta_get(p->module, key)) return FAIL_AT(p, &at, "meta \"%s\" is duplicated", key);
    if (p->module->meta.count == MAX_META) return FAIL_AT(p, &at, "more than %d meta lines", MAX_META);
    ir_meta_set(p->module, key, value);
    return AMPC_OK;
}

static ampc_status parse_source(ir_parser *p)
{
    const char *path;
    TRY(ir_need(p, IR_TOKEN_STRING, "a file name", &path));
    p->source = ir_parser_strdup(p, path);
    return AMPC_OK;
}

static ampc_status parse_version(ir_parser *p)
{
    if (!ir_accept_word(p, IR_TEXT_HEAD))
        return FAIL(p, "not a module: the text does not begin with '" IR_TEXT_HEAD " %d'", IR_TEXT_VERSION);
    p->sealed = ir_accept_word(p, IR_TEXT_SEALED);
    if (p->lex.token.kind != IR_TOKEN_NUMBER || !ir_int_parse(p->lex.token.text, &p->version) || p->version < 1 ||
        p->version > IR_TEXT_VERSION)
        return FAIL(p, "unknown version %s; this program reads versions 1 to %d", ir_describe(p, &p->lex.token),
                    IR_TEXT_VERSION);
    if (p->version < 3) ir_v2_start(p);
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

/* Parses the last line, which holds the checksum of all text before it. */
static ampc_status parse_end(ir_parser *p)
{
    const ir_token at = p->item;
    const char *hash;
    char actual[IR_SEAL_DIGITS + 1];
    if (!ir_accept_word(p, "xxh3")) return ir_fail_expected(p, "xxh3");
    TRY(parse_hash(p, IR_SEAL_DIGITS, &hash));
    if (p->lex.token.kind != IR_TOKEN_END) return ir_fail_expected(p, "the end of the text");
    if (p->lex.text[p->lex.length - 1] != '\n') return FAIL(p, "the text is truncated: the last line is incomplete");
    ir_seal(p->lex.text, at.start, actual);
    p->ended = true;
    if (strcmp(hash, actual) == 0) return AMPC_OK;
    return FAIL_AT(p, &at,
                   "checksum mismatch: the text is damaged or was edited; to edit it, delete this line and the "
                   "word '" IR_TEXT_SEALED "' in the first line");
}

static ampc_status parse_item(ir_parser *p)
{
    static const struct {
        const char *word;
        ampc_status (*parse)(ir_parser *p);
    } items[] = {{"graph", parse_graph}, {"body", parse_body},     {"weights", parse_weights},
                 {"meta", parse_meta},   {"source", parse_source}, {"end", parse_end}};
    bool found;
    p->item = p->lex.token;
    TRY(ir_parse_training(p, &found));
    if (found) return AMPC_OK;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (ir_accept_word(p, items[i].word)) return items[i].parse(p);
    for (int kind = IR_PARAM; kind <= IR_CONST; kind++)
        if (ir_accept_word(p, ir_storage_kind_names[kind])) return parse_storage(p, (ir_storage_kind)kind);
    return ir_fail_expected(p, "weights, source, meta, param, state, const, graph or end");
}

__attribute__((noinline)) static ampc_status parse_module(ir_parser *p, const char *text, size_t length)
{
    p->lex = (ir_lexer){.text = text, .length = length};
    const ir_token start = {.text = "", .line = 1};
    if (length > longest_text) return FAIL_AT(p, &start, "the text is longer than %zu bytes", longest_text);
    p->lex = ir_lexer_start(text, length, p->scratch);
    p->module->from_text = true;
    TRY(parse_version(p));
    while (p->lex.token.kind != IR_TOKEN_END) TRY(parse_item(p));
    if (p->sealed && !p->ended) return FAIL(p, "the text is truncated: the last line, 'end xxh3=..', is missing");
    if (p->v2) TRY(ir_v2_finish(p));
    if (p->version == 1) ir_assign_roles(p->module);
    return p->version < 3 ? ir_convert_meta(p) : AMPC_OK;
}

/* ---- entry points ---------------------------------------------------------------------------------------- */

/* Calls parse_module with a guard for both arenas. */
static ampc_status parse_guarded(ir_parser *p, const char *text, size_t length)
{
    jmp_buf guard;
    if (setjmp(guard))
        return diag_error(p->diag, AMPC_NO_MEMORY, DIAG_FILE(p->file), "out of memory while reading the module");
    arena_set_guard(p->scratch, &guard);
    arena_set_guard(p->module->arena, &guard);
    return parse_module(p, text, length);
}

ampc_status ir_parse(const char *text, size_t length, const char *file, diag *d, ir_module **out)
{
    ir_parser p = {.diag = d, .file = file};
    p.module = ir_module_new();
    p.scratch = arena_new(0);
    p.inner = diag_new(ir_repeat_message, &p);
    *out = NULL;
    ampc_status status = p.module && p.scratch && p.inner
                             ? parse_guarded(&p, text, length)
                             : diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(file), "out of memory");
    if (p.module) arena_set_guard(p.module->arena, NULL);
    if (status == AMPC_OK) *out = p.module;
    else ir_module_free(p.module);
    arena_free(p.scratch);
    diag_free(p.inner);
    return status;
}

ampc_status ir_parse_file(const char *path, diag *d, ir_module **out)
{
    bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "<stdin>" : path;
    *out = NULL;
    size_t length;
    char *text;
    TRY(standard ? input_read_stream(stdin, name, longest_text, d, &text, &length)
                 : input_read(path, longest_text, NULL, d, &text, &length));
    const char *kind = ir_file_kind(text, length, "ir");
    ampc_status status = kind ? diag_error(d, AMPC_REJECTED, DIAG_FILE(name), "not a module, but %s", kind)
                              : ir_parse(text, length, name, d, out);
    free(text);
    return status;
}
