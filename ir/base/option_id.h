/* option_id.h - a number for every option of ir/base/options.def that messages may name: OPTION_ and its member in
 * ampc.h, or its field. */
#ifndef AMPC_OPTION_ID_H
#define AMPC_OPTION_ID_H

typedef enum option_id {
    OPTION_none,
#define COMPILE(name, field, member, ...) OPTION_##member,
#define COMPILER(name, field, ...) OPTION_##field,
#define TRAIN COMPILER
#define SESSION COMPILER
#define TOOL COMPILER
#include "ir/base/options.def"
    OPTION_COUNT
} option_id;

#endif
