/* command_table.c - the programs, the verbs of ampc-run, and their texts in the manual pages. */
#include "tools/commands.h"
#include "tools/run.h"

// clang-format off
static const command compile_commands[] = {
    {.name = "ampc", .bit = COMMAND_AMPC,
     .outputs = OUTPUT_NONE | OUTPUT_STDOUT | OUTPUT_IR | OUTPUT_ONNX | OUTPUT_ONNX_TRAIN | OUTPUT_DRAWING |
                OUTPUT_REPORT,
     .operands = "MODEL.onnx -o OUTPUT [OPTION]...", .run = run_ampc,
     .purpose = "Compile an ONNX model to mixed precision, with a training step if it has a loss.",
     .examples = {{"ampc model.onnx -o model.amp.ir", "inference in fp16"},
                  {"ampc model.onnx -o model.amp.ir --dtype=bf16 --loss=ce", "training in bf16"},
                  {"ampc model.onnx -o model.amp.onnx", "conversion for another runtime"},
                  {"ampc model.onnx -o report.html", "a report with the graph and the reason for each precision"},
                  {"ampc model.onnx --explain all", "explain each node's precision"}}},
};

static const command opt_commands[] = {
    {.name = "ampc-opt", .bit = COMMAND_OPT, .outputs = OUTPUT_NONE | OUTPUT_STDOUT | OUTPUT_IR,
     .operands = "FILE.ir [OPTION]...", .run = run_ampc_opt,
     .purpose = "Run compiler passes on the text form of a module ('-': standard input) and print the result.",
     .examples = {{"ampc-opt model.ir", "parse, verify, print"},
                  {"ampc-opt model.ir --pass=cse,dce -o out.ir", "run two passes"},
                  {"ampc-opt model.ir --pass=amp --dump-after=all", "print after each pass"}}},
};

