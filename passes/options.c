/* options.c - default options, and the spellings of option values. */
#include "passes/options.h"

#include <string.h>

/* In the order of pass_level. */
const pass_word pass_levels[] = {{"O0", PASS_O0}, {"O1", PASS_O1}, {"O2", PASS_O2}, {"OD", PASS_OD}, {NULL, 0}};
/* The programs choose a type for auto, which help shows first. */
const pass_word pass_low_types[] = {{"auto", IR_NO_DTYPE}, {"fp16", IR_f16}, {"bf16", IR_bf16},     {"float16", IR_f16},
                                    {"half", IR_f16},      {"f16", IR_f16},  {"bfloat16", IR_bf16}, {NULL, 0}};
const pass_word pass_placements[] = {{"greedy", PASS_GREEDY}, {"mincut", PASS_MINCUT}, {NULL, 0}};
const pass_word pass_scalings[] = {
    {"dynamic", PASS_SCALE_DYNAMIC}, {"static", PASS_SCALE_STATIC}, {"off", PASS_SCALE_OFF}, {NULL, 0}};
/* clang-format off */
const pass_word pass_presets[] = {
    {"torch", PASS_PRESET_TORCH}, {"paddle-1.8", PASS_PRESET_PADDLE_1_8}, {"paddle-2", PASS_PRESET_PADDLE_2},
    {"paddle-3", PASS_PRESET_PADDLE_3}, {NULL, 0}};
/* clang-format on */
const pass_word pass_modes[] = {
    {"file", PASS_MODE_FILE}, {"train", PASS_MODE_TRAIN}, {"eval", PASS_MODE_EVAL}, {NULL, 0}};

const pass_word pass_wire_types[] = {{"fp32", IR_f32}, {"fp16", IR_f16}, {"bf16", IR_bf16}, {NULL, 0}};

const pass_word pass_variances[] = {{"biased", PASS_VARIANCE_BIASED}, {"unbiased", PASS_VARIANCE_UNBIASED}, {NULL, 0}};

const pass_word pass_shards[] = {{"none", PASS_SHARD_NOTHING}, {"optimizer", PASS_SHARD_OPTIMIZER}, {NULL, 0}};

bool pass_find_word(const pass_word *words, const char *word, int *value)
{
    for (; words->word; words++)
        if (strcmp(words->word, word) == 0) {
            *value = words->value;
            return true;
        }
    return false;
}

#ifdef NDEBUG
enum { VERIFY_EACH = false };
#else
enum { VERIFY_EACH = true };
#endif

compile_options compile_options_default(void)
{
    return (compile_options){
#define COMPILE(name, field, member, kind, ...) OPTION_DEFAULT(field, kind)
#define COMPILER(name, field, kind, ...) OPTION_DEFAULT(field, kind)
#include "ir/base/options.def"
        .pipeline.verify_each = VERIFY_EACH};
}
