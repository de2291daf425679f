/* replace.c - refuses an output that would replace a file of another kind: a plot a model, a trace the data. */
#include "ir/base/input_file.h"
#include "tools/options.h"

#include <string.h>
#include <unistd.h>

/* By OUTPUT_... */
static ir_written written_as(unsigned output)
{
    switch (output) {
    case OUTPUT_IR: return IR_WRITTEN_MODULE;
    case OUTPUT_ONNX:
    case OUTPUT_ONNX_TRAIN: return IR_WRITTEN_ONNX;
    case OUTPUT_SVG: return IR_WRITTEN_SVG;
    case OUTPUT_DOT: return IR_WRITTEN_DOT;
    case OUTPUT_NPZ: return IR_WRITTEN_NPZ;
    case OUTPUT_CSV: return IR_WRITTEN_CSV;
    case OUTPUT_SAFETENSORS: return IR_WRITTEN_SAFETENSORS;
    case OUTPUT_HTML: return IR_WRITTEN_HTML;
    case OUTPUT_JSON: return IR_WRITTEN_JSON;
    case OUTPUT_LIST: return IR_WRITTEN_LIST;
    default: return IR_WRITTEN_NOTHING;
    }
}

static ir_written kind_of(const tool_options *o, const option *row, const char *path)
{
    int kind = 0;
    const char *dot = strrchr(path, '.');
    if (row->writes == WRITES_LIST && dot && strcmp(dot, ".json") == 0) return IR_WRITTEN_JSON;
    if (row->writes != WRITES_BY_SUFFIX) return (ir_written)row->writes;
    if (path == o->output) return written_as(options_output(o));
    if (dot && pass_find_word(output_kinds, dot + 1, &kind)) return written_as((unsigned)kind);
    return IR_WRITTEN_NOTHING;
}

/* Reads the first bytes of a regular file; false if there is none, or it cannot be read. */
static bool read_start(const char *path, char *bytes, size_t *n)
{
    int fd;
    uint64_t size;
    diag *quiet = diag_new(NULL, NULL);
    if (!quiet || input_open(path, quiet, &fd, &size) != AMPC_OK) {
        diag_free(quiet);
        return false;
    }
    const ssize_t got = pread(fd, bytes, *n, 0);
    close(fd);
    diag_free(quiet);
    *n = got > 0 ? (size_t)got : 0;
    return got > 0;
}

ampc_status options_check_replaced(const tool_options *o, const command *c, diag *d)
{
    if (o->force || options_only_print(o)) return AMPC_OK;
    for (const option *row = option_table; row->name; row++) {
        if (row->writes == WRITES_NOTHING || !option_applies(row, c->bit)) continue;
        char bytes[512];
        size_t n = sizeof bytes;
        const char *path = *(const char *const *)((const char *)o + row->field);
        if (!path || !read_start(path, bytes, &n)) continue;
        const char *what = ir_file_of_other_kind(bytes, n, path, kind_of(o, row, path));
        if (what)
            return diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                              "%s, which --%s would replace; use another name, or --force", what, row->name);
    }
    return AMPC_OK;
}
