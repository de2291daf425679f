/* paddle.h - small programs for the tests of the PaddlePaddle profiles, as IR text. */
#ifndef TESTS_PADDLE_H
#define TESTS_PADDLE_H

#include "tests/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct program {
    const char *params, *inputs, *subgraph;
} program;

static const program white_first = {"param @w : f32[4,4] = zero\n", "@x : f32[4,4]",
                                    "  %m = matmul @x, @w, _ : f32[4,4] !MatMul \"m\"\n"
                                    "  %e = exp @x : f32[4,4] !Exp \"e\"\n"
                                    "  %add = add %m, %e : f32[4,4] !Add \"add\"\n"
                                    "  output \"y\" = %add\n"};

/* conv 1 to 6 channels with bias, a cast to f32, relu, flatten, linear, softmax, mean. */
static char messages[4096];

static inline void collect(void *user, diag_level level, const char *message)
{
    (void)user;
    if (level != DIAG_ERROR) return;
    size_t n = strlen(messages);
    snprintf(messages + n, sizeof messages - n, "%s\n", message);
}

static inline ir_module *parse(const program *p, diag *d)
{
    char *text;
    assert_true(asprintf(&text, "ampc-ir 3\n%sgraph @infer(%s) as infer {\n%s}\n", p->params, p->inputs, p->subgraph) >
                0);
    ir_module *m = NULL;
    ampc_status status = ir_parse(text, strlen(text), "program", d, &m);
    free(text);
    if (status != AMPC_OK) fail_msg("%s", messages);
    return m;
}

#endif