static const command run_commands[] = {
    {.name = "ampc-run infer", .bit = COMMAND_INFER, .run_session = run_infer,
     .outputs = OUTPUT_NONE | OUTPUT_NPZ | OUTPUT_SAFETENSORS,
     .operands = "MODEL --input=NAME=FILE... [OPTION]...",
     .purpose = "Run the network on inputs from files.",
     .details = "Without -o the outputs are printed as a table; -o writes them by name to a .npz or .safetensors file."
                " Outputs that depend on an input of the loss are omitted if that input has no value.",
     .examples = {{"ampc-run infer model.amp.ir --input x=x.npy", "print the outputs"},
                  {"ampc-run infer model.amp.ir --inputs batch.npz -o out.npz", "write them to a file"},
                  {"ampc-run infer model.amp.ir --checkpoint ckpt --input x=x.npy", "with trained weights"}}},
    {.name = "ampc-run train", .bit = COMMAND_TRAIN, .run_session = run_train,
     .operands = "MODEL --data=SPEC {--epochs=N | --steps=N} [OPTION]...",
     .purpose = "Train the network.",
     .details = "On SIGINT or SIGTERM the step is finished and a checkpoint saved before the program ends. A step is"
                " abandoned if its data or its loops take longer than half a second more.",
     .examples = {{"ampc-run train model.amp.ir --data idx:mnist --epochs 5", "five epochs"},
                  {"ampc-run train model.amp.ir --data npz:train.npz --steps 1000 --checkpoint-dir ckpt --resume",
                   "continue after an interruption"},
                  {"ampc-run train model.onnx --loss=ce --data synthetic --steps 100", "compile and train"}}},
    {.name = "ampc-run lr-find", .bit = COMMAND_LR_FIND, .run_session = run_lr_find,
     .operands = "MODEL --data=SPEC [OPTION]...",
     .purpose = "Find a learning rate: train while the rate grows from step to step.",
     .details = "The run ends after --steps steps, or when the smoothed loss exceeds four times its minimum. The"
                " suggestion is the rate at which the smoothed loss falls fastest. Nothing is saved.",
     .examples = {{"ampc-run lr-find model.amp.ir --data npz:train.npz --plot rates.svg", "with a plot"},
                  {"ampc-run lr-find model.amp.ir --data idx:mnist --lr-from 1e-5 --lr-to 1 --json", "for a script"}}},
    {.name = "ampc-run eval", .bit = COMMAND_EVAL, .run_session = run_eval,
     .operands = "MODEL --data=SPEC [OPTION]...",
     .purpose = "Measure loss and metrics over all samples.",
     .examples = {{"ampc-run eval model.amp.ir --checkpoint ckpt --data idx:mnist", "the newest checkpoint"},
                  {"ampc-run eval model.amp.ir --data npz:test.npz --metric=auc --json", "for a script"}}},
    {.name = "ampc-run predict", .bit = COMMAND_PREDICT, .run_session = run_predict,
     .outputs = OUTPUT_NPZ | OUTPUT_CSV,
     .operands = "MODEL --data=SPEC -o FILE [OPTION]...",
     .purpose = "Write the outputs for all samples, in stored order.",
     .details = "FILE.npz has an array per output. FILE.csv has a line per sample, or per label if a sample has"
                " several: the label if the data have one, the predicted class, and the scores or values.",
     .examples = {{"ampc-run predict model.amp.ir --checkpoint ckpt --data npz:test.npz -o scores.npz", "all outputs"},
                  {"ampc-run predict model.amp.ir --data idx:mnist -o classes.csv", "classes and scores as text"}}},
    {.name = "ampc-run grad", .bit = COMMAND_GRAD, .run_session = run_grad,
     .outputs = OUTPUT_NONE | OUTPUT_NPZ | OUTPUT_SAFETENSORS,
     .operands = "MODEL --inputs=FILE [OPTION]...",
     .purpose = "Run forward and backward once and report the unscaled fp32 gradients.",
     .details = "The loss scale is halved until all gradients are finite. Without -o the results are printed as a"
                " table; -o writes them by name to a .npz or .safetensors file.",
     .examples = {{"ampc-run grad model.amp.ir --inputs batch.npz -o grads.npz", "write all gradients"},
                  {"ampc-run grad model.onnx --amp=O0 --loss-output loss --inputs batch.npz", "in fp32"}}},
    {.name = "ampc-run bench", .bit = COMMAND_BENCH, .run_session = run_bench, .operands = "MODEL [OPTION]...",
     .purpose = "Time an entry graph on synthetic inputs, with and without copying them to the device.",
     .examples = {{"ampc-run bench model.amp.ir --batch 32", "time a training step"},
                  {"ampc-run bench model.onnx --dtype=bf16 --dim N=1 --json", "time inference"},
                  {"ampc-run bench model.amp.ir --trace=trace.json", "time each kernel"}}},
    {.name = "ampc-run plan", .bit = COMMAND_PLAN, .run_session = run_plan, .plan_only = true,
     .operands = "MODEL [OPTION]...", .purpose = "Print the steps of an entry graph without running it.",
     .details = "The plan lists kernels, fused operators, layouts and memory. A device need not be present: a JSON file"
                " can describe it.",
     .examples = {{"ampc-run plan model.amp.ir --batch 32", "print the plan"},
                  {"ampc-run plan model.amp.ir --device=h200.json --json", "for a GPU, as JSON"},
                  {"ampc-run plan model.onnx --loss=ce --dump-after=assign_layouts", "after one stage"}}},
    {.name = "ampc-run info", .bit = COMMAND_INFO, .run = run_info, .run_session = info_model, .plan_only = true,
     .operands = "{MODEL | CHECKPOINT | SPEC} [OPTION]...",
     .purpose = "Describe a model, a recipe, a checkpoint or data.",
     .details = "Of a model: interface, export, parameters, and the operators with support by device and gradient;"
                " the exporter's changes to the network are those about which a training warns. Memory and FLOPs are"
                " those of a training step, if there is one, otherwise of inference, for the given batch. Of a model"
                " that is not supported: the nodes that are refused, and why. Of a recipe also its models, losses"
                " and optimizers. Of a checkpoint, the newest one in a directory, or a file of weights: the state of"
                " the training and all tensors, which are verified. Of data, a SPEC as for --data: samples, arrays,"
                " classes, missing values and sizes of images, from as many samples as can be read in a few seconds."
                " The last lines are what to type next. The exit status is 0 for every file that could be described,"
                " also if it is not supported, 1 for one that is damaged, and 4 for one that cannot be read.",
     .examples = {{"ampc-run info model.onnx", "before anything else"},
                  {"ampc-run info model.onnx --loss=ce --batch=64", "the memory of a training step"},
                  {"ampc-run info ckpt --json", "the newest checkpoint, for a script"},
                  {"ampc-run info csv:train.csv", "samples, columns, classes, missing values"}}},
    {.name = "ampc-run check", .bit = COMMAND_CHECK, .run_session = run_check, .by_node = true,
     .operands = "MODEL [--data=SPEC | --inputs=FILE] [OPTION]...",
     .purpose = "Find the first NaN or infinity, by node, with the ranges of the operands that led to it.",
     .details = "Every op runs alone and each of its results is examined; inputs and weights come first. @grad checks"
                " --steps batches in stored order; --entry=train_step repeats a training with the same --data, --seed,"
                " --batch and --lr, up to --steps steps, and stops before the first value that is not finite is stored."
                " Without data the samples are synthetic. An infinity that comes from a constant of the model, such as"
                " a mask, is not reported. A gradient that overflows because of dynamic loss scaling is a note, because"
                " training skips such a step; otherwise the exit status is 5.",
     .examples = {{"ampc-run check model.amp.ir --data npz:train.npz", "the first batch"},
                  {"ampc-run check model.amp.ir --inputs batch.npz --nan-inf=report", "all values that are not finite"},
                  {"ampc-run check model.amp.ir --data npz:train.npz --entry train_step --steps 500", "a training"},
                  {"ampc-run check model.onnx --loss=ce --nan-inf=all --format=paddle", "PaddlePaddle's log"}}},
    {.name = "ampc-run calibrate", .bit = COMMAND_CALIBRATE, .run_session = run_calibrate, .as_spelled = true,
     .by_node = true,
     .outputs = OUTPUT_NONE | OUTPUT_LIST,
     .operands = "MODEL.onnx {--data=SPEC | --inputs=FILE} [-o FILE.amplist] [OPTION]...",
     .purpose = "Measure the range of every tensor over samples, and write the list file that fp16 needs for it.",
     .details = "The model runs in fp32, node by node as the file spells them, on all samples or the first --samples."
                " Memory does not depend on their number. Tensors that exceed --data-max become lines of the list file,"
                " each with its reason, for --list; lines that the profile makes unnecessary are left out. With a loss"
                " gradients are measured as well, and the largest loss scale is given. A NaN or infinity of the fp32"
                " network itself is reported with its node and sample.",
     .examples = {{"ampc-run calibrate model.onnx --data npz:train.npz --samples 100 -o model.amplist", "write a list"},
                  {"ampc-run calibrate model.onnx --loss=ce --data npz:train.npz --json", "gradients, for a script"},
                  {"ampc-run calibrate model.onnx --data npz:train.npz --histogram=values.json", "all statistics"}}},
    {.name = "ampc-run compare", .bit = COMMAND_COMPARE, .run_session = run_compare, .by_node = true,
     .operands = "MODEL.onnx [--data=SPEC | --inputs=FILE] [OPTION]...",
     .purpose = "Compare mixed precision with fp32 and f64, value by value, and name the node that loses most.",
     .details = "The model is compiled with the given options, with --amp=O0, and with --amp=O0 --wide, and run on the"
                " same inputs, weights and loss scale; the references run on the CPU. Errors are relative norms against"
                " f64. The error that a node adds is that of its result when computed in f64 from the operands that it"
                " had in mixed precision. Without data the samples are synthetic.",
     .examples = {{"ampc-run compare model.onnx --loss=ce --data npz:train.npz", "values and gradients"},
                  {"ampc-run compare model.onnx --dtype=bf16 --inputs batch.npz --html=report.html", "a report"},
                  {"ampc-run compare model.onnx --checkpoint ckpt --csv=errors.csv", "with trained weights"}}},
    {.name = "ampc-run tune", .bit = COMMAND_TUNE, .run_session = run_tune, .by_node = true,
     .outputs = OUTPUT_NONE | OUTPUT_LIST,
     .operands = "MODEL.onnx --data=SPEC --budget=METRIC<=VALUE [-o FILE.amplist] [OPTION]...",
     .purpose = "Find the cheapest precision of every operator whose measured error stays within a budget.",
     .details = "What rounding an operator does to the outputs, or to the loss, is estimated from derivatives and the"
                " errors of a run in which every operator is low; operators that these do not show are measured. Plans"
                " of least predicted cost are then run on samples; the one that is written holds the budget on these,"
                " with a margin for their spread, and on samples that were not used to choose it. If no operator can be"
                " low, the list keeps all of them in fp32, and the exit status is 5.",
     .examples = {{"ampc-run tune model.onnx --data npz:test.npz --budget='error<=0.001' -o model.amplist", "outputs"},
                  {"ampc-run tune model.onnx --loss=ce --data idx:mnist --budget='accuracy<=0.002' -o m.amplist",
                   "a metric"},
                  {"ampc model.onnx --list=model.amplist -o model.amp.onnx", "use the list"}}},
    {.name = "ampc-run export", .bit = COMMAND_EXPORT, .run_session = run_export, .by_node = true,
     .outputs = OUTPUT_ONNX | OUTPUT_SAFETENSORS,
     .operands = "MODEL --checkpoint=FILE -o FILE", .purpose = "Write the trained network as an ONNX model.",
     .details = "FILE.onnx is the imported ONNX model with the weights of the checkpoint. FILE.safetensors has these"
                " weights alone, under the names of the model's initializers.",
     .examples = {{"ampc-run export model.amp.ir --checkpoint ckpt -o trained.onnx", "the trained model"},
                  {"ampc-run export model.amp.ir --checkpoint ckpt -o trained.safetensors", "its weights alone"}}},
};

