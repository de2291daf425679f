/* file_kind.c - a table of magic numbers. */
#include "ir/text/file_kind.h"

#include "ir/text/text.h"

#include <stdbool.h>
#include <string.h>

typedef struct file_kind {
    size_t at;
    const char *magic;
    size_t length;
    const char *within; /* must also be in the first bytes; NULL: nothing */
    const char *format; /* of those that a caller may want */
    const char *text;
} file_kind;

#define MAGIC(at, text) at, text, sizeof(text) - 1

/* The first row that matches counts. */
static const file_kind kinds[] = {
    {MAGIC(0, IR_TEXT_HEAD " "), NULL, "ir", "a compiled module; its name must end in .ir"},
    {MAGIC(0, "ampc-recipe"), NULL, NULL, "a recipe; its name must end in .recipe"},
    {MAGIC(0, "\x1f\x8b"), NULL, NULL, "gzip data; unpack it first"},
    {MAGIC(0, "BZh"), NULL, NULL, "bzip2 data; unpack it first"},
    {MAGIC(0, "\xfd"
              "7zXZ"),
     NULL, NULL, "xz data; unpack it first"},
    {MAGIC(0, "\x28\xb5\x2f\xfd"), NULL, NULL, "zstd data; unpack it first"},
    {MAGIC(0, "PK\3\4"), "/data.pkl", NULL, "a file of torch.save; write the model with torch.onnx.export"},
    {MAGIC(0, "PK\3\4"), "/version", NULL, "a file of torch.save; write the model with torch.onnx.export"},
    {MAGIC(0, "PK\3\4"), ".npy", NULL, "arrays of NumPy (.npz), which are data, not a network"},
    {MAGIC(0, "PK\3\4"), "config.json", NULL, "a model of Keras; convert it with tf2onnx"},
    {MAGIC(0, "PK\3\4"), NULL, NULL, "a zip archive, such as torch.save writes; a network is read from an ONNX file"},
    {MAGIC(0, "\x80\2"), NULL, NULL,
     "a Python pickle, such as older versions of torch.save write; use torch.onnx.export"},
    {MAGIC(0, "\x93NUMPY"), NULL, NULL, "an array of NumPy (.npy), which is data, not a network"},
    {MAGIC(4, "TFL3"), NULL, NULL, "a TensorFlow Lite model; convert it with tf2onnx"},
    {MAGIC(0, "\x89HDF"), NULL, NULL, "an HDF5 file, such as Keras writes; convert the model with tf2onnx"},
    {MAGIC(4, "\0\0\0\0{\""), NULL, NULL,
     "a safetensors file, which has weights, but no network; it may be a checkpoint"},
    {MAGIC(0, "version https://git-lfs"), NULL, NULL, "a pointer of Git LFS; 'git lfs pull' fetches the file itself"},
    {MAGIC(0, "ir_version:"), NULL, NULL, "an ONNX model as text; only the binary form is read"},
};

static bool is_within(const char *bytes, size_t n, const char *text)
{
    enum { SEARCHED = 512 };
    return !text || memmem(bytes, n < SEARCHED ? n : SEARCHED, text, strlen(text));
}

static bool is_onnx(const unsigned char *bytes, size_t n) /* ir_version, then a text or the graph */
{
    return n > 3 && bytes[0] == 8 && bytes[1] && bytes[1] < 32 && (bytes[2] & 7) == 2;
}

const char *ir_file_kind(const void *bytes, size_t n, const char *wanted)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const file_kind *k = &kinds[i];
        if (n < k->at + k->length || memcmp((const char *)bytes + k->at, k->magic, k->length) != 0) continue;
        if (is_within(bytes, n, k->within)) return k->format && strcmp(k->format, wanted) == 0 ? NULL : k->text;
    }
    if (strcmp(wanted, "onnx") == 0 || !is_onnx(bytes, n)) return NULL;
    return "an ONNX model; its name must end in .onnx";
}

/* ---- files that an output would replace ------------------------------------------------------------ */

