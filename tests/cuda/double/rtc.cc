/* rtc.cc - the double of NVRTC. The installed library compiles for the device, so that its errors and warnings count. In addition,
 * the C++ compiler compiles the same source to a simulator module, whose kernels are found by name from then on. The module's path
 * is appended to the device code, so that any program that loads the code also loads the module.
 *
 * Compiling a module takes a second, so modules are cached in a build folder under the hash of source, headers and options. Modules
 * are never unloaded, because kernels may still run after their program is destroyed. */
#include "tests/cuda/double/inner.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace {

/* The inputs of a program. */
struct Source {
    std::string text;
    std::map<std::string, std::string> headers; /* by the name used in #include */
};

std::map<nvrtcProgram, Source> sources;
std::map<nvrtcProgram, std::string> modules; /* paths by program */

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
    modules.erase(*program);
    return behind(program);
}

/* ---- simulator modules ------------------------------------------------------------------------- */

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

std::string read_file(const std::string &path)
{
    std::string text;
    char block[4096];
    FILE *f = fopen(path.c_str(), "re");
    if (!f) return text;
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) text.append(block, n);
    fclose(f);
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
    for (const char *part : {"cudasim.h", "cudasim_host.h", "cudasim_math.h"})
        add(read_file(format("%s/%s", AMPC_DOUBLE_MODEL, part)));
    return h;
}

/* Creates the folders of the path, from character `from` on, then the file. */
bool write_file(const std::string &path, size_t from, const std::string &text)
{
    for (size_t i = path.find('/', from); i != std::string::npos; i = path.find('/', i + 1))
        mkdir(path.substr(0, i).c_str(), 0755);
    FILE *f = fopen(path.c_str(), "we");
    bool ok = f && fwrite(text.data(), 1, text.size(), f) == text.size();
    return f ? fclose(f) == 0 && ok : false;
}

/* Returns the options with the same meaning for the C++ compiler; all others concern device code. */
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

/* Compiles in a temporary folder and moves the module to `path`. */
bool compile_module(const Source &source, const std::vector<std::string> &options, const std::string &path)
{
    char folder[] = AMPC_DOUBLE_MODULES "/XXXXXX";
    mkdir(AMPC_DOUBLE_MODULES, 0755);
    if (!mkdtemp(folder)) return false;
    const size_t inside = strlen(folder) + 1;
    bool ok = write_file(format("%s/kernels.cu", folder), inside, source.text);
    for (const auto &header : source.headers)
        ok = ok && write_file(format("%s/%s", folder, header.first.c_str()), inside, header.second);
    std::string command = format("%s %s -iquote '%s' ", AMPC_DOUBLE_CXX, AMPC_DOUBLE_CXX_FLAGS, folder);
    for (const std::string &option : options) command += "'" + option + "' ";
    command += format("-x c++ -o '%s/kernels.so' '%s/kernels.cu' >&2", folder, folder);
    ok = ok && system(command.c_str()) == 0 && rename(format("%s/kernels.so", folder).c_str(), path.c_str()) == 0;
    if (system(format("rm -rf '%s'", folder).c_str())) ok = false;
    return ok;
}

bool open_module(const std::string &path)
{
    if (dlopen(path.c_str(), RTLD_NOW)) return true;
    double_refuse("%s", dlerror());
    return false;
}

