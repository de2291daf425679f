/* kinds.c - the table of kinds. */
#include "runtime/data/kinds.h"

#include "runtime/data/augment.h"

#include <string.h>

/* Keys of data with images: of their pixels, of their changes in training, and of files of single images; of tables.
 */
#define PIXELS "divide mean std"
#define MOVES "flip crop mixup target"
#define FILES PIXELS " " MOVES " size channels fit resized-crop"
#define MASKED FILES " masks classes"
#define TABLE "label columns categories encode missing images header delimiter " MASKED

/* name, form, what follows it, keys besides those of every kind; opener */
#define KINDS(KIND) \
    KIND("idx", RT_SPEC_PATH, ":DIR", PIXELS " classes " MOVES, rt_open_idx) \
    KIND("npz", RT_SPEC_PATH, ":FILE", "classes " MOVES, rt_open_npz) \
    KIND("npy", RT_SPEC_FILES, ":NAME=FILE,..", "classes " MOVES, rt_open_npy) \
    KIND("folder", RT_SPEC_PATH, ":DIR", MASKED, rt_open_folder) \
    KIND("tar", RT_SPEC_PATHS, ":FILE,..", "classes " FILES, rt_open_tar) \
    KIND("csv", RT_SPEC_PATH, ":FILE", TABLE, rt_open_csv) \
    KIND("text", RT_SPEC_PATH, ":FILE", "context stride", rt_open_text) \
    KIND("tokens", RT_SPEC_PATH, ":FILE,dtype=u16|u32", "dtype context stride", rt_open_tokens) \
    KIND("synthetic", RT_SPEC_NOTHING, "[,rows=N]", "rows", rt_open_synthetic)

#define SPEC_ROW(name, form, argument, options, opener) {name, form, argument, RT_COMMON_KEYS " " options},
#define TEXT_ROW(name, form, argument, options, opener) name argument,
#define OPENER_ROW(name, form, argument, options, opener) opener,
static const rt_spec_kind kinds[] = {KINDS(SPEC_ROW)};
static const char *const texts[] = {KINDS(TEXT_ROW)};
static rt_opener *const openers[] = {KINDS(OPENER_ROW)};

const char *rt_kinds_text(int index) { return index < (int)(sizeof texts / sizeof *texts) ? texts[index] : NULL; }

const char *rt_kinds_keys(int index) { return rt_kinds_text(index) ? kinds[index].keys : NULL; }

bool rt_kinds_detect(const char *text)
{
    bool found = false;
    for (size_t i = 0; !found && i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i].name);
        if (strncmp(text, kinds[i].name, n) != 0) continue;
        found = text[n] == ':' || (kinds[i].form == RT_SPEC_NOTHING && (!text[n] || text[n] == ','));
    }
    return found;
}

ampc_status rt_kinds_parse(const char *spec, diag *d, rt_data_spec *out)
{
    return rt_data_spec_parse(spec, kinds, sizeof kinds / sizeof *kinds, d, out);
}

ampc_status rt_kinds_open(const rt_data_spec *spec, const struct rt_dataset_options *o, diag *d, rt_columns *out)
{
    TRY(openers[spec->kind](spec, o, d, out));
    TRY(rt_augment(spec, o, d, out));
    return spec->o.target == RT_TARGET_INPUT ? rt_columns_repeat_input(out, spec, d) : AMPC_OK;
}
