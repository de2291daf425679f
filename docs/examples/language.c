/* language.c - trains a character language model in fp16 and prints its perplexity.
 *
 *     language language.onnx [TEXT]
 *
 * language.onnx (make_language.py) is a transformer block that predicts the next of 32 kinds of characters. It learns
 * the text below, or the file TEXT, except for the last tenth, on which it is measured. */
#include <ampc.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 32, BATCH = 16, STEPS = 150, MAX_TEXT = 1 << 20 };

static const char rhyme[] =
    "This is the barn that Jack built. This is the malt that lay in the barn that Jack built. This is the rat "
    "that ate the malt that lay in the barn that Jack built. This is the cat that chased the rat that ate the malt "
    "that lay in the barn that Jack built. This is the dog that worried the cat that chased the rat that ate the "
    "malt that lay in the barn that Jack built. This is the cow with the crumpled horn that tossed the dog that "
    "worried the cat that chased the rat that ate the malt that lay in the barn that Jack built. This is the "
    "maiden all forlorn that milked the cow with the crumpled horn that tossed the dog that worried the cat that "
    "chased the rat that ate the malt that lay in the barn that Jack built. This is the man all tattered and torn "
    "that kissed the maiden all forlorn that milked the cow with the crumpled horn that tossed the dog that worried "
    "the cat that chased the rat that ate the malt that lay in the barn that Jack built. This is the priest all "
    "shaven and shorn that married the man all tattered and torn that kissed the maiden all forlorn that milked the "
    "cow with the crumpled horn that tossed the dog that worried the cat that chased the rat that ate the malt that "
    "lay in the barn that Jack built. This is the cock that crowed in the morn that woke the priest all shaven and "
    "shorn that married the man all tattered and torn that kissed the maiden all forlorn that milked the cow with "
    "the crumpled horn that tossed the dog that worried the cat that chased the rat that ate the malt that lay in "
    "the barn that Jack built.";

/* The kinds of characters: a space, the letters, five marks; all others count as spaces. */
static int64_t kind_of(char c)
{
    static const char kinds[] = " abcdefghijklmnopqrstuvwxyz.,;!?";
    const char *found = strchr(kinds, tolower((unsigned char)c));
    return found && *found ? found - kinds : 0;
}

static size_t read_text(const char *path, char *text)
{
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, MAX_TEXT, f) : 0;
    if (f) fclose(f);
    return n;
}

/* Fills tokens and labels, which are the next characters, with BATCH pieces of text[first .. last). */
static void fill(ampc_tensor *in[2], const char *text, size_t first, size_t last, uint32_t *random)
{
    int64_t *tokens = ampc_tensor_data(in[0]), *label = ampc_tensor_data(in[1]);
    for (size_t i = 0; i < BATCH; i++) {
        *random = *random * 1664525 + 1013904223;
        const char *piece = text + first + (*random >> 8) % (last - first - LENGTH);
        for (size_t k = 0; k < LENGTH; k++) {
            tokens[i * LENGTH + k] = kind_of(piece[k]);
            label[i * LENGTH + k] = kind_of(piece[k + 1]);
        }
    }
}

/* exp of the mean cross entropy: 32 if the model knows nothing. */
static ampc_status print_perplexity(ampc_session *s, ampc_tensor *in[2], const char *what)
{
    double loss = 0;
    ampc_status status = ampc_eval_step(s, in, 2, &loss);
    if (status == AMPC_OK) printf("%s: perplexity %.2f\n", what, exp(loss));
    return status;
}

static ampc_status train(ampc_context *c, ampc_session *s, ampc_tensor *in[2], const char *text, size_t n)
{
    uint32_t random = 1;
    double rate = 0;
    const size_t learned = n - n / 10;
    fill(in, text, learned, n, &random);
    ampc_status status = print_perplexity(s, in, "before");
    for (int i = 0; i < STEPS && status == AMPC_OK; i++) {
        fill(in, text, 0, learned, &random);
        status = ampc_schedule_rate(c, "cosine,warmup=20", 0.01, STEPS, i, &rate);
        if (status == AMPC_OK) status = ampc_session_set_number(s, "state/lr", rate);
        if (status == AMPC_OK) status = ampc_train_step(s, in, 2, NULL);
    }
    if (status == AMPC_OK) status = print_perplexity(s, in, "text that was learned");
    fill(in, text, learned, n, &random);
    return status == AMPC_OK ? print_perplexity(s, in, "text that is new") : status;
}

int main(int argc, char **argv)
{
    static char file[MAX_TEXT];
    const int64_t dims[] = {BATCH, LENGTH};
    const ampc_compile_options how = {
        .struct_size = sizeof how, .loss = "ce", .optimizer = "adamw", .no_decay = 1, .clip_norm = 1};
    const char *text = argc > 2 ? file : rhyme;
    const size_t n = argc > 2 ? read_text(argv[2], file) : strlen(rhyme);
    ampc_context *c = NULL;
    ampc_module *m = NULL;
    ampc_session *s = NULL;
    ampc_tensor *in[2] = {NULL, NULL};
    if (argc < 2 || n < 20 * LENGTH) {
        printf("usage: language MODEL [TEXT], a text of at least %d characters\n", 20 * LENGTH);
        return AMPC_USAGE;
    }
    ampc_status status = ampc_context_create(NULL, &c);
    if (status == AMPC_OK) status = ampc_module_import(c, argv[1], NULL, 0, &m);
    if (status == AMPC_OK) status = ampc_module_compile(m, &how);
    if (status == AMPC_OK) status = ampc_session_open(m, NULL, &s);
    if (status == AMPC_OK) status = ampc_tensor_create(c, "tokens", AMPC_I64, 2, dims, NULL, &in[0]);
    if (status == AMPC_OK) status = ampc_tensor_create(c, "label", AMPC_I64, 2, dims, NULL, &in[1]);
    if (status == AMPC_OK) status = train(c, s, in, text, n);
    if (status != AMPC_OK) printf("%s\n", ampc_context_message(c));
    ampc_tensor_free(in[0]);
    ampc_tensor_free(in[1]);
    ampc_session_free(s);
    ampc_module_free(m);
    ampc_context_free(c);
    return (int)status;
}
