/* forms_other.c - fixed uses of the operators of other domains: the lines of other.txt. */
#include "tests/forms/form.h"

enum { LINE = 256 };

typedef struct other_form {
    form f;
    char op[64], results[64], operands[LINE], attributes[LINE];
} other_form;

/* "[2,3]": a float to draw; "[2]=0,1": integers. */
static tensor operand_of(drawing *w, const form *f, const char *text)
{
    double items[16];
    int n = 0;
    tensor shape = {0};
    char *at = (char *)text + 1;
    while (*at != ']') push_size(&shape, strtoll(at, &at, 10)), at += *at == ',';
    if (at[1] != '=') return new_operand(w, f, &shape);
    for (at++; *at && n < 16;) items[n++] = (double)strtoll(at + 1, &at, 10);
    return new_numbers(w, ONNX_int64, &shape, items);
}

static void draw_line(drawing *w, const form *f)
{
    const other_form *line = (const other_form *)f;
    const char *end = strchr(f->op, ':');
    char operands[LINE], results[64], *save = NULL;
    tensor made[8];
    node n = {0};
    int count = 0;
    snprintf(operands, sizeof operands, "%s", line->operands);
    for (char *text = strtok_r(operands, " ", &save); text; text = strtok_r(NULL, " ", &save)) {
        const tensor x = *text == '_' ? (tensor){0} : operand_of(w, f, text);
        node_operand(w, &n, *text == '_' ? NULL : &x);
    }
    model_split(line->results, &n, node_out);
    snprintf(results, sizeof results, "%s", line->results);
    for (char *name = strtok_r(results, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        made[count] = (tensor){.rank = -1};
        snprintf(made[count++].name, sizeof made->name, "%s", name);
    }
    wire_text(&n, 4, end + 1);
    wire_bytes(&n, 7, f->op, (size_t)(end - f->op));
    node_attributes(&n, line->attributes);
    model_add(&w->m, &n);
    w->is_complete = true;
    form_results(w, f, made, count);
}

void forms_other_each(void (*each)(const form *f, int operands))
{
    char text[2 * LINE];
    FILE *file = fopen(AMPC_SOURCE_DIR "/tests/forms/other.txt", "r");
    if (!file) abort();
    while (fgets(text, sizeof text, file)) {
        other_form line = {.f = {line.op, draw_line, "f", -2, 2, NULL, false}};
        if (*text == '#') continue;
        const int n = sscanf(text, "%63s > %63[^:]: %255[^|\n]| %255[^\n]", line.op, line.results, line.operands,
                             line.attributes);
        int operands = 0;
        for (const char *at = line.operands; *at; at++)
            operands += *at != ' ' && (at == line.operands || at[-1] == ' ');
        if (strncmp(line.op, "ai.onnx.ml:", strlen("ai.onnx.ml:")) == 0) line.f.types = "F";
        if (n < 3) line.f.no_gradient = "other.txt says why";
        each(&line.f, operands);
    }
    fclose(file);
}
