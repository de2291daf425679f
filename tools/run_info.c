/* run_info.c - info: what an operand is, and the description of a model. */
#include "runtime/backend/memory.h"
#include "tools/info.h"

#include <string.h>
#include <sys/stat.h>

static ampc_status describe_model(tool *t);

typedef struct operand_kind {
    const char *name; /* for messages */
    ampc_status (*is)(const char *operand, diag *d, bool *out);
    ampc_status (*describe)(tool *t);
} operand_kind;

/* The first row that matches counts; anything else is a model. */
static const operand_kind kinds[] = {
    {"data", info_is_data, info_data},
    {"a checkpoint", info_is_checkpoint, info_checkpoint},
};

/* Options other than the general ones are of models. */
static ampc_status check_options(const tool *t, const operand_kind *kind)
{
    for (const option *row = option_table; row->name; row++)
        if (row->group != GROUP_GENERAL && t->o.given[row - option_table] == GIVEN_BY_USER)
            return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(t->command->name),
                              "--%s has no effect on the description of %s", row->name, kind->name);
    return AMPC_OK;
}

ampc_status run_info(tool *t)
{
    const char *operand = t->o.operands.items[0];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool is;
        TRY(kinds[i].is(operand, t->diag, &is));
        if (!is) continue;
        TRY(check_options(t, &kinds[i]));
        return kinds[i].describe(t);
    }
    return describe_model(t);
}

/* ---- a model ----------------------------------------------------------------------------------- */

/* What to type for data and folders that were given without their kind. */
static ampc_status check_path(const tool *t, const char *path)
{
    static const struct {
        const char *ending, *spec;
    } data[] = {{".npz", "npz:"}, {".npy", "npy:x="}, {".csv", "csv:"}, {".tar", "tar:"}, {".txt", "text:"}};
    struct stat facts;
    if (stat(path, &facts) != 0) return AMPC_OK;
    if (S_ISDIR(facts.st_mode))
        return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(path),
                          "a folder without checkpoints; images by class are described as folder:%s, IDX files as "
                          "idx:%s",
                          path, path);
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (tool_ends_with(path, data[i].ending))
            return diag_error(t->diag, AMPC_USAGE, DIAG_FILE(path), "not a model; data are described as %s%s",
                              data[i].spec, path);
    return AMPC_OK;
}

/* The description of a model that is refused has the errors. */
static ampc_status describe_model(tool *t)
{
    const char *model = t->o.operands.items[0];
    info_messages problems;
    diag *usual = t->diag;
    TRY(check_path(t, model));
    t->diag = info_messages_open(t, DIAG_ERROR, DIAG_ERROR, &problems);
    if (!t->diag) {
        t->diag = usual;
        return rt_no_memory(usual);
    }
    ampc_status status = run_in_session(t);
    diag_free(t->diag);
    t->diag = usual;
    if (status == AMPC_UNSUPPORTED && tool_ends_with(model, ".onnx")) return info_refused(t, &problems);
    if (status != AMPC_OK && status != AMPC_NO_MEMORY) info_messages_report(&problems);
    return status;
}