#define COMMANDS(table) .commands = (table), .count = sizeof(table) / sizeof *(table)

const program program_table[] = {
    {.name = "ampc", .purpose = "compile an ONNX model to mixed precision", COMMANDS(compile_commands),
     .details =
         "ampc reads an ONNX model, decides for every node whether it computes in low precision or in fp32, inserts"
         " the casts, and writes the result. With a loss it adds the backward pass, dynamic loss scaling and the"
         " optimizer as nodes of the same graph.\n"
         "The suffix of the output file selects the format: a module for ampc-run (.ir), an ONNX model for another"
         " runtime (.onnx), a drawing of the graph (.svg, .dot), or a report as a page or as JSON (.html, .json)."
         " '-o -' prints the module and requires --weights=reference. Without -o nothing is written, which is"
         " useful with --explain, --stats and --dump-after."},
    {.name = "ampc-opt", .purpose = "run compiler passes on the text form of a module", COMMANDS(opt_commands),
     .details =
         "ampc-opt parses and verifies a module, runs the named passes in that order, verifies the module after"
         " each, and prints the result in canonical form, or writes it to the file given with -o. If anything fails,"
         " nothing is written. FILE.ir may be '-', which is standard input."},
    {.name = "ampc-run", .purpose = "run, train and inspect a compiled network", COMMANDS(run_commands),
     .details =
         "ampc-run executes a module that ampc compiled. MODEL is a .ir file, or a .onnx file that is compiled in"
         " memory first; options for the compiler are accepted only with a .onnx file."},
    {.name = NULL},
};

