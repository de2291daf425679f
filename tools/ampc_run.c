/* ampc_run.c - executes compiled modules: finds the verb, opens model and session, runs it. */
#include "tools/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLES(name, ...) static const char *const name[] = {__VA_ARGS__, NULL}

EXAMPLES(infer_examples, "ampc-run infer model.amp.ir --input x=x.npy",
         "ampc-run infer model.amp.ir --inputs batch.npz -o out.npz",
         "ampc-run infer model.amp.ir --checkpoint ckpt/ckpt-0000004685.safetensors --input "
         "x=x.npy -o out.npz");
EXAMPLES(
    train_examples,
    "ampc-run train model.amp.ir --data idx:/usr/share/datasets/fashion-mnist --batch 64 --epochs "
    "5 --lr 0.05",
    "ampc-run train model.amp.ir --data npz:train.npz --steps 1000 --checkpoint-dir ckpt "
    "--save-every 100 --resume",
    "ampc-run train model.onnx --loss=ce --dtype=bf16 --data synthetic --batch 32 --steps 100");
EXAMPLES(
    eval_examples,
    "ampc-run eval model.amp.ir --checkpoint CKPT --data idx:/usr/share/datasets/fashion-mnist",
    "ampc-run eval model.amp.ir --data npz:test.npz --batch 100",
    "ampc-run eval model.amp.ir --checkpoint CKPT --data npz:test.npz --json");
EXAMPLES(
    grad_examples, "ampc-run grad model.amp.ir --inputs batch.npz -o grads.npz",
    "ampc-run grad model.onnx --loss=mse --input x=x.npy --input label=y.npy -o grads.safetensors",
    "ampc-run grad model.onnx --amp=O0 --loss-output loss --inputs batch.npz");
EXAMPLES(bench_examples, "ampc-run bench model.amp.ir --batch 32",
         "ampc-run bench model.onnx --dtype=bf16 --dim N=1 --json",
         "ampc-run bench model.amp.ir --entry train_step --profile=trace.json");
EXAMPLES(plan_examples, "ampc-run plan model.amp.ir --batch 32",
         "ampc-run plan model.amp.ir --device=h200.json --batch 256 --json",
         "ampc-run plan model.onnx --loss=ce --dump-after=layout");
EXAMPLES(export_examples, "ampc-run export model.amp.ir --checkpoint CKPT -o trained.onnx");
EXAMPLES(no_examples, "ampc-run --help");

#define VERB(verb, flag, tail, text, examples, function)                                           \
    {                                                                                              \
        {"ampc-run " verb, flag, "ampc-run " verb " MODEL" tail, text, examples, 1, 1}, function   \
    }

static const run_verb verbs[] = {
    VERB("infer", FOR_INFER, " --input NAME=FILE.. [-o FILE] [OPTION]..",
         "Runs the network on inputs from files; MODEL is .ir, or .onnx (compiled in memory).",
         infer_examples, run_infer),
    VERB("train", FOR_TRAIN, " --data SPEC --epochs N --batch N [OPTION]..",
         "Trains the network; MODEL is .ir, or .onnx (compiled in memory).", train_examples,
         run_train),
    VERB("eval", FOR_EVAL, " --data SPEC [--checkpoint FILE] [OPTION]..",
         "Measures loss and accuracy over every sample.", eval_examples, run_eval),
    VERB("grad", FOR_GRAD, " --inputs FILE [-o FILE] [OPTION]..",
         "One forward and backward: unscaled gradients in fp32.", grad_examples, run_grad),
    VERB("bench", FOR_BENCH, " [OPTION]..",
         "Measures the time of a run on made-up inputs, without and with their copy to the device.", bench_examples,
         run_bench),
    VERB("plan", FOR_PLAN, " [OPTION]..", "Prints what a run would do, step by step, without running it.",
         plan_examples, run_plan),
    VERB("export", FOR_EXPORT, " --checkpoint FILE -o FILE.onnx",
         "Writes the trained network as ONNX.", export_examples, run_export),
    VERB("compare", FOR_COMPARE, " [OPTION]..", "Error of every node against fp32.", no_examples,
         NULL),
    VERB("check", FOR_CHECK, " [OPTION]..", "Finds the first node that makes NaN or infinity.",
         no_examples, NULL),
};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static const char *verb_name(const run_verb *v) { return strrchr(v->program.name, ' ') + 1; }

static void print_overview(void)
{
    puts("usage: ampc-run VERB MODEL [OPTION]..\nExecutes a module that ampc made, or a .onnx "
         "(compiled in memory).\n");
    for (int i = 0; i < VERB_COUNT; i++)
        printf("  %-8s %s%s\n", verb_name(&verbs[i]), verbs[i].program.purpose,
               verbs[i].run ? "" : " Not supported yet.");
    puts("\nexamples:");
    for (int i = 0; i < 3; i++) printf("  %s\n", verbs[i + (i == 2)].program.examples[0]);
    putchar('\n');
    options_print_exit_codes();
    puts("'ampc-run VERB --help' shows the options of a verb.");
}

