/* test_verify.c - rules that text cannot violate, because the parser and the builder enforce them: each test corrupts
 * a valid module in memory and expects the violation. Rules that text can violate are in tests/expect/ir. */
#include "ir/graph/ir.h"
#include "tests/test.h"

static const char sound[] = "ampc-ir 3\n"
                            "param @w : f32[4] = zero\n"
                            "state @s : i64[2] = [0, 0]\n"
                            "graph @infer(@x : f32[N,4], @u : f32[N,4]) as infer {\n"
                            "forward:\n"
                            "  %a = add @x, @w : f32[N,4]\n"
                            "  %d, %m = dropout %a, @s : f32[N,4], bool[N,4]\n"
                            "backward:\n"
                            "  %b = mul %d, %a : f32[N,4]\n"
                            "  %c = reshape %b {shape=[4*N]} : f32[4*N]\n"
                            "update:\n"
                            "  output \"c\" = %c\n"
                            "}\n"
                            "graph @eval(@x : f32[N,4]) as eval {\n"
                            "  %a = neg @x : f32[N,4]\n"
                            "}\n";

static char messages[8192];

static void collect(void *user, diag_level level, const char *message)
{
    (void)user;
    (void)level;
    size_t n = strlen(messages);
    snprintf(messages + n, sizeof messages - n, "%s\n", message);
}

typedef struct sample {
    diag *diag;
    ir_module *module;
    ir_graph *graph;
    ir_node *add, *dropout, *mul, *reshape, *output;
} sample;

static int setup(void **state)
{
    sample *s = calloc(1, sizeof *s);
    messages[0] = 0;
    s->diag = diag_new(collect, NULL);
    if (ir_parse(sound, sizeof sound - 1, "sound.ir", s->diag, &s->module) != AMPC_OK) return 1;
    s->graph = s->module->graphs.items[0];
    s->add = s->graph->first;
    s->dropout = s->add->next;
    s->mul = s->dropout->next;
    s->reshape = s->mul->next;
    s->output = s->reshape->next;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    sample *s = *state;
    ir_module_free(s->module);
    diag_free(s->diag);
    free(s);
    return 0;
}

static void expect(sample *s, const char *message)
{
    assert_int_equal(ir_verify(s->module, s->diag), AMPC_REJECTED);
    if (!strstr(messages, message)) fail_msg("expected: %s\ngot: %s", message, messages);
}

#define TEST_VERIFY(name) TEST_WITH(setup, teardown, sample *s, name)

TEST_VERIFY(test_sound)
{
    assert_int_equal(ir_verify(s->module, s->diag), AMPC_OK);
    assert_string_equal(messages, "");
    for (size_t i = 0; i < s->module->graphs.count; i++) ir_graph_renumber(s->module->graphs.items[i]);
    assert_non_null(ir_graph_clone(s->module, s->graph, "copy", NULL));
    assert_int_equal(ir_verify(s->module, s->diag), AMPC_OK);
    s->module->graphs.count--;
    assert_int_equal(ir_verify(s->module, s->diag), AMPC_OK);
}

/* A violation is printed below its line of the dump and has the number of that line. */
TEST_VERIFY(test_place)
{
    s->mul->out[0]->type.dims[1] = 5;
    expect(s, "dump:10: error: the type of '%b' is f32[N,4], not f32[N,5]\n    %b = mul %d, %a ");
}

TEST_VERIFY(test_types)
{
    s->add->out[0]->type.dtype = IR_f16;
    expect(s, "the type of '%a' is f32[N,4], not f16[N,4]");
    assert_int_equal(s->add->out[0]->type.dtype, IR_f16); /* the verifier changes nothing */
}

TEST_VERIFY(test_slot_dtype)
{
    s->graph->inputs.items[0]->type.dtype = IR_bool;
    expect(s, "a must be a number type, is bool");
}

TEST_VERIFY(test_definition_order)
{
    ir_node_set_input(s->dropout, 0, s->reshape->out[0]);
    expect(s, "'%c' is not defined here");
}

TEST_VERIFY(test_backward_value)
{
    s->reshape->phase = IR_FORWARD;
    expect(s, "a node of phase forward reads '%b' of phase backward");
    expect(s, "a node of phase forward after one of phase backward");
}

TEST_VERIFY(test_value_of_another_graph)
{
    ir_node_set_input(s->output, 0, s->module->graphs.items[1]->first->out[0]);
    expect(s, "'%a' is not defined here");
}