const command_fact command_files[] = {
    {"MODEL.onnx", COMMAND_AMPC | COMMAND_RUN,
     "An ONNX model. Its external data must be in its directory or below."},
    {"MODEL.ir", COMMAND_AMPC | COMMAND_OPT | COMMAND_RUN,
     "A module in text form, sealed with a checksum. To edit it, delete its last line, and the word 'sealed' in the"
     " first."},
    {"MODEL.safetensors", COMMAND_AMPC | COMMAND_RUN, "The weights of MODEL.ir."},
    {"*.amplist", COMMAND_AMPC | COMMAND_OPT | COMMAND_RUN, "Operator lists; see ampc.amplist(5)."},
    {"DIR/ckpt-STEP.safetensors", COMMAND_RUN, "A checkpoint in the directory given with --checkpoint-dir."},
    {"DIR/best.safetensors", COMMAND_RUN, "The checkpoint with the best value of the metric given with --best."},
    {"$XDG_CACHE_HOME/ampc/", COMMAND_RUN,
     "Compiled CUDA kernels and tuned algorithms (default: ~/.cache/ampc/). It may be deleted at any time."},
    {NULL, 0, NULL},
};

const command_fact command_environment[] = {
    {"NO_COLOR", COMMAND_AMPC | COMMAND_OPT | COMMAND_RUN,
     "If set and not empty, messages are not coloured unless --color=always is set."},
    {"AMPC_CUDA_PATH", COMMAND_RUN, "Directories to search first for the CUDA libraries, separated by colons."},
    {"AMPC_ONEDNN", COMMAND_RUN,
     "The version of oneDNN to use: 2 or 3 (default: the newer one that is found); off: none, but the code that runs "
     "where it is not installed. A note says so."},
    {"AMPC_CPU_ISA", COMMAND_RUN,
     "The highest instruction set that code of our own may use: baseline, avx2, avx512 or amx (default: what the "
     "processor has). ONEDNN_MAX_CPU_ISA is the same for oneDNN."},
    {"AMPC_MPI", COMMAND_RUN,
     "The plug-in for the MPI library of a launcher such as mpirun or srun; without it, libampc-mpi.so, "
     "libampc-mpi-openmpi.so or libampc-mpi-mpich.so in folder ampc-mpi next to libampc.so."},
    {"AMPC_CPU_SPEED", COMMAND_RUN,
     "BF16,FP16: how many times as fast as in fp32 the CPU multiplies matrices. Otherwise, --dtype=auto measures it."},
    {"XDG_CACHE_HOME", COMMAND_RUN, "The cache directory; see FILES."},
    {"OMP_STACKSIZE", COMMAND_RUN, "Stack size of the worker threads."},
    {NULL, 0, NULL},
};
// clang-format on

unsigned program_commands(const program *p)
{
    unsigned bits = 0;
    for (int i = 0; i < p->count; i++) bits |= p->commands[i].bit;
    return bits;
}