static void print_manual(void)
{
    option_program programs[VERB_COUNT];
    for (int i = 0; i < VERB_COUNT; i++) programs[i] = verbs[i].program;
    options_man("ampc-run", "execute a compiled network", programs, VERB_COUNT);
}

/* ---- session --------------------------------------------------------------------------------- */

/* Sizes of --dim by symbol; a .onnx had them bound while it was imported. */
static ampc_status symbol_sizes(tool *t, int64_t **out)
{
    const ir_dim_table *dims = t->module->dims;
    size_t count = ir_dim_symbol_count(dims);
    *out = arena_array(t->arena, count + 1, sizeof **out);
    for (size_t i = 0; i < count; i++) (*out)[i] = -1;
    if (tool_ends_with(t->o.operands.items[0], ".onnx")) return AMPC_OK;
    for (int i = 0; i < t->o.dims.count; i++) {
        const char *name, *size;
        size_t at = 0;
        TRY(options_split(t->o.dims.items[i], "--dim", t->arena, t->diag, &name, &size));
        while (at < count && strcmp(ir_dim_symbol_name(dims, at), name) != 0) at++;
        if (at == count)
            return diag_error(t->diag, AMPC_USAGE, DIAG_NOWHERE,
                              "--dim: the module has no dimension '%s'", name);
        if (!options_int(size, &(*out)[at]) || (*out)[at] < 0)
            return diag_error(t->diag, AMPC_USAGE, DIAG_NOWHERE, "--dim: '%s' is no size", size);
    }
    return AMPC_OK;
}

/* A plan needs sizes, and no session that could run. */
static ampc_status open_session(run_context *c, bool plan_only)
{
    tool *t = c->tool;
    rt_session_options o = {.device = t->o.device,
                            .threads = (int)t->o.threads,
                            .deterministic = (int)t->o.deterministic,
                            .sync_launch = t->o.sync_launch,
                            .no_tune = t->o.no_tune,
                            .plan_only = plan_only,
                            .weights_dir = t->weights_dir};
    TRY(symbol_sizes(t, &c->sizes));
    if (plan_only) TRY(run_bind_batch(c));
    o.symbol_sizes = c->sizes;
    return rt_session_open(t->module, &o, t->diag, &c->session);
}

static ampc_status run_verb_on(tool *t, const run_verb *v)
{
    run_context c = {.tool = t};
    TRY(tool_open_model(t, t->o.operands.items[0]));
    ampc_status status = open_session(&c, v->run == run_plan);
    if (status == AMPC_OK) status = run_load_weights(&c);
    if (status == AMPC_OK && v->run != run_plan) status = rt_session_seed(c.session, t->o.pass.seed, t->diag);
    if (status == AMPC_OK) status = v->run(&c);
    rt_session_close(c.session);
    return status;
}

/* ---- the program ----------------------------------------------------------------------------- */

static const run_verb *find_verb(const char *name)
{
    for (int i = 0; i < VERB_COUNT; i++)
        if (strcmp(verb_name(&verbs[i]), name) == 0) return &verbs[i];
    return NULL;
}

static ampc_status no_verb(const tool *t, const char *name)
{
    const diag_loc here = DIAG_FILE("ampc-run");
    if (!name) return diag_error(t->diag, AMPC_USAGE, here, "no verb; 'ampc-run --help' lists the verbs");
    nearest_word n = nearest_to(name);
    for (int i = 0; i < VERB_COUNT; i++) nearest_offer(&n, verb_name(&verbs[i]));
    if (n.best) return diag_error(t->diag, AMPC_USAGE, here, "unknown verb '%s'; did you mean %s?", name, n.best);
    return diag_error(t->diag, AMPC_USAGE, here, "unknown verb '%s'; 'ampc-run --help' lists the verbs", name);
}

static ampc_status run(tool *t, int argc, char **argv)
{
    static const option_program overview = {.name = "ampc-run", .bit = FOR_RUN, .operands_max = 1};
    bool done = false;
    int at = 1 + options_first_operand(FOR_RUN, argc - 1, argv + 1); /* options may come before the verb */
    const run_verb *v = at < argc ? find_verb(argv[at]) : NULL;
    if (!v) {
        if (argc < 2 || at < argc) return no_verb(t, argc < 2 ? NULL : argv[at]);
        TRY(options_parse(&t->o, &overview, argc - 1, argv + 1, t->diag));
        if (t->o.version) return tool_parse(t, &overview, argc - 1, argv + 1, &done);
        if (!t->o.help) return no_verb(t, NULL);
        if (strcmp(t->o.help, "man") == 0) print_manual();
        else print_overview();
        return AMPC_OK;
    }
    memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
    TRY(tool_parse(t, &v->program, argc - 2, argv + 2, &done));
    if (done) return AMPC_OK;
    if (!v->run)
        return diag_error(t->diag, AMPC_UNSUPPORTED, DIAG_FILE("ampc-run"),
                          "%s is not supported yet", verb_name(v));
    return run_verb_on(t, v);
}

int program_ampc_run(int argc, char **argv) { return tool_main(argc, argv, run); }
