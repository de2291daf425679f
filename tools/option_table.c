/* option_table.c - the table of options of ampc, ampc-run and ampc-opt, expanded from ir/base/options.def. */
#include "tools/console.h"
#include "tools/options.h"

#include "runtime/data/kinds.h"
#include "runtime/train/monitor.h"
#include "runtime/train/schedule.h"

#include <stddef.h>

const char *const option_group_names[GROUP_COUNT] = {
    [GROUP_FILES] = "Files",     [GROUP_PRECISION] = "Precision", [GROUP_TRAINING] = "Training",
    [GROUP_SHAPES] = "Shapes",   [GROUP_EXECUTION] = "Execution", [GROUP_INSPECT] = "Inspection",
    [GROUP_GENERAL] = "General",
};

const pass_word output_kinds[] = {{"ir", OUTPUT_IR},
                                  {"onnx", OUTPUT_ONNX},
                                  {"svg", OUTPUT_SVG},
                                  {"dot", OUTPUT_DOT},
                                  {"npz", OUTPUT_NPZ},
                                  {"csv", OUTPUT_CSV},
                                  {"safetensors", OUTPUT_SAFETENSORS},
                                  {"html", OUTPUT_HTML},
                                  {"json", OUTPUT_JSON},
                                  {"amplist", OUTPUT_LIST},
                                  {NULL, 0}};
static const pass_word output_formats[] = {{"ir", OUTPUT_IR},
                                           {"onnx", OUTPUT_ONNX},
                                           {"onnx-train", OUTPUT_ONNX_TRAIN},
                                           {"svg", OUTPUT_SVG},
                                           {"dot", OUTPUT_DOT},
                                           {"html", OUTPUT_HTML},
                                           {"json", OUTPUT_JSON},
                                           {NULL, 0}};
static const pass_word weights[] = {{"sidecar", WEIGHTS_SIDECAR}, {"reference", WEIGHTS_REFERENCE}, {NULL, 0}};
static const pass_word ops_formats[] = {{"text", OPS_TEXT}, {"json", OPS_JSON}, {NULL, 0}};
static const pass_word colours[] = {
    {"auto", CONSOLE_AUTO}, {"always", CONSOLE_ALWAYS}, {"never", CONSOLE_NEVER}, {NULL, 0}};
static const pass_word help_forms[] = {
    {"short", HELP_SHORT}, {"all", HELP_ALL},   {"man", HELP_MAN}, {"bash", HELP_BASH},
    {"zsh", HELP_ZSH},     {"fish", HELP_FISH}, {NULL, 0}};

static const pass_word check_reports[] = {
    {"abort", CHECK_ABORT}, {"report", CHECK_REPORT}, {"range", CHECK_RANGE}, {"all", CHECK_ALL}, {NULL, 0}};
static const pass_word check_formats[] = {{"text", CHECK_TEXT}, {"paddle", CHECK_PADDLE}, {NULL, 0}};

enum {
    INSPECTS = COMMAND_CHECK | COMMAND_COMPARE | COMMAND_CALIBRATE,
    READS_INPUTS = COMMAND_INFER | COMMAND_GRAD | INSPECTS,
    WRITES_RESULTS = COMMAND_INFER | COMMAND_GRAD,
    TRAINS = COMMAND_TRAIN | COMMAND_LR_FIND,
    WRITES_FILES = COMMAND_TUNE | COMMAND_AMPC | COMMAND_OPT | WRITES_RESULTS | TRAINS | INSPECTS | COMMAND_PREDICT |
                   COMMAND_EXPORT | COMMAND_BENCH,
    READS_CHECKPOINT = READS_INPUTS | TRAINS | COMMAND_EVAL | COMMAND_PREDICT | COMMAND_BENCH | COMMAND_EXPORT |
                       COMMAND_INFO | COMMAND_TUNE,
    READS_DATA = TRAINS | COMMAND_EVAL | COMMAND_PREDICT | COMMAND_TUNE | INSPECTS,
    IMPORTS = COMMAND_AMPC | COMMAND_RUN,
    COMPILES = COMMAND_AMPC | COMMAND_OPT,
    EXECUTES = COMMAND_RUN & ~(COMMAND_PLAN | COMMAND_INFO | COMMAND_EXPORT),
    /* An export copies the imported model, so how it was compiled does not matter. */
    COMPUTES = COMPILES | EXECUTES | COMMAND_PLAN | COMMAND_INFO,
    FORWARD = COMMAND_INFER | COMMAND_PREDICT | COMMAND_EVAL | COMMAND_TUNE,
    READS_VALUES = COMPUTES & ~(COMMAND_BENCH | COMMAND_PLAN | COMMAND_INFO), /* the result depends on them */
    DIFFERENTIATES = COMPUTES & ~FORWARD,
    UPDATES = COMPILES | TRAINS | COMMAND_BENCH | COMMAND_PLAN | COMMAND_INFO | COMMAND_CHECK,
    SCALES = COMPILES | TRAINS | COMMAND_CHECK,
    UNTRAINED = OUTPUT_ONNX | OUTPUT_DRAWING
};

/* clang-format off */
#define WITH(...) .needs = {__VA_ARGS__}
#define LOSS {0, "loss"}
#define LOW {0, "amp!=O0"}
#define STEPS_OF_CHECK {COMMAND_CHECK, "entry=train_step"}
#define DESCRIBES .in_recipe = RECIPE_DESCRIBES
#define OF_PRECISION .commands = COMPUTES, WITH(LOW), DESCRIBES
#define OF_UPDATE .commands = UPDATES, .not_into = UNTRAINED, WITH(LOSS, STEPS_OF_CHECK), DESCRIBES
#define OF_DISTRIBUTION \
    .commands = COMPILES | COMMAND_TRAIN, .of_compiled = COMMAND_TRAIN, .not_into = UNTRAINED, \
        WITH(LOSS, {COMPILES, "distribute|explain=distribution"}), DESCRIBES
#define OF_SCALER .commands = SCALES, .not_into = UNTRAINED, WITH(LOSS, {0, "scaling"}, STEPS_OF_CHECK), DESCRIBES

#define ROW(option, at, type, section, ...) \
    {.name = option, .field = offsetof(tool_options, at), OPTION_ROW(type), .group = GROUP_##section, __VA_ARGS__},

const option option_table[] = {
#define COMPILE(name, field, member, kind, group, ...) ROW(name, pass.field, kind, group, __VA_ARGS__)
#define COMPILER(name, field, kind, group, ...) ROW(name, pass.field, kind, group, __VA_ARGS__)
#define DECLARED COMPILER
#define TRAIN(name, member, kind, group, ...) ROW(name, member, kind, group, __VA_ARGS__)
#define SESSION TRAIN
#define TOOL TRAIN
#include "ir/base/options.def"
    {.name = NULL},
};
/* clang-format on */
