/* api_calls.h - expectations of calls of ampc.h, and the options that its tests share. */
#ifndef TESTS_API_CALLS_H
#define TESTS_API_CALLS_H

#include "runtime/api/ampc.h"
#include "tests/unit/scratch.h"

#define MLP AMPC_SOURCE_DIR "/tests/models/mlp.onnx"

static const ampc_compile_options training = {
    .struct_size = sizeof training, .loss = "ce", .optimizer = "adamw,lr=0.02"};
/* The leak check of Debian 12 fails with idle OpenMP threads. */
static const ampc_session_options one_thread = {.struct_size = sizeof one_thread, .threads = 1};

static inline void expect_ok(ampc_status status, const ampc_context *c, const char *call)
{
    if (status != AMPC_OK) fail_msg("%s: %s: %s", call, ampc_status_name(status), ampc_context_message(c));
    assert_string_equal(ampc_context_message(c), "");
}
#define OK(c, call) expect_ok(call, c, #call)

static inline void expect_failure(ampc_status status, ampc_status expected, const ampc_context *c, const char *text)
{
    assert_int_equal(status, expected);
    if (!strstr(ampc_context_message(c), text)) fail_msg("expected '%s' in: %s", text, ampc_context_message(c));
}

#endif
