/* checkpoint_identity.h - what identifies the module that wrote a checkpoint. */
#ifndef RT_CHECKPOINT_IDENTITY_H
#define RT_CHECKPOINT_IDENTITY_H

#include "ir/graph/ir.h"

enum { RT_HASH_TEXT = 33, RT_OPTIMIZER_TEXT = 1024 };

/* Hash of the compiled module: of its storage table and the text of all nodes, independent of the initial weights and
 * their location. That of one for several ranks is the hash of what it was made from, so their checkpoints are those of
 * one process. AMPC_NO_MEMORY. */
ampc_status rt_module_hash(const ir_module *m, diag *d, char hash[RT_HASH_TEXT]);
/* Hash of the network, which is the same at every precision and with every optimizer: of the names and shapes of
 * parameters and buffers, the operator types of the model, and the kind of its loss. AMPC_NO_MEMORY. */
ampc_status rt_network_hash(const ir_module *m, diag *d, char hash[RT_HASH_TEXT]);
/* The optimizer, as an op and its attributes; "" if the module has no training step. If parameters have different
 * optimizers, one after the other. */
void rt_optimizer_text(const ir_module *m, char text[RT_OPTIMIZER_TEXT]);

#endif
