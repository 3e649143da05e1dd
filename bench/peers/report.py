"""From pairs of measurements to the table and the JSON file."""

import json
import statistics


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


class Results:
    """Collects pairs (peer, rondo), measured one right after the other."""

    def __init__(self, about):
        self.about = about
        self.rows = {}
        self.versions = {}
        self.not_available = {}
        self.alone = []

    def add_pair(self, case, peer, peer_answer, rondo_answer):
        self.rows.setdefault((case, peer), []).append({"peer": peer_answer, "rondo": rondo_answer})

    def add_alone(self, case, answer):
        """A measurement of rondo that has no peer."""
        self.alone.append({"case": case} | answer)

    def summaries(self):
        for (case, peer), pairs in self.rows.items():
            yield {
                "case": case,
                "peer": peer,
                "peer_tokens_per_s": spread([p["peer"]["tokens_per_s"] for p in pairs]),
                "rondo_tokens_per_s": spread([p["rondo"]["tokens_per_s"] for p in pairs]),
                "ratio": spread([p["rondo"]["tokens_per_s"] / p["peer"]["tokens_per_s"] for p in pairs]),
                "pairs": pairs,
            }

    def write(self, file):
        everything = self.about | {
            "versions": self.versions,
            "not_available": self.not_available,
            "results": list(self.summaries()),
            "rondo_alone": self.alone,
        }
        file.write_text(json.dumps(everything, indent=1) + "\n")

    def table(self):
        """Markdown: tokens/s of peer and rondo, and rondo's over the peer's, each as min / median / max."""
        lines = [self._heading(), ""]
        summaries = list(self.summaries())
        if summaries:
            lines += [
                "| case | peer | peer, tokens/s | rondo, tokens/s | ratio |",
                "|---|---|---:|---:|---:|",
                *(
                    f"| {s['case']} | {s['peer']} | {_numbers(s['peer_tokens_per_s'])} "
                    f"| {_numbers(s['rondo_tokens_per_s'])} | {_numbers(s['ratio'], 2)} |"
                    for s in summaries
                ),
                "",
            ]
        lines += self._phases(summaries) + self._alone()
        lines += [f"- {peer}: {version}" for peer, version in self.versions.items()]
        lines += [f"- {peer}: not available: {reason}" for peer, reason in self.not_available.items()]
        return "\n".join(lines) + "\n"

    def _heading(self):
        limits = "; ".join(
            f"{limit['threads']} thread{'s' if limit['threads'] > 1 else ''}: reads "
            f"{limit['read_gb_per_second']:.1f} GB/s, fp32 peak {limit['peak_gflops']:.0f} GFLOP/s"
            for limit in self.about["limits"]
        )
        rondo = f"rondo {self.about['commit']} ({self.about['limits'][0]['target']})"
        return f"{self.about['date']}, {self.about['processor']}. {limits}. {rondo}. Each figure: min / median / max."

    def _phases(self, summaries):
        """Medians of the phases, where both sides say them."""
        lines = []
        for s in summaries:
            for side in ("peer", "rondo"):
                answers = [pair[side] for pair in s["pairs"]]
                phases = [key for key in answers[0] if key.endswith("_s") and key != "tokens_per_s"]
                if not phases:
                    continue
                parts = ", ".join(
                    f"{key.removesuffix('_s')} {statistics.median(a[key] for a in answers):.1f} s" for key in phases
                )
                peak = max(a["peak_memory_gb"] for a in answers)
                name = s["peer"] if side == "peer" else "rondo"
                seconds = statistics.median(a["seconds"] for a in answers)
                lines.append(f"- {s['case']}, {name}: {seconds:.1f} s: {parts}; peak memory {peak:.2f} GB")
        return [*lines, ""] if lines else []

    def _alone(self):
        if not self.alone:
            return []
        lines = ["| case | rondo, tokens/s | read bandwidth | fp32 peak | peak memory |", "|---|---:|---:|---:|---:|"]
        lines += [
            f"| {a['case']} | {a['tokens_per_s']:.1f} | {a['bandwidth_share']:.0%} | {a['flops_share']:.0%} "
            f"| {a['peak_memory_gb']:.2f} GB |"
            for a in self.alone
        ]
        return [*lines, ""]


def _numbers(s, digits=1):
    return " / ".join(f"{s[key]:.{digits}f}" for key in ("min", "median", "max"))
