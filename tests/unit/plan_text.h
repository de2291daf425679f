/* plan_text.h - prints the plan of a graph without sizes and offsets, for the tests of its stages. */
#ifndef TESTS_PLAN_TEXT_H
#define TESTS_PLAN_TEXT_H

#include "runtime/plan/plan.h"
#include "tests/module.h"

/* The first graph of a module, on an open device. */
typedef struct plan_text {
    const rt_backend *backend;
    char error[256];
    k_context ctx;
    diag *d;
    ir_module *module;
    rt_plan *plan;
} plan_text;

/* Parses the module; `text` omits the first line. */
static inline void plan_text_open(plan_text *t, const char *device, const char *text)
{
    *t = (plan_text){.backend = rt_backend_find(device, &(int){0}), .d = diag_new(NULL, NULL)};
    t->ctx = (k_context){.threads = 1, .error = t->error, .error_size = sizeof t->error};
    if (t->backend->open(&t->ctx, 0) != AMPC_OK) fail_msg("%s", t->error);
    t->module = test_module(t->d, text);
}

/* Plans with 2 as the size of the first symbol and 3 of the second. */
static inline ampc_status plan_text_run(plan_text *t, bool fuse, const pipeline_options *options)
{
    const rt_plan_request request = {.graph = t->module->graphs.items[0],
                                     .sizes = (int64_t[]){2, 3},
                                     .backend = t->backend,
                                     .ctx = &t->ctx,
                                     .fuse = fuse,
                                     .no_pack = true, /* test_packs.c has tests of packs */
                                     .pipeline = options};
    return rt_plan_make(&request, t->d, &t->plan);
}

static inline ampc_status plan_text_make(plan_text *t, bool fuse) { return plan_text_run(t, fuse, NULL); }

static inline void plan_text_close(plan_text *t)
{
    rt_plan_free(t->plan);
    ir_module_free(t->module);
    diag_free(t->d);
    t->backend->close(&t->ctx);
}

/* Removes what the tests do not check: "  workspace ...", "  bytes 64", ", arena ...", " at 0+64". */
static inline void plan_text_drop_places(char *text)
{
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        size_t length = (size_t)(next - line);
        const char *const marks[] = {"  workspace ", "  bytes ", ", arena ", " at "};
        next += *next == '\n';
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
            const char *mark = strstr(line, marks[i]);
            if (mark && mark < line + length) length = (size_t)(mark - line);
        }
        memmove(to, line, length);
        to += length;
        *to++ = '\n';
    }
    *to = '\0';
}

static inline void plan_text_compare(const rt_plan *plan, const char *expected)
{
    char *printed = rt_plan_print(plan);
    assert_non_null(printed);
    plan_text_drop_places(printed);
    if (strcmp(printed, expected) != 0) fail_msg("expected:\n%s\nprinted:\n%s", expected, printed);
    free(printed);
}

static inline void plan_text_expect(const char *device, const char *text, const char *expected)
{
    plan_text t;
    plan_text_open(&t, device, text);
    if (plan_text_make(&t, true) != AMPC_OK) fail_msg("%s", diag_first_error(t.d));
    plan_text_compare(t.plan, expected);
    plan_text_close(&t);
}

#endif
