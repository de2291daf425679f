/* precision.c - --dtype=auto, and a line if another type is faster on this device. */
#include "runtime/backend/backend.h"
#include "tools/run.h"

static const char *word_of(ir_dtype t) { return t == IR_f16 ? "fp16" : t == IR_bf16 ? "bf16" : "fp32"; }

static bool is_given(const tool_options *o, const char *name)
{
    const option *row = option_find(name, ~0u);
    return o->given[row - option_table] != GIVEN_NOT;
}

/* Without fast instructions for a low type, fp32 is faster. A comparison needs a low type, and so does a level that the
 * user chose. */
ampc_status tool_choose_dtype(tool *t, const char *path)
{
    compile_options *o = &t->o.pass;
    if (o->low != IR_NO_DTYPE) return AMPC_OK;
    if (t->command->bit & (COMMAND_EXPORT | COMMAND_CALIBRATE)) { /* do not compute in it */
        o->low = IR_f16;
        return AMPC_OK;
    }
    double times;
    TRY(rt_device_low_type(t->o.device, t->diag, &o->low, &times));
    if (o->low != IR_NO_DTYPE) return AMPC_OK;
    o->low = IR_bf16;
    if (is_given(&t->o, "amp") || t->command->bit & (COMMAND_COMPARE | COMMAND_TUNE)) return AMPC_OK;
    o->level = PASS_O0;
    if (times > 0)
        diag_note(t->diag, DIAG_FILE(path),
                  "computed in fp32: matrix products in bf16 are %.2g times as fast on this processor (--dtype=bf16)",
                  times);
    else
        diag_note(t->diag, DIAG_FILE(path),
                  "computed in fp32: this processor has no instructions for bf16; --dtype=bf16 and fp16 are emulated");
    return AMPC_OK;
}

/* The type in which the module computes. */
static ir_dtype type_of(const ir_module *m) { return m->training.low == IR_NO_DTYPE ? IR_f32 : m->training.low; }

ampc_status tool_note_speed(const tool *t)
{
    enum { TIMED = COMMAND_INFER | COMMAND_TRAIN | COMMAND_LR_FIND | COMMAND_EVAL | COMMAND_PREDICT | COMMAND_BENCH };
    double times;
    const ir_dtype own = type_of(t->module);
    ir_dtype faster = IR_NO_DTYPE;
    if (t->command->bit & TIMED && own != IR_f32)
        TRY(rt_device_faster_type(t->o.device, own, t->diag, &faster, &times));
    if (faster == IR_NO_DTYPE) return AMPC_OK;
    diag_note(t->diag, DIAG_FILE(t->o.operands.items[0]),
              "matrix products in %s are about %.2g times as fast as in %s on this processor (%s)", word_of(faster),
              times, word_of(own),
              faster == IR_f32    ? "--amp=O0"
              : faster == IR_bf16 ? "--dtype=bf16"
                                  : "--dtype=fp16");
    return AMPC_OK;
}