TEST_VERIFY(test_storage_of_another_module)
{
    ir_node_set_input(s->add, 1, ir_graph_storage(s->module->graphs.items[1], s->module->storage.items[0]));
    expect(s, "'w' belongs to another graph");
}

TEST_VERIFY(test_storage_type)
{
    s->module->storage.items[0]->type.dims[0] = 1;
    expect(s, "'@w' is read as f32[4], but is f32[1]");
}

TEST_VERIFY(test_removed_storage)
{
    s->module->storage.count = 0;
    expect(s, "'@w' is not a storage of the module");
}

TEST_VERIFY(test_lost_use)
{
    s->reshape->out[0]->first_use = NULL;
    expect(s, "1 operands read 'c', its use list has 0");
}

TEST_VERIFY(test_use_of_another_graph)
{
    s->add->out[0]->first_use = &s->output->in[0];
    expect(s, "the use list of 'a' is wrong");
}

TEST_VERIFY(test_use_links)
{
    ir_use *first = s->add->out[0]->first_use;
    first->next->prev = NULL;
    expect(s, "the use list of 'a' is wrong");
}

TEST_VERIFY(test_use_index)
{
    s->mul->in[1].index = 0;
    expect(s, "use 1 refers to another operand");
}

TEST_VERIFY(test_node_ids)
{
    s->mul->id = s->add->id;
    expect(s, "id of the node is not unique");
    s->mul->id = s->graph->node_ids;
    expect(s, "id of the node is out of range");
}

TEST_VERIFY(test_value_ids)
{
    s->mul->out[0]->id = s->add->out[0]->id;
    expect(s, "id of 'b' is not unique");
    s->mul->out[0]->id = s->graph->value_ids;
    expect(s, "id of 'b' is out of range");
}

TEST_VERIFY(test_value_names)
{
    s->mul->out[0]->name = "a";
    expect(s, "result 'a' is not unique");
    s->mul->out[0]->name = NULL;
    expect(s, "result without a name");
}

TEST_VERIFY(test_module_names)
{
    s->module->storage.items[1]->name = "w";
    s->module->graphs.items[1]->name = "infer";
    expect(s, "storage 'w' is not unique");
    expect(s, "graph 'infer' is not unique");
}

TEST_VERIFY(test_arity)
{
    s->mul->n_in = 1;
    expect(s, "mul expects 2 operands, not 1");
    s->mul->n_in = 2;
    s->dropout->n_out = 1;
    expect(s, "dropout has 2 results, not 1");
}

TEST_VERIFY(test_absent_operand)
{
    ir_node_set_input(s->mul, 0, NULL);
    expect(s, "operand 'a' of mul is missing");
}

TEST_VERIFY(test_attributes)
{
    const ir_dim none = IR_DIM_NONE;
    s->reshape->attr[IR_ATTR(reshape, shape)].list.items = &none;
    expect(s, "attribute 'shape' has an invalid value");
    s->dropout->attr[IR_ATTR(dropout, ratio)].f = 0.1; /* not an f32 */
    expect(s, "attribute 'ratio' has an invalid value");
}

TEST_VERIFY(test_results)
{
    s->dropout->out[1]->def_index = 0;
    expect(s, "result 1 is defined elsewhere");
}

TEST_VERIFY(test_node_list)
{
    s->mul->prev = s->add;
    expect(s, "the node list of '@infer' is broken");
    s->mul->prev = s->dropout;
    s->reshape->next = s->add; /* a cycle */
    expect(s, "the node list of '@infer' is broken");
    s->reshape->next = s->output;
}

TEST_VERIFY(test_storage)
{
    s->module->storage.items[0]->id = 1;
    s->module->storage.items[0]->data.kind = IR_DATA_SIDECAR;
    s->module->storage.items[1]->data.bytes = NULL;
    expect(s, "id of '@w' is not its position");
    expect(s, "'@s' has no bytes");
    expect(s, "'@w' is in a weights file, but there is none");
}

TEST_VERIFY(test_storage_size)
{
    s->module->storage.items[0]->type.rank = 2;
    s->module->storage.items[0]->type.dims[0] = s->module->storage.items[0]->type.dims[1] = INT64_MAX / 2;
    expect(s, "storage has an invalid type");
}

TEST_VERIFY(test_input)
{
    s->graph->inputs.items[1]->type.dims[0] = -1;
    s->graph->inputs.items[1]->name = "w";
    expect(s, "input 'w' has an invalid type");
    expect(s, "input 'w' has the name of a storage");
}
