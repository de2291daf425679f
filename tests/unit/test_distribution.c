/* test_distribution.c - the reductions of a step and its predicted time, with values by hand. */
#include "passes/train/distribution.h"
#include "tests/module.h"
#include "tests/unit/scratch.h"

/* Two nodes in the backward, each of 5 ms, whose results are reduced, and one of 1 ms in the update, which reads both. */
static const char step[] = "graph @train_step(@x : f32[1000000]) as train_step {\n"
                           "  %a = exp @x : f32[1000000]\n"
                           "  backward:\n"
                           "  %g = exp %a : f32[1000000]\n"
                           "  %r = all_reduce %g {wire=f16} : f32[1000000]\n"
                           "  %h = exp %a : f32[1000000]\n"
                           "  %s = all_reduce %h : f32[1000000]\n"
                           "  update:\n"
                           "  %y = add %r, %s : f32[1000000]\n"
                           "  output \"y\" = %y\n"
                           "}\n";

/* What is printed as JSON; the caller frees it. */
static char *explain(scratch *t, const char *described)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    arena *a = arena_new(0);
    compile_options o = compile_options_default();
    scratch_write(t, "links", described, strlen(described));
    o.links = scratch_path(t, "links");
    o.json = true;
    ir_module *m = test_module(t->d, step);
    assert_int_equal(distribution_explain(m, &(compile){.options = &o, .report.text = f, .diag = t->d}, a), AMPC_OK);
    fclose(f);
    ir_module_free(m);
    arena_free(a);
    return text;
}

static void assert_has(const char *text, const char *expected)
{
    if (!strstr(text, expected)) fail_msg("'%s' is not in %s", expected, text);
}

/* 2 ranks, 2 and 4 MB at 1 GB/s: 2 and 4 ms. The first ends at 2 + 5 + 2 = 9 ms, in the backward, the second at
 * 12 + 4 = 16 ms: 13 ms become 17, and a third of the 6 ms is hidden. */
TEST_SCRATCH(test_reductions_run_during_the_backward)
{
    char *text = explain(t, "inside = 1 GB/s 0 s\nforward = 0.002\nbackward = 0.01\nupdate = 0.001\n");
    assert_has(text, "{\"by\": \"mean\", \"wire\": \"f16\", \"tensors\": 1, \"bytes\": 2000000, \"times\": 1, "
                     "\"phase\": \"backward\", "
                     "\"ready\": 0.5}");
    assert_has(text, "\"bytes\": 6000000, \"forward\": 0.002, \"backward\": 0.01, \"update\": 0.001");
    assert_has(text,
               "{\"ranks\": 1, \"hosts\": 1, \"sent_bytes\": 0, \"reducing_s\": 0, \"hidden\": 1, \"step_s\": 0.013, "
               "\"scaling\": 1}");
    assert_has(text, "{\"ranks\": 2, \"hosts\": 1, \"sent_bytes\": 6000000, \"reducing_s\": 0.006, \"hidden\": 0.3333, "
                     "\"step_s\": 0.017, \"scaling\": 0.7647}");
    free(text);
}

/* The same, one after the other. */
TEST_SCRATCH(test_without_overlap_nothing_is_hidden)
{
    char *text = explain(t, "inside = 1 GB/s 0 s\noverlap = no\nforward = 0.002\nbackward = 0.01\nupdate = 0.001\n");
    assert_has(text, "\"reducing_s\": 0.006, \"hidden\": 0, \"step_s\": 0.019,");
    free(text);
}
