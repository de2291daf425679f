/* roles.h - the roles of graphs, states, inputs and outputs, listed in roles.def. */
#ifndef AMPC_ROLES_H
#define AMPC_ROLES_H

#include "ir/ops/dtype.h"

typedef enum ir_graph_role {
#define GRAPH(word) IR_GRAPH_##word,
#include "ir/graph/roles.def"
    IR_GRAPH_ROLE_COUNT
} ir_graph_role;

typedef enum ir_state_role {
#define STATE(word, dtype, elements, of, skipping, key) IR_STATE_##word,
#include "ir/graph/roles.def"
    IR_STATE_ROLE_COUNT
} ir_state_role;

typedef enum ir_input_role {
#define INPUT(word) IR_INPUT_##word,
#include "ir/graph/roles.def"
    IR_INPUT_ROLE_COUNT
} ir_input_role;

typedef enum ir_output_role {
#define OUTPUT(word, of, name) IR_OUTPUT_##word,
#include "ir/graph/roles.def"
    IR_OUTPUT_ROLE_COUNT
} ir_output_role;

/* What a state or an output belongs to; a weight is a parameter or buffer. SEVERAL: nothing, but a
 * graph may have several outputs of that role. */
typedef enum ir_owner { IR_OF_ALONE, IR_OF_PARAM, IR_OF_STATE, IR_OF_INPUT, IR_OF_WEIGHT, IR_OF_SEVERAL } ir_owner;

typedef struct ir_state_role_info {
    ir_dtype dtype; /* IR_NO_DTYPE: any type */
    int elements;   /* 0: a scalar */
    ir_owner of;
    bool moves; /* changes even in a skipped step */
    const char *key;
} ir_state_role_info;

typedef struct ir_output_role_info {
    ir_owner of;
    const char *name; /* usual name, a prefix if it ends in '/' or '.'; NULL: from the model */
} ir_output_role_info;

/* The words used in IR text. */
extern const char *const ir_graph_words[IR_GRAPH_ROLE_COUNT];
extern const char *const ir_state_words[IR_STATE_ROLE_COUNT];
extern const char *const ir_input_words[IR_INPUT_ROLE_COUNT];
extern const char *const ir_output_words[IR_OUTPUT_ROLE_COUNT];

extern const ir_state_role_info ir_state_roles[IR_STATE_ROLE_COUNT];
extern const ir_output_role_info ir_output_roles[IR_OUTPUT_ROLE_COUNT];

#endif
