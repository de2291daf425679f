/* rtc.cc - the double of NVRTC: the installed library compiles for the device, so that its errors and warnings count,
 * and the C++ compiler makes of the same text a module for the execution model, whose kernels are found by name from
 * then on.
 *
 * A module is kept under the hash of text, headers and options in a folder of the build, since compiling one takes a
 * second. Modules stay open to the end of the program, as kernels may still run when their program is destroyed. */
#include "tests/cuda/double/inner.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace {

/* What a program was created from. */
struct Source {
    std::string text;
    std::map<std::string, std::string> headers; /* by the name that #include says */
};

std::map<nvrtcProgram, Source> sources;

template <class F> F real(const char *name)
{
    char file[64];
    cuda_library_file(CUDA_RTC, file, sizeof file);
    static void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<F>(library ? dlsym(library, name) : nullptr);
}

nvrtcResult create(nvrtcProgram *program, const char *text, const char *name, int n, const char *const *headers,
                   const char *const *names)
{
    static const auto behind = real<decltype(&nvrtcCreateProgram)>("nvrtcCreateProgram");
    nvrtcResult result = behind(program, text, name, n, headers, names);
    if (result) return result;
    Source &source = sources[*program];
    source.text = text;
    for (int i = 0; i < n; i++) source.headers[names[i]] = headers[i];
    return NVRTC_SUCCESS;
}

nvrtcResult destroy(nvrtcProgram *program)
{
    static const auto behind = real<decltype(&nvrtcDestroyProgram)>("nvrtcDestroyProgram");
    sources.erase(*program);
    return behind(program);
}

/* ---- the twin -------------------------------------------------------------------------------- */

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...)
{
    char text[4096];
    va_list list;
    va_start(list, pattern);
    vsnprintf(text, sizeof text, pattern, list);
    va_end(list);
    return text;
}

/* FNV-1a. */
unsigned long long hash(const Source &source, const std::vector<std::string> &options)
{
    unsigned long long h = 0xcbf29ce484222325u;
    auto add = [&](const std::string &s) {
        for (size_t i = 0; i <= s.size(); i++) h = (h ^ static_cast<unsigned char>(s.c_str()[i])) * 0x100000001b3u;
    };
    add(source.text);
    for (const auto &header : source.headers) add(header.first), add(header.second);
    for (const std::string &option : options) add(option);
    add(AMPC_DOUBLE_CXX AMPC_DOUBLE_CXX_FLAGS);
    return h;
}

bool write_file(const std::string &path, const std::string &text)
{
    FILE *f = fopen(path.c_str(), "we");
    bool ok = f && fwrite(text.data(), 1, text.size(), f) == text.size();
    return f ? fclose(f) == 0 && ok : false;
}

/* The options that mean the same to the C++ compiler; the others are about the device's code. */
std::vector<std::string> common_options(int n, const char *const *options)
{
    static const char *const prefixes[][2] = {{"-D", "-D"}, {"--define-macro=", "-D"}, {"-I", "-I"}, {"--include-path=", "-I"}};
    std::vector<std::string> common;
    for (int i = 0; i < n; i++)
        for (const auto &prefix : prefixes)
            if (!strncmp(options[i], prefix[0], strlen(prefix[0])))
                common.push_back(std::string(prefix[1]) + (options[i] + strlen(prefix[0])));
    return common;
}

/* Compiles in a folder of its own and moves the module to `path`. */
bool compile_module(const Source &source, const std::vector<std::string> &options, const std::string &path)
{
    char folder[] = AMPC_DOUBLE_MODULES "/XXXXXX";
    mkdir(AMPC_DOUBLE_MODULES, 0755);
    if (!mkdtemp(folder)) return false;
    bool ok = write_file(format("%s/kernels.cu", folder), source.text);
    for (const auto &header : source.headers) ok = ok && write_file(format("%s/%s", folder, header.first.c_str()), header.second);
    std::string command = format("%s %s -I'%s' ", AMPC_DOUBLE_CXX, AMPC_DOUBLE_CXX_FLAGS, folder);
    for (const std::string &option : options) command += "'" + option + "' ";
    command += format("-x c++ -o '%s/kernels.so' '%s/kernels.cu' >&2", folder, folder);
    ok = ok && system(command.c_str()) == 0 && rename(format("%s/kernels.so", folder).c_str(), path.c_str()) == 0;
    if (system(format("rm -rf '%s'", folder).c_str())) ok = false;
    return ok;
}

nvrtcResult load_module(nvrtcProgram program, int n, const char *const *options)
{
    const Source &source = sources[program];
    const std::vector<std::string> common = common_options(n, options);
    const std::string path = format("%s/%016llx.so", AMPC_DOUBLE_MODULES, hash(source, common));
    if (access(path.c_str(), R_OK) && !compile_module(source, common, path)) {
        double_refuse("the C++ compiler does not take what NVRTC takes");
        return NVRTC_ERROR_INTERNAL_ERROR;
    }
    if (dlopen(path.c_str(), RTLD_NOW)) return NVRTC_SUCCESS;
    double_refuse("%s", dlerror());
    return NVRTC_ERROR_INTERNAL_ERROR;
}

nvrtcResult compile(nvrtcProgram program, int n, const char *const *options)
{
    static const auto behind = real<decltype(&nvrtcCompileProgram)>("nvrtcCompileProgram");
    size_t bytes = 0;
    if (!sources.count(program)) return NVRTC_ERROR_INVALID_PROGRAM;
    if (nvrtcResult result = behind(program, n, options)) return result;
    if (!double_inner.nvrtcGetProgramLogSize(program, &bytes) && bytes > 1) {
        std::string log(bytes, 0);
        double_inner.nvrtcGetProgramLog(program, &log[0]);
        double_refuse("NVRTC warns: %s", log.c_str());
        return NVRTC_ERROR_COMPILATION;
    }
    return load_module(program, n, options);
}

template <class F> double_function own(const char *name, F *function)
{
    return {name, reinterpret_cast<void (*)(void)>(function)};
}

const double_function functions[] = {
    own<decltype(nvrtcCreateProgram)>("nvrtcCreateProgram", create),
    own<decltype(nvrtcDestroyProgram)>("nvrtcDestroyProgram", destroy),
    own<decltype(nvrtcCompileProgram)>("nvrtcCompileProgram", compile),
    {nullptr, nullptr},
};

} // namespace

const double_library double_rtc = {true, functions};
