/* import_fixture.h - imports models from memory and compares the text of the module. */
#ifndef TESTS_IMPORT_FIXTURE_H
#define TESTS_IMPORT_FIXTURE_H

#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

static inline ampc_status import_bytes(scratch *t, wire file, const onnx_import_options *o, ir_module **m)
{
    ampc_status status = onnx_import_memory(file.bytes, file.size, "m.onnx", o, t->d, m);
    wire_free(&file);
    return status;
}

/* Collapses runs of blanks, since the printer aligns columns. */
static inline char *squeezed(arena *a, const char *text)
{
    char *out = arena_strdup(a, text), *to = out;
    for (const char *p = text; *p; p++)
        if (*p != ' ' || p[1] != ' ') *to++ = *p;
    *to = 0;
    return out;
}

/* Asserts that the text of the imported model contains `text`. */
static inline void expect_text(const ir_module *m, const char *text)
{
    arena *a = arena_new(0);
    jmp_buf guard;
    if (setjmp(guard)) fail();
    arena_set_guard(a, &guard);
    const char *printed = squeezed(a, ir_print(m, a));
    if (!strstr(printed, squeezed(a, text))) fail_msg("expected '%s' in:\n%s", text, printed);
    arena_free(a);
}

static inline void expect_import(scratch *t, wire file, const char *text)
{
    ir_module *m = NULL;
    if (import_bytes(t, file, NULL, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_int_equal(ir_verify(m, t->d), AMPC_OK);
    expect_text(m, text);
    ir_module_free(m);
}

static inline void expect_refusal(scratch *t, wire file, ampc_status status, const char *text)
{
    ir_module *m = NULL;
    ampc_status got = import_bytes(t, file, NULL, &m);
    if (got != status) fail_msg("status %d, not %d: %s", (int)got, (int)status, diag_first_error(t->d));
    assert_null(m);
    scratch_expect(t, text);
}

#endif
