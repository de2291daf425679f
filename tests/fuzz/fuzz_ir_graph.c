/* fuzz_ir_graph.c - a random graph built from the op table, as text and sometimes with mutated bytes: parsed,
 * verified, compiled, planned, run. The fuzzer's bytes make all decisions (choices.h). */
#include "tests/fuzz/graph.h"
#include "tests/fuzz/pipeline.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the text of a new graph (malloced), or NULL. */
static char *draw_text(choices *c)
{
    ir_module *m = graph_draw(c);
    arena *a = arena_new(0);
    char *text = NULL;
    jmp_buf guard;
    if (m && a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        text = strdup(ir_print(m, a));
    }
    ir_module_free(m);
    arena_free(a);
    return text;
}

static size_t below(choices *c, size_t n) { return n ? choices_word(c) % n : 0; }

/* Replaces a byte, or a number or word of the text. */
static void change_text(choices *c, char *text)
{
    static const char bytes[] = "0123456789-[]{}(),:=%@#\"_NMxf \n";
    const size_t n = strlen(text), at = below(c, n);
    if (!n) return;
    if (choose(c, 3) == 0) {
        text[at] = CHOOSE(c, bytes);
    } else {
        size_t i = at + strcspn(text + at, "0123456789");
        if (text[i]) text[i] = (char)('0' + choose(c, 10));
    }
}

static void check_module(ir_module *m, choices *c, diag *d)
{
    if (!pipeline_accepts(ir_verify(m, d), d)) return;
    pipeline_round_trip(m, d);
    if (choose(c, 4) && ir_graph_find(m, "forward") && !pipeline_compile(m, c, d)) return;
    pipeline_run(m, c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices c = choices_start(data, size);
    char *text = draw_text(&c);
    diag *d = diag_new(NULL, NULL);
    ir_module *m = NULL;
    for (int changes = rarely(&c, 3) ? 1 + choose(&c, 3) : 0; text && changes; changes--) change_text(&c, text);
    if (text) pipeline_show("%s", text);
    if (text && d && pipeline_accepts(ir_parse(text, strlen(text), "fuzz.ir", d, &m), d)) check_module(m, &c, d);
    if (d) pipeline_show("# %s\n", diag_first_error(d));
    ir_module_free(m);
    diag_free(d);
    free(text);
    return 0;
}
