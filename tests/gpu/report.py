"""results.json as Markdown."""


def cell(value, digits=3):
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) else "-"


def gigabytes(value):
    return f"{value / 1e9:.2f}" if isinstance(value, (int, float)) else "-"


def table(heads, rows):
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(c).replace("|", "/") for c in line) + " |" for line in lines) + "\n"


def merge(all_results):
    """Results of several calls as one: parts of the same name are joined, later figures win."""
    merged = {"parts": {}}
    for results in all_results:
        for name, facts in results["parts"].items():
            into = merged["parts"].setdefault(name, {"checks": {}, "benchmark": {}})
            for key, value in facts.items():
                if isinstance(value, dict) and key in ("checks", "benchmark"):
                    into.setdefault(key, {}).update(value)
                else:
                    into[key] = value
    return merged


def benchmark(results):
    """The cases of all parts: `bench` and `torch` measure the same ones."""
    cases = {}
    for facts in results["parts"].values():
        for name, case in facts.get("benchmark", {}).items():
            into = cases.setdefault(name, {"torch": {}})
            into.update({key: value for key, value in case.items() if key != "torch"})
            into["torch"].update(case.get("torch", {}))
    return cases


# ---- tables ----

def best(case, tf32=False):
    """(name, facts) of PyTorch's fastest mode."""
    modes = [(name, m) for name, m in case["torch"].items() if "median_ms" in m and bool(m.get("tf32")) == tf32]
    return min(modes, key=lambda item: item[1]["median_ms"], default=("-", {}))


def rates(case):
    ms, flops = case.get("median_ms"), case.get("flops")
    tflops = flops / ms / 1e9 if ms and flops else None
    share = 100 * case["roofline_ms"] / ms if ms and case.get("roofline_ms") else None
    return [cell(tflops), f"{share:.0f} %" if share else "-"]


def times(cases):
    heads = ["model", "batch", "precision", "ms", "p90", "with input ms", "torch ms", "torch's mode", "torch / ours", "torch TF32 ms",
             "ours GB planned", "ours GB used", "torch GB allocated", "torch GB reserved", "TFLOP/s", "of the roofline", "launches", "GB a step"]
    rows = []
    for case in cases.values():
        mode, theirs = best(case)
        ratio = theirs["median_ms"] / case["median_ms"] if theirs and case.get("median_ms") else None
        rows.append([case["model"], case["batch"], case["precision"], cell(case.get("median_ms"), 4), cell(case.get("p90_ms"), 4),
                     cell(case.get("with_input_median_ms"), 4), cell(theirs.get("median_ms"), 4), mode, cell(ratio),
                     cell(best(case, tf32=True)[1].get("median_ms"), 4), gigabytes(case.get("planned_bytes")),
                     gigabytes(case.get("used_bytes")), gigabytes(theirs.get("peak_bytes")), gigabytes(theirs.get("reserved_bytes")), *rates(case),
                     case.get("launches", "-"), gigabytes(case.get("bytes"))])
    return table(heads, rows)


def modes(cases):
    rows = [[name, mode, cell(m.get("median_ms"), 4), cell(m.get("p90_ms"), 4), gigabytes(m.get("peak_bytes")), m.get("error", "")[:120]]
            for name, case in cases.items() for mode, m in case["torch"].items()]
    return table(["case", "mode of PyTorch", "ms", "p90", "GB", "error"], rows)


def slowest(name, case):
    heads = ["step", "op", "name", "ms", "GB/s", "TFLOP/s"]
    rows = [[s["step"] if s["steps"] < 2 else f"{s['step']} to {s['step'] + s['steps'] - 1}", s["op"], s["name"], cell(s["ms"]),
             cell(s["gbs"], 4), cell(s["tflops"])] for s in case.get("slowest") or []]
    kernels = [[k["kernel"][:80], *(k.get(m, "-") for m in ("duration", "dram", "memory", "compute", "registers"))]
               for k in case.get("kernels") or []]
    return "".join(f"\n### {name}: {title}\n\n{text}" for title, text in (
        ("the slowest steps", table(heads, rows)),
        ("their kernels (ncu)", table(["kernel", "duration", "DRAM", "memory", "compute", "registers"], kernels))) if text)


def verdicts(name, facts):
    lines = [f"\n## {name}: {facts.get('summary', '')}, {facts.get('seconds', 0):.0f} s, ampc {facts.get('version', '')}, "
             f"{facts.get('device', 'no device')}\n"]
    for key in ("no_device", "stopped", "python", "cuda_path", "ceilings", "memcheck_rows", "racecheck_rows"):
        lines += [f"- {key}: {facts[key]}"] if facts.get(key) else []
    for check, said in facts["checks"].items():
        if said["verdict"] == "fail":
            more = ", ".join(f"{k}: {said[k]}" for k in ("row", "memcheck") if k in said)
            lines.append(f"- FAIL {check}: {said.get('says', '')}" + (f" ({more})" if more else ""))
    skipped = [f"{check} ({said.get('reason', 'by the program')})" for check, said in facts["checks"].items() if said["verdict"] == "skip"]
    return "\n".join(lines + ([f"- skipped: {'; '.join(skipped)}"] if skipped else [])) + "\n"


def render(results):
    cases = benchmark(results)
    text = "# gpu-check\n" + "".join(verdicts(name, facts) for name, facts in results["parts"].items())
    if cases:
        text += f"\n## Training steps\n\n{times(cases)}\n{modes(cases)}" + "".join(slowest(n, c) for n, c in cases.items())
    return text
