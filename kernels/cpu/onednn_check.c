/* onednn_check.c - compares onednn.def with the header of oneDNN, if one is installed. Contains no code. */
typedef int cpu_onednn_is_checked; /* a file must declare something */

#if __has_include(<dnnl.h>)
#include <dnnl.h>
#include <stddef.h>

#define SAME(name, value) _Static_assert((name) == (value), #name);
#define SAME_TYPE(result, name, types) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&dnnl_##name), result(*) types), "dnnl_" #name);
#define CONSTANT SAME
#define FUNCTION SAME_TYPE
#define ENUM(type) _Static_assert(sizeof(type) == sizeof(unsigned), #type);

#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t cpu_layout;
#define CONSTANT_2 SAME
#define FUNCTION_2 SAME_TYPE
_Static_assert(sizeof(cpu_layout) == 696, "struct cpu_layout in onednn_2.c");
_Static_assert(sizeof(dnnl_matmul_desc_t) == 2800, "dnnl_matmul_desc_t in onednn_2.c");
_Static_assert(sizeof(dnnl_convolution_desc_t) == 5976, "dnnl_convolution_desc_t in onednn_2.c");
_Static_assert(_Alignof(dnnl_convolution_desc_t) == sizeof(void *), "alignment");
#elif DNNL_VERSION_MAJOR == 3
typedef struct dnnl_memory_desc cpu_layout;
#define CONSTANT_3 SAME
#define FUNCTION_3 SAME_TYPE
#endif
#if DNNL_VERSION_MAJOR == 2 || DNNL_VERSION_MAJOR == 3
_Static_assert(sizeof(dnnl_dim_t) == 8, "dnnl_dim_t");
_Static_assert(sizeof(dnnl_exec_arg_t) == 16 && offsetof(dnnl_exec_arg_t, memory) == 8, "dnnl_exec_arg_t");
_Static_assert(offsetof(dnnl_version_t, minor) == 4 && offsetof(dnnl_version_t, cpu_runtime) == 24, "dnnl_version_t");
#include "kernels/cpu/onednn.def"
#endif
#endif
