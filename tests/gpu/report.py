"""Formats results.json as Markdown."""


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
    """Merges the results of several calls. Parts of the same name are joined; later figures replace earlier ones."""
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
    """Returns the cases of all parts; `bench` and `torch` measure the same ones."""
    cases = {}
    for facts in results["parts"].values():
        for name, case in facts.get("benchmark", {}).items():
            into = cases.setdefault(name, {"torch": {}})
            into.update({key: value for key, value in case.items() if key != "torch"})
            into["torch"].update(case.get("torch", {}))
    return cases


# ---- tables ----


def best(case, tf32=False):
    """Returns (name, facts) of PyTorch's fastest mode."""
    modes = [(name, m) for name, m in case["torch"].items() if "median_ms" in m and bool(m.get("tf32")) == tf32]
    return min(modes, key=lambda item: item[1]["median_ms"], default=("-", {}))


def rate(case):
    ms, flops = case.get("median_ms"), case.get("flops")
    return cell(flops / ms / 1e9) if ms and flops else "-"


def roofline_share(case):
    ms, bound = case.get("median_ms"), case.get("roofline_ms")
    return f"{100 * bound / ms:.0f} %" if ms and bound else "-"


def ratio(case, theirs):
    return cell(theirs["median_ms"] / case["median_ms"]) if theirs and case.get("median_ms") else "-"


COLUMNS = {  # head: cell of case `c`; `t` is PyTorch's fastest mode and `mode` its name
    "model": lambda c, t, mode: c["model"],
    "batch": lambda c, t, mode: c["batch"],
    "precision": lambda c, t, mode: c["precision"],
    "ms": lambda c, t, mode: cell(c.get("median_ms"), 4),
    "p90": lambda c, t, mode: cell(c.get("p90_ms"), 4),
    "with input ms": lambda c, t, mode: cell(c.get("with_input_median_ms"), 4),
    "torch ms": lambda c, t, mode: cell(t.get("median_ms"), 4),
    "torch's mode": lambda c, t, mode: mode,
    "torch / ours": lambda c, t, mode: ratio(c, t),
    "torch TF32 ms": lambda c, t, mode: cell(best(c, tf32=True)[1].get("median_ms"), 4),
    "ours GB planned": lambda c, t, mode: gigabytes(c.get("planned_bytes")),
    "ours GB used": lambda c, t, mode: gigabytes(c.get("used_bytes")),
    "torch GB allocated": lambda c, t, mode: gigabytes(t.get("peak_bytes")),
    "torch GB reserved": lambda c, t, mode: gigabytes(t.get("reserved_bytes")),
    "TFLOP/s": lambda c, t, mode: rate(c),
    "of the roofline": lambda c, t, mode: roofline_share(c),
    "launches": lambda c, t, mode: c.get("launches", "-"),
    "GB a step": lambda c, t, mode: gigabytes(c.get("bytes")),
}


def times(cases):
    rows = []
    for case in cases.values():
        mode, theirs = best(case)
        rows.append([column(case, theirs, mode) for column in COLUMNS.values()])
    return table(list(COLUMNS), rows)


def modes(cases):
    rows = [
        [
            name,
            mode,
            cell(m.get("median_ms"), 4),
            cell(m.get("p90_ms"), 4),
            gigabytes(m.get("peak_bytes")),
            m.get("error", "")[:120],
        ]
        for name, case in cases.items()
        for mode, m in case["torch"].items()
    ]
    return table(["case", "mode of PyTorch", "ms", "p90", "GB", "error"], rows)


def slowest(name, case):
    heads = ["step", "op", "name", "ms", "GB/s", "TFLOP/s"]
    rows = [
        [
            s["step"] if s["steps"] < 2 else f"{s['step']} to {s['step'] + s['steps'] - 1}",
            s["op"],
            s["name"],
            cell(s["ms"]),
            cell(s["gbs"], 4),
            cell(s["tflops"]),
        ]
        for s in case.get("slowest") or []
    ]
    kernels = [
        [k["kernel"][:80], *(k.get(m, "-") for m in ("duration", "dram", "memory", "compute", "registers"))]
        for k in case.get("kernels") or []
    ]
    return "".join(
        f"\n### {name}: {title}\n\n{text}"
        for title, text in (
            ("the slowest steps", table(heads, rows)),
            ("their kernels (ncu)", table(["kernel", "duration", "DRAM", "memory", "compute", "registers"], kernels)),
        )
        if text
    )


def verdicts(name, facts):
    lines = [
        f"\n## {name}: {facts.get('summary', '')}, {facts.get('seconds', 0):.0f} s, ampc {facts.get('version', '')}, "
        f"{facts.get('device', 'no device')}\n"
    ]
    for key in ("no_device", "stopped", "python", "cuda_path", "ceilings", "memcheck_rows", "racecheck_rows"):
        lines += [f"- {key}: {facts[key]}"] if facts.get(key) else []
    for check, said in facts["checks"].items():
        if said["verdict"] == "fail":
            more = ", ".join(f"{k}: {said[k]}" for k in ("row", "memcheck") if k in said)
            lines.append(f"- FAIL {check}: {said.get('says', '')}" + (f" ({more})" if more else ""))
    skipped = {}
    for check, said in facts["checks"].items():
        if said["verdict"] == "skip":
            skipped.setdefault(said.get("reason", "by the program"), []).append(check)
    lines += [f"- skipped ({reason}): {', '.join(checks)}" for reason, checks in skipped.items()]
    return "\n".join(lines) + "\n"


def render(results):
    cases = benchmark(results)
    text = "# gpu-check\n" + "".join(verdicts(name, facts) for name, facts in results["parts"].items())
    if cases:
        text += f"\n## Training steps\n\n{times(cases)}\n{modes(cases)}" + "".join(
            slowest(n, c) for n, c in cases.items()
        )
    return text