nvrtcResult load_module(nvrtcProgram program, int n, const char *const *options)
{
    const Source &source = sources[program];
    const std::vector<std::string> common = common_options(n, options);
    const std::string path = format("%s/%016llx.so", AMPC_DOUBLE_MODULES, hash(source, common));
    if (access(path.c_str(), R_OK) && !compile_module(source, common, path)) {
        double_refuse("the C++ compiler rejects what NVRTC accepts");
        return NVRTC_ERROR_INTERNAL_ERROR;
    }
    modules[program] = path;
    return open_module(path) ? NVRTC_SUCCESS : NVRTC_ERROR_INTERNAL_ERROR;
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

/* ---- code with module path ---------------------------------------------------------------------- */

const char marker[] = "\nthe double's module: ";

std::string behind_code(nvrtcProgram program) { return marker + modules[program]; }

/* Returns the size of an ELF file. */
size_t elf_end(const char *code)
{
    Elf64_Ehdr head;
    memcpy(&head, code, sizeof head);
    size_t end = std::max(head.e_shoff + size_t{head.e_shnum} * sizeof(Elf64_Shdr),
                          head.e_phoff + size_t{head.e_phnum} * sizeof(Elf64_Phdr));
    for (int i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, code + head.e_shoff + static_cast<size_t>(i) * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
    }
    return end;
}

nvrtcResult code_size(nvrtcProgram program, size_t *bytes)
{
    static const auto behind = real<decltype(&nvrtcGetCUBINSize)>("nvrtcGetCUBINSize");
    nvrtcResult result = behind(program, bytes);
    if (!result && *bytes) *bytes += behind_code(program).size() + 1;
    return result;
}

nvrtcResult code_bytes(nvrtcProgram program, char *code)
{
    static const auto behind = real<decltype(&nvrtcGetCUBIN)>("nvrtcGetCUBIN");
    static const auto size = real<decltype(&nvrtcGetCUBINSize)>("nvrtcGetCUBINSize");
    size_t bytes = 0;
    nvrtcResult result = behind(program, code);
    if (!result) result = size(program, &bytes);
    if (result) return result;
    if (elf_end(code) != bytes) {
        double_refuse("the double does not understand this code");
        return NVRTC_ERROR_INTERNAL_ERROR;
    }
    memcpy(code + bytes, behind_code(program).c_str(), behind_code(program).size() + 1);
    return NVRTC_SUCCESS;
}

nvrtcResult ptx_size(nvrtcProgram program, size_t *bytes)
{
    static const auto behind = real<decltype(&nvrtcGetPTXSize)>("nvrtcGetPTXSize");
    nvrtcResult result = behind(program, bytes);
    if (!result) *bytes += behind_code(program).size();
    return result;
}

nvrtcResult ptx_text(nvrtcProgram program, char *text)
{
    static const auto behind = real<decltype(&nvrtcGetPTX)>("nvrtcGetPTX");
    nvrtcResult result = behind(program, text);
    if (!result) strcat(text, behind_code(program).c_str());
    return result;
}

template <class F> double_function own(const char *name, F *function)
{
    return {name, reinterpret_cast<void (*)(void)>(function)};
}

const double_function functions[] = {
    own<decltype(nvrtcCreateProgram)>("nvrtcCreateProgram", create),
    own<decltype(nvrtcDestroyProgram)>("nvrtcDestroyProgram", destroy),
    own<decltype(nvrtcCompileProgram)>("nvrtcCompileProgram", compile),
    own<decltype(nvrtcGetCUBINSize)>("nvrtcGetCUBINSize", code_size),
    own<decltype(nvrtcGetCUBIN)>("nvrtcGetCUBIN", code_bytes),
    own<decltype(nvrtcGetPTXSize)>("nvrtcGetPTXSize", ptx_size),
    own<decltype(nvrtcGetPTX)>("nvrtcGetPTX", ptx_text),
    {nullptr, nullptr},
};

} // namespace

const double_library double_rtc = {true, functions};

bool double_load_code(const void *code)
{
    const char *bytes = static_cast<const char *>(code);
    const bool elf = memcmp(bytes, ELFMAG, SELFMAG) == 0, ptx = bytes[0] == '/' || bytes[0] == '\n';
    if (!elf && !ptx) return true; /* compiled by nvcc: its kernels are in the program */
    const char *at = elf ? bytes + elf_end(bytes) : strstr(bytes, marker);
    if (at && memcmp(at, marker, strlen(marker)) == 0) return open_module(at + strlen(marker));
    double_refuse("this code is not the double's");
    return false;
}