typedef struct replaced_kind {
    size_t at;
    const char *magic;
    size_t length;
    const char *within;
    ir_written kind; /* IR_WRITTEN_NOTHING: no program of ours writes it */
    const char *text;
} replaced_kind;

/* The first row that matches counts. */
static const replaced_kind replaced[] = {
    {MAGIC(0, IR_TEXT_HEAD " "), NULL, IR_WRITTEN_MODULE, "a compiled module"},
    {MAGIC(0, "ampc-recipe"), NULL, IR_WRITTEN_NOTHING, "a recipe"},
    {MAGIC(0, "PK\3\4"), ".npy", IR_WRITTEN_NPZ, "arrays of NumPy (.npz)"},
    {MAGIC(0, "PK\5\6"), NULL, IR_WRITTEN_NPZ, "an empty archive"},
    {MAGIC(0, "PK\3\4"), NULL, IR_WRITTEN_NOTHING, "a zip archive, such as torch.save writes"},
    {MAGIC(0, "\x93NUMPY"), NULL, IR_WRITTEN_NOTHING, "an array of NumPy (.npy)"},
    {MAGIC(4, "\0\0\0\0{\""), NULL, IR_WRITTEN_SAFETENSORS, "a safetensors file"},
    {MAGIC(0, "version https://git-lfs"), NULL, IR_WRITTEN_NOTHING, "a pointer of Git LFS"},
    {MAGIC(0, "ir_version:"), NULL, IR_WRITTEN_NOTHING, "an ONNX model as text"},
    {MAGIC(0, "<svg"), NULL, IR_WRITTEN_SVG, "a picture (SVG)"},
    {MAGIC(0, "<?xml"), "<svg", IR_WRITTEN_SVG, "a picture (SVG)"},
    {MAGIC(0, "<!"), NULL, IR_WRITTEN_HTML, "a page (HTML)"},
    {MAGIC(0, "<html"), NULL, IR_WRITTEN_HTML, "a page (HTML)"},
    {MAGIC(0, "digraph"), NULL, IR_WRITTEN_DOT, "a drawing (Graphviz)"},
    {MAGIC(0, "{"), NULL, IR_WRITTEN_JSON, "JSON"},
    {MAGIC(0, "[{"), NULL, IR_WRITTEN_JSON, "JSON"},
    {MAGIC(0, "[\n"), "{", IR_WRITTEN_JSON, "JSON"},
    {MAGIC(0, "#!"), NULL, IR_WRITTEN_NOTHING, "a program"},
};

/* Texts that are only known by their names. */
static const struct {
    const char *suffixes; /* each between dots */
    ir_written kind;
    const char *text;
} named[] = {
    {".csv.tsv.", IR_WRITTEN_CSV, "a table"},
    {".amplist.", IR_WRITTEN_LIST, "a list of operators"},
    {".c.cc.cpp.cu.h.hpp.java.js.md.py.rs.sh.toml.ts.yaml.yml.", IR_WRITTEN_NOTHING, "a text that is not an output"},
};

static const char *of_other_name(const char *path, ir_written kind)
{
    const char *dot = strrchr(path, '.');
    const size_t length = dot ? strlen(dot) : 0;
    for (size_t i = 0; length > 1 && !strchr(dot, '/') && i < sizeof named / sizeof *named; i++) {
        const char *found = strstr(named[i].suffixes, dot);
        if (found && found[length] == '.') return named[i].kind == kind ? NULL : named[i].text;
    }
    return NULL;
}

const char *ir_file_of_other_kind(const void *bytes, size_t n, const char *path, ir_written kind)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        const replaced_kind *k = &replaced[i];
        if (n < k->at + k->length || memcmp((const char *)bytes + k->at, k->magic, k->length) != 0) continue;
        if (is_within(bytes, n, k->within)) return k->kind == kind ? NULL : k->text;
    }
    if (is_onnx(bytes, n)) return kind == IR_WRITTEN_ONNX ? NULL : "an ONNX model";
    if (n && memchr(bytes, 0, n)) return "a binary file";
    return of_other_name(path, kind);
}
